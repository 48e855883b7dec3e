"""Questions: protocols that ask the same, averaged into one paired difference per pair."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import scipy
from numpy.typing import NDArray

from assay.ranking.intervals import PairedDifferences, largest_t
from assay.ranking.orders import FEWEST_GROUPS, resolved
from assay.ranking.partial_order import Relation
from assay.ranking.proportions import constant_ends
from assay.ranking.replicates import FEWEST_REPLICATES
from assay.ranking.resampling import Codes, Floats
from assay.ranking.set_intervals import ends_of_draws
from assay.ranking.standardised import OverReplicates, Resampling, StandardPairs


@dataclass(eq=False)
class QuestionSum:
    """The sum over protocols of the standardised differences of all pairs.

    A pair's difference is its mean over the protocols that rank both methods.

    Attributes:
        pairs: Number of pairs.
        groups: Number of groups that are resampled.
        protocols: Labels of the protocols added so far.
    """

    pairs: int
    groups: int
    protocols: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin with nothing."""
        self._mean, self._count = np.zeros(self.pairs), np.zeros(self.pairs)
        self._parts: Floats | None = None
        self._draws: Floats | None = None
        self._sizes, self._width = np.zeros(self.groups), np.zeros(self.pairs)
        self._groups = np.zeros(self.pairs, np.int64)
        self._replicates: list[OverReplicates] = []

    def add(self, protocol: str, one: StandardPairs) -> None:
        """Add the differences under one protocol."""
        there = ~np.isnan(one.mean)
        self._mean += np.where(there, one.mean, 0.0)
        self._count += there
        self._width += np.where(there, one.width, 0.0)
        self._sizes = self._sizes + one.sizes
        self._groups = np.maximum(self._groups, one.groups)
        self._parts = _added(self._parts, one.parts)
        self._draws = _added(self._draws, one.draws)
        self._replicates += [] if one.replicates is None else [one.replicates]
        self.protocols.append(protocol)

    def plus(self, other: QuestionSum) -> QuestionSum:
        """The sum over the protocols of both."""
        both = QuestionSum(self.pairs, self.groups, [*self.protocols, *other.protocols])
        both._mean, both._count = self._mean + other._mean, self._count + other._count
        both._width, both._sizes = self._width + other._width, self._sizes + other._sizes
        both._groups = np.maximum(self._groups, other._groups)
        both._parts = _added(self._parts, other._parts)
        both._draws = _added(self._draws, other._draws)
        both._replicates = [*self._replicates, *other._replicates]
        return both

    @property
    def count(self) -> Floats:
        """How many protocols rank both methods of each pair [p]."""
        return self._count

    @property
    def known(self) -> NDArray[np.bool_]:
        """Which pairs any protocol ranks [p]."""
        there: NDArray[np.bool_] = self._count > 0
        return there

    @property
    def n_groups(self) -> int:
        """The largest number of groups of samples behind a pair."""
        return int(self._groups.max(initial=0))

    @property
    def group_counts(self) -> Codes:
        """The number of groups of samples behind each pair [p]."""
        return self._groups

    @property
    def mean(self) -> Floats:
        """The mean difference of each pair [p]; NaN where no protocol ranks both."""
        mean: Floats = np.where(self.known, self._mean / np.maximum(self._count, 1), np.nan)
        return mean

    @property
    def parts(self) -> Floats | None:
        """What each group adds to the deviation of a mean [g, p]; None if only draws are known."""
        return None if self._parts is None else self._parts / np.maximum(self._count, 1)

    @property
    def only_sums(self) -> bool:
        """Whether no protocol judges whole sets."""
        return self._draws is None

    def draws(self, resampling: Resampling) -> Floats:
        """The deviations of the means in resamples [b, p]."""
        drawn = np.zeros((resampling.draws, self.pairs))
        if self._draws is not None:
            drawn = drawn + self._draws / np.maximum(self._count, 1)
        if self.parts is not None:
            drawn = drawn + resampling.resampled(self.parts)
        return drawn

    def arms_over_replicates(self, level: float, family: int) -> Floats:
        """Half the width of Student's intervals over replicates [p]; 0 where none are repeated.

        Args:
            level: Nominal coverage of all intervals together.
            family: Number of intervals; Bonferroni.
        """
        arms = np.zeros(self.pairs)
        for one in self._replicates:
            if one.count < FEWEST_REPLICATES:
                return np.full(self.pairs, np.nan)
            t = float(scipy.stats.t.isf((1 - level) / (2 * family), one.count - 1))
            arms = arms + t * one.errors
        return arms / np.maximum(self._count, 1)

    def differences(self, resampling: Resampling, level: float) -> PairedDifferences:
        """All pairs with intervals that hold for all of them at once.

        A pair with fewer than `FEWEST_GROUPS` groups has no interval.
        """
        mean, usable = self.mean, self.known & (self._groups >= FEWEST_GROUPS)
        low, high = np.full(self.pairs, np.nan), np.full(self.pairs, np.nan)
        if usable.any():
            ends = self._summed_ends if self.only_sums else self._drawn_ends
            family = int(usable.sum())
            below, above = ends(mean[usable], usable, resampling, level)
            arms = self.arms_over_replicates(level, family)[usable]
            low[usable] = mean[usable] - np.hypot(mean[usable] - below, arms)
            high[usable] = mean[usable] + np.hypot(above - mean[usable], arms)
        return PairedDifferences.of_pairs(mean, low, high, self.n_groups)

    def _summed_ends(
        self, mean: Floats, chosen: NDArray[np.bool_], resampling: Resampling, level: float
    ) -> tuple[Floats, Floats]:
        parts = np.zeros((self.groups, len(mean))) if self.parts is None else self.parts[:, chosen]
        own = np.minimum(self._groups[chosen], self.groups)  # combined groups count as one
        error = np.sqrt(own / (own - 1) * np.square(parts).sum(axis=0))
        filled = self._sizes > 0
        t = largest_t(
            parts[np.ix_(filled, error > 0)], self._sizes[filled], level, resampling.draws,
            resampling.seed,
        )  # fmt: skip
        # The same tail of Student's distribution for pairs with fewer groups than the others.
        tail = float(scipy.stats.t.sf(t, max(1, int(filled.sum()) - 1)))
        half = scipy.stats.t.isf(tail, own - 1) * error
        low, high = mean - half, mean + half
        width = (self._width / np.maximum(self._count, 1))[chosen]
        for one in np.flatnonzero((error == 0) & (mean != 0)):
            # The same difference on all samples: its variance is unknown.
            groups = int(self._groups[chosen][one])
            ends = constant_ends(mean[[one]], float(width[one]), groups, level, len(mean))
            low[one], high[one] = float(ends[0][0]), float(ends[1][0])
        return low, high

    def _drawn_ends(
        self, mean: Floats, chosen: NDArray[np.bool_], resampling: Resampling, level: float
    ) -> tuple[Floats, Floats]:
        drawn = self.draws(resampling)[:, chosen]
        groups = int(np.minimum(self._groups[chosen].min(), self.groups))
        widths = (self._width / np.maximum(self._count, 1))[chosen]
        return ends_of_draws(mean, drawn, groups, level, np.ones(len(mean)), widths)


@dataclass(frozen=True, eq=False)
class QuestionResult:
    """All pairs of methods under one question.

    Attributes:
        name: The question.
        protocols: The protocols that ask it here.
        differences: Row minus column, in units of the spread of `random`; positive is better.
        level: Nominal coverage of all its intervals together.
    """

    name: str
    protocols: tuple[str, ...]
    differences: PairedDifferences
    level: float

    @property
    def better(self) -> Relation:
        """Which methods are resolved better than which."""
        return resolved(self.differences, higher_is_better=True)


def question_level(level: float, questions: int) -> float:
    """The coverage of one question's intervals, so that those of all questions hold together."""
    return 1 - (1 - level) / max(1, questions)


def _added(one: Floats | None, other: Floats | None) -> Floats | None:
    if one is None:
        return None if other is None else other.copy()
    return one if other is None else one + other
