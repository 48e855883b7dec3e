"""Sums over weighted sets of samples: from a weight for each sample, or a count for each group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from assay.ranking.resampling import Floats, GroupedRows
from assay.store import Array


class WeightedSums(Protocol):
    """Weighted sets of samples, of which a reduction reads sums."""

    @property
    def total(self) -> Floats:
        """The sum of the weights of each set [b]."""
        ...

    def of(self, values: Array, sets: Array | None = None) -> Floats:
        """The weighted sums of values [n] or [n, K], of all sets or of some: [b] or [b, K]."""
        ...


@dataclass(frozen=True, eq=False)
class SampleWeights:
    """How often each sample counts in each set [b, n]."""

    weights: Floats

    @property
    def total(self) -> Floats:
        """The sum of the weights of each set [b]."""
        total: Floats = self.weights.sum(1)
        return total

    def of(self, values: Array, sets: Array | None = None) -> Floats:
        """The weighted sums of values [n] or [n, K], of all sets or of some: [b] or [b, K]."""
        weights = self.weights if sets is None else self.weights[sets]
        sums: Floats = weights @ values
        return sums


@dataclass(frozen=True, eq=False)
class GroupCounts:
    """How often each group of samples counts in each set [b, g], and who is in which group."""

    counts: Floats
    grouped: GroupedRows

    @property
    def total(self) -> Floats:
        """The sum of the weights of each set [b]."""
        total: Floats = self.counts @ self.grouped.sizes
        return total

    def of(self, values: Array, sets: Array | None = None) -> Floats:
        """The weighted sums of values [n] or [n, K], of all sets or of some: [b] or [b, K]."""
        counts = self.counts if sets is None else self.counts[sets]
        sums: Floats = counts @ self.grouped.sums(values.astype(np.float64))
        return sums
