"""Several models of one architecture: intervals over samples and over models."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from assay.errors import InputError, unknown
from assay.ranking.intervals import Interval, PairedDifferences
from assay.ranking.resampling import Floats

# What tells replicates of one architecture apart: `resnet20-s0`, `resnet20-s1-tuned@3`.
REPLICATE = r"-s\d+(?=[-@]|$)"

# An architecture by the name of the model, or the part of a name that numbers the replicates.
Grouping = Mapping[str, str] | str


def architecture_names(models: Sequence[str], grouping: Grouping = REPLICATE) -> dict[str, str]:
    """Give the architecture of each model.

    Args:
        models: Labels of the models.
        grouping: The architecture by model, or a regular expression: the architecture is what is
            left of the name without its first match.

    Raises:
        InputError: A model of the mapping is unknown, or the expression is not a valid one.
    """
    if not isinstance(grouping, str):
        for name in grouping:
            if name not in models:
                raise unknown("model of the comparison", name, models)
        return {model: grouping.get(model, model) for model in models}
    try:
        return {model: re.sub(grouping, "", model, count=1) or model for model in models}
    except re.error as error:
        raise InputError(
            f"Expected a regular expression for the number of a replicate, such as "
            f"`{REPLICATE}`, got `{grouping}`: {error}."
        ) from None


@dataclass(frozen=True)
class ReplicateSpread:
    """The mean over replicates, its standard error and degrees of freedom."""

    mean: float
    deviation: float  # standard deviation between the replicates
    error: float
    freedom: float


def spread_over_replicates(means: Floats) -> ReplicateSpread:
    """Describe how the replicates of one architecture differ; at least two are needed."""
    deviation = float(means.std(ddof=1))
    return ReplicateSpread(
        float(means.mean()), deviation, deviation / len(means) ** 0.5, len(means) - 1
    )


def over_samples_and_replicates(
    samples: Interval, spread: ReplicateSpread, level: float
) -> Interval:
    """Combine an interval over samples with Student's interval over replicates.

    The squares of the arms are added, because samples and replicates are drawn independently.
    """
    half = float(scipy.stats.t.ppf((1 + level) / 2, spread.freedom)) * spread.error
    mean = samples.mean
    low = mean - float(np.hypot(mean - samples.low, half))
    return Interval(mean, low, mean + float(np.hypot(samples.high - mean, half)), samples.n_groups)


def differences_of_architectures(
    samples: PairedDifferences, spreads: Sequence[ReplicateSpread], level: float
) -> PairedDifferences:
    """Combine simultaneous intervals over samples with Welch's intervals over replicates.

    Args:
        samples: Differences of the architectures' means, with intervals over samples.
        spreads: How the replicates of each architecture differ.
        level: Nominal coverage of all intervals together; Bonferroni over the pairs.
    """
    count = len(spreads)
    pairs = max(1, count * (count - 1) // 2)
    squares = np.array([spread.error**2 for spread in spreads])
    freedom = np.array([spread.freedom for spread in spreads])
    total = squares[:, None] + squares[None, :]
    weights = squares**2 / freedom
    shared = weights[:, None] + weights[None, :]
    welch = np.where(shared > 0, total**2 / np.where(shared > 0, shared, 1.0), 1.0)
    half = scipy.stats.t.ppf(1 - (1 - level) / (2 * pairs), np.maximum(welch, 1.0)) * np.sqrt(total)
    np.fill_diagonal(half, 0.0)
    low = samples.mean - np.hypot(samples.mean - samples.low, half)
    high = samples.mean + np.hypot(samples.high - samples.mean, half)
    return PairedDifferences(samples.mean, low, high, samples.n_groups)
