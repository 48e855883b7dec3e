"""Resampling of groups in count form: matrix products, never a gather of the samples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

# Differences below this share of the data's magnitude are rounding: networks and maps are computed
# in single precision.
ROUNDING = 1e-6
# A resample whose sum of squares falls below this share of the data's has lost its variance.
FLAT = 1e-10
# Elements of the largest temporary array.
BLOCK = 1 << 21


class BootstrapOptions(TypedDict, total=False):
    """Keywords of every function that resamples: coverage, number of resamples, their seed."""

    level: float
    resamples: int
    seed: int


def level_of(options: BootstrapOptions) -> float:
    """Give the nominal coverage that the options ask for."""
    return options.get("level", 0.95)


def levels(values: Floats) -> Floats:
    """Number values [..., m] in ascending order along the last axis.

    Values that differ only by rounding tie; NaN stays NaN.
    """
    order = np.argsort(values, axis=-1)
    steps = np.diff(np.take_along_axis(values, order, -1), axis=-1, prepend=-np.inf)
    magnitude = np.nan_to_num(np.abs(values)).max(axis=-1, keepdims=True)
    apart = steps > ROUNDING * magnitude
    numbers = np.empty_like(values)
    np.put_along_axis(numbers, order, np.cumsum(apart, axis=-1, dtype=np.float64), -1)
    numbers[np.isnan(values)] = np.nan
    return numbers


def group_sums(values: Floats, groups: ArrayLike | None) -> tuple[Floats, Floats]:
    """Sum each column within groups.

    Args:
        values: Scores [n, m].
        groups: A label per sample; None is every sample alone.

    Returns:
        The sums [g, m], groups in sorted order, and the number of samples of each group [g].
    """
    if groups is None:
        return values, np.ones(len(values))
    labels = np.asarray(groups)
    if labels.shape != (len(values),):
        raise ValueError(
            f"Expected `groups` to hold one label per sample ({len(values)}), "
            f"got shape {labels.shape}."
        )
    _, index = np.unique(labels, return_inverse=True)
    order = np.argsort(index, kind="stable")
    sizes = np.bincount(index)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    return np.add.reduceat(values[order], starts, axis=0), sizes.astype(np.float64)


def resample_counts(
    n_groups: int, resamples: int, seed: int, *, columns: int = 1
) -> Iterator[Floats]:
    """Draw how often each group enters each resample, as many resamples at a time as fit.

    Args:
        n_groups: Number of groups, also the number drawn in each resample.
        resamples: Number of resamples in all.
        seed: Seed of the draw.
        columns: Number of columns that the caller makes of each resample; sizes the blocks.

    Yields:
        Counts [b, g] with rows that sum to `n_groups`.
    """
    block = max(1, BLOCK // max(n_groups, columns))
    generator = np.random.default_rng(seed)
    for start in range(0, resamples, block):
        rows = min(block, resamples - start)
        drawn = generator.integers(0, n_groups, size=(rows, n_groups))
        drawn += n_groups * np.arange(rows)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=rows * n_groups)
        yield counts.reshape(rows, n_groups).astype(np.float64)


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
    mean = counts @ deviations / total
    # Sum of count * (deviation - mean * size)^2, expanded so that only matrix products remain.
    squares = counts @ np.square(deviations)
    squares -= 2 * mean * (counts @ (deviations * sizes[:, None]))
    squares += np.square(mean) * (counts @ np.square(sizes))[:, None]
    lost = squares <= FLAT * np.square(deviations).sum(axis=0)
    error = np.sqrt(groups / (groups - 1) * np.where(lost, np.nan, squares)) / total
    t: Floats = mean / error
    return t
