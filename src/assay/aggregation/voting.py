"""Rules that count: how many methods each method beats."""

from __future__ import annotations

import numpy as np

from assay.aggregation.wins import Merged, count_wins
from assay.ranking.resampling import Floats


def borda(scores: Floats, weights: Floats) -> Merged:
    """Mean over settings of the share of the other scored methods that a method beats.

    A tie counts half. A setting counts for the methods that it scores.
    """
    row, column = scores[:, :, None], scores[:, None, :]
    known = ~np.isnan(scores)
    beaten = np.where(row == column, 0.5, row > column).sum(axis=2) - 0.5 * known  # [S, n]
    others = np.maximum(known.sum(axis=1, keepdims=True) - 1, 1)
    counted = weights[:, None] * known
    return Merged((counted * beaten / others).sum(axis=0) / counted.sum(axis=0))


def copeland(scores: Floats, weights: Floats) -> Merged:
    """Share of the compared methods that a method beats in the weighted majority of settings.

    A pair without majority counts half for each.
    """
    wins = count_wins(scores, weights)
    beaten = (wins > wins.T) + 0.5 * ((wins == wins.T) & (wins > 0))
    return Merged(beaten.sum(axis=1) / (wins + wins.T > 0).sum(axis=1))
