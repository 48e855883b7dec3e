"""Rank the methods of some runs over all their settings, by a mixed model or by a voting rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from assay.aggregation.merged_ranking import RankedMethod, Ranking
from assay.aggregation.mixed_fit import FEWEST_TASKS, MixedFit
from assay.aggregation.mixed_model import fit_mixed_model
from assay.aggregation.new_task import predict_new_task
from assay.aggregation.pair_verdicts import BETTER, PairVerdict, judge_pairs
from assay.aggregation.rank_rules import RULES, merge, order_of
from assay.aggregation.rank_sentences import recommendation, verdict
from assay.aggregation.row_samples import all_row_samples
from assay.aggregation.run_settings import RunSettings, read_settings
from assay.aggregation.same_settings import RankableRun
from assay.aggregation.setting_bootstrap import StrengthDraws, bootstrap_images, bootstrap_tasks
from assay.aggregation.task_cells import TaskCells, cells_from_rows
from assay.errors import InputError, unknown
from assay.ranking.architectures import Grouping
from assay.ranking.resampling import Floats

MIXED = "mixed"
NAMES = (MIXED, *RULES)
FAMILY_CHANCE = 0.05  # that any pair is called separated although it is equal

Weights = Literal["equal", "dataset", "two_stage"]


def rank_runs(
    runs: Sequence[RankableRun],
    rule: str = MIXED,
    *,
    weights: Weights | str = "equal",
    families: Grouping | None = None,
    sources: Mapping[str, str] | None = None,
    margin: float = 0.1,
    resamples: int = 2000,
    seed: int = 0,
) -> Ranking:
    """Merge the rankings of all settings of some runs into one order.

    Args:
        runs: The runs.
        rule: `mixed` is the Gaussian mixed model of standardised differences; the others are
            voting rules, which use only the order within each row.
        weights: How much a row counts in a voting rule: all the same, each dataset the same, or
            the rule is applied within each dataset first and then over datasets.
        families: The architecture of each model, or a regular expression for the part of a model's
            name that numbers replicates.
        sources: Where a dataset comes from, by its label; by default from itself.
        margin: Two methods are equivalent if they surely differ by less, in units of the spread of
            `random`.
        resamples: Number of bootstrap resamples.
        seed: Their seed.

    Raises:
        InputError: The runs cannot be combined or rank fewer than two methods, or an argument is
            wrong.
    """
    if rule not in NAMES:
        raise unknown("rule", rule, NAMES)
    if weights not in ("equal", "dataset", "two_stage"):
        raise unknown("weighting", weights, ("equal", "dataset", "two_stage"))
    read = read_settings(runs, families, sources)
    if len(read.methods) < 2:
        found = ", ".join(read.methods) or "none"
        raise InputError(
            f"Expected at least two different methods that are ranked together, got {found}."
        )
    judged = _by_model(read, margin, seed) if rule == MIXED else None
    judged = judged or _by_votes(read, rule, weights, resamples, seed)
    return _ranking(read, rule, judged, _others(read, rule))


@dataclass(frozen=True, eq=False)
class _Judged:
    """What a rule says: arrays are in the order of the methods."""

    strength: Floats
    low: Floats
    high: Floats
    best_place: Floats
    worst_place: Floats
    p_best: Mapping[str, float]
    apart: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]  # [n, n], the row's method is better
    basis: str
    has_level: bool
    pairs: tuple[PairVerdict, ...] = ()
    notes: tuple[str, ...] = ()
    ranges: Mapping[str, Floats] | None = None  # the estimates without each source


def _by_model(read: RunSettings, margin: float, seed: int) -> _Judged:
    cells = _cells(read)
    fit = fit_mixed_model(cells)
    task = predict_new_task(fit, seed=seed)
    pairs = tuple(judge_pairs(fit, margin=margin))
    low, high = fit.low, fit.high
    if fit.left_out_range is not None:
        low, high = fit.left_out_range
    has_level = fit.tasks >= FEWEST_TASKS
    apart, basis, p_best = (
        _apart_by_level(fit, pairs),
        "a new task on the same sources",
        task.p_best,
    )
    if not has_level:
        apart = _apart_by_sources(fit)
        basis = f"a new task, from only {fit.tasks} tasks"
    if fit.tasks == 1:
        draws = _image_draws(read, MIXED, seed)
        if draws is not None:
            apart, basis = _apart_by_draws(draws), "other images of the same dataset"
            shares = draws.p_best()
            p_best = {m: float(shares[read.methods.index(m)]) for m in fit.methods}
    order = [fit.methods.index(m) if m in fit.methods else -1 for m in read.methods]

    def arranged(values: Floats) -> Floats:
        return np.array([values[i] if i >= 0 else np.nan for i in order])

    unknown_places = np.full(len(order), np.nan)
    wide = np.zeros((len(order), len(order)), np.bool_)
    places = [i for i, place in enumerate(order) if place >= 0]
    wide[np.ix_(places, places)] = apart[
        np.ix_([order[i] for i in places], [order[i] for i in places])
    ]
    known = has_level or fit.tasks == 1
    return _Judged(
        arranged(fit.estimate), arranged(low), arranged(high),
        1.0 + wide.sum(axis=0) if known else unknown_places,
        len(places) - wide.sum(axis=1) if known else unknown_places,
        p_best, wide, basis, has_level, pairs, (*fit.notes, *([task.note] if task.note else [])),
        fit.left_out or None,
    )  # fmt: skip


def _cells(read: RunSettings) -> TaskCells:
    """The standardised differences; several models of one family are averaged."""
    values: dict[tuple[str, str, str, str], list[float]] = {}
    for row in read.rows:
        if row.standard:
            for method, score in row.scores.items():
                if method in read.methods:
                    key = (method, row.setting.dataset, row.question, row.family)
                    values.setdefault(key, []).append(score)
    if not values:
        raise InputError(
            "The rule `mixed` averages differences from the control `random`, and no run has it. "
            "Run the suite again without `controls: off`, or choose a voting rule such as `borda`."
        )
    rows = [(*key, float(np.mean(several))) for key, several in values.items()]
    return cells_from_rows(rows, read.sources)


def _by_votes(read: RunSettings, rule: str, weights: str, resamples: int, seed: int) -> _Judged:
    table, tasks = read.table, [row.setting.dataset for row in read.rows]
    counts = _row_weights(read, weights)
    apply = _applied(rule, tasks if weights == "two_stage" else None)
    merged = merge(rule, table, counts) if weights != "two_stage" else None
    strength = apply(table, counts)
    notes = [merged.note] if merged is not None and merged.note else []
    several = len(read.tasks)
    draws: StrengthDraws | None
    if several >= FEWEST_TASKS and weights != "two_stage":
        homes = [read.sources[task] for task in tasks]
        draws = bootstrap_tasks(
            table, counts, _applied(rule, None), tasks=tasks, sources=homes, resamples=resamples,
            seed=seed,
        )  # fmt: skip
        freedom = float(max(1, several - len(set(read.sources.values()))))
        basis = "resampled tasks"
    else:
        draws = _image_draws(read, rule, seed, resamples)
        freedom, basis = np.inf, "resampled images of the same datasets"
        if several > 1:
            notes.append(
                f"{several} tasks: fewer than {FEWEST_TASKS} carry no confidence level for others."
            )
    nothing = np.full(len(strength), np.nan)
    if draws is None:
        apart = np.zeros((len(strength),) * 2, np.bool_)
        return _Judged(
            strength, nothing, nothing, nothing, nothing, {}, apart, "nothing", False,
            notes=tuple(notes),
        )  # fmt: skip
    low, high = draws.interval(freedom=freedom)
    first, last = draws.rank_intervals(freedom=freedom)
    shares = draws.p_best()
    return _Judged(
        strength, low, high, first.astype(float), last.astype(float),
        {m: float(p) for m, p in zip(read.methods, shares, strict=True)},
        _apart_by_draws(draws), basis, several >= FEWEST_TASKS, notes=tuple(notes),
    )  # fmt: skip


def _applied(rule: str, tasks: Sequence[str] | None) -> Callable[[Floats, Floats], Floats]:
    """The rule as a function; over datasets in two stages where their labels are given."""
    if rule == MIXED:
        return _mean_of_rows

    def once(scores: Floats, weights: Floats) -> Floats:
        return merge(rule, scores, weights).strength

    def twice(scores: Floats, weights: Floats) -> Floats:
        labels = np.asarray(tasks)
        stages = [
            once(scores[labels == task], weights[labels == task])
            for task in dict.fromkeys(tasks or ())
        ]
        return once(np.stack(stages), np.ones(len(stages)))

    return once if tasks is None else twice


def _mean_of_rows(scores: Floats, weights: Floats) -> Floats:
    """The weighted mean over rows, of scores less the mean of the methods that a row has."""
    centred = scores - np.nanmean(scores, axis=1, keepdims=True)
    there = ~np.isnan(centred)
    total = np.where(there, centred, 0.0).T @ weights
    return np.asarray(total / np.maximum(there.T @ weights, 1e-12), np.float64)


def _row_weights(read: RunSettings, weights: str) -> Floats:
    counts = np.array([row.weight for row in read.rows])
    if weights != "dataset":
        return counts
    totals: dict[str, float] = {}
    for row, count in zip(read.rows, counts.tolist(), strict=True):
        totals[row.setting.dataset] = totals.get(row.setting.dataset, 0.0) + count
    share = np.array([totals[row.setting.dataset] for row in read.rows])
    return np.asarray(counts / share, np.float64)


def _image_draws(
    read: RunSettings, rule: str, seed: int, resamples: int = 2000
) -> StrengthDraws | None:
    """The strengths in resamples of the images; None where no row has scores of single samples."""
    _, samples = all_row_samples(read)
    if not samples:
        return None
    whole = np.concatenate([one.values for one in samples])
    if np.isnan(whole).all(axis=0).any():  # a method has no scores of single samples
        return None
    return bootstrap_images(samples, _applied(rule, None), resamples=resamples, seed=seed)


def _apart_by_level(
    fit: MixedFit, pairs: Sequence[PairVerdict]
) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    apart = np.zeros((len(fit.methods),) * 2, np.bool_)
    for pair in pairs:
        if pair.verdict == BETTER:
            apart[fit.methods.index(pair.first), fit.methods.index(pair.second)] = True
    return apart


def _apart_by_sources(fit: MixedFit) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Which methods stay above which without each source; there is no level."""
    every = [fit.estimate, *fit.left_out.values()]
    above = [one[:, None] > one for one in every]
    return np.asarray(np.logical_and.reduce(above), np.bool_)


def _apart_by_draws(draws: StrengthDraws) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Which methods are stronger in nearly all resamples, corrected over all pairs."""
    n = len(draws.observed)
    return np.asarray(draws.wins() >= 1 - FAMILY_CHANCE / max(1, n * (n - 1)), np.bool_)


def _others(read: RunSettings, rule: str) -> dict[str, tuple[str, ...]]:
    """The methods that each other rule puts first."""
    counts = _row_weights(read, "equal")
    first = {}
    for name in RULES:
        if name != rule:
            groups = order_of(merge(name, read.table, counts).strength)
            first[name] = tuple(read.methods[i] for i in groups[0]) if groups else ()
    return first


def _ranking(
    read: RunSettings, rule: str, judged: _Judged, others: Mapping[str, Sequence[str]]
) -> Ranking:
    strength = judged.strength
    known = [i for i in range(len(strength)) if not np.isnan(strength[i])]
    known.sort(key=lambda i: (-round(float(strength[i]), 9), read.methods[i]))
    copies: dict[str, list[str]] = {}
    for copy, original in read.same_as.items():
        copies.setdefault(original, []).append(copy)
    rows: list[RankedMethod] = []
    leader, place = -1, 0
    for position, i in enumerate(known, 1):
        if leader < 0 or _separated(judged, leader, i):
            leader, place = i, position
        method = read.methods[i]
        share = judged.p_best.get(method)
        group = copies.get(method, [])
        row = RankedMethod(
            method, place, float(strength[i]), _number(judged.low[i]), _number(judged.high[i]),
            _whole(judged.best_place[i]), _whole(judged.worst_place[i]),
            None if share is None else share / (1 + len(group)),
            sum(method in one.scores for one in read.rows),
        )  # fmt: skip
        rows.append(row)
        rows += [_copy(row, name) for name in group]
    ranking = Ranking(
        rule, tuple(rows), "", basis=judged.basis, pairs=judged.pairs, other_rules=others,
        tasks=read.tasks, sources=read.sources,
        settings=len({row.setting for row in read.rows}), notes=(*judged.notes, *read.notes),
    )  # fmt: skip
    return _with_words(ranking, read, judged)


def _with_words(ranking: Ranking, read: RunSettings, judged: _Judged) -> Ranking:
    said = verdict(ranking, judged.has_level, judged.ranges, read.methods)
    return replace(ranking, verdict=said, recommendation=tuple(recommendation(ranking, read)))


def _separated(judged: _Judged, first: int, other: int) -> bool:
    return bool(judged.apart[first, other])


def _copy(row: RankedMethod, name: str) -> RankedMethod:
    return RankedMethod(
        name, row.place, row.strength, row.low, row.high, row.best_place, row.worst_place,
        row.p_best, row.settings, same_as=row.method,
    )  # fmt: skip


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _whole(value: float) -> int | None:
    return None if np.isnan(value) else int(value)
