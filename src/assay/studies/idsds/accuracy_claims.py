"""Claims 24 and 25: accuracy, and which method an attributable network prefers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy

from assay.errors import InputError
from assay.studies.claim import NOT_TESTABLE, Claim, ClaimRow, open_row
from assay.studies.effect import correlation
from assay.studies.idsds.claims import MEANS_OF_SEEDS
from assay.studies.idsds.contrasts import (
    TOO_FEW,
    Unit,
    common_slope,
    differences,
    from_table,
    judged_part,
    judged_row,
    over_units,
    seeds_note,
    slope,
)
from assay.studies.idsds.design_claims import (
    DEPTHS,
    WIDTHS,
    Series,
    architecture_means,
    attainable,
    nine,
)
from assay.studies.idsds.score_table import ScoreTable
from assay.studies.idsds.stability_claims import fact

SPAN = 0.1  # of accuracy, the least over which a slope between architectures is a claim
LEAST_GAIN = 0.001  # of accuracy, the least to which a cost is related


def accuracy(table: ScoreTable, arm: str) -> dict[Unit, float]:
    """The test accuracy of the networks of an arm."""
    return fact(table, arm, "accuracy")


@from_table
def accuracy_against_attributability(claim: Claim, table: ScoreTable) -> list[ClaimRow]:
    """24: slopes of the best IDSDS over accuracy, between and within architectures."""
    within, costs = _within(table), _cost_of_depth_and_width(table)
    cost = over_units("cost of depth - cost of width", costs)
    how = "Accuracy manipulated by the share of the training set and by epochs."
    rows = [
        _between(claim, table),
        judged_part(
            claim, "within", lambda: [over_units("slope within an architecture", within)],
            f"{how} {seeds_note(within)}", "seeds of these architectures",
        ),
        judged_part(
            claim, "depth and width", lambda: [replace(cost, direction="above")],
            seeds_note(costs), "seeds",
        ),
    ]  # fmt: skip
    if not any(row.n for row in rows):
        raise InputError(" ".join(row.note for row in rows))
    return rows


def _between(claim: Claim, table: ScoreTable) -> ClaimRow:
    """The slope between architectures; where all are about as accurate, it is not testable."""
    best_scores = attainable(nine(table))
    reached = architecture_means(best_scores)
    right = architecture_means(accuracy(table, "tuned"))
    names = [name for name in reached if name in right]
    x, y = ([of[name] for name in names] for of in (right, reached))
    if len(names) < 3:
        few = f"Expected at least 3 architectures with several seeds, got {len(names)}."
        return open_row(claim, "between", f"{TOO_FEW} {few}")
    span, rank = max(x) - min(x), float(scipy.stats.spearmanr(x, y).statistic)
    listed = ", ".join(f"{name} {right[name]:.3f}" for name in names)
    note = (
        f"Accuracy spans {span:.3f}, rank correlation {rank:.3f}. Accuracy: {listed}. "
        f"{seeds_note(best_scores, 'Best score: ')}"
    )
    slope_of_all = common_slope("slope between architectures", [(x, y)])
    row = judged_row(claim, [slope_of_all], "between", note, MEANS_OF_SEEDS)
    if span >= SPAN:
        return row
    why = f"Accuracy spans less than the {SPAN} between architectures over which this is a claim."
    return replace(
        row, verdict=NOT_TESTABLE, p_holds=None, p_fails=None, needed=None, note=f"{why} {row.note}"
    )


def _within(table: ScoreTable) -> dict[Unit, float]:
    """The slope of the best score over accuracy among the arms of one network and seed.

    Tuned arms are compared with each other; without them base arms, whose score is SDS.
    """
    slopes: dict[Unit, float] = {}
    arms = sorted({str(f["arm"]) for f in table.networks.values()})
    for kind in ("base", "tuned"):  # tuned arms win where both exist
        points: dict[Unit, list[tuple[float, float]]] = {}
        for arm in (a for a in arms if a.split("-")[0] == kind and "-g" not in a):
            reached, right = attainable(nine(table, arm)), accuracy(table, arm)
            for unit in reached:
                if unit in right:
                    points.setdefault(unit, []).append((right[unit], reached[unit]))
        for unit, of in points.items():
            x, y = ([p[i] for p in of] for i in (0, 1))
            if len(of) > 1 and max(x) - min(x) > 0.01:
                slopes[unit] = slope(x, y)
    return slopes


def _cost_of_depth_and_width(table: ScoreTable) -> dict[Unit, float]:
    """The cost of a point of accuracy by depth minus that by width, of each seed."""
    depth, width = (_cost_per_point(table, one) for one in (DEPTHS[0], WIDTHS[0]))
    return {("depth - width", s): depth[s] - width[s] for s in depth if s in width}


def _cost_per_point(table: ScoreTable, series: Series) -> dict[int, float]:
    """IDSDS lost per point of accuracy gained, from the first to the last of a series, by seed."""
    reached, right = attainable(nine(table)), accuracy(table, "tuned")
    names = list(series.values())
    costs: dict[int, float] = {}
    for seed in sorted({unit[1] for unit in reached}):
        first, last = (names[0], seed), (names[-1], seed)
        if all(unit in reached and unit in right for unit in (first, last)):
            gained = right[last] - right[first]
            if gained > LEAST_GAIN:
                costs[seed] = (reached[first] - reached[last]) / (100 * gained)
    return costs


@from_table
def preferences_follow_attributability(claim: Claim, table: ScoreTable) -> list[ClaimRow]:
    """25: the best score of an architecture against Grad-CAM minus IG-U."""
    rows = nine(table)
    gaps = differences(rows, "Grad-CAM", "IG-U")
    reached, gap = architecture_means(attainable(rows)), architecture_means(gaps)
    names = [name for name in reached if name in gap]
    x, y = (np.array([of[name] for name in names]) for of in (reached, gap))
    effect = correlation("correlation over architectures", x, y)
    listed = ", ".join(f"{n} {reached[n]:.3f}: {gap[n]:+.3f}" for n in names)
    note = f"Best score: Grad-CAM - IG-U. {listed}. {seeds_note(gaps, 'Grad-CAM - IG-U: ')}"
    return [judged_row(claim, [effect], note=note)]
