"""Orders of methods: ranks with ties within a protocol, mean ranks over protocols."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from assay.ranking.intervals import PairedDifferences, Statistic
from assay.ranking.replicates import replicate_draws
from assay.ranking.resampling import Floats, group_sums, levels, resample_counts

# With fewer groups than this no interval is trusted to separate two methods.
FEWEST_GROUPS = 10


@dataclass(frozen=True)
class TiedRanks:
    """Ranks from 1, ties shared; `ties_broken` is False where too few groups allow only ties."""

    ranks: NDArray[np.int64]
    ties_broken: bool


@dataclass(frozen=True)
class ProtocolScores:
    """Scores of one protocol on the samples that all methods have.

    Attributes:
        values: Scores [n, m], one column per method, the same methods in every protocol; a
            column of NaN where the method has no place here.
        groups: What must be resampled together, one label per sample; None marks a set-level
            protocol, whose single row no resample can change.
        higher_is_better: Direction of the score.
        statistic: From weights of samples [b, n] to the score of every method [b, m], where it is
            not the mean of its values.
        replicates: The mean of each replicate and method [R, m], where scores are means over
            replicates.
    """

    values: Floats
    groups: Sequence[str] | None
    higher_is_better: bool
    statistic: Statistic | None = None
    replicates: Floats | None = None

    def means(self) -> Floats:
        """Give the score of every method [m]."""
        if self.statistic is None:
            plain: Floats = self.values.mean(axis=0)
            return plain
        judged: Floats = self.statistic(np.ones((1, len(self.values))))[0]
        return judged


@dataclass(frozen=True)
class OverallOrder:
    """Mean rank of each method over protocols, its range over resamples, and which comes first.

    Attributes:
        mean_rank: Mean over protocols of the position by mean score [m].
        low: Lower end over resamples [m], NaN below two groups.
        high: Upper end over resamples [m], NaN below two groups.
        position: Place by mean rank, ties share the better place [m].
        first_share: Share of resamples in which the method comes first [m], ties split evenly.
        n_groups: Number of groups resampled, over all protocols.
    """

    mean_rank: Floats
    low: Floats
    high: Floats
    position: NDArray[np.int64]
    first_share: Floats
    n_groups: int


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


def tied_ranks(differences: PairedDifferences, *, higher_is_better: bool) -> TiedRanks:
    """Rank methods: 1 + the number of methods resolved better.

    Args:
        differences: Paired differences with simultaneous intervals.
        higher_is_better: Direction of the score.

    Returns:
        The ranks; below `FEWEST_GROUPS` groups no tie is broken and every rank is 1.
    """
    better = resolved(differences, higher_is_better=higher_is_better)
    ranks = 1 + better.sum(axis=0).astype(np.int64)
    return TiedRanks(ranks, differences.n_groups >= FEWEST_GROUPS)


def positions(means: ArrayLike, *, higher_is_better: bool) -> Floats:
    """Place methods by mean score along the last axis, average places for ties up to rounding.

    Args:
        means: Mean scores [..., m].
        higher_is_better: Direction of the score.

    Returns:
        Positions [..., m] from 1, the best. Methods that are NaN everywhere have none; the places
        of the others are stretched to 1 ... m, so that all protocols weigh the same.
    """
    scores = np.asarray(means, dtype=np.float64)
    here = ~np.isnan(scores).reshape(-1, scores.shape[-1]).any(axis=0)
    placed = np.full(scores.shape, np.nan)
    present = scores[..., here]
    ranks = scipy.stats.rankdata(levels(-present if higher_is_better else present), axis=-1)
    stretch = (scores.shape[-1] - 1) / max(1, here.sum() - 1)
    placed[..., here] = 1 + (ranks - 1) * stretch if here.sum() > 1 else (scores.shape[-1] + 1) / 2
    return placed


def overall_order(
    protocols: Sequence[ProtocolScores],
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> OverallOrder:
    """Order methods by their mean position over protocols.

    Groups are resampled once for all protocols. The protocols use the same samples, so their
    scores are correlated; separate resamples would make the order look more certain than it is.
    Where scores are means over replicates, each resample also draws how far these may be off.

    Args:
        protocols: Scores of each protocol, the same methods in the same order.
        level: Share of resamples between `low` and `high`.
        resamples: Number of bootstrap resamples.
        seed: Seed of the resamples.

    Returns:
        The order.
    """
    if not protocols or len({protocol.values.shape[1] for protocol in protocols}) != 1:
        raise ValueError("Expected `protocols` to hold at least one, all with the same methods.")
    placed = [positions(p.means(), higher_is_better=p.higher_is_better) for p in protocols]
    mean_rank = np.nanmean(placed, axis=0)
    labels = sorted({label for p in protocols for label in p.groups or ()})
    if len(labels) < 2:
        unknown = np.full(len(mean_rank), np.nan)
        return OverallOrder(mean_rank, unknown, unknown, _places(mean_rank), unknown, len(labels))
    draws = _resampled_ranks(protocols, placed, labels, resamples, seed)
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
    first = np.isclose(draws, draws.min(axis=1, keepdims=True), rtol=0, atol=1e-9)
    share = (first / first.sum(axis=1, keepdims=True)).mean(axis=0)
    return OverallOrder(mean_rank, low, high, _places(mean_rank), share, len(labels))


def _places(mean_rank: Floats) -> NDArray[np.int64]:
    places: NDArray[np.int64] = scipy.stats.rankdata(np.round(mean_rank, 9), method="min").astype(
        np.int64
    )
    return places


def _resampled_ranks(
    protocols: Sequence[ProtocolScores],
    placed: Sequence[Floats],
    labels: Sequence[str],
    resamples: int,
    seed: int,
) -> Floats:
    """Give the mean rank of every method in every resample [b, m]."""
    tables = [_aligned(protocol, labels) for protocol in protocols]
    off = [
        None if p.replicates is None else replicate_draws(p.replicates, resamples, seed)
        for p in protocols
    ]
    blocks: list[Floats] = []
    for counts in resample_counts(len(labels), resamples, seed):
        ranks = np.zeros((len(counts), len(placed[0])))
        present = np.zeros(len(placed[0]))
        drawn_before = sum(map(len, blocks))
        for protocol, (sums, sizes), place, shift in zip(
            protocols, tables, placed, off, strict=True
        ):
            total = (counts @ sizes)[:, None]
            # A resample without any of the protocol's samples keeps the place in the data.
            if protocol.statistic is None or protocol.groups is None:
                means = counts @ sums / np.where(total > 0, total, 1.0)
            else:
                weights = counts[:, np.searchsorted(labels, protocol.groups)]
                means = protocol.statistic(np.where(total > 0, weights, 1.0))
            if shift is not None:
                means = means + shift[drawn_before : drawn_before + len(counts)]
            drawn = positions(means, higher_is_better=protocol.higher_is_better)
            ranks += np.nan_to_num(np.where(total > 0, drawn, place))
            present += ~np.isnan(place)
        blocks.append(ranks / present)
    return np.concatenate(blocks)


def _aligned(protocol: ProtocolScores, labels: Sequence[str]) -> tuple[Floats, Floats]:
    """Sum a protocol's scores by group over all labels of the dataset."""
    sums = np.zeros((len(labels), protocol.values.shape[1]))
    sizes = np.zeros(len(labels))
    if protocol.groups is not None:
        here = np.searchsorted(labels, sorted(set(protocol.groups)))
        sums[here], sizes[here] = group_sums(protocol.values, protocol.groups)
    return sums, sizes
