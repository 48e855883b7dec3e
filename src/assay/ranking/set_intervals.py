"""Intervals of numbers of whole sets and of their paired differences, from their resamples."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike

from assay.ranking.deviations import unless_rounding
from assay.ranking.intervals import Interval, PairedDifferences
from assay.ranking.proportions import constant_ends
from assay.ranking.resampling import (
    Codes,
    Floats,
    GroupedRows,
    check_bootstrap,
    combined_groups,
    grouped_rows,
    resample_counts,
)
from assay.ranking.set_scores import SetScores

# With fewer groups than this a number that makes decisions may be biased by more than resamples
# show. A step of soundness is 1 % of the image and must raise accuracy by .01: of some hundred
# images that is a few, so good steps look false at random (`make simulate`).
FEWEST_FOR_LEVEL = 1000
# From weights of samples [b, n] to one or more numbers of each weighted set [b, m].
Statistic = Callable[[Floats], Floats]


@dataclass(frozen=True, eq=False)
class SetDraws:
    """Numbers of whole sets in resamples [b, m], and how many groups were resampled."""

    values: Floats
    n_groups: int


def set_interval(
    statistic: Statistic,
    groups: ArrayLike,
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Interval:
    """Give a number of a whole set with its interval: Student's, with the bootstrap's error.

    A reduction that makes decisions, such as where to cut, makes them again in every resample of
    the groups. So it is a step function whose resamples lie to one side of it. Percentile
    intervals, with or without bias correction, may not contain the number, so they are not used.
    The mean of the resamples shows a part of the number's bias. The interval is prolonged by that
    part, to the side where the true number is expected.

    Args:
        statistic: From weights of samples [b, n] to the number [b, 1].
        groups: What must be resampled together, one label per sample.
        level: Nominal coverage.
        resamples: Number of bootstrap resamples.
        seed: Seed of the resamples.

    Returns:
        The interval; its ends are NaN for a single group. It has no level below
        `FEWEST_FOR_LEVEL` groups.
    """
    check_bootstrap(level, resamples)
    index = grouped_rows(groups, np.size(groups)).index
    value = float(statistic(np.ones((1, len(index))))[0, 0])
    drawn = set_draws(statistic, index, resamples, seed)
    return interval_of_draws(value, drawn, int(index.max()) + 1, level)


def interval_of_draws(value: float, drawn: SetDraws, n_groups: int, level: float) -> Interval:
    """Give `set_interval` from the number and its resamples [b, 1]."""
    if drawn.n_groups < 2:
        return Interval(value, np.nan, np.nan, n_groups)
    draws, resampled = drawn.values[:, 0], drawn.n_groups
    error = float(draws.std()) * math.sqrt(resampled / (resampled - 1))
    half = float(scipy.stats.t.ppf((1 + level) / 2, resampled - 1)) * error
    unbiased = value - max(-half, min(half, float(draws.mean()) - value))
    low, high = min(value, unbiased) - half, max(value, unbiased) + half
    return Interval(value, low, high, n_groups, has_level=n_groups >= FEWEST_FOR_LEVEL)


def set_differences(
    statistic: Statistic,
    groups: ArrayLike,
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> PairedDifferences:
    """Compare all pairs of numbers of whole sets, with intervals that hold for all at once.

    One critical value is used for every pair: the `level` quantile of the largest deviation over
    all pairs, in units of its bootstrap standard deviation. It is widened in the same way as
    Student's distribution is wider than the normal one.

    Args:
        statistic: From weights of samples [b, n] to the methods' numbers [b, m].
        groups: What must be resampled together, one label per sample.
        level: Nominal coverage of all intervals together.
        resamples: Number of bootstrap resamples.
        seed: Seed of the resamples.

    Returns:
        The differences; the ends are NaN for a single group.
    """
    check_bootstrap(level, resamples)
    index = grouped_rows(groups, np.size(groups)).index
    values = statistic(np.ones((1, len(index))))[0]
    drawn = set_draws(statistic, index, resamples, seed)
    return differences_of_draws(values, drawn, int(index.max()) + 1, level)


def differences_of_draws(
    values: Floats, drawn: SetDraws, n_groups: int, level: float, width: float = math.inf
) -> PairedDifferences:
    """Give `set_differences` from the numbers [m] and their resamples [b, m].

    A difference that is the same in all resamples has the interval that its largest value, `width`,
    allows; none where that is not known.
    """
    first, second = np.triu_indices(len(values), 1)
    scale = np.maximum(np.abs(values[first]), np.abs(values[second]))
    mean = unless_rounding(values[first] - values[second], scale)
    low = high = np.full(len(first), np.nan)
    if drawn.n_groups >= 2:
        deviations = drawn.values[:, first] - drawn.values[:, second] - mean
        widths = np.full(len(mean), width)
        low, high = ends_of_draws(mean, deviations, drawn.n_groups, level, scale, widths)
    return PairedDifferences.of_pairs(mean, low, high, n_groups)


def ends_of_draws(
    mean: Floats,
    deviations: Floats,
    resampled: int,
    level: float,
    scale: Floats,
    widths: Floats,
) -> tuple[Floats, Floats]:
    """Give the ends of intervals that hold for all numbers at once.

    Args:
        mean: The numbers [p].
        deviations: Their resamples less the numbers [b, p].
        resampled: Number of groups that were resampled, at least two.
        level: Nominal coverage of all intervals together.
        scale: The magnitude of what each number is computed from [p].
        widths: The largest value that each number can have [p]; infinite where it is not known.
    """
    error = deviations.std(axis=0) * np.sqrt(resampled / (resampled - 1))
    error = unless_rounding(error, scale)
    moving = error > 0
    largest = np.abs(deviations[:, moving] / error[moving]).max(axis=1, initial=0.0)
    # The same tail of Student's distribution: the error is itself estimated from few groups.
    tail = min((1 - level) / 2, float(scipy.stats.norm.sf(np.quantile(largest, level))))
    half = float(scipy.stats.t.isf(tail, resampled - 1)) * error
    low, high = mean - half, mean + half
    for one in np.flatnonzero(~moving & (mean != 0)):  # its variance is unknown
        ends = constant_ends(mean[[one]], float(widths[one]), resampled, level, len(mean))
        low[one], high[one] = float(ends[0][0]), float(ends[1][0])
    return low, high


def set_draws(statistic: Statistic, index: Codes, resamples: int, seed: int) -> SetDraws:
    """Evaluate a statistic in resamples of groups.

    Args:
        statistic: From weights of samples [b, n] to numbers [b, m].
        index: The number of each sample's group.
        resamples: Number of bootstrap resamples.
        seed: Seed of the resamples.
    """
    n_groups = int(index.max()) + 1
    if n_groups < 2:
        return SetDraws(np.empty((0, statistic(np.ones((1, len(index)))).shape[1])), n_groups)
    draws = resample_counts(n_groups, resamples, seed, columns=len(index))
    values = np.concatenate([statistic(counts[:, index]) for counts in draws])
    return SetDraws(values, n_groups)


def draw_scores(scores: SetScores, index: Codes, resamples: int, seed: int) -> SetDraws:
    """Evaluate scores in resamples of the groups, of which many are combined into fewer.

    Args:
        scores: The scores of some methods.
        index: The number of each sample's group.
        resamples: Number of bootstrap resamples.
        seed: Seed of the resamples.
    """
    combined = combined_groups(int(index.max()) + 1) if scores.adds_up else None
    if combined is None:
        return set_draws(scores, index, resamples, seed)
    grouped = GroupedRows(combined.index[index])
    n_groups = len(grouped.sizes)
    counts = np.concatenate(list(resample_counts(n_groups, resamples, seed)))
    return SetDraws(scores.of_groups(grouped, counts), n_groups)
