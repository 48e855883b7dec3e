"""The part checks of a whole set, at the threshold where their mixture is largest."""

from collections.abc import Mapping

import numpy as np

from assay.ranking.weighted_sums import SampleWeights, WeightedSums
from assay.store import Array

PART_CHECKS = ("data_check", "preservation", "deletion_check", "distractibility")
PART_SCORES = ("completeness", *PART_CHECKS)
_SHARES = np.array([1 / 6, 1 / 6, 1 / 6, 1 / 2])  # of the checks in completeness
_DIGITS = 12  # mixtures that agree to so many digits are equal


def part_checks(
    curves: Mapping[str, Array], x: Array, weights: Array, *, score: str = "completeness"
) -> Array:  # [b]
    """A check of parts, or the mixture of all, at the threshold where the mixture is largest.

    Args:
        curves: The checks `[n, K]`; NaN where one does not apply to a sample.
        x: The thresholds `[K]`.
        weights: How often each sample counts in each set `[b, n]`.
        score: One of `PART_CHECKS`, or `completeness`, the mixture.
    """
    return part_checks_of_sums(curves, x, SampleWeights(np.asarray(weights, float)), score=score)


def part_checks_of_sums(
    curves: Mapping[str, Array], x: Array, sums: WeightedSums, *, score: str = "completeness"
) -> Array:  # [b]
    """The same of any weighted sets: all it reads of them are sums over samples."""
    means = np.stack([_known_means(curves[name], sums) for name in PART_CHECKS], 2)  # [b, K, 4]
    best = np.argmax((means @ _SHARES).round(_DIGITS), axis=1)
    value: Array = means[np.arange(len(means)), best] @ _mixture(score)
    return value


def part_checks_each(
    curves: Mapping[str, Array], x: Array, *, score: str = "completeness"
) -> Array:  # [n]
    """Each sample's part of the number: a check counts for more where it applies to few samples."""
    checks = np.stack([curves[name] for name in PART_CHECKS], 2)  # [n, K, 4]
    everyone = SampleWeights(np.ones((1, len(checks))))
    means = np.stack([_known_means(curves[name], everyone)[0] for name in PART_CHECKS], 1)
    best = int(np.argmax((means @ _SHARES).round(_DIGITS)))
    known = ~np.isnan(checks[:, best])  # [n, 4]
    with np.errstate(divide="ignore", invalid="ignore"):
        weight = len(checks) / known.sum(0)
        parts = np.where(known, checks[:, best] * weight, 0.0)
    each: Array = np.where(known.any(0), parts, np.nan) @ _mixture(score)
    return each


def _mixture(score: str) -> Array:  # [4]
    """The weight of each check in a score."""
    if score == "completeness":
        return _SHARES
    return np.array([name == score for name in PART_CHECKS], float)


def _known_means(curve: Array, sums: WeightedSums) -> Array:  # [n, K] -> [b, K]
    """The weighted means over the samples to which a check applies."""
    known = ~np.isnan(curve)
    counts = sums.of(known)
    with np.errstate(divide="ignore", invalid="ignore"):
        means: Array = sums.of(np.where(known, curve, 0.0)) / counts
    return means
