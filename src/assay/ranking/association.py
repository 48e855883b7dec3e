"""The rank correlation of score and accuracy over models, with its interval."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import scipy

from assay.ranking.model_rows import Association, ModelRow

FEWEST_MODELS = 5  # with fewer, a correlation over models says nothing


def association(
    rows: Sequence[ModelRow], origins: Mapping[str, str], level: float = 0.95
) -> Association | None:
    """Spearman's correlation of score and accuracy; None for few models or a constant column.

    The unit is the architecture that a model stems from, by `origins`: models of one origin are not
    independent, so their means are taken.
    """
    units: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row.accuracy.value is not None and row.score.value is not None:
            units.setdefault(origins[row.model], []).append((row.accuracy.value, row.score.value))
    over = "models" if len(units) == sum(map(len, units.values())) else "architectures"
    return spearman_interval(_means(units), over, level)


def _means(units: Mapping[str, Sequence[tuple[float, float]]]) -> list[tuple[float, float]]:
    return [(float(a), float(s)) for a, s in (np.mean(pairs, axis=0) for pairs in units.values())]


def spearman_interval(
    pairs: Sequence[tuple[float, float]], over: str, level: float
) -> Association | None:
    """Spearman's correlation with its interval over pairs; None for few or constant ones."""
    n = len(pairs)
    if n < FEWEST_MODELS or any(len(set(column)) < 2 for column in zip(*pairs, strict=True)):
        return None
    value = float(scipy.stats.spearmanr(*zip(*pairs, strict=True)).statistic)
    return Association(value, *spearman_ends(value, n, level), n, over)


def spearman_ends(value: float, n: int, level: float) -> tuple[float, float]:
    """Fisher's interval of a rank correlation over n > 3, with Bonett and Wright's error (2000).

    A perfect correlation of few pairs says less than its error of zero would: for the interval the
    order counts as if one pair of neighbours were swapped.
    """
    most = 1 - 12 / (n * (n * n - 1))
    centre = min(max(value, -most), most)
    arm = float(scipy.stats.norm.ppf((1 + level) / 2)) * math.sqrt((1 + centre**2 / 2) / (n - 3))
    low, high = (math.tanh(math.atanh(centre) + sign * arm) for sign in (-1, 1))
    return min(low, value), max(high, value)
