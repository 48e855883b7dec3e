"""Deviations of group sums from a mean: standard errors, and t in resamples."""

from __future__ import annotations

import numpy as np

from assay.ranking.resampling import ROUNDING, Floats

# A resample whose sum of squares falls below this share of the data's has lost its variance.
FLAT = 1e-10
# A sum of squares below this share of the two it is the difference of is computed by itself.
_CANCELLED = 1e-6
_AT_A_TIME = 16  # columns of such pairs


def centred_sums(sums: Floats, sizes: Floats, mean: Floats, scale: Floats) -> Floats:
    """Centre group sums [g, m]; a column that is constant up to rounding becomes exactly 0."""
    deviations: Floats = sums - sizes[:, None] * mean
    flat = np.abs(deviations).max(axis=0) <= ROUNDING * sizes.max() * scale
    return np.where(flat, 0.0, deviations)


def unless_rounding(values: Floats, scale: Floats) -> Floats:
    """Give 0 for values that are rounding on the scale of the data."""
    return np.where(np.abs(values) <= ROUNDING * scale, 0.0, values)


def standard_error(deviations: Floats, sizes: Floats) -> Floats:
    """Give the cluster-robust standard error of the mean over samples.

    Args:
        deviations: Group sums less the group's size times the mean [g, m].
        sizes: Number of samples of each group [g].

    Returns:
        The standard errors [m].
    """
    groups = len(sizes)
    squares = np.square(deviations).sum(axis=0)
    error: Floats = np.sqrt(groups / (groups - 1) * squares) / sizes.sum()
    return error


def studentised(counts: Floats, deviations: Floats, sizes: Floats) -> Floats:
    """Give t of each resample about the data's mean.

    Args:
        counts: How often each group enters each resample [b, g].
        deviations: Group sums less the group's size times the mean [g, m].
        sizes: Number of samples of each group [g].

    Returns:
        t [b, m], NaN where the resample has lost all variance.
    """
    groups = len(sizes)
    total = (counts @ sizes)[:, None]
    drawn = counts @ deviations
    mean = drawn / total
    # Sum of count * (deviation - mean * size)^2, expanded so that only matrix products remain.
    squares = counts @ np.square(deviations)
    if not (sizes == 1).all():
        drawn = counts @ (deviations * sizes[:, None])
    squares -= 2 * mean * drawn
    squares += np.square(mean) * (counts @ np.square(sizes))[:, None]
    lost = squares <= FLAT * np.square(deviations).sum(axis=0)
    error = np.sqrt(groups / (groups - 1) * np.where(lost, np.nan, squares)) / total
    t: Floats = mean / error
    return t


def pair_errors(sums: Floats, sizes: Floats, means: Floats, scale: Floats) -> Floats:
    """Give the standard error of the difference of each pair of columns.

    The sums of squares come from the columns' products with each other, so that no column per pair
    is needed. Where they cancel, the pair's own deviations are made.

    Args:
        sums: Group sums [g, m].
        sizes: Number of samples of each group [g].
        means: The means of the columns [m].
        scale: The largest score of each pair, in the order of `np.triu_indices`.
    """
    groups, methods = sums.shape
    first, second = np.triu_indices(methods, 1)
    deviations = sums - sizes[:, None] * means
    products = deviations.T @ deviations
    both = products[first, first] + products[second, second]
    squares = both - 2 * products[first, second]
    rounding = groups * np.square(ROUNDING * sizes.max() * scale)
    unsure = np.flatnonzero(squares <= np.maximum(2 * rounding, _CANCELLED * both))
    for start in range(0, len(unsure), _AT_A_TIME):
        some = unsure[start : start + _AT_A_TIME]
        one, other = first[some], second[some]
        apart = centred_sums(
            sums[:, one] - sums[:, other],
            sizes,
            unless_rounding(means[one] - means[other], scale[some]),
            scale[some],
        )
        squares[some] = np.square(apart).sum(axis=0)
    error: Floats = np.sqrt(groups / (groups - 1) * squares) / sizes.sum()
    return error
