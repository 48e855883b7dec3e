"""Resampling of groups in count form: matrix products, never a gather of the samples."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

# Differences below this share of the data's magnitude are rounding: networks and maps are computed
# in single precision.
ROUNDING = 1e-6
# More groups than this are combined into so many before they are resampled.
MOST_GROUPS, COMBINED = 5000, 2000
# Elements of the largest temporary array.
BLOCK = 1 << 21
# Counts up to this number are held, so that all methods and protocols share one draw.
HELD = 1 << 25


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
    grouped = grouped_rows(groups, len(values))
    return grouped.sums(values), grouped.sizes


def grouped_rows(groups: ArrayLike | None, samples: int) -> GroupedRows:
    """Number the groups of so many samples in sorted order; None is every sample alone."""
    if groups is None:
        return GroupedRows(None, samples)
    labels = np.asarray(groups)
    if labels.shape != (samples,):
        raise ValueError(
            f"Expected `groups` to hold one label per sample ({samples}), got shape {labels.shape}."
        )
    return GroupedRows(np.unique(labels, return_inverse=True)[1])


class GroupedRows:
    """Rows that belong to groups, which are numbered from 0."""

    def __init__(self, index: Codes | None, rows: int = 0, groups: int = 0) -> None:
        """Take the number of each row's group.

        Args:
            index: The number of each row's group; None: each row is a group of its own.
            rows: How many rows there are, where `index` is None.
            groups: How many groups there are at least.
        """
        self.index: Codes = np.arange(rows) if index is None else index
        counts = np.bincount(self.index, minlength=groups)
        self.sizes: Floats = counts.astype(np.float64)
        self._order = None if index is None else np.argsort(index, kind="stable")
        self._filled = np.flatnonzero(counts)
        self._starts = np.concatenate([[0], np.cumsum(counts)[:-1]])[self._filled]

    def sums(self, values: Floats) -> Floats:
        """Sum values [n, ...] within groups [g, ...]."""
        if self._order is None:
            return values
        sums: Floats = values[self._order]
        if len(self._starts) < len(sums):
            sums = np.add.reduceat(sums, self._starts, axis=0)
        if len(self._filled) == len(self.sizes):
            return sums
        spread = np.zeros((len(self.sizes), *sums.shape[1:]))
        spread[self._filled] = sums
        return spread


def combined_groups(n_groups: int) -> GroupedRows | None:
    """Put many groups together, at random, into fewer that are equally large.

    The resamples of more than `MOST_GROUPS` groups take too long and too much memory. Groups are
    independent of each other, so a sum over several of them, put together without a look at their
    scores, is one observation of a smaller sample: the mean and the skewness of the resampled mean
    stay, and its variance is as right as that of `COMBINED` groups.

    Args:
        n_groups: Number of groups.

    Returns:
        The combined group of each group; None where there are few enough. It depends on the number
        alone, so that all methods and protocols share it.
    """
    if n_groups <= MOST_GROUPS:
        return None
    place = np.random.default_rng(n_groups).permutation(n_groups)
    return GroupedRows(place * COMBINED // n_groups)


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
    if n_groups * resamples <= HELD:
        held = _held_counts(n_groups, resamples, seed)
        for start in range(0, resamples, block):
            yield held[start : start + block].astype(np.float64)
    else:
        for counts in _drawn_counts(n_groups, resamples, seed, block):
            yield counts.astype(np.float64)


@functools.lru_cache(maxsize=4)
def _held_counts(n_groups: int, resamples: int, seed: int) -> NDArray[np.unsignedinteger]:
    """Give the counts of all resamples, in the smallest integers that no count exceeds."""
    held = np.empty((resamples, n_groups), np.min_scalar_type(n_groups))
    start = 0
    for counts in _drawn_counts(n_groups, resamples, seed, max(1, BLOCK // n_groups)):
        held[start : start + len(counts)] = counts
        start += len(counts)
    held.setflags(write=False)
    return held


def _drawn_counts(
    n_groups: int, resamples: int, seed: int, block: int
) -> Iterator[NDArray[np.int64]]:
    """Draw counts, some resamples at a time: the numbers do not depend on how many."""
    generator = np.random.default_rng(seed)
    for start in range(0, resamples, block):
        rows = min(block, resamples - start)
        drawn = generator.integers(0, n_groups, size=(rows, n_groups))
        drawn += n_groups * np.arange(rows)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=rows * n_groups)
        yield counts.reshape(rows, n_groups)


def check_bootstrap(level: float, resamples: int) -> None:
    """Raise an error for options that no bootstrap can have."""
    if not 0 < level < 1:
        raise ValueError(f"Expected `level` to lie between 0 and 1, got {level}.")
    if resamples < 1:
        raise ValueError(f"Expected `resamples` to be at least 1, got {resamples}.")
