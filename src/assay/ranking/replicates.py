"""Replicates, such as retrainings: how scores differ between them, in intervals and in draws."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import scipy

from assay.ranking.architectures import over_samples_and_replicates, spread_over_replicates
from assay.ranking.intervals import Interval, PairedDifferences
from assay.ranking.resampling import Codes, Floats

# With fewer replicates than this their spread is too uncertain to separate methods.
FEWEST_REPLICATES = 5

Replicate = tuple[int, str]  # seed of the run, and the metric that holds the replicate's scores
Replicates = Mapping[Replicate, Floats]  # scores of the samples of a block, NaN where unknown


def too_few(names: Sequence[str]) -> str:
    """Say why replicates of these names give no order; empty where they are enough."""
    if not names or len(names) >= FEWEST_REPLICATES:
        return ""
    listed = ", ".join(f"`{name}`" for name in names)
    spread = (
        "one replicate does not show how much replicates differ, and intervals are over samples "
        f"only ({listed})"
        if len(names) == 1
        else f"{len(names)} replicates show too little of how much replicates differ ({listed})"
    )
    return f"{spread}. A ranking needs at least {FEWEST_REPLICATES}."


def replicate_means(several: Sequence[Replicates], rows: Codes) -> Floats:
    """Give the mean over samples of each replicate and method [R, m].

    The rows are the replicates that all methods have, in pairs: the first replicate of one method
    stands beside the first one of another. Samples that a replicate lacks are left out for all.
    """
    names = [name for name in several[0] if all(name in other for other in several[1:])]
    columns = [[replicates[name] for replicates in several] for name in names]
    there = rows
    for scores in (scores for row in columns for scores in row):
        there = there[~np.isnan(scores[there])]
    if not len(there):
        return np.empty((0, len(several)))
    means = [[np.mean(scores[there]) for scores in row] for row in columns]
    return np.array(means, dtype=np.float64).reshape(len(names), len(several))


def interval_over_replicates(samples: Interval, means: Floats, level: float) -> Interval:
    """Combine an interval over samples with Student's interval over replicates.

    Args:
        samples: The interval of one mean, or of one difference, over samples.
        means: The same number in each replicate [R].
        level: Nominal coverage.

    Returns:
        The interval; its ends are NaN below two replicates.
    """
    if len(means) < 2:
        return replace(samples, low=math.nan, high=math.nan)
    if math.isnan(samples.low) and samples.n_groups > 1:  # all samples agree
        samples = replace(samples, low=samples.mean, high=samples.mean)
    return over_samples_and_replicates(samples, spread_over_replicates(means), level)


def differences_over_replicates(
    samples: PairedDifferences, means: Floats, level: float
) -> PairedDifferences:
    """Combine simultaneous intervals over samples with Student's intervals over replicates.

    Replicates are paired: in each one the methods start from the same random numbers. A pair of
    methods has one difference per replicate, and these differences are independent of each other.
    So the intervals also hold where the methods of a replicate have nothing in common, or spread
    unequally. Pairing then only costs degrees of freedom.

    The squares of the arms are added. What changes with both sample and replicate is in both arms,
    so the intervals are too wide rather than too narrow.

    Args:
        samples: Differences of the methods' means, with intervals over samples.
        means: The mean over samples of each replicate and method [R, m].
        level: Nominal coverage of all intervals together; Bonferroni over the pairs.

    Returns:
        The differences; below two replicates the ends off the diagonal are NaN.
    """
    count, methods = means.shape
    pairs = max(1, methods * (methods - 1) // 2)
    half = np.full((methods, methods), np.nan)
    if count >= 2:
        apart = means[:, :, None] - means[:, None, :]  # [R, m, m]
        error = apart.std(axis=0, ddof=1) / count**0.5
        half = scipy.stats.t.isf((1 - level) / (2 * pairs), count - 1) * error
    np.fill_diagonal(half, 0.0)
    low = samples.mean - np.hypot(samples.mean - samples.low, half)
    high = samples.mean + np.hypot(samples.high - samples.mean, half)
    return PairedDifferences(samples.mean, low, high, samples.n_groups)


def replicate_draws(means: Floats, draws: int, seed: int) -> Floats:
    """Draw how far means over replicates may lie from the true ones [b, m].

    The draws have Student's distribution with the covariance of the replicates, so methods stay
    paired. Resampling the replicates themselves would make five of them look too certain.

    Args:
        means: The mean over samples of each replicate and method [R, m], at least two replicates;
            NaN in the columns of methods without scores.
        draws: Number of draws.
        seed: Seed of the draws.
    """
    count = len(means)
    generator = np.random.default_rng(seed)
    normal = generator.standard_normal((draws, count))
    wider = np.sqrt((count - 1) / generator.chisquare(count - 1, draws))
    deviations = (means - means.mean(axis=0)) / (count * (count - 1)) ** 0.5
    drawn: Floats = wider[:, None] * (normal @ deviations)
    return drawn
