"""Intervals where resamples say nothing: of scores that are 0 or 1, and of constant differences."""

from __future__ import annotations

import math

import numpy as np
import scipy
from numpy.typing import NDArray

from assay.ranking.resampling import Floats

Flags = NDArray[np.bool_]


def zero_or_one(values: Floats) -> Flags:
    """Tell which columns of scores [n, m] hold nothing but 0 and 1."""
    binary: Flags = ((values == 0) | (values == 1)).all(axis=0)
    return binary


def share_ends(shares: Floats, errors: Floats, sizes: Floats, level: float) -> Floats:  # [m, 2]
    """Give the ends of the intervals of shares of ones.

    Without groups they are Clopper and Pearson's, which are exact. With groups they are Korn and
    Graubard's: Clopper and Pearson's with the number of independent samples that has the
    cluster-robust standard error, lowered by the ratio of Student's quantiles because that error
    comes from few groups. Where all scores agree, every group counts as one sample.

    The intervals hold for any scores between 0 and 1 that happen to be 0 or 1 in the sample: the
    mean is at least the share of ones and at most one minus the share of zeros.

    Args:
        shares: The mean scores [m].
        errors: Their cluster-robust standard errors [m].
        sizes: Number of samples of each group [g], at least two groups.
        level: Nominal coverage of each interval.
    """
    tail, samples, groups = (1 - level) / 2, sizes.sum(), len(sizes)
    number = np.full(len(shares), samples)
    if groups < samples:
        t = scipy.stats.t.isf(tail, [samples - 1, groups - 1])
        certain = shares * (1 - shares)
        spread = np.where(errors > 0, errors, 1.0)
        number = certain / np.square(spread) * (t[0] / t[1]) ** 2
        number = np.where(errors > 0, np.clip(number, 1.0, samples), groups)
    ones = shares * number
    zeros = number - ones
    low = scipy.stats.beta.ppf(tail, ones, np.where(ones > 0, zeros + 1, 1.0))
    high = scipy.stats.beta.isf(tail, np.where(zeros > 0, ones + 1, 1.0), zeros)
    ends = np.stack([np.where(ones > 0, low, 0.0), np.where(zeros > 0, high, 1.0)], axis=1)
    ends[:, 0], ends[:, 1] = np.minimum(ends[:, 0], shares), np.maximum(ends[:, 1], shares)
    return ends


def constant_ends(
    values: Floats, width: float, groups: int, level: float, family: int
) -> tuple[Floats, Floats]:
    """Give the ends for differences that are the same in every group.

    A value that no group contradicts has at least the share that Clopper and Pearson's interval
    gives; what is left may lie anywhere in the range. Without a range nothing is known.

    Args:
        values: The differences, not 0.
        width: The largest difference that is possible.
        groups: Number of groups.
        level: Nominal coverage of all intervals together.
        family: Number of intervals; Bonferroni.
    """
    if math.isinf(width):
        unknown = np.full(len(values), np.nan)
        return unknown, unknown.copy()
    seen = ((1 - level) / (2 * family)) ** (1 / groups)
    return seen * values - (1 - seen) * width, seen * values + (1 - seen) * width
