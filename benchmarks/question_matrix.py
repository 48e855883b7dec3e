"""Correlations of protocols over methods, corrected for noise, averaged over networks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy

from benchmarks.question_scores import Floats, NetworkScores

LEAST_RELIABILITY = 0.3  # below, a correlation cannot be corrected: it is not measurable
Kind = Literal["spearman", "pearson"]


@dataclass(frozen=True, eq=False)
class Matrix:
    """Corrected correlations of protocols.

    Attributes:
        protocols: Labels of the protocols, in the order of rows and columns.
        mean: Means over the networks where the pair is measurable [p, p]; NaN where there is none.
        drawn: The same in each resample of methods and networks [b, p, p].
        networks: On how many networks each pair is measurable [p, p].
    """

    protocols: Sequence[str]
    mean: Floats
    drawn: Floats
    networks: Floats


def reliability(halves: Floats, kind: Kind) -> Floats:  # [s, 2, p, m] -> [p]
    """The correlation of a protocol's scores on one half with those on the other."""
    return np.diag(_between_halves(halves, kind))


def corrected(halves: Floats, kind: Kind) -> Floats:  # [s, 2, p, m] -> [p, p]
    """Correlations between protocols, corrected for the noise of finite images.

    r(x on one half, y on the other) / sqrt(reliability of x * reliability of y). Numerator and
    reliabilities are of halves, and means over the splits. Two protocols never share an image, so
    their common noise does not count. NaN where a reliability is too low; nothing is clipped.
    """
    crossed = _between_halves(halves, kind)
    own = np.diag(crossed)
    known = np.where(own >= LEAST_RELIABILITY, own, np.nan)
    result: Floats = (crossed + crossed.T) / 2 / np.sqrt(known[:, None] * known)
    return result


def _between_halves(halves: Floats, kind: Kind) -> Floats:  # [p, p]
    """Mean correlation of each protocol on one half with each one on the other half."""
    values = scipy.stats.rankdata(halves, axis=-1) if kind == "spearman" else halves
    apart = values - values.mean(-1, keepdims=True)
    norm = np.sqrt((apart**2).sum(-1, keepdims=True))
    unit = np.divide(apart, norm, out=np.zeros_like(apart), where=norm > 0)
    mean: Floats = (unit[:, 0] @ unit[:, 1].swapaxes(-1, -2)).mean(axis=0)
    return mean


def plain(whole: Floats, kind: Kind) -> Floats:  # [p, m] -> [p, p]
    """Correlations of the scores on all images, not corrected."""
    values = scipy.stats.rankdata(whole, axis=-1) if kind == "spearman" else whole
    result: Floats = np.corrcoef(values)
    return result


def over_networks(
    several: Sequence[NetworkScores],
    protocols: Sequence[str],
    kind: Kind = "spearman",
    resamples: int = 1000,
    seed: int = 0,
) -> Matrix:
    """The mean of the corrected correlations over networks, and its resamples.

    Each resample draws networks, and methods by their label, the same for all networks: a method
    that is drawn twice counts twice wherever it applies.
    """
    matrices = [_placed(one, corrected(one.halves, kind), protocols) for one in several]
    random = np.random.default_rng(seed)
    labels = sorted({method for one in several for method in one.methods})
    drawn = np.empty((resamples, len(protocols), len(protocols)))
    for row in range(resamples):
        methods = random.choice(labels, len(labels))
        chosen = random.integers(0, len(several), len(several))
        own = {
            place: _placed(several[place], _of_methods(several[place], methods, kind), protocols)
            for place in sorted(set(chosen.tolist()))
        }
        drawn[row] = _mean([own[place] for place in chosen.tolist()])
    there = np.sum([~np.isnan(matrix) for matrix in matrices], axis=0).astype(np.float64)
    return Matrix(protocols, _mean(matrices), drawn, there)


def _of_methods(one: NetworkScores, methods: Sequence[str], kind: Kind) -> Floats:
    place = {method: place for place, method in enumerate(one.methods)}
    chosen = [place[method] for method in methods if method in place]
    return corrected(one.halves[..., chosen], kind)


def _placed(one: NetworkScores, matrix: Floats, protocols: Sequence[str]) -> Floats:
    """A network's matrix in rows and columns of all protocols, NaN where one does not apply."""
    whole = np.full((len(protocols), len(protocols)), np.nan)
    here = [list(protocols).index(protocol) for protocol in one.protocols]
    whole[np.ix_(here, here)] = matrix
    return whole


def _mean(matrices: Sequence[Floats]) -> Floats:
    stacked = np.stack(matrices)
    known = ~np.isnan(stacked)
    total = np.where(known, stacked, 0.0).sum(axis=0)
    count = known.sum(axis=0)
    mean: Floats = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return mean
