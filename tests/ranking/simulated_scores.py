"""Score distributions with known means, and how often intervals cover them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from assay.ranking import mean_interval, paired_differences

Floats = NDArray[np.float64]

_GRID = np.linspace(-5.5, 5.5, 4001)
_BETA = stats.beta.ppf(stats.norm.cdf(_GRID), 0.5, 2)

# Functions of a standard normal: copulas keep the samples of a group and the methods correlated.
DISTRIBUTIONS: dict[str, Callable[[Floats], Floats]] = {
    "normal": lambda z: z,
    "correlation": lambda z: np.tanh(0.8 + 0.6 * z),
    "area": lambda z: np.interp(z, _GRID, _BETA),
    "control": lambda z: 0.5 + 0.05 * z,
}


def _mean(transform: Callable[[Floats], Floats]) -> float:
    density = stats.norm.pdf(_GRID)
    return float((transform(_GRID) * density).sum() / density.sum())


MEANS = {name: _mean(transform) for name, transform in DISTRIBUTIONS.items()}

# Number of groups and their sizes, low to high inclusive.
DESIGNS = {
    "10": (10, 1, 1),
    "25": (25, 1, 1),
    "200": (200, 1, 1),
    "12 groups": (12, 2, 4),
    "25 groups": (25, 2, 4),
}


def draw(
    generator: np.random.Generator, design: str, columns: Sequence[str], shared: float = 0.5
) -> tuple[Floats, NDArray[np.int64]]:
    """Draw scores [n, m]; half of the latent variance is the group's, `shared` the sample's."""
    n_groups, smallest, largest = DESIGNS[design]
    sizes = generator.integers(smallest, largest + 1, size=n_groups)
    groups = np.repeat(np.arange(n_groups), sizes)

    def latent(width: int) -> Floats:
        own = generator.normal(size=(len(groups), width))
        common = generator.normal(size=(n_groups, width))[groups]
        return np.sqrt(0.5) * own + np.sqrt(0.5) * common

    z = np.sqrt(shared) * latent(1) + np.sqrt(1 - shared) * latent(len(columns))
    scores = [DISTRIBUTIONS[name](z[:, i]) for i, name in enumerate(columns)]
    return np.stack(scores, axis=1), groups


def mean_coverage(design: str, name: str, *, trials: int, resamples: int, seed: int) -> float:
    """Give the share of nominal 95 % intervals that cover the true mean."""
    generator = np.random.default_rng(seed)
    hits = 0
    for trial in range(trials):
        scores, groups = draw(generator, design, [name])
        interval = mean_interval(scores[:, 0], groups, resamples=resamples, seed=trial)
        hits += interval.low <= MEANS[name] <= interval.high
    return hits / trials


def family_coverage(
    design: str, columns: Sequence[str], *, trials: int, resamples: int, seed: int
) -> float:
    """Give the share of trials in which all paired intervals cover at once."""
    generator = np.random.default_rng(seed)
    means = np.array([MEANS[name] for name in columns])
    truth = means[:, None] - means
    hits = 0
    for trial in range(trials):
        scores, groups = draw(generator, design, columns)
        found = paired_differences(scores, groups, resamples=resamples, seed=trial)
        hits += bool(((found.low <= truth + 1e-12) & (truth - 1e-12 <= found.high)).all())
    return hits / trials
