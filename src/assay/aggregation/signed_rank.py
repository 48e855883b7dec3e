"""Wilcoxon's signed-rank test of one pair of methods, exact also where differences tie."""

from __future__ import annotations

import functools

import numpy as np
import scipy

from assay.ranking.resampling import Floats, levels

MOST_EXACT = 50  # settings; for more the normal distribution is close enough


def signed_rank_p(differences: Floats) -> float:
    """The two-sided p-value that differences [S] lie around 0; zeros are left out.

    1 where all differences are zero; NaN without any.
    """
    if not len(differences):
        return float("nan")
    differences = differences[differences != 0]
    if not len(differences):
        return 1.0
    ranks = scipy.stats.rankdata(levels(np.abs(differences)))  # equal but for rounding is a tie
    positive = differences > 0
    if len(ranks) > MOST_EXACT:
        signed = np.where(positive, ranks, -ranks)
        return float(scipy.stats.wilcoxon(signed).pvalue)
    doubled = np.rint(2 * ranks).astype(np.int64)  # ties share half ranks
    larger = max(int(doubled[positive].sum()), int(doubled[~positive].sum()))
    return min(1.0, 2 * float(_sums(tuple(sorted(doubled.tolist())))[larger:].sum()))


@functools.lru_cache(maxsize=64)
def _sums(ranks: tuple[int, ...]) -> Floats:
    """The probability of each sum of ranks where every rank counts with probability 1/2."""
    chances = np.zeros(sum(ranks) + 1)
    chances[0] = 1.0
    for rank in ranks:
        without = chances / 2
        chances = without.copy()
        chances[rank:] += without[: len(without) - rank]
    return chances
