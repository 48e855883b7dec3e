"""Orders of methods: ranks with ties within a protocol, mean ranks over protocols."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from assay.ranking.intervals import PairedDifferences
from assay.ranking.replicates import replicate_draws
from assay.ranking.resampling import (
    Floats,
    GroupedRows,
    combined_groups,
    levels,
    resample_counts,
)
from assay.ranking.set_scores import SetScores

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
    statistic: SetScores | None = None
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
    protocols: Iterable[ProtocolScores],
    *,
    groups: Sequence[str] | None = None,
    adds_up: bool = True,
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
        groups: The groups of all protocols, sorted; None reads them from `protocols`. Where they
            are known, one protocol is in memory at a time.
        adds_up: Whether many groups may be combined, as `combined_groups` does; it is asked where
            `groups` are known.
        level: Share of resamples between `low` and `high`.
        resamples: Number of bootstrap resamples.
        seed: Seed of the resamples.

    Returns:
        The order.
    """
    if groups is None:
        protocols = list(protocols)
        groups = sorted({label for p in protocols for label in p.groups or ()})
        adds_up = all(p.statistic is None or p.statistic.adds_up for p in protocols)
    combined = combined_groups(len(groups)) if adds_up else None
    summed = _summed(protocols, groups, combined)
    if not summed or len({len(one.placed) for one in summed}) != 1:
        raise ValueError("Expected `protocols` to hold at least one, all with the same methods.")
    mean_rank = np.nanmean([one.placed for one in summed], axis=0)
    if len(groups) < 2:
        unknown = np.full(len(mean_rank), np.nan)
        return OverallOrder(mean_rank, unknown, unknown, _places(mean_rank), unknown, len(groups))
    draws = _resampled_ranks(summed, combined is not None, resamples, seed)
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
    first = np.isclose(draws, draws.min(axis=1, keepdims=True), rtol=0, atol=1e-9)
    share = (first / first.sum(axis=1, keepdims=True)).mean(axis=0)
    return OverallOrder(mean_rank, low, high, _places(mean_rank), share, len(groups))


def _places(mean_rank: Floats) -> NDArray[np.int64]:
    places: NDArray[np.int64] = scipy.stats.rankdata(np.round(mean_rank, 9), method="min").astype(
        np.int64
    )
    return places


@dataclass(frozen=True, eq=False)
class _Summed:
    """A protocol's place of each method [m], and sums over groups [g, m] with their sizes [g].

    Attributes:
        grouped: The group of each sample; None marks a set-level protocol.
    """

    placed: Floats
    sums: Floats
    sizes: Floats
    grouped: GroupedRows | None
    higher_is_better: bool
    statistic: SetScores | None
    replicates: Floats | None


def _summed(
    protocols: Iterable[ProtocolScores], labels: Sequence[str], combined: GroupedRows | None
) -> list[_Summed]:
    """Sum each protocol's scores by group, or by combined group, over all labels of the dataset."""
    number = {label: i for i, label in enumerate(labels)}
    summed: list[_Summed] = []
    numbered: tuple[Sequence[str], GroupedRows] | None = None
    for one in protocols:
        count = len(labels) if combined is None else len(combined.sizes)
        sums, sizes, grouped = np.zeros((count, one.values.shape[1])), np.zeros(count), None
        if one.groups is not None:
            if numbered is None or numbered[0] is not one.groups:  # most have the same samples
                index = np.fromiter((number[g] for g in one.groups), np.int64, len(one.groups))
                index = index if combined is None else combined.index[index]
                numbered = one.groups, GroupedRows(index, groups=count)
            grouped = numbered[1]
            sizes = grouped.sizes
            if one.statistic is None:
                sums = grouped.sums(one.values)
        placed = positions(one.means(), higher_is_better=one.higher_is_better)
        facts = (one.higher_is_better, one.statistic, one.replicates)
        summed.append(_Summed(placed, sums, sizes, grouped, *facts))
    return summed


def _resampled_ranks(
    protocols: Sequence[_Summed], combined: bool, resamples: int, seed: int
) -> Floats:
    """Give the mean rank of every method in every resample [b, m]."""
    off = [
        None if one.replicates is None else replicate_draws(one.replicates, resamples, seed)
        for one in protocols
    ]
    blocks: list[Floats] = []
    for counts in resample_counts(len(protocols[0].sizes), resamples, seed):
        ranks = np.zeros((len(counts), len(protocols[0].placed)))
        present = np.zeros(len(protocols[0].placed))
        drawn_before = sum(map(len, blocks))
        for one, shift in zip(protocols, off, strict=True):
            total = (counts @ one.sizes)[:, None]
            # A resample without any of the protocol's samples keeps the place in the data.
            if one.statistic is None or one.grouped is None:
                means = counts @ one.sums / np.where(total > 0, total, 1.0)
            elif combined:
                means = one.statistic.of_groups(one.grouped, np.where(total > 0, counts, 1.0))
            else:
                weights = counts[:, one.grouped.index]
                means = one.statistic(np.where(total > 0, weights, 1.0))
            if shift is not None:
                means = means + shift[drawn_before : drawn_before + len(counts)]
            drawn = positions(means, higher_is_better=one.higher_is_better)
            ranks += np.nan_to_num(np.where(total > 0, drawn, one.placed))
            present += ~np.isnan(one.placed)
        blocks.append(ranks / present)
    return np.concatenate(blocks)
