"""Contrasts of scores over networks: differences, leads, trends, agreement, with their errors.

The unit is one network, an architecture and a seed. Where the best of several methods is compared,
it is chosen on one half of the images and scored on the other half, and both halves take turns:
the best of many equal methods would otherwise look better than it is.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import scipy

from assay.errors import InputError
from assay.ranking.choosing import choose_on_other_half
from assay.ranking.resampling import Floats
from assay.studies.claim import Claim, ClaimRow, SettingKind, make_row, open_row
from assay.studies.effect import Effect, PositiveShare, Scale, absent, replicates, share
from assay.studies.idsds.paper_methods import SD, TWINS
from assay.studies.idsds.score_table import (
    NAME,
    PanelScore,
    ScoreTable,
    block_matrix,
    read_scores,
)

if TYPE_CHECKING:
    from assay.studies.setting import Study

Unit = tuple[str, int]  # a network and its seed
UnitScores = dict[Unit, dict[str, PanelScore]]  # by unit and method
POWER = 0.8  # of the smallest detectable difference
RESAMPLES = 2000
EQUAL = 0.005  # scores of blocks that differ by less are equal: rounding moves a few ranks

Test = Callable[[Claim, "Study"], list[ClaimRow]]
FromTable = Callable[[Claim, ScoreTable], list[ClaimRow]]


def from_table(function: FromTable) -> Test:
    """A claim's test that reads the study's table; without the scores it needs the row is open."""

    @functools.wraps(function)
    def test(claim: Claim, study: Study) -> list[ClaimRow]:
        table = read_scores(study.out)
        try:
            rows = function(claim, table)
            return [replace(row, source=str(study.out / NAME)) for row in rows]
        except InputError as error:  # too few units for an interval
            return [open_row(claim, reason=f"{TOO_FEW} {error}")]

    return test


TOO_FEW = "The table has too few scores."


def judged_row(
    claim: Claim, effects: Sequence[Effect], where: str = "", note: str = "", unit: str = "",
    setting: SettingKind = "stand-in",
) -> ClaimRow:  # fmt: skip
    """A row whose note names the unit; its `n` is that of the part with the fewest."""
    sizes = {e.name: e.n for e in effects if not e.absent}
    parts = "; ".join(f"{name}: {n}" for name, n in sizes.items())
    several = f" By part: {parts}." if len(set(sizes.values())) > 1 else ""
    counts = f"n counts: {unit or claim.unit}.{several}"
    row = make_row(claim, effects, setting, where, f"{counts} {note}")
    return replace(row, n=min(sizes.values()), unit=unit or claim.unit)


def judged_part(
    claim: Claim, where: str, effects: Callable[[], Sequence[Effect]], note: str, unit: str
) -> ClaimRow:
    """The row of a part of a claim; without the scores it needs the row is open."""
    try:
        return judged_row(claim, effects(), where, note, unit)
    except InputError as error:
        return open_row(claim, where, f"{TOO_FEW} {error}")


def scores(
    table: ScoreTable, suite: str, arm: str, protocol: str = SD, temperature: float = 1.0,
    networks: Sequence[str] | None = None,
) -> UnitScores:  # fmt: skip
    """The rows of a suite on one arm, by unit and method."""
    found: UnitScores = {}
    for row in table.select(suite, protocol, arm, temperature=temperature):
        if networks is None or row.network in networks:
            found.setdefault((row.network, row.seed), {})[row.method] = row
    return found


def differences(rows: UnitScores, one: str, other: str) -> dict[Unit, float]:
    """The mean score of one method minus that of another, on every network that has both."""
    return {
        unit: of[one].mean - of[other].mean
        for unit, of in rows.items()
        if one in of and other in of
    }


def changes(before: UnitScores, after: UnitScores, method: str) -> dict[Unit, float]:
    """A method's score in one table minus its score in another, by network."""
    return {
        unit: of[method].mean - before[unit][method].mean
        for unit, of in after.items()
        if unit in before and method in of and method in before[unit]
    }


def best(of: Mapping[str, PanelScore], labels: Iterable[str] | None = None) -> float:
    """The score of the best method, chosen on one half of the images, scored on the other.

    The first half is every second block of images. Blocks in which a method has no score are left
    out for all.
    """
    rows = [of[m] for m in (of if labels is None else labels) if m in of]
    if not rows:
        raise InputError("Expected scores of at least one of these methods, got none.")
    table = block_matrix(rows).T  # [blocks, methods]
    known, first = np.isfinite(table).all(axis=1), np.arange(len(table)) % 2 == 0
    chosen = choose_on_other_half(table[known], first[known], higher_is_better=True)
    return float(chosen.values.mean())


def leads(rows: UnitScores, these: Sequence[str], others: Sequence[str]) -> dict[Unit, float]:
    """The best of some methods minus the best of others, on every network that has both kinds.

    A method that is identical to one of the first kind on a network is not among its others.
    """
    rivals = {unit: distinct_others(of, others, these) for unit, of in rows.items()}
    return {
        unit: best(of, these) - best(of, rivals[unit])
        for unit, of in rows.items()
        if any(m in of for m in these) and any(m in of for m in rivals[unit])
    }


def others_than(of: Iterable[str], these: Sequence[str]) -> list[str]:
    """All other methods."""
    return [m for m in of if m not in these]


def distinct_others(
    of: Mapping[str, PanelScore], labels: Iterable[str], these: Sequence[str]
) -> list[str]:
    """Those of some methods that are on this network not identical to one of `these`."""
    copies = copied_methods(of)
    return [m for m in labels if m not in these and not (m in copies and TWINS[m] in these)]


def copied_methods(*columns: Mapping[str, PanelScore]) -> set[str]:
    """The methods whose scores are those of another method in every column that has both."""
    copies = set()
    for method, twin in TWINS.items():
        both = [(of[method], of[twin]) for of in columns if method in of and twin in of]
        if both and all(_equal_scores(*pair) for pair in both):
            copies.add(method)
    return copies


def _equal_scores(one: PanelScore, other: PanelScore) -> bool:
    table = block_matrix([one, other])
    return bool(np.allclose(table[0], table[1], rtol=0, atol=EQUAL, equal_nan=True))


def agreement(one: Mapping[str, PanelScore], other: Mapping[str, PanelScore]) -> float:
    """The rank correlation of two columns of scores over common methods, identical ones once."""
    copies = copied_methods(one, other)
    common = [m for m in one if m in other and m not in copies]
    if len(common) < 3:
        raise InputError(f"Expected at least 3 common methods to rank, got {len(common)}.")
    columns = ([of[m].mean for m in common] for of in (one, other))
    return float(scipy.stats.spearmanr(*columns).statistic)


def over_units(name: str, values: Mapping[Unit, float], scale: Scale = "plain") -> Effect:
    """The mean over networks with its standard error; absent where fewer than two have a value."""
    if len(values) < 2:
        return absent(name, f"expected at least 2 networks, got {len(values)}.")
    return replicates(name, list(values.values()), scale)


def by_architecture(name: str, values: Mapping[Unit, float]) -> list[Effect]:
    """One effect for each architecture, over its seeds; one-seed architectures are left out."""
    groups = {network: of for network, of in grouped(values).items() if len(of) > 1}
    if not groups:
        return [absent(name, "expected an architecture with at least 2 seeds, got none.")]
    return [replicates(f"{network}: {name}", of) for network, of in groups.items()]


def share_of_units(name: str, marks: Mapping[Unit, bool]) -> Effect:
    """The share of networks with a mark."""
    if len(marks) < 2:
        return absent(name, f"expected at least 2 networks, got {len(marks)}.")
    return share(name, sum(marks.values()), len(marks))


def several_seeds(rows: UnitScores) -> UnitScores:
    """Only architectures with several seeds: one network says nothing about its architecture."""
    counts = Counter(network for network, _ in rows)
    return {unit: of for unit, of in rows.items() if counts[unit[0]] > 1}


def grouped(values: Mapping[Unit, float]) -> dict[str, list[float]]:
    """The values of each architecture's seeds."""
    groups: dict[str, list[float]] = {}
    for (network, _), value in values.items():
        groups.setdefault(network, []).append(value)
    return groups


def seeds_note(values: Mapping[Unit, float], what: str = "") -> str:
    """Each architecture's mean and seed spread, and the smallest detectable difference."""
    groups = grouped(values)
    listed = ", ".join(
        f"{network} {np.mean(of):.3f}" + (f" (sd {np.std(of, ddof=1):.3f})" if len(of) > 1 else "")
        for network, of in groups.items()
    )
    spread = [np.var(of, ddof=1) for of in groups.values() if len(of) > 1]
    if not spread:
        return f"{what}{listed}"
    sd = math.sqrt(float(np.mean(spread)))
    return (
        f"{what}{listed}; standard deviation between seeds {sd:.3f}, smallest detectable "
        f"difference {detectable(sd, len(values)):.3f}"
    )


def detectable(sd: float, n: int) -> float:
    """The smallest mean of `n` units that a two-sided test at 5 % finds with power 80 %."""
    quantiles = scipy.stats.t.isf(0.025, n - 1) + scipy.stats.t.isf(1 - POWER, n - 1)
    return float(quantiles * sd / math.sqrt(n))


def share_of_methods(name: str, table: Floats, *, seed: int = 0) -> Effect:
    """The share of methods with a positive contrast `[methods, units, blocks of images]`.

    The error of each contrast is that of a bootstrap over units and blocks of images together.
    """
    if table.ndim != 3 or table.shape[1] < 2:
        return absent(name, "expected contrasts of at least 2 networks.")
    _, units, blocks = table.shape
    rng = np.random.default_rng(seed)
    rows, columns = (
        rng.multinomial(size, np.full(size, 1 / size), size=RESAMPLES) for size in (units, blocks)
    )
    known = np.isfinite(table)
    sums, counts = (
        np.einsum("bu,muk,bk->bm", rows, part, columns, optimize=True)
        for part in (np.where(known, table, 0.0), known.astype(float))
    )
    drawn = sums / np.where(counts > 0, counts, np.nan)  # [resamples, methods]
    means = np.nanmean(table, (1, 2))
    errors = np.nanstd(drawn, axis=0, ddof=1) * math.sqrt(units / (units - 1))
    with np.errstate(divide="ignore"):
        ratios = np.where(means == 0, 0.0, means / errors)
    found = float((means > 0).mean())
    effect = PositiveShare(name, found, 0.0, units, ratios=tuple(map(float, ratios)))
    low, high = effect.interval()
    return replace(effect, error=(high - low) / 4)


def contrast_table(
    pairs: Iterable[tuple[Mapping[str, PanelScore], Mapping[str, PanelScore]]],
) -> tuple[list[str], Floats]:
    """Block by block, first minus second of each pair: methods and `[methods, pairs, blocks]`.

    Only methods that every pair has are kept; one is left out where it is identical to another on
    every network.
    """
    pairs = list(pairs)
    if not pairs:
        raise InputError("Expected pairs of networks to compare, got none.")
    common = set.intersection(*(set(one) & set(other) for one, other in pairs))
    copies = copied_methods(*(of for pair in pairs for of in pair))
    methods = [m for m in pairs[0][0] if m in common and m not in copies]
    for m in methods:
        sizes = {of[m].n for pair in pairs for of in pair}
        if len(sizes) > 1:
            raise InputError(
                f"Expected scores of the same images to compare block by block, got {m} on "
                f"{' and '.join(map(str, sorted(sizes)))} images."
            )
    rows = [[np.subtract(one[m].blocks, other[m].blocks) for one, other in pairs] for m in methods]
    return methods, np.array(rows, dtype=np.float64)


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """The least-squares slope of y over x."""
    at, values = np.asarray(x, float), np.asarray(y, float)
    centred = at - at.mean()
    return float((centred * (values - values.mean())).sum() / (centred**2).sum())


def common_slope(name: str, groups: Sequence[tuple[Sequence[float], Sequence[float]]]) -> Effect:
    """The slope that several series of points share, each with an intercept of its own.

    Its `n` is the number of points; its error is that of the regression, with one degree of freedom
    lost for each series and for the slope.
    """
    points = sum(len(a) for a, _ in groups)
    left = points - len(groups) - 1
    if left < 1:
        return absent(name, f"expected more points for a slope with an error, got {points}.")
    x = np.concatenate([np.asarray(a, float) - np.mean(a) for a, _ in groups])
    y = np.concatenate([np.asarray(b, float) - np.mean(b) for _, b in groups])
    value = float((x * y).sum() / (x * x).sum())
    error = math.sqrt(float(((y - value * x) ** 2).sum()) / left / float((x * x).sum()))
    return Effect(name, value, error, len(x), freedom=left)
