"""Blocks of scores: one protocol on one model, all methods side by side."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from assay.ranking.intervals import (
    Interval,
    PairedDifferences,
    mean_interval_each,
    paired_differences,
)
from assay.ranking.proportions import Flags, constant_ends, zero_or_one
from assay.ranking.replicates import (
    Replicates,
    differences_over_replicates,
    interval_over_replicates,
    replicate_means,
)
from assay.ranking.resampling import (
    BootstrapOptions,
    Floats,
    check_bootstrap,
    grouped_rows,
    level_of,
)
from assay.ranking.set_intervals import (
    SetDraws,
    differences_of_draws,
    draw_scores,
    interval_of_draws,
)
from assay.ranking.set_scores import SetScores
from assay.ranking.sets import Outcome
from assay.store import Limits, SettingKey

UNBOUNDED: Limits = (-math.inf, math.inf)
Places = NDArray[np.int64]  # places of samples in a block


@dataclass(frozen=True, eq=False)
class MethodScores:
    """One method's scores under one protocol.

    Attributes:
        method: Label of the method.
        options: Options of the method.
        status: ok | n/a | failed | degenerate | circular | upper_bound | shown; only
            ok is ranked.
        samples: The samples of the block, sorted.
        column: Score of each of these, averaged over seeds; NaN where there is none.
        failed: Number of samples on which the method failed, under any seed.
        degenerate: Number of samples marked degenerate, under any seed.
        outcome: The curves behind a score of a whole set; None where the score is a mean.
        replicates: The scores of each replicate, such as a retraining, where a score is their mean.
    """

    method: str
    options: str
    status: str
    samples: Sequence[str]
    column: Floats
    failed: int
    degenerate: int
    outcome: Outcome | None = None
    replicates: Replicates = field(default_factory=dict)

    @functools.cached_property
    def rows(self) -> Places:
        """The places of the samples with a score."""
        there = ~np.isnan(self.column)
        return every_row(len(there)) if there.all() else np.flatnonzero(there)

    @functools.cached_property
    def values(self) -> dict[str, float]:
        """Score by sample, only where there is one."""
        return {self.samples[row]: float(self.column[row]) for row in self.rows}

    def __len__(self) -> int:
        """Count the samples with a score."""
        return len(self.rows)


@dataclass(frozen=True, eq=False)
class Block:
    """All methods under one protocol on one model and dataset, sorted by label."""

    dataset: str
    model: str
    checkpoint: str
    protocol: str
    protocol_options: str
    metric: str
    higher_is_better: bool
    samples: Sequence[str]
    sample_groups: Sequence[str]
    methods: Sequence[MethodScores]
    range: Limits = UNBOUNDED  # of one score, and so of means and of scores of sets
    group_numbers: Places | None = None  # of each sample, in order of the labels, where known

    @property
    def setting(self) -> SettingKey:
        """The setting it belongs to."""
        return SettingKey(self.dataset, self.model, self.checkpoint)

    @functools.cached_property
    def ranked(self) -> list[MethodScores]:
        """The methods that take part in ranks."""
        return [scores for scores in self.methods if scores.status == "ok"]

    @functools.cached_property
    def groups(self) -> dict[str, str]:
        """The group of each sample."""
        return dict(zip(self.samples, self.sample_groups, strict=True))

    @functools.cached_property
    def _group_numbers(self) -> Places:
        """The number of each sample's group, in order of their labels."""
        if self.group_numbers is not None:
            return self.group_numbers
        return np.unique(np.asarray(self.sample_groups), return_inverse=True)[1]

    @functools.cached_property
    def common(self) -> Places:
        """The places of the samples that every ranked method has."""
        return shared_rows(self.ranked)

    def names(self, rows: Places) -> Sequence[str]:
        """The samples at these places."""
        if len(rows) == len(self.samples):
            return self.samples
        return [self.samples[row] for row in rows]

    def rows_of(self, samples: Iterable[str]) -> Places:
        """The places of these samples."""
        return np.array([self._places[sample] for sample in samples], np.int64)

    @functools.cached_property
    def _places(self) -> dict[str, int]:
        return {sample: place for place, sample in enumerate(self.samples)}

    def matrix(self, methods: Sequence[MethodScores], rows: Places | None = None) -> Floats:
        """Give the scores of `methods` on some samples, by default the common ones [n, m]."""
        chosen = self.common if rows is None else rows
        values = np.empty((len(chosen), len(methods)))
        for place, scores in enumerate(methods):
            values[:, place] = scores.column[chosen]
        return values

    @property
    def judges_sets(self) -> bool:
        """Whether the score is one of the whole set rather than a mean."""
        return any(scores.outcome is not None for scores in self.methods)

    def replicate_means(self, methods: Sequence[MethodScores], rows: Places) -> Floats | None:
        """Give the means of `methods` in each replicate [R, m]; None where nothing is repeated."""
        if not any(scores.replicates for scores in self.methods):
            return None
        return replicate_means([scores.replicates for scores in methods], rows)

    def intervals(self, options: BootstrapOptions) -> dict[str, Interval]:
        """Give the score of each method on all the samples it has, by label."""
        alike: dict[bytes, list[MethodScores]] = {}  # by their samples
        for scores in self.methods:
            if len(scores):
                alike.setdefault(scores.rows.tobytes(), []).append(scores)
        intervals: dict[str, Interval] = {}
        for several in alike.values():
            for scores, interval in zip(several, self._of_same_rows(several, options), strict=True):
                intervals[scores.method] = interval.within(*self.range)
        return intervals

    def _of_same_rows(
        self, several: Sequence[MethodScores], options: BootstrapOptions
    ) -> list[Interval]:
        """Give the scores of methods that have the same samples."""
        rows = several[0].rows
        groups = self._group_numbers[rows]
        means = [scores for scores in several if scores.outcome is None]
        by_method: dict[str, Interval] = {}
        if means:
            values = self.matrix(means, rows)
            made = mean_interval_each(values, groups, **options, binary=self.shares(values))
            by_method = {s.method: one for s, one in zip(means, made, strict=True)}
        for scores in means:
            repeated = self.replicate_means([scores], rows)
            if repeated is not None and len(repeated) > 1:  # of one: over samples only
                interval, own = by_method[scores.method], repeated[:, 0]
                by_method[scores.method] = interval_over_replicates(
                    interval, own, level_of(options)
                )
        judged = [scores for scores in several if scores.outcome is not None]
        if judged:
            values = self.statistic(judged, rows)(np.ones((1, len(rows))))[0]
            drawn = self.draws(judged, rows, options)
            groups_here = _count_groups(groups)
            for scores, value, column in zip(judged, values, drawn.values.T, strict=True):
                mine = replace(drawn, values=column[:, None])
                by_method[scores.method] = interval_of_draws(
                    float(value), mine, groups_here, level_of(options)
                )
        return [by_method[scores.method] for scores in several]

    def gaps(
        self,
        pairs: Sequence[tuple[MethodScores, MethodScores]],
        options: BootstrapOptions,
    ) -> list[Interval]:
        """Give the score of the first method of each pair minus that of the second."""
        rows = [shared_rows(pair) for pair in pairs]
        alike: dict[bytes, list[int]] = {}  # by the samples of both
        for place, mine in enumerate(rows):
            alike.setdefault(mine.tobytes(), []).append(place)
        gaps: dict[int, Interval] = {}
        for places in alike.values():
            some = [pairs[place] for place in places]
            gaps |= zip(places, self._gaps_on(some, rows[places[0]], options), strict=True)
        return [gaps[i].within(-self.width, self.width) for i in range(len(pairs))]

    def _gaps_on(
        self,
        pairs: Sequence[tuple[MethodScores, MethodScores]],
        rows: Places,
        options: BootstrapOptions,
    ) -> list[Interval]:
        groups = self._group_numbers[rows]
        if self.judges_sets:
            return [self._gap_of_sets(pair, rows, options) for pair in pairs]
        apart = np.empty((len(rows), len(pairs)))
        for column, (scores, other) in enumerate(pairs):
            apart[:, column] = scores.column[rows] - other.column[rows]
        made = mean_interval_each(apart, groups, **options)
        for place, pair in enumerate(pairs):
            means = self.replicate_means(pair, rows)
            if means is not None:
                made[place] = interval_over_replicates(
                    made[place], means[:, 0] - means[:, 1], level_of(options)
                )
            elif math.isnan(made[place].low) and made[place].n_groups > 1:
                made[place] = self._constant_gap(made[place], options)
        return made

    def _constant_gap(self, gap: Interval, options: BootstrapOptions) -> Interval:
        """Give the interval of a difference that is the same in all groups."""
        if gap.mean == 0:
            return replace(gap, low=0.0, high=0.0)
        mean, level = np.array([gap.mean]), level_of(options)
        low, high = constant_ends(mean, self.width, gap.n_groups, level, 1)
        return replace(gap, low=float(low[0]), high=float(high[0]))

    def _gap_of_sets(
        self, pair: Sequence[MethodScores], rows: Places, options: BootstrapOptions
    ) -> Interval:
        minus = np.array([[1.0], [-1.0]])
        both = self.statistic(pair, rows)
        value = float((both(np.ones((1, len(rows)))) @ minus)[0, 0])
        drawn = self.draws(pair, rows, options)
        drawn = replace(drawn, values=drawn.values @ minus)
        n_groups = _count_groups(self._group_numbers[rows])
        return interval_of_draws(value, drawn, n_groups, level_of(options))

    def differences(
        self, methods: Sequence[MethodScores], options: BootstrapOptions
    ) -> PairedDifferences:
        """Compare all pairs of methods on the common samples."""
        groups = self._group_numbers[self.common]
        if not self.judges_sets:
            means = self.replicate_means(methods, self.common)
            width = self.width if means is None else None
            differences = paired_differences(self.matrix(methods), groups, **options, width=width)
            if means is not None:
                differences = differences_over_replicates(differences, means, level_of(options))
        else:
            values = self.statistic(methods, self.common)(np.ones((1, len(self.common))))[0]
            drawn = self.draws(methods, self.common, options)
            n_groups = _count_groups(groups)
            differences = differences_of_draws(
                values, drawn, n_groups, level_of(options), self.width
            )
        return differences.within(self.width)

    def draws(
        self, methods: Sequence[MethodScores], rows: Places, options: BootstrapOptions
    ) -> SetDraws:
        """Evaluate the scores of methods in resamples of some samples, each once."""
        resamples, seed = options.get("resamples", 2000), options.get("seed", 0)
        check_bootstrap(level_of(options), resamples)
        where = (rows.tobytes(), resamples, seed)
        new = [s for s in methods if (s.method, *where) not in self._drawn]
        if new:
            index = self.groups_numbered(rows)
            drawn = draw_scores(self.statistic(new, rows), index, resamples, seed)
            for scores, column in zip(new, drawn.values.T, strict=True):
                self._drawn[scores.method, *where] = replace(drawn, values=column)
        known = [self._drawn[scores.method, *where] for scores in methods]
        return replace(known[0], values=np.stack([one.values for one in known], axis=1))

    @functools.cached_property
    def _drawn(self) -> dict[tuple[str, bytes, int, int], SetDraws]:
        return {}

    @property
    def width(self) -> float:
        """The largest difference between two scores."""
        least, most = self.range
        return 1.0 if math.isinf(most - least) and self._is_binary else most - least

    def shares(self, values: Floats) -> Flags:
        """Tell which columns of scores [n, m] are 0 or 1, as all scores of a share are.

        A score with another range, such as a correlation, may be 0 or 1 on all samples by chance.
        """
        if self.range == (0, 1) or (math.isinf(max(self.range)) and self._is_binary):
            return zero_or_one(values)
        return np.zeros(values.shape[1], np.bool_)

    @functools.cached_property
    def _is_binary(self) -> bool:
        """Whether the scores are 0 or 1 for all methods, and both occur."""
        known = [scores.column[scores.rows] for scores in self.methods if len(scores)]
        numbers = [np.unique(column) for column in known if zero_or_one(column[:, None]).all()]
        return len(numbers) == len(known) and len(np.unique(np.concatenate([*numbers, []]))) == 2

    def statistic(self, methods: Sequence[MethodScores], rows: Places) -> SetScores:
        """Give the function from weights of samples [b, n] to the methods' scores [b, m]."""
        outcomes = [scores.outcome for scores in methods]
        return SetScores(self.names(rows), self.matrix(methods, rows), outcomes)

    def groups_numbered(self, rows: Places) -> Places:
        """Give the number of the group of the samples at these places, among their groups."""
        return grouped_rows(self._group_numbers[rows], len(rows)).index

    def groups_at(self, rows: Places) -> Sequence[str]:
        """Give the group of the samples at these places."""
        if len(rows) == len(self.samples):
            return self.sample_groups
        return [self.sample_groups[row] for row in rows]

    def groups_of(self, samples: Iterable[str]) -> list[str]:
        """Give the group of each sample."""
        return [self.groups[sample] for sample in samples]


@functools.lru_cache(maxsize=4)
def every_row(number: int) -> Places:
    """The places of all samples, one array for all methods that have them all."""
    places = np.arange(number)
    places.setflags(write=False)
    return places


def _count_groups(numbers: Places) -> int:
    return int(np.count_nonzero(np.bincount(numbers)))


def shared_rows(methods: Sequence[MethodScores]) -> Places:
    """The places of the samples that all methods of a block have."""
    if not methods:
        return np.zeros(0, np.int64)
    there = ~np.isnan(methods[0].column)
    for scores in methods[1:]:
        there &= ~np.isnan(scores.column)
    return every_row(len(there)) if there.all() else np.flatnonzero(there)
