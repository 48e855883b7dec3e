"""One protocol's paired differences, in units of the spread of the `random` control's scores.

In these units protocols can be averaged. A pair of methods depends on the two and on `random`
alone: other methods of the run change nothing.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assay.ranking.blocks import Block, MethodScores, Places, shared_rows
from assay.ranking.deviations import centred_sums, unless_rounding
from assay.ranking.resampling import (
    BootstrapOptions,
    Codes,
    Floats,
    GroupedRows,
    combined_groups,
    level_of,
    resample_counts,
)

FEWEST_SAMPLES = 2  # to know a spread


@dataclass(frozen=True, eq=False)
class Resampling:
    """The groups of a setting, which are resampled together for all protocols.

    Attributes:
        labels: The labels of all groups, sorted.
        options: Level, number and seed of the resamples.
    """

    labels: Sequence[str]
    options: BootstrapOptions

    @functools.cached_property
    def combined(self) -> GroupedRows | None:
        """The combined group of each group; None where all are resampled by themselves."""
        return combined_groups(len(self.labels))

    @property
    def count(self) -> int:
        """How many groups, or combined groups, are resampled."""
        return len(self.labels) if self.combined is None else len(self.combined.sizes)

    @property
    def level(self) -> float:
        """Nominal coverage."""
        return level_of(self.options)

    @property
    def draws(self) -> int:
        """Number of resamples."""
        return self.options.get("resamples", 2000)

    @property
    def seed(self) -> int:
        """Seed of the resamples."""
        return self.options.get("seed", 0)

    @functools.cached_property
    def _numbers(self) -> dict[str, int]:
        return {label: i for i, label in enumerate(self.labels)}

    def numbered(self, groups: Sequence[str]) -> Codes:
        """The number of each sample's group; -1 for a group that no ranked score belongs to."""
        return np.fromiter((self._numbers.get(g, -1) for g in groups), np.int64, len(groups))

    def grouped(self, numbers: Codes) -> GroupedRows:
        """The samples with these numbers of groups, in the groups that are resampled."""
        index = numbers if self.combined is None else self.combined.index[numbers]
        return GroupedRows(index, groups=self.count)

    def resampled(self, parts: Floats) -> Floats:
        """What sums over groups [g, p] become in each resample [b, p]."""
        counts = resample_counts(self.count, self.draws, self.seed, columns=parts.shape[1])
        return np.concatenate([some @ parts for some in counts])


@dataclass(frozen=True, eq=False)
class OverReplicates:
    """Standard errors of all pairs over replicates [p], and how many replicates there are."""

    errors: Floats
    count: int


@dataclass(frozen=True, eq=False)
class StandardPairs:
    """The differences of all pairs of methods under one protocol, in the order of `triu_indices`.

    Attributes:
        mean: The differences [p]; NaN where not both methods are ranked.
        groups: Number of groups of samples behind each [p].
        parts: What each group adds to the difference's deviation [g, p]; None with `draws`.
        sizes: Number of samples of each group [g].
        draws: The differences less `mean` in resamples [b, p], of protocols that judge whole sets.
        width: The largest difference that the score's range allows.
        replicates: How far the differences vary over replicates, where scores are means over some.
    """

    mean: Floats
    groups: Codes
    parts: Floats | None
    sizes: Floats
    draws: Floats | None
    width: float
    replicates: OverReplicates | None = None


def refusal(block: Block, reference: str, options: BootstrapOptions) -> str:
    """Why a protocol has no unit in which it can be averaged with others; empty where it has one.

    Args:
        block: The scores of a protocol.
        reference: The control whose spread is the unit.
        options: Level, number and seed of the resamples.
    """
    scores = next((s for s in block.ranked if s.method == reference), None)
    if scores is None:
        return f"no ranked scores of the control `{reference}`"
    if list(block.names(scores.rows)) == [""]:
        return "one score of the whole set, without samples"
    if len(scores) < FEWEST_SAMPLES:
        return f"fewer than {FEWEST_SAMPLES} samples"
    if not _spread(block, scores, options) > 0:
        return f"the scores of the control `{reference}` do not vary"
    return ""


def standard_pairs(
    block: Block, names: Sequence[str], reference: str, resampling: Resampling
) -> StandardPairs:
    """The differences of all pairs of these methods, of a protocol without a refusal.

    A pair is compared on the samples that both methods have.

    Args:
        block: The scores of a protocol.
        names: The methods, and controls, that are compared.
        reference: The control whose spread is the unit.
        resampling: How groups are resampled.
    """
    by_name = {scores.method: scores for scores in block.ranked}
    unit = _spread(block, by_name[reference], resampling.options)
    scale = (1.0 if block.higher_is_better else -1.0) / unit
    present = [by_name.get(name) for name in names]
    first, second = np.triu_indices(len(names), 1)
    made = _Made(len(first), resampling.count, block.judges_sets, resampling.draws)
    numbers = resampling.numbered(block.sample_groups)
    for one, other in _alike(present):
        pair = [scores for scores in (present[one[0]], present[other[0]]) if scores is not None]
        rows = shared_rows(pair)
        if not len(rows):
            continue
        members = np.unique([*one, *other])
        chosen = [scores for m in members.tolist() if (scores := present[m]) is not None]
        pairs = np.flatnonzero(
            (np.isin(first, one) & np.isin(second, other))
            | (np.isin(first, other) & np.isin(second, one))
        )
        a, b = np.searchsorted(members, first[pairs]), np.searchsorted(members, second[pairs])
        made.groups[pairs] = len(np.unique(numbers[rows]))
        grouped = resampling.grouped(numbers[rows])
        made.sizes = np.maximum(made.sizes, grouped.sizes)
        if block.judges_sets:
            _draw(made, block, chosen, rows, grouped, (pairs, a, b), scale, resampling)
        else:
            _sum(made, block, chosen, rows, grouped, (pairs, a, b), scale)
    return StandardPairs(
        made.mean, made.groups, made.parts, made.sizes, made.draws, abs(scale) * block.width,
        None if made.replicates is None else OverReplicates(made.errors, made.replicates),
    )  # fmt: skip


class _Made:
    """What is made of the pairs, sets of methods with the same samples after each other."""

    def __init__(self, pairs: int, groups: int, judges_sets: bool, draws: int) -> None:
        self.mean = np.full(pairs, np.nan)
        self.groups = np.zeros(pairs, np.int64)
        self.sizes = np.zeros(groups)
        self.errors = np.zeros(pairs)
        self.parts: Floats | None = None if judges_sets else np.zeros((groups, pairs))
        self.draws: Floats | None = np.zeros((draws, pairs)) if judges_sets else None
        self.replicates: int | None = None


def _spread(block: Block, reference: MethodScores, options: BootstrapOptions) -> float:
    """The standard deviation of a control's scores over samples.

    Where only a whole set has a score, that of its resamples gives the spread that samples with
    such a standard error of their mean would have.
    """
    if len(reference) < FEWEST_SAMPLES:
        return math.nan
    if reference.outcome is None:
        own = reference.column[reference.rows]
        return float(unless_rounding(own.std(ddof=1)[None], np.abs(own).max()[None])[0])
    drawn = block.draws([reference], reference.rows, options)
    if drawn.n_groups < FEWEST_SAMPLES:
        return math.nan
    return float(drawn.values.std() * math.sqrt(len(reference)))


PairColumns = tuple[Codes, Codes, Codes]  # of pairs, and of the first and second method of each


def _sum(
    made: _Made,
    block: Block,
    chosen: Sequence[MethodScores],
    rows: Places,
    grouped: GroupedRows,
    columns: PairColumns,
    scale: float,
) -> None:
    """Add pairs from sums over groups."""
    pairs, a, b = columns
    values = scale * block.matrix(chosen, rows)
    largest = np.abs(values).max(axis=0)
    bound = np.maximum(largest[a], largest[b])
    means, sums = values.mean(axis=0), grouped.sums(values)
    made.mean[pairs] = unless_rounding(means[a] - means[b], bound)
    apart = centred_sums(sums[:, a] - sums[:, b], grouped.sizes, made.mean[pairs], bound)
    if made.parts is not None:
        made.parts[:, pairs] = apart / len(rows)
    repeated = block.replicate_means(chosen, rows)
    if repeated is not None:
        made.replicates = min(made.replicates or len(repeated), len(repeated))
        gaps = scale * (repeated[:, a] - repeated[:, b])  # [R, p]
        several = len(repeated) > 1
        made.errors[pairs] = gaps.std(axis=0, ddof=1) / len(gaps) ** 0.5 if several else np.nan


def _draw(
    made: _Made,
    block: Block,
    chosen: Sequence[MethodScores],
    rows: Places,
    grouped: GroupedRows,
    columns: PairColumns,
    scale: float,
    resampling: Resampling,
) -> None:
    """Add pairs of scores of whole sets from their resamples."""
    pairs, a, b = columns
    whole = block.statistic(chosen, rows)
    means = scale * whole(np.ones((1, len(rows))))[0]
    bound = np.maximum(np.abs(means[a]), np.abs(means[b]))
    made.mean[pairs] = unless_rounding(means[a] - means[b], bound)
    draws = scale * _resamples(block, chosen, rows, grouped, resampling) - means
    if made.draws is not None:
        made.draws[:, pairs] = draws[:, a] - draws[:, b]


def _alike(present: Sequence[MethodScores | None]) -> Iterable[tuple[list[int], list[int]]]:
    """The pairs of sets of methods; those of one set have the same samples."""
    alike: dict[bytes, list[int]] = {}
    for place, scores in enumerate(present):
        if scores is not None:
            alike.setdefault(scores.rows.tobytes(), []).append(place)
    sets = list(alike.values())
    return [(one, other) for i, one in enumerate(sets) for other in sets[i:]]


def _resamples(
    block: Block,
    methods: Sequence[MethodScores],
    rows: Places,
    grouped: GroupedRows,
    resampling: Resampling,
) -> Floats:  # [b, m]
    """The scores in resamples of the setting's groups, or of their own where these differ."""
    whole = block.statistic(methods, rows)
    if (grouped.sizes > 0).all() or not whole.adds_up:
        return block.draws(methods, rows, resampling.options).values
    blocks = []
    for counts in resample_counts(resampling.count, resampling.draws, resampling.seed):
        # A resample without any of the protocol's samples is the data as they are.
        empty = counts @ grouped.sizes <= 0
        blocks.append(whole.of_groups(grouped, np.where(empty[:, None], 1.0, counts)))
    return np.concatenate(blocks)


def groups_of(blocks: Iterable[Block]) -> list[str]:
    """The labels of the groups of all blocks that have samples, sorted."""
    labels: set[str] = set()
    for block in blocks:
        rows = every_ranked_row(block)
        if list(block.names(rows)) != [""]:
            labels.update(block.groups_at(rows))
    return sorted(labels)


def every_ranked_row(block: Block) -> NDArray[np.int64]:
    """The places of the samples that any ranked method has."""
    there = np.zeros(len(block.samples), np.bool_)
    for scores in block.ranked:
        there |= ~np.isnan(scores.column)
    return np.flatnonzero(there)
