"""Intervals of a mean and of all paired differences, by the studentised cluster bootstrap.

Scores that are 0 or 1 have intervals of shares; see `assay.ranking.proportions`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import scipy
from numpy.typing import ArrayLike

from assay.ranking.deviations import (
    FLAT,
    centred_sums,
    pair_errors,
    standard_error,
    studentised,
    unless_rounding,
)
from assay.ranking.proportions import Flags, constant_ends, share_ends
from assay.ranking.resampling import (
    BootstrapOptions,
    Codes,
    Floats,
    GroupedRows,
    check_bootstrap,
    combined_groups,
    grouped_rows,
    resample_counts,
)


@dataclass(frozen=True)
class Interval:
    """A mean with its interval, and the number of groups behind it.

    Attributes:
        mean: The mean, or another number of the samples.
        low: Lower end, NaN where there is no interval.
        high: Upper end.
        n_groups: Number of groups.
        has_level: Whether the interval covers the true number as often as its level says.
    """

    mean: float
    low: float
    high: float
    n_groups: int
    has_level: bool = True

    def within(self, least: float, most: float) -> Interval:
        """Give the part of the interval that lies between two limits.

        Student's and the bootstrap's ends do not depend on a score's range. The part beyond the
        limits was impossible, so the rest covers the true number as often as the whole did.
        """
        low, high = max(self.low, min(least, self.mean)), min(self.high, max(most, self.mean))
        return replace(self, low=low, high=high)

    def widened(self, factor: float) -> Interval:
        """Give the interval with both arms longer by a factor."""
        low = self.mean - factor * (self.mean - self.low)
        return replace(self, low=low, high=self.mean + factor * (self.high - self.mean))


@dataclass(frozen=True)
class PairedDifferences:
    """All differences `mean[i, j]` = method i minus method j, with simultaneous intervals."""

    mean: Floats
    low: Floats
    high: Floats
    n_groups: int

    @classmethod
    def of_pairs(cls, mean: Floats, low: Floats, high: Floats, n_groups: int) -> Self:
        """Give the squares of numbers by pair, in the order of `np.triu_indices`."""
        return cls(_square(mean, -mean), _square(low, -high), _square(high, -low), n_groups)

    def within(self, most: float) -> PairedDifferences:
        """Give the parts of the intervals that lie between minus and plus `most`."""
        most_here = np.maximum(most, np.abs(self.mean))
        low, high = np.maximum(self.low, -most_here), np.minimum(self.high, most_here)
        return replace(self, low=low, high=high)

    def widened(self, factor: float) -> PairedDifferences:
        """Give the intervals with all arms longer by a factor."""
        low = self.mean - factor * (self.mean - self.low)
        return replace(self, low=low, high=self.mean + factor * (self.high - self.mean))


def _square(upper: Floats, lower: Floats) -> Floats:
    methods = round((1 + math.sqrt(1 + 8 * len(upper))) / 2)
    first, second = np.triu_indices(methods, 1)
    square = np.zeros((methods, methods))
    square[first, second] = upper
    square[second, first] = lower
    return square


def mean_interval(
    values: ArrayLike,
    groups: ArrayLike | None = None,
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
    binary: bool = False,
) -> Interval:
    """Give the mean over samples with its equal-tailed bootstrap-t interval.

    Groups are resampled whole and the standard error is the cluster-robust one of the mean over
    samples. Tails are equal, not symmetric: for skewed scores the longer arm is on the side of the
    long tail. With 10 samples only equal tails keep their level. Where many resamples have no
    variance (few distinct values, fewer than about 4 groups), a tail is unknown. It is then at
    least as long as Student's. Constant scores do not show how much scores can differ, so there is
    no interval, unless they are 0 or 1.

    Args:
        values: Scores, one per sample.
        groups: What must be resampled together, one label per sample; None is every sample alone.
        level: Nominal coverage.
        resamples: Number of bootstrap resamples.
        seed: Seed of the resamples.
        binary: Whether scores are 0 or 1, so that the mean is a share: then `share_ends`.

    Returns:
        The interval; its ends are NaN for a single group and for constant scores.
    """
    scores, flags = _finite(values, ndim=1)[:, None], np.array([binary])
    options = BootstrapOptions(level=level, resamples=resamples, seed=seed)
    return mean_intervals(scores, groups, **options, binary=flags)[0]


def mean_intervals(
    values: ArrayLike,
    groups: ArrayLike | None = None,
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
    binary: Flags | None = None,
) -> list[Interval]:
    """Give `mean_interval` of each column of `values` [n, m], from common resamples."""
    scores = _finite(values, ndim=2)
    check_bootstrap(level, resamples)
    part = _centred(scores, grouped_rows(groups, len(scores)))
    return _intervals([part], level, resamples, seed, binary)


def mean_interval_each(
    values: ArrayLike,
    groups: ArrayLike | None = None,
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
    binary: Flags | None = None,
) -> list[Interval]:
    """Give `mean_interval` of each column of `values` [n, m], as if it were alone.

    The resamples are drawn once. The numbers are those of `mean_interval` to the last digit, where
    `mean_intervals` adds in another order.
    """
    scores = _finite(values, ndim=2)
    check_bootstrap(level, resamples)
    grouped = grouped_rows(groups, len(scores))
    parts = [_centred(scores[:, [column]], grouped) for column in range(scores.shape[1])]
    return _intervals(parts, level, resamples, seed, binary)


def paired_differences(
    values: ArrayLike,
    groups: ArrayLike | None = None,
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
    width: float | None = None,
) -> PairedDifferences:
    """Compare all pairs of methods with intervals that hold for all pairs at once.

    One critical value, the `level` quantile of the largest |t| over all pairs in common
    resamples of the groups, is used for every pair. With few groups and many methods it is
    deliberately conservative: coverage is 97 to 100 % at 10 groups and 15 methods, 95 % at 200
    groups. Sign-flip weights and Bonferroni's t are nearer to nominal when the methods' scores
    have similar distributions. They fall to 80-90 % when a skewed score is compared with a nearly
    constant one, as for a method and a control. 10 samples cannot show which case holds. The
    critical value is never below Student's quantile.

    Args:
        values: Scores [n, m], one row per sample and one column per method.
        groups: What must be resampled together, one label per sample; None is every sample alone.
        level: Nominal coverage of the whole family.
        resamples: Number of bootstrap resamples.
        seed: Seed of the resamples.
        width: The largest difference that the range of a score allows. With it, a difference that
            is the same in all groups, and not 0, has the interval of `constant_ends`: its variance
            is unknown. Without it, its interval is a point.

    Returns:
        The differences [m, m]. Identical columns differ by 0 within [0, 0]; with a single group
        all ends off the diagonal are NaN.
    """
    scores = _finite(values, ndim=2)
    check_bootstrap(level, resamples)
    grouped = grouped_rows(groups, len(scores))
    sums, sizes = grouped.sums(scores), grouped.sizes
    n_groups, methods = sums.shape
    first, second = np.triu_indices(methods, 1)
    means = sums.sum(axis=0) / sizes.sum()
    largest = np.abs(scores).max(axis=0)
    scale = np.maximum(largest[first], largest[second])
    mean = unless_rounding(means[first] - means[second], scale)
    low = np.full(len(first), np.nan)
    high = np.full(len(first), np.nan)
    combined = combined_groups(n_groups)
    if combined is not None:
        error = pair_errors(sums, sizes, means, scale)
        deviations = combined.sums(sums - sizes[:, None] * means)
        moving = first[error > 0], second[error > 0]
        t = _largest_of_pairs(deviations, combined.sums(sizes), moving, level, resamples, seed)
        low, high = mean - t * error, mean + t * error
    elif n_groups >= 2:
        deviations = centred_sums(sums[:, first] - sums[:, second], sizes, mean, scale)
        error = standard_error(deviations, sizes)
        half = largest_t(deviations[:, error > 0], sizes, level, resamples, seed) * error
        low, high = mean - half, mean + half
    if width is not None and n_groups >= 2 and (flat := (error == 0) & (mean != 0)).any():
        low[flat], high[flat] = constant_ends(mean[flat], width, n_groups, level, len(first))
    return PairedDifferences.of_pairs(mean, low, high, n_groups)


@dataclass(frozen=True, eq=False)
class _Centred:
    """Some columns: their means [m], group sums about these [g, m], and standard errors [m]."""

    means: Floats
    deviations: Floats
    errors: Floats
    sizes: Floats


def _centred(scores: Floats, grouped: GroupedRows) -> _Centred:
    sums, sizes = grouped.sums(scores), grouped.sizes
    means = sums.sum(axis=0) / sizes.sum()
    if len(sizes) < 2:
        return _Centred(means, sums, np.zeros(len(means)), sizes)
    deviations = centred_sums(sums, sizes, means, np.abs(scores).max(axis=0))
    return _Centred(means, deviations, standard_error(deviations, sizes), sizes)


def _intervals(
    parts: Sequence[_Centred], level: float, resamples: int, seed: int, binary: Flags | None
) -> list[Interval]:
    """Give the interval of each column of each part; the parts have the same groups."""
    means = np.concatenate([part.means for part in parts])
    sizes = parts[0].sizes
    n_groups = len(sizes)
    if n_groups < 2:
        return [Interval(float(mean), np.nan, np.nan, n_groups) for mean in means]
    errors = np.concatenate([part.errors for part in parts])
    shares = np.zeros(len(means), np.bool_) if binary is None else binary
    ends = np.full((len(means), 2), np.nan)
    ends[shares] = share_ends(means[shares], errors[shares], sizes, level)
    chosen = ~shares & (errors > 0)
    moving = np.flatnonzero(chosen)
    own = np.split(chosen, np.cumsum([len(part.means) for part in parts])[:-1])
    deviations = [p.deviations[:, columns] for p, columns in zip(parts, own, strict=True)]
    deviations = [columns for columns in deviations if columns.shape[1]]
    if deviations:
        if (combined := combined_groups(n_groups)) is not None:
            deviations = [combined.sums(np.concatenate(deviations, axis=1))]
            sizes = combined.sums(sizes)
        draws = _studentised_draws(deviations, sizes, resamples, seed)
        for column, drawn in zip(moving, draws.T, strict=True):
            below, above = _tails(drawn, level, len(sizes))
            ends[column] = means[column] - np.array([above, below]) * errors[column]
    return [
        Interval(float(mean), float(low), float(high), n_groups)
        for mean, (low, high) in zip(means, ends, strict=True)
    ]


def _studentised_draws(
    parts: Sequence[Floats], sizes: Floats, resamples: int, seed: int
) -> Floats:  # [b, m]
    """Give t of every column of every part [g, m] in each resample."""
    columns = max(part.shape[1] for part in parts)
    rows = [
        np.concatenate([studentised(counts, part, sizes) for part in parts], axis=1)
        for counts in resample_counts(len(sizes), resamples, seed, columns=columns)
    ]
    return np.concatenate(rows)


def _largest_of_pairs(
    deviations: Floats,
    sizes: Floats,
    pairs: tuple[Codes, Codes],
    level: float,
    resamples: int,
    seed: int,
) -> float:
    """As `largest_t`, of the differences of these columns; only squares need a column per pair."""
    groups = len(sizes)
    student = float(scipy.stats.t.ppf((1 + level) / 2, groups - 1))
    first, second = pairs
    if not len(first):
        return student
    squared = np.square(deviations[:, first] - deviations[:, second])
    lost_below = FLAT * squared.sum(axis=0)
    largest = []
    for counts in resample_counts(groups, resamples, seed, columns=len(first)):
        total = (counts @ sizes)[:, None]
        sums, weighted = counts @ deviations, counts @ (deviations * sizes[:, None])
        mean = (sums[:, first] - sums[:, second]) / total
        squares = counts @ squared
        squares -= 2 * mean * (weighted[:, first] - weighted[:, second])
        np.square(mean, out=mean)
        squares += mean * (counts @ np.square(sizes))[:, None]
        squares[squares <= lost_below] = np.inf  # a resample without variance has no t
        mean /= squares
        largest.append(np.sqrt(mean.max(axis=1)) * total[:, 0])
    quantile = float(np.quantile(np.concatenate(largest), level))
    return max(student, quantile * math.sqrt((groups - 1) / groups))


def _tails(draws: Floats, level: float, n_groups: int) -> tuple[float, float]:
    tail = (1 - level) / 2
    student = float(scipy.stats.t.ppf(1 - tail, n_groups - 1))
    valid = draws[~np.isnan(draws)]
    if len(valid) == 0:
        return -student, student
    below, above = (float(q) for q in np.quantile(valid, [tail, 1 - tail]))
    if len(draws) - len(valid) > tail * len(draws):
        return min(below, -student), max(above, student)
    return below, above


def largest_t(deviations: Floats, sizes: Floats, level: float, resamples: int, seed: int) -> float:
    """Give the critical value of t that holds for all columns at once.

    It is the `level` quantile of the largest |t| in common resamples, at least Student's.

    Args:
        deviations: Group sums less the group's size times the mean [g, p].
        sizes: Number of samples of each group [g].
        level: Nominal coverage of all columns together.
        resamples: Number of bootstrap resamples.
        seed: Seed of the resamples.
    """
    groups, pairs = deviations.shape
    student = float(scipy.stats.t.ppf((1 + level) / 2, groups - 1))
    if pairs == 0:
        return student
    largest = [
        np.nan_to_num(np.abs(studentised(counts, deviations, sizes)), nan=0.0).max(axis=1)
        for counts in resample_counts(groups, resamples, seed, columns=pairs)
    ]
    return max(student, float(np.quantile(np.concatenate(largest), level)))


def _finite(values: ArrayLike, ndim: int) -> Floats:
    scores: Floats = np.asarray(values, dtype=np.float64)
    if scores.ndim != ndim or scores.size == 0:
        raise ValueError(
            f"Expected `values` to have {ndim} dimension(s) and no empty one, "
            f"got shape {scores.shape}."
        )
    if not np.isfinite(scores).all():
        raise ValueError("Expected `values` to be finite, got NaN or infinity; drop them first.")
    return scores
