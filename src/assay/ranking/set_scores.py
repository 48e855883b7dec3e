"""The scores of methods on some samples, as functions of how often each sample counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from assay.ranking.resampling import Floats, GroupedRows
from assay.ranking.sets import Outcome


@dataclass(frozen=True, eq=False)
class SetScores:
    """From weights of samples [b, n] to the scores of methods [b, m].

    Attributes:
        samples: The samples.
        values: The scores of each sample [n, m], NaN in the columns of methods without scores.
        outcomes: What gives the score of a method, where that is not the mean of its values.
    """

    samples: Sequence[str]
    values: Floats
    outcomes: Sequence[Outcome | None]

    def __call__(self, weights: Floats) -> Floats:
        """The scores of each weighted set."""
        scores = np.full((len(weights), len(self.outcomes)), np.nan)
        if self._has_means:
            scores = weights @ self.values / weights.sum(axis=1, keepdims=True)
        for column, outcome in enumerate(self.outcomes):
            if outcome is not None:
                scores[:, column] = outcome.values(self.samples, weights)
        return scores

    def of_groups(self, grouped: GroupedRows, counts: Floats) -> Floats:
        """The scores of each set in which groups of the samples count so often [b, g]."""
        scores = np.full((len(counts), len(self.outcomes)), np.nan)
        if self._has_means:
            scores = counts @ grouped.sums(self.values) / (counts @ grouped.sizes)[:, None]
        for column, outcome in enumerate(self.outcomes):
            if outcome is not None and outcome.of_groups is not None:
                scores[:, column] = outcome.of_groups(self.samples, grouped, counts)
        return scores

    @property
    def adds_up(self) -> bool:
        """Whether samples that count alike can be added up before."""
        return all(outcome is None or outcome.of_groups is not None for outcome in self.outcomes)

    @property
    def _has_means(self) -> bool:
        known = ~np.isnan(self.values[:1])
        return any(o is None and there for o, there in zip(self.outcomes, known.T, strict=True))
