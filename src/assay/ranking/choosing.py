"""The score of the best of several methods, without the bias of having chosen it.

The best of many equal methods looks better than it is on the samples that it was chosen on. Here
the samples are split into two halves: the method that is best on one half is scored on the other.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assay.ranking.resampling import Floats


@dataclass(frozen=True)
class ChosenScores:
    """Scores of the method that was best on the other half.

    Attributes:
        values: One score per sample [n], of the method that is best on the half without it.
        methods: The column of the method that is best on the first half, and on the second.
    """

    values: Floats
    methods: tuple[int, int]


def split_in_halves(groups: Sequence[str]) -> NDArray[np.bool_]:
    """Tell which samples are in the first half; samples of one group are in the same half.

    The groups are put into an order by a hash of their names and dealt in turn, so that the split
    depends neither on the order of the data nor on a seed.
    """
    names = sorted(set(groups), key=lambda name: hashlib.sha256(f"half\0{name}".encode()).digest())
    first = set(names[::2])
    return np.array([group in first for group in groups], dtype=np.bool_)


def choose_on_other_half(
    scores: Floats, first: NDArray[np.bool_], *, higher_is_better: bool
) -> ChosenScores:
    """Score the best method of each half on the other half.

    Args:
        scores: Scores [n, m], one column per method.
        first: Which samples are in the first half, such as `split_in_halves` says; each half has
            at least one.
        higher_is_better: Direction of the score.

    Returns:
        The scores of all samples, each of a method that was chosen without it.
    """
    sign = 1.0 if higher_is_better else -1.0
    best = [int(np.argmax(sign * scores[half].mean(axis=0))) for half in (first, ~first)]
    values = np.where(first, scores[:, best[1]], scores[:, best[0]])
    return ChosenScores(values, (best[0], best[1]))


def width_of_choice(methods: int) -> float:
    """How much wider an interval must be because the method was chosen among several.

    The two halves are not quite independent: each is scored with a method that the other chose. For
    m equal and independent methods, the correlation of the two halves is e^2 / (m - 1), where e is
    the expected maximum of m standard normal numbers. That is largest, 9 / (8 pi), for three
    methods. For more it is smaller, but the score has longer tails; this width covers both. Methods
    that differ clearly, or whose scores are correlated, need less.
    """
    return 1.0 if methods < 2 else math.sqrt(1 + 9 / (8 * math.pi))
