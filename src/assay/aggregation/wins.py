"""What the rules share: how often each method beats each other one, and the result of a rule."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from assay.ranking.partial_order import Relation
from assay.ranking.resampling import Floats

# Counts are rounded to multiples of 2^-40 of the largest possible count. Sums of a few thousand of
# them are then exact, so that they depend neither on the order of settings nor on that of methods.
GRID_BITS = 40


@dataclass(frozen=True)
class Merged:
    """The order of methods that a rule makes from several settings.

    Attributes:
        strength: Strength of each method [n], higher is better. Methods with equal strength tie;
            NaN where no setting compares the method with another one.
        undecided: Pairs of methods that the rule cannot order, the lower index first.
        gap: How far the cost of the order may lie above the lowest one, as a share of the cost.
        note: What else a reader has to know; often empty.
    """

    strength: Floats
    undecided: tuple[tuple[int, int], ...] = ()
    gap: float = 0.0
    note: str = ""


def count_wins(scores: Floats, weights: Floats) -> Floats:
    """Count how often each method beats each other one.

    Args:
        scores: Scores of the methods in each setting [S, n], higher is better, NaN if missing.
        weights: How much each setting counts [S].

    Returns:
        [n, n], the weight of the settings where the row's method beats the column's. An exact tie
        counts half for each.
    """
    row, column = scores[:, :, None], scores[:, None, :]
    share = np.where(row == column, 0.5, row > column)  # [S, n, n]
    wins = np.tensordot(weights, share, 1)
    np.fill_diagonal(wins, 0.0)
    unit = math.ldexp(1.0, math.frexp(weights.sum())[1] - GRID_BITS)
    return np.asarray(np.round(wins / unit) * unit, np.float64)


def linked(relation: Relation) -> Relation:
    """Tell which methods a path of the relation leads to, from each method [n, n]."""
    reach = relation.copy()
    for middle in range(len(reach)):
        reach |= reach[:, middle, None] & reach[middle]
    return reach


def standing(above: Relation) -> Floats:
    """Give each method [n] the number of methods below it, plus half of those not comparable."""
    number = len(above) - 1 + above.sum(axis=1) - above.sum(axis=0)
    return np.asarray(number / 2, np.float64)


def pairs_of(relation: Relation) -> tuple[tuple[int, int], ...]:
    """List the pairs that a symmetric relation holds for, the lower index first."""
    return tuple((int(p), int(q)) for p, q in np.argwhere(np.triu(relation, 1)))
