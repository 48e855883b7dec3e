"""The order of methods under one protocol: ranks with ties."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assay.ranking.intervals import PairedDifferences
from assay.ranking.resampling import Floats

# With fewer groups than this no interval is trusted to separate two methods.
FEWEST_GROUPS = 10


@dataclass(frozen=True)
class TiedRanks:
    """Ranks from 1, ties shared; `ties_broken` is False where too few groups allow only ties."""

    ranks: NDArray[np.int64]
    ties_broken: bool


def resolved(differences: PairedDifferences, *, higher_is_better: bool) -> NDArray[np.bool_]:
    """Tell which pairs the intervals resolve.

    Args:
        differences: Paired differences with simultaneous intervals.
        higher_is_better: Direction of the score.

    Returns:
        [m, m], True where the row's method is resolved better than the column's.
    """
    if differences.n_groups < FEWEST_GROUPS:
        return np.zeros(differences.mean.shape, dtype=np.bool_)
    return differences.low > 0 if higher_is_better else differences.high < 0


def tied_ranks(
    differences: PairedDifferences, *, higher_is_better: bool, scores: Floats | None = None
) -> TiedRanks:
    """Rank methods by score; methods that the data cannot separate from the best of them tie.

    Going down the list, a method that is resolved worse than the first of the current group begins
    the next group. Its rank is its place in the list, and all methods of its group share it. So a
    worse score never has a better rank, however noisy the scores are.

    Args:
        differences: Paired differences with simultaneous intervals.
        higher_is_better: Direction of the score.
        scores: The scores by which methods are listed [m]; by default their means in `differences`.

    Returns:
        The ranks; below `FEWEST_GROUPS` groups no tie is broken and every rank is 1.
    """
    better = resolved(differences, higher_is_better=higher_is_better)
    listed = differences.mean[:, 0] if scores is None else scores
    order = np.argsort(-listed if higher_is_better else listed, kind="stable")
    ranks = np.ones(len(listed), dtype=np.int64)
    first = order[0]
    for place, method in enumerate(order):
        if better[first, method]:
            first = method
            ranks[method] = place + 1
        else:
            ranks[method] = ranks[first]
    return TiedRanks(ranks, differences.n_groups >= FEWEST_GROUPS)
