"""How far two orders of the same methods agree, in resamples of samples, methods and networks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from assay.ranking.arithmetic import spearman
from assay.ranking.association import spearman_ends
from assay.ranking.blocks import Block, MethodScores, Places
from assay.ranking.near_clones import near_clones
from assay.ranking.orders import FEWEST_GROUPS
from assay.ranking.replicates import replicate_draws
from assay.ranking.resampling import (
    Codes,
    Floats,
    GroupedRows,
    combined_groups,
    levels,
    resample_counts,
)
from assay.ranking.set_scores import SetScores

FEW_METHODS = 6  # with fewer distinct methods an order may be chance, whatever the samples say
FEWEST_NETWORKS = 3  # with fewer, networks do not show how much they differ

Ends = tuple[float, float] | None


@dataclass(frozen=True, eq=False)
class TrustSide:
    """One of the two protocols: the same methods on the same samples.

    Attributes:
        block: The scores of the protocol.
        methods: Those of the methods, in the order of the other side.
        rows: The places of the samples.
    """

    block: Block
    methods: Sequence[MethodScores]
    rows: Places

    def turned(self, values: Floats) -> Floats:
        """Scores, so that more is better."""
        return values if self.block.higher_is_better else -values

    def off(self, resamples: int, seed: int) -> Floats:  # [b, m]
        """How far means over replicates are off in each resample; 0 where nothing is repeated."""
        means = self.block.replicate_means(self.methods, self.rows)
        if means is None:
            return np.zeros((resamples, len(self.methods)))
        return replicate_draws(means, resamples, seed)


@dataclass(frozen=True, eq=False)
class Compared:
    """A protocol and the truth in one setting, and how to resample.

    Attributes:
        judged: The protocol that is judged.
        truth: The protocol that knows the truth.
        level: Nominal coverage of intervals.
        resamples: Number of resamples.
        seed: Seed of the resamples.
    """

    judged: TrustSide
    truth: TrustSide
    level: float
    resamples: int
    seed: int

    @property
    def labels(self) -> list[str]:
        """The labels of the methods."""
        return [scores.method for scores in self.judged.methods]


@dataclass(frozen=True, eq=False)
class MethodMeans:
    """What a comparison needs of the scores; held for one comparison at a time.

    Attributes:
        distinct: The number of each method [m]; near-clones share one.
        means: Both protocols' scores of the methods on all samples, two of [1, m]; more is better.
        drawn: The same in resamples of the samples, two of [b, m]; None below 10 groups.
    """

    distinct: Codes
    means: Sequence[Floats]
    drawn: Sequence[Floats] | None

    @property
    def number(self) -> int:
        """How many distinct methods there are."""
        return int(self.distinct.max()) + 1 if len(self.distinct) else 0

    def of(self, places: Sequence[int], distinct: Codes) -> MethodMeans:
        """The same for some of the methods, numbered otherwise."""
        drawn = self.drawn and [side[:, places] for side in self.drawn]
        return MethodMeans(distinct, [side[:, places] for side in self.means], drawn)


def measure(compared: Compared) -> MethodMeans:
    """Evaluate both protocols on all samples and in resamples of them.

    Near-clones must agree in both protocols. A score of a whole set has no scores of samples to
    compare: there the truth decides.
    """
    sides = (compared.judged, compared.truth)
    numbers = tuple(side.block.statistic(side.methods, side.rows) for side in sides)
    pairs = list(zip(sides, numbers, strict=True))
    tables = [of.values for side, of in pairs if not side.block.judges_sets]
    distinct = near_clones(tables) if tables else np.arange(len(compared.labels))
    means = [side.turned(of(np.ones((1, len(side.rows))))) for side, of in pairs]
    index = compared.truth.block.groups_numbered(compared.truth.rows)
    if index.max() + 1 < FEWEST_GROUPS:
        return MethodMeans(distinct, means, None)
    parts = zip(*_resampled(numbers, index, compared.resamples, compared.seed), strict=True)
    drawn = [
        side.turned(np.concatenate(part) + side.off(compared.resamples, compared.seed))
        for side, part in zip(sides, parts, strict=True)
    ]
    return MethodMeans(distinct, means, drawn)


def agreement(compared: Compared) -> tuple[float, Ends, int]:
    """The correlation of the two orders, its interval, and the number of distinct methods.

    Every resample draws samples, and then distinct methods. Fewer than `FEW_METHODS` distinct
    methods have no interval. NaN where one order has only ties.
    """
    measured = measure(compared)
    value, number = _correlation(measured), measured.number
    if measured.drawn is None or number < FEW_METHODS or math.isnan(value):
        return value, None, number
    chosen = _drawn_methods(number, compared.resamples, compared.seed)
    drawn = _correlations(measured.drawn, measured.distinct, chosen)
    return value, _ends(drawn, value, number, compared.level), number


def pooled_agreement(several: Sequence[Compared]) -> tuple[float, Ends, list[str], int]:
    """The mean correlation over settings, its interval, the common methods, how many are distinct.

    A resample draws the same methods in all settings, because their order on one network resembles
    that on another. Networks are too few to be resampled: Student's distribution says how far
    their mean may be off. Methods are near-clones where they are so in all settings.
    """
    labels = [one for one in several[0].labels if all(one in other.labels for other in several)]
    if not labels:
        return math.nan, None, labels, 0
    measured = [measure(compared) for compared in several]
    places = [[compared.labels.index(one) for one in labels] for compared in several]
    by_setting = [one.distinct[here] for one, here in zip(measured, places, strict=True)]
    distinct = np.unique(np.stack(by_setting), axis=1, return_inverse=True)[1].reshape(-1)
    measured = [one.of(here, distinct) for one, here in zip(measured, places, strict=True)]
    values = np.array([_correlation(one) for one in measured])
    mean, number, first = float(values.mean()), measured[0].number, several[0]
    whole = [one.drawn for one in measured if one.drawn is not None]
    unknown = math.isnan(mean) or len(whole) < len(several)
    if unknown or number < FEW_METHODS or len(several) < FEWEST_NETWORKS:
        return mean, None, labels, number
    chosen = _drawn_methods(number, first.resamples, first.seed)
    drawn = [_correlations(sides, distinct, chosen) for sides in whole]
    off = replicate_draws(values[:, None], first.resamples, first.seed + 1)[:, 0]
    around = np.clip(np.mean(drawn, axis=0) + off, -1, 1)
    return mean, _ends(around, mean, number, first.level), labels, number


def _correlation(measured: MethodMeans) -> float:
    return float(_correlations(measured.means, measured.distinct)[0])


def _correlations(
    pair: Sequence[Floats], distinct: Codes, chosen: Codes | None = None
) -> Floats:  # two of [b, m], [m], [b, d] -> [b]
    """Spearman's correlation in each row; near-clones count once, by their mean score."""
    sizes = np.bincount(distinct)
    share = (distinct[:, None] == np.arange(len(sizes))) / sizes
    orders = (levels(values @ share) for values in pair)  # only their orders are compared
    if chosen is None:
        return spearman(*orders)
    return spearman(*(np.take_along_axis(order, chosen, axis=1) for order in orders))


def _drawn_methods(number: int, resamples: int, seed: int) -> Codes:  # [b, d]
    """The methods of each resample; their stream is not that of the samples."""
    return np.random.default_rng([seed, number]).integers(0, number, (resamples, number))


def _ends(drawn: Floats, value: float, number: int, level: float) -> tuple[float, float]:
    """The percentiles of resamples; a perfect correlation has Fisher's interval at least."""
    tails = [(1 - level) / 2, (1 + level) / 2]
    low, high = (float(end) for end in np.nanquantile(drawn, tails))
    if abs(value) > 1 - 1e-9:
        least, most = spearman_ends(value, number, level)
        return min(low, least), max(high, most)
    return low, high


def _resampled(
    numbers: Sequence[SetScores], index: Codes, resamples: int, seed: int
) -> Iterator[list[Floats]]:  # two of [b, m]
    """Both protocols' scores of the methods in each resample of the groups of their samples."""
    n_groups, methods = int(index.max()) + 1, len(numbers[0].outcomes)
    add_up = all(of.adds_up for of in numbers)
    combined = combined_groups(n_groups) if add_up else None
    if combined is None:
        for counts in resample_counts(n_groups, resamples, seed, columns=methods):
            weights = counts[:, index]
            yield [of(weights) for of in numbers]
        return
    grouped = GroupedRows(combined.index[index])
    for counts in resample_counts(len(grouped.sizes), resamples, seed, columns=methods):
        yield [of.of_groups(grouped, counts) for of in numbers]
