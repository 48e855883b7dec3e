"""Scores of a run that are arrays already, in the form of `assay.ranking.pivot`."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assay.ranking.pivot import Pivoted, PivotedMethod, count_failures, method_status
from assay.ranking.resampling import Codes, Floats
from assay.ranking.sets import Key, Outcome, with_parts
from assay.store import Array
from assay.store.run_arrays import STATUSES, RunArrays, ScoreArrays

_OK, _NOT, _FAILED, _DEGENERATE = (
    STATUSES.index(status) for status in ("ok", "n/a", "failed", "degenerate")
)


@dataclass(frozen=True, eq=False)
class SortedSamples:
    """The samples of a block, sorted; blocks with the same samples share it.

    Attributes:
        names: The samples, sorted.
        groups: The group of each; a sample without one is a group of its own.
        numbers: The number of each one's group, in order of the labels of the groups.
        order: The place of each in the arrays; None where they are sorted already.
        _source: The samples and groups as the arrays have them.
    """

    names: Sequence[str]
    groups: Sequence[str]
    numbers: Codes
    order: Codes | None
    _source: tuple[Sequence[str], Sequence[str], Array]

    @classmethod
    def of(cls, block: ScoreArrays, before: SortedSamples | None = None) -> SortedSamples:
        """Sort the samples of a block that have a row, or take those of the block before."""
        there = (block.statuses != 0).any(axis=(0, 1))
        if before is not None:
            samples, groups, had = before._source
            same = np.array_equal(had, there) and samples == block.samples
            if same and groups == block.groups:
                return before
        chosen = np.flatnonzero(there).tolist()
        order = sorted(chosen, key=block.samples.__getitem__)
        names = [block.samples[i] for i in order]
        labels = [block.groups[i] or block.samples[i] for i in order]
        number = {label: i for i, label in enumerate(sorted(set(labels)))}
        numbers = np.fromiter((number[label] for label in labels), np.int64, len(labels))
        places = None if order == list(range(len(there))) else np.array(order, np.int64)
        source = (block.samples, block.groups, there)
        return cls(names, names if labels == names else labels, numbers, places, source)

    def take(self, values: Array) -> Array:
        """Give values [..., samples] of the arrays in the order of the sorted samples."""
        return values if self.order is None else values[..., self.order]


def pivot_arrays(
    arrays: RunArrays, outcomes: Mapping[Key, Outcome], without: Collection[str] = ()
) -> Iterator[tuple[Pivoted, SortedSamples, ScoreArrays]]:
    """Give the scores of each block that has any, its samples, and the arrays they came from.

    Args:
        arrays: The scores of a run.
        outcomes: The numbers of whole sets, of which the samples get their parts.
        without: Labels of protocols that are left out.
    """
    samples = None
    for block in arrays.scores():
        if block.protocol not in without and block.statuses.any():
            samples = SortedSamples.of(block, samples)
            block = with_parts(block, outcomes)
            yield pivoted_arrays(block, samples), samples, block


def pivoted_arrays(block: ScoreArrays, samples: SortedSamples) -> Pivoted:
    """Give the scores of a block, averaged over seeds, with what its statuses say."""
    statuses = block.statuses
    names = sorted(
        (method, place)
        for place, method in enumerate(block.methods)
        if statuses[:, place].any()
    )  # fmt: skip
    places = [place for _, place in names]
    if places != list(range(len(block.methods))):
        statuses, values = statuses[:, places], block.values[:, places]
    else:
        values = block.values
    statuses, values = samples.take(statuses), samples.take(values)
    if len(values) == 1 and (statuses == _OK).all() and np.isfinite(values).all():
        scores = values[0]
        lost = marked = np.zeros(scores.shape, bool)
    else:
        known = np.isfinite(values)
        counts = known & (statuses != 0) & (statuses != _FAILED) & (statuses != _NOT)
        alone = len(values) == 1
        scores = np.where(counts, values, np.nan)[0] if alone else mean_of_seeds(values, counts)
        degenerate = statuses == _DEGENERATE
        failed = ~known & (statuses != 0) & (statuses != _NOT) | (statuses == _FAILED)
        lost, marked = (failed & ~degenerate).any(axis=0), degenerate.any(axis=0)
    methods = []
    for row, (name, place) in enumerate(names):
        has = ~np.isnan(scores[row])
        found = {STATUSES[code] for code in np.flatnonzero(np.bincount(statuses[:, row].ravel()))}
        some_degenerate = int(marked[row].sum())
        only_lost = int((lost[row] & ~has).sum())
        status = method_status(found, int(has.sum()), only_lost, some_degenerate > 0)
        failures = count_failures(lost[row], samples.names)
        options = block.method_options[place]
        methods.append(PivotedMethod(name, options, status, failures, some_degenerate))
    return Pivoted(
        (block.dataset, block.model, block.checkpoint, block.protocol),
        block.protocol_options,
        block.metric,
        block.higher_is_better,
        samples.names,
        samples.groups,
        methods,
        scores.T,
    )


def mean_of_seeds(values: Floats, scored: NDArray[np.bool_]) -> Floats:
    """Give the mean over seeds [m, n] of the scores [seeds, m, n] that count, NaN without any.

    Sums are exact before they are rounded, so that they do not depend on the order of the seeds.
    """
    count = np.zeros(values.shape[1:])
    total, rest, rounded = (np.zeros(values.shape[1:]) for _ in range(3))
    for seed, counts in zip(values, scored, strict=True):
        first = counts & (count == 0)
        total[first] = seed[first]
        more = counts & ~first
        total[more], lost = _two_sum(total[more], seed[more])
        rest[more], error = _two_sum(rest[more], lost)
        rounded[more] += np.abs(error)
        count += counts
    several = count > 1
    total[several] += rest[several]
    for place in zip(*np.nonzero(rounded), strict=True):  # hardly ever
        every = (slice(None), *place)
        total[place] = math.fsum(values[every][scored[every]].tolist())
    with np.errstate(invalid="ignore"):
        mean: Floats = np.where(count > 0, total / count, np.nan)
    return mean


def _two_sum(one: Floats, other: Floats) -> tuple[Floats, Floats]:
    """The rounded sum of two numbers, and what rounding lost of it, exactly."""
    total = one + other
    part = total - one
    return total, (one - (total - part)) + (other - part)


def further_scores(
    block: ScoreArrays, samples: SortedSamples, names: Collection[str]
) -> Mapping[str, Mapping[tuple[int, str], Floats]]:
    """The scores of each replicate by method: by seed and metric, on the sorted samples."""
    by_method: dict[str, dict[tuple[int, str], Floats]] = {}
    for row, seed in enumerate(block.seeds):
        for name in (name for name in block.replicates if name in names):
            values = block.replicates[name]
            for column, method in enumerate(block.methods):
                mine = samples.take(values[row, column])
                finite = np.isfinite(mine)
                if finite.any():
                    scores = mine if finite.all() else np.where(finite, mine, np.nan)
                    by_method.setdefault(method, {})[seed, name] = scores
    return by_method
