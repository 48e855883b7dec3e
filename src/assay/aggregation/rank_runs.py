"""Rank the methods of some runs over all their settings, by a mixed model or by a voting rule."""

from __future__ import annotations

from collections import Counter
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
from assay.aggregation.row_samples import sampled_rows
from assay.aggregation.run_settings import RunSettings, read_settings
from assay.aggregation.same_settings import RankableRun
from assay.aggregation.setting_bootstrap import StrengthDraws, bootstrap_images, bootstrap_tasks
from assay.aggregation.task_cells import TaskCells, cells_from_rows
from assay.errors import InputError, unknown
from assay.ranking.architectures import Grouping
from assay.ranking.partial_order import Relation
from assay.ranking.resampling import Floats

MIXED = "mixed"
NAMES = (MIXED, *RULES)
SEPARATED = "the data do not separate them"

Weights = Literal["equal", "dataset", "two_stage"]
WEIGHTINGS = ("equal", "dataset", "two_stage")


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
    _check(rule, weights)
    read = read_settings(runs, families, sources)
    return rank_settings(
        read, rule, weights=weights, stated=bool(sources), margin=margin, resamples=resamples,
        seed=seed,
    )  # fmt: skip


def rank_settings(
    read: RunSettings,
    rule: str = MIXED,
    *,
    weights: Weights | str = "equal",
    stated: bool = False,
    margin: float = 0.1,
    resamples: int = 2000,
    seed: int = 0,
) -> Ranking:
    """Merge rows that have been read; see `rank_runs`. `stated`: whether sources were given."""
    _check(rule, weights)
    read.require(methods=2, rows=1, found_rows=len(read.rows))
    judged = _by_model(read, margin, seed) if rule == MIXED else None
    judged = judged or _by_votes(read, rule, weights, resamples, seed)
    return _ranking(read, rule, judged, _others(read, rule), stated)


def _check(rule: str, weights: str) -> None:
    if rule not in NAMES:
        raise unknown("rule", rule, NAMES)
    if weights not in WEIGHTINGS:
        raise unknown("weighting", weights, WEIGHTINGS)


@dataclass(frozen=True, eq=False)
class _Judged:
    """What a rule says: arrays are in the order of the methods."""

    strength: Floats
    low: Floats
    high: Floats
    p_best: Mapping[str, float]
    apart: Relation  # [n, n], the row's method is better
    tied: str  # what it means to share a place
    basis: str
    tasks: tuple[str, ...]
    has_level: bool
    has_places: bool
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
        low = np.fmin(fit.left_out_range[0], fit.estimate)
        high = np.fmax(fit.left_out_range[1], fit.estimate)
    has_level = fit.tasks >= FEWEST_TASKS
    apart, p_best = _apart_by_level(fit, pairs), task.p_best
    basis, tied, notes = "a new task on the same sources", SEPARATED, list(fit.notes)
    if not has_level:
        apart, tied = _apart_by_sources(fit), "their order changes without some task or source"
        basis = f"a new task, from only {fit.tasks} tasks"
    if fit.tasks == 1:
        draws, lost = _image_draws(read, MIXED, seed, _row_weights(read, "equal"))
        notes += lost
        if draws is not None:
            apart, tied = _over(fit.methods, read.methods, draws.above()), SEPARATED
            basis, shares = "other images of the same dataset", draws.p_best()
            p_best = {m: float(shares[read.methods.index(m)]) for m in fit.methods}
    elif task.note:
        notes.append(task.note)
    order = [fit.methods.index(m) if m in fit.methods else -1 for m in read.methods]

    def arranged(values: Floats) -> Floats:
        return np.array([values[i] if i >= 0 else np.nan for i in order])

    return _Judged(
        arranged(fit.estimate), arranged(low), arranged(high), p_best,
        _over(read.methods, fit.methods, apart), tied, basis, tuple(dict.fromkeys(cells.tasks)),
        has_level, has_level or fit.tasks == 1, pairs if has_level else (), tuple(notes),
        fit.left_out if len(fit.left_out) == _left_out_count(cells) else None,
    )  # fmt: skip


def _left_out_count(cells: TaskCells) -> int:
    """How many sources, or tasks of a single source, can be left out."""
    tasks = set(cells.tasks)
    sources = {cells.sources[task] for task in tasks}
    return len(tasks) if len(sources) == 1 else len(sources)


def _over(names: Sequence[str], known: Sequence[str], relation: Relation) -> Relation:
    """A relation over other names; False where one of the two is not known."""
    wide = np.zeros((len(names), len(names)), np.bool_)
    places = [i for i, name in enumerate(names) if name in known]
    inside = [list(known).index(names[i]) for i in places]
    wide[np.ix_(places, places)] = relation[np.ix_(inside, inside)]
    return wide


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
    two_stage = weights == "two_stage"
    notes = [] if two_stage else [merge(rule, table, counts).note]
    strength = _applied(rule, tasks if two_stage else None)(table, counts)
    several = len(read.tasks)
    over_tasks = several >= FEWEST_TASKS and not two_stage
    draws: StrengthDraws | None
    if over_tasks:
        homes = _homes(read)
        draws = bootstrap_tasks(
            table, counts, _applied(rule, None), tasks=tasks,
            sources=[homes[task] for task in tasks], resamples=resamples, seed=seed,
        )  # fmt: skip
        freedom = float(max(1, several - len(set(homes.values()))))
        basis = "resampled tasks"
    else:
        draws, lost = _image_draws(read, rule, seed, counts, two_stage, resamples)
        notes += lost
        freedom, basis = np.inf, "resampled images of the same datasets"
        if several > 1:
            why = "two stages" if two_stage else f"{several} tasks, fewer than {FEWEST_TASKS},"
            notes.append(f"{why} carry no confidence level for other datasets.".capitalize())
    notes = [note for note in notes if note]
    nothing = np.full(len(strength), np.nan)
    if draws is None:
        apart = np.zeros((len(strength),) * 2, np.bool_)
        return _Judged(
            strength, nothing, nothing, {}, apart, SEPARATED, "nothing", read.tasks, False, False,
            notes=tuple(notes),
        )  # fmt: skip
    low, high = draws.interval(freedom=freedom)
    shares = draws.p_best()
    return _Judged(
        strength, low, high, {m: float(p) for m, p in zip(read.methods, shares, strict=True)},
        draws.above(freedom=freedom), SEPARATED, basis, read.tasks, over_tasks, True,
        notes=tuple(notes),
    )  # fmt: skip


def _homes(read: RunSettings) -> dict[str, str]:
    """The source of each task; tasks that are the only one of theirs are resampled together."""
    counts = Counter(read.sources[task] for task in read.tasks)
    return {
        task: read.sources[task] if counts[read.sources[task]] > 1 else "" for task in read.tasks
    }


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
    read: RunSettings,
    rule: str,
    seed: int,
    counts: Floats,
    two_stage: bool = False,
    resamples: int = 2000,
) -> tuple[StrengthDraws | None, list[str]]:
    """The strengths in resamples of the images, and notes; None where nothing can be resampled.

    All rows must have scores of single samples: otherwise the resamples would answer less than the
    order does.
    """
    found = sampled_rows(read, standard_only=rule == MIXED)
    counted = [row for row in read.rows if row.standard or rule != MIXED]
    if len(found.rows) < len(counted) or not found.samples:
        return None, list(found.notes)
    samples = [
        replace(one, weight=float(counts[place]))
        for place, one in zip(found.rows, found.samples, strict=True)
    ]
    tasks = [one.task for one in samples] if two_stage else None
    return bootstrap_images(samples, _applied(rule, tasks), resamples=resamples, seed=seed), []


def _apart_by_level(fit: MixedFit, pairs: Sequence[PairVerdict]) -> Relation:
    apart = np.zeros((len(fit.methods),) * 2, np.bool_)
    for pair in pairs:
        if pair.verdict == BETTER:
            apart[fit.methods.index(pair.first), fit.methods.index(pair.second)] = True
    return apart


def _apart_by_sources(fit: MixedFit) -> Relation:
    """Which methods stay above which without each source; there is no level."""
    every = [fit.estimate, *fit.left_out.values()]
    above = [one[:, None] > one for one in every]
    return np.asarray(np.logical_and.reduce(above), np.bool_)


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
    read: RunSettings,
    rule: str,
    judged: _Judged,
    others: Mapping[str, Sequence[str]],
    stated: bool,
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
        best, worst = 1 + int(judged.apart[:, i].sum()), len(known) - int(judged.apart[i].sum())
        row = RankedMethod(
            method, place, float(strength[i]), _number(judged.low[i]), _number(judged.high[i]),
            best if judged.has_places else None, worst if judged.has_places else None,
            None if share is None else share / (1 + len(group)),
            sum(method in one.scores for one in read.rows),
        )  # fmt: skip
        rows.append(row)
        rows += [replace(row, method=name, same_as=method) for name in group]
    sources = {task: read.sources[task] for task in judged.tasks}
    ranking = Ranking(
        rule, tuple(rows), "", basis=judged.basis, tied=judged.tied, pairs=judged.pairs,
        other_rules=others, tasks=judged.tasks, sources=sources, stated=stated,
        settings=len({row.setting for row in read.rows}), notes=(*judged.notes, *read.notes),
    )  # fmt: skip
    said = verdict(ranking, judged.has_level, judged.ranges, read.methods)
    return replace(ranking, verdict=said, recommendation=tuple(recommendation(ranking, read)))


def _separated(judged: _Judged, first: int, other: int) -> bool:
    return bool(judged.apart[first, other])


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
