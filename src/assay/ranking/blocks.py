"""Read a scores table into blocks: one protocol on one model, all methods side by side."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from assay.ranking.intervals import (
    Interval,
    PairedDifferences,
    Statistic,
    mean_interval,
    paired_differences,
    set_differences,
    set_interval,
)
from assay.ranking.pivot import Pivoted, PivotedMethod, pivot
from assay.ranking.replicates import (
    FEWEST_REPLICATES,
    Replicates,
    differences_over_replicates,
    interval_over_replicates,
    read_replicates,
    replicate_means,
)
from assay.ranking.resampling import BootstrapOptions, Floats, level_of
from assay.ranking.sets import Key, Outcome
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
        return np.flatnonzero(~np.isnan(self.column))

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
        return replicate_means([scores.replicates for scores in methods], self.names(rows))

    def interval(self, scores: MethodScores, options: BootstrapOptions) -> Interval:
        """Give the score of one method on all the samples it has."""
        rows = scores.rows
        groups = self._group_numbers[rows]
        if scores.outcome is None:
            interval = mean_interval(scores.column[rows], groups, **options)
            means = self.replicate_means([scores], rows)
            if means is not None and len(means) > 1:  # of one, the interval is over samples only
                interval = interval_over_replicates(interval, means[:, 0], level_of(options))
            return interval.within(*self.range)
        statistic = self.statistic([scores], rows)
        return set_interval(statistic, groups, **options).within(*self.range)

    def difference(
        self, scores: MethodScores, other: MethodScores, options: BootstrapOptions
    ) -> Interval:
        """Give one method's score minus another's, on the samples of both."""
        rows = shared_rows([scores, other])
        groups = self._group_numbers[rows]
        if not self.judges_sets:
            paired = scores.column[rows] - other.column[rows]
            interval = mean_interval(paired, groups, **options)
            means = self.replicate_means([scores, other], rows)
            if means is not None:
                apart = means[:, 0] - means[:, 1]
                interval = interval_over_replicates(interval, apart, level_of(options))
            return interval.within(-self._width, self._width)
        both = self.statistic([scores, other], rows)
        minus = np.array([[1.0], [-1.0]])
        interval = set_interval(lambda weights: both(weights) @ minus, groups, **options)
        return interval.within(-self._width, self._width)

    def differences(
        self, methods: Sequence[MethodScores], options: BootstrapOptions
    ) -> PairedDifferences:
        """Compare all pairs of methods on the common samples."""
        groups = self._group_numbers[self.common]
        if not self.judges_sets:
            differences = paired_differences(self.matrix(methods), groups, **options)
            means = self.replicate_means(methods, self.common)
            if means is not None:
                differences = differences_over_replicates(differences, means, level_of(options))
        else:
            statistic = self.statistic(methods, self.common)
            differences = set_differences(statistic, groups, **options)
        return differences.within(self._width)

    @property
    def _width(self) -> float:
        least, most = self.range
        return most - least

    def statistic(self, methods: Sequence[MethodScores], rows: Places) -> Statistic:
        """Give the function from weights of samples [b, n] to the methods' scores [b, m]."""
        values, samples = self.matrix(methods, rows), self.names(rows)

        def statistic(weights: Floats) -> Floats:
            means: Floats = weights @ values / weights.sum(axis=1, keepdims=True)
            for column, scores in enumerate(methods):
                if scores.outcome is not None:
                    means[:, column] = scores.outcome.values(samples, weights)
            return means

        return statistic

    def groups_at(self, rows: Places) -> Sequence[str]:
        """Give the group of the samples at these places."""
        if len(rows) == len(self.samples):
            return self.sample_groups
        return [self.sample_groups[row] for row in rows]

    def groups_of(self, samples: Iterable[str]) -> list[str]:
        """Give the group of each sample."""
        return [self.groups[sample] for sample in samples]


def shared_rows(methods: Sequence[MethodScores]) -> Places:
    """The places of the samples that all methods of a block have."""
    if not methods:
        return np.zeros(0, np.int64)
    there = ~np.isnan(methods[0].column)
    for scores in methods[1:]:
        there &= ~np.isnan(scores.column)
    return np.flatnonzero(there)


def read_blocks(
    scores: pa.Table | Iterable[pa.Table],
    outcomes: Mapping[Key, Outcome] | None = None,
    ranges: Mapping[str, Limits] | None = None,
    replicates: Mapping[str, Sequence[str]] | None = None,
) -> list[Block]:
    """Split the headline rows of a scores table by dataset, model, checkpoint and protocol.

    Args:
        scores: The `scores` of a run, whole or in parts; each part holds all rows of its blocks.
        outcomes: The curves of the protocols that score whole sets.
        ranges: The lowest and highest score of a protocol, by its label; unlimited by default.
        replicates: By the label of a protocol whose scores are means over replicates, the metrics
            that hold one replicate each.

    Returns:
        The blocks, sorted by dataset, model, checkpoint and protocol.

    Raises:
        ValueError: A column is missing, or the rows of a block contradict each other.
    """
    blocks = []
    for part in [scores] if isinstance(scores, pa.Table) else scores:
        repeated = read_replicates(part, replicates or {})
        blocks += [_block(one, outcomes or {}, repeated, ranges or {}) for one in pivot(part)]
    return sorted(blocks, key=lambda block: (*block.setting, block.protocol))


def _block(
    one: Pivoted,
    outcomes: Mapping[Key, Outcome],
    replicates: Mapping[Key, Replicates],
    ranges: Mapping[str, Limits],
) -> Block:
    methods = []
    for column, about in zip(one.table.T, one.methods, strict=True):
        key = (*one.key, about.method)
        scores = _scores(about, one.samples, column, outcomes.get(key), replicates.get(key, {}))
        methods.append(scores)
    return Block(
        *one.key,
        protocol_options=one.protocol_options,
        metric=one.metric,
        higher_is_better=one.higher_is_better,
        samples=one.samples,
        sample_groups=one.groups,
        methods=_only_shown(methods) if _ranks_nothing(methods) else methods,
        range=ranges.get(one.key[3], UNBOUNDED),
    )


def _scores(
    about: PivotedMethod,
    samples: Sequence[str],
    column: Floats,
    outcome: Outcome | None,
    replicates: Replicates,
) -> MethodScores:
    """Give a method's scores; those of a set only on the samples that all seeds have."""
    status = about.status
    if outcome is not None:
        known = set(outcome.samples)
        column = np.where([sample in known for sample in samples], column, np.nan)
        status = "failed" if status == "ok" and np.isnan(column).all() else status
    return MethodScores(
        about.method,
        about.options,
        status,
        samples,
        column,
        about.failed,
        about.degenerate,
        outcome,
        replicates,
    )


def _ranks_nothing(methods: Sequence[MethodScores]) -> bool:
    """Whether the protocol ranks no method, or has too few replicates to rank the methods."""
    if any(scores.status == "shown" for scores in methods):
        return True
    repeated = [set(s.replicates) for s in methods if s.status == "ok"]
    return any(repeated) and len(set.intersection(*repeated)) < FEWEST_REPLICATES


def _only_shown(methods: Sequence[MethodScores]) -> list[MethodScores]:
    return [replace(s, status="shown") if s.status == "ok" else s for s in methods]
