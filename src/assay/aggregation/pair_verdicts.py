"""What the mixed model says of each pair of methods: better, equivalent or unresolved."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
import scipy

from assay.aggregation.mixed_fit import FEWEST_TASKS, MixedFit
from assay.aggregation.new_task import win_probabilities
from assay.aggregation.rank_tests import adjusted_by_holm
from assay.errors import InputError
from assay.ranking.resampling import Floats

MARGIN = 0.1  # of the spread of the control `random`
BETTER, EQUIVALENT, UNRESOLVED = "better", "equivalent", "unresolved"


@dataclass(frozen=True)
class PairVerdict:
    """What is known of two methods; the first has the higher estimate.

    Attributes:
        first: The method with the higher estimate.
        second: The other one.
        difference: How much higher.
        low: Lower end of the interval, simultaneous over all pairs; NaN below 10 tasks.
        high: Upper end.
        verdict: `better`: the interval lies above zero. `equivalent`: it is not better, and both
            one-sided tests against the margin reject, simultaneously over all pairs. Else
            `unresolved`.
        p: Two-sided p-value of no difference, adjusted over all pairs by Holm.
        wins: Probability that the first has the higher true mean in a new task.
        tasks_needed: For an unresolved pair, how many tasks would resolve it one way or the other
            at this difference and spread; None where it is resolved or no number would do.
    """

    first: str
    second: str
    difference: float
    low: float
    high: float
    verdict: str
    p: float
    wins: float
    tasks_needed: int | None


def judge_pairs(fit: MixedFit, *, margin: float = MARGIN) -> list[PairVerdict]:
    """Judge all pairs of methods, those with the largest differences first.

    Intervals are Tukey's and Kramer's with the model's degrees of freedom: the chance that any of
    them misses is at most one less the model's level. The tests of equivalence use those of twice
    that chance, as two one-sided tests do.

    Args:
        fit: The fitted model.
        margin: Differences below it do not matter.
    """
    if not margin >= 0:
        raise InputError(f"Expected `margin` to be at least 0, got {margin}.")
    first, second = np.triu_indices(len(fit.methods), 1)
    swapped = fit.estimate[first] < fit.estimate[second]
    first, second = np.where(swapped, second, first), np.where(swapped, first, second)
    gaps = fit.estimate[first] - fit.estimate[second]
    same = fit.identical[first] == fit.identical[second]
    gaps = np.where(same, 0.0, gaps)
    own = np.diag(fit.errors)
    variances = np.maximum(own[first] + own[second] - 2 * fit.errors[first, second], 0.0)
    errors = np.where(same, 0.0, np.sqrt(variances))
    count = len(np.unique(fit.identical))
    known = fit.freedom > 0 or count == 1
    confident = known and fit.tasks >= FEWEST_TASKS
    wide = narrow = p = np.full(len(gaps), np.nan)
    if known:
        wide = critical_value(count, fit.freedom, 1 - fit.level) * errors
        narrow = critical_value(count, fit.freedom, 2 * (1 - fit.level)) * errors
    if confident:
        alone = np.where(same, np.nan, _p_values(gaps, errors, fit.freedom))
        p = np.where(same, 1.0, adjusted_by_holm(alone))
    wins = win_probabilities(fit) if confident else np.full(fit.errors.shape, np.nan)
    verdicts = []
    for i in np.argsort(-gaps, kind="stable").tolist():
        verdict, ends = UNRESOLVED, np.nan
        if confident:
            verdict, ends = _verdict(gaps[i], wide[i], narrow[i], margin), wide[i]
        needed = None
        if verdict == UNRESOLVED and known:
            needed = _tasks_needed(fit.tasks, gaps[i], wide[i], narrow[i], margin)
        a, b = int(first[i]), int(second[i])
        verdicts.append(
            PairVerdict(
                fit.methods[a], fit.methods[b], float(gaps[i]), float(gaps[i] - ends),
                float(gaps[i] + ends), verdict, float(p[i]), float(wins[a, b]), needed,
            )
        )  # fmt: skip
    return verdicts


@functools.lru_cache(maxsize=256)
def critical_value(methods: int, freedom: float, alpha: float) -> float:
    """How many standard errors of a difference the intervals of all pairs reach on each side.

    Args:
        methods: Number of methods.
        freedom: Degrees of freedom of the standard errors.
        alpha: The chance that any interval misses.
    """
    if methods < 2:
        return 0.0
    if methods == 2:
        return float(scipy.stats.t.ppf(1 - alpha / 2, freedom))
    return float(scipy.stats.studentized_range.ppf(1 - alpha, methods, freedom)) / math.sqrt(2)


def _p_values(gaps: Floats, errors: Floats, freedom: float) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(gaps == 0, 0.0, gaps / errors)
    return np.asarray(2 * scipy.stats.t.sf(np.abs(ratios), max(1.0, freedom)), np.float64)


def _verdict(gap: float, wide: float, narrow: float, margin: float) -> str:
    if gap - wide > 0:
        return BETTER
    return EQUIVALENT if gap + narrow <= margin else UNRESOLVED


def _tasks_needed(tasks: int, gap: float, wide: float, narrow: float, margin: float) -> int | None:
    """The number of tasks at which an interval, which shrinks as their root, resolves the pair."""
    better = wide / gap if gap > 0 else math.inf
    alike = narrow / (margin - gap) if gap < margin else math.inf
    shrink = min(better, alike)
    if not math.isfinite(shrink):
        return None
    return max(FEWEST_TASKS, tasks + 1, math.ceil(tasks * shrink**2))
