"""Rules that follow chains of majorities: a beats b, b beats c, and so a stands above c."""

from __future__ import annotations

import numpy as np

from assay.aggregation.wins import Merged, count_wins, linked, pairs_of, standing
from assay.ranking.partial_order import Relation
from assay.ranking.resampling import Floats

ALIKE = 1e-9  # margins this near to each other are equal, relative to the largest count


def schulze(scores: Floats, weights: Floats) -> Merged:
    """Beatpath order: a method stands above another if its strongest chain of majorities does.

    A chain is as strong as its weakest link, and a link as strong as the settings won. Only
    majorities are links. The strength is the number of methods below, plus half of those with
    chains of equal strength, which are undecided.
    """
    wins = count_wins(scores, weights)
    path = np.where(wins > wins.T, wins, 0.0)
    for middle in range(len(path)):
        path = np.maximum(path, np.minimum(path[:, middle, None], path[middle]))
    above: Relation = np.asarray(path > path.T, np.bool_)
    return Merged(standing(above), pairs_of(~above & ~above.T))


def ranked_pairs(scores: Floats, weights: Floats) -> Merged:
    """Tideman's rule: majorities are accepted from the largest down, unless they close a circle.

    Majorities of one margin are taken in the order of the votes against them, the fewest first.
    Those that are equal in both are accepted together. Where they close a circle together, none of
    the majorities on the circle is accepted, and their pairs stay undecided. So the names and
    places of methods have no influence. The strength is the number of methods below, plus half of
    those that no chain of accepted majorities orders.
    """
    wins = count_wins(scores, weights)
    won = wins > wins.T
    margins = np.zeros(wins.shape)
    margins[won] = _grouped((wins - wins.T)[won], ALIKE * (wins + wins.T).max())
    above: Relation = np.zeros(wins.shape, np.bool_)
    conflict: Relation = above.copy()
    majorities = zip(margins[won].tolist(), wins.T[won].tolist(), strict=True)
    for margin, against in sorted(set(majorities), key=_place):
        level = (margins == margin) & (against == wins.T) & ~above.T
        circle = level & linked(above | level).T  # the loser reaches the winner
        conflict |= circle
        above = linked(above | (level & ~circle))
    open_pairs = conflict | conflict.T | ~(above | above.T)
    return Merged(standing(above), pairs_of(open_pairs))


def _grouped(values: Floats, width: float) -> Floats:
    """Replace values that differ by rounding errors by the lowest of them."""
    listed = np.unique(values)
    starts = np.diff(listed, prepend=-np.inf) > width
    group = np.cumsum(starts)[np.searchsorted(listed, values)] - 1
    return np.asarray(listed[starts][group], np.float64)


def _place(majority: tuple[float, float]) -> tuple[float, float]:
    margin, against = majority
    return -margin, against
