"""Every method compared with one control, sample by sample."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Unpack

import pyarrow as pa

from assay.errors import unknown
from assay.ranking.block_reading import read_blocks
from assay.ranking.blocks import Block, MethodScores, shared_rows
from assay.ranking.intervals import Interval
from assay.ranking.orders import FEWEST_GROUPS
from assay.ranking.resampling import BootstrapOptions
from assay.ranking.rows import PublicRow
from assay.ranking.sets import Key, Outcome
from assay.store import Limits
from assay.store.run_arrays import RunArrays


@dataclass(frozen=True)
class ControlComparison:
    """One method minus one control under one protocol.

    Attributes:
        dataset: Label of the dataset.
        model: Label of the model.
        protocol: Label of the protocol.
        method: Label of the method.
        control: Label of the control.
        status: Status of the method's scores; only ok is ranked.
        n: Number of samples behind it: those that all ranked methods have, or that both have.
        difference: Paired difference, positive where the method is better.
        low: Lower end of its interval: of ranked methods the leaderboard's, which holds for
            all pairs at once; of others that of this pair alone.
        high: Upper end of its interval.
        verdict: `above` or `below` where the interval excludes zero, otherwise `unclear`.
    """

    dataset: str
    model: str
    protocol: str
    method: str
    control: str
    status: str
    n: int
    difference: float
    low: float
    high: float
    verdict: str

    def as_dict(self) -> PublicRow:
        """The row as users read it."""
        return dict(vars(self))


def against(
    scores: pa.Table | RunArrays,
    control: str,
    outcomes: Mapping[Key, Outcome] | None = None,
    ranges: Mapping[str, Limits] | None = None,
    replicates: Mapping[str, Sequence[str]] | None = None,
    without: Collection[str] = (),
    **options: Unpack[BootstrapOptions],
) -> list[ControlComparison]:
    """Compare every method with a control under every protocol.

    Args:
        scores: The scores of a run, as arrays or as a table.
        control: Label of the method that the others are compared with.
        outcomes: The curves of the protocols that score whole sets.
        ranges: The lowest and highest score of a protocol, by its label.
        replicates: The metrics that hold one replicate each, by the label of the protocol.
        without: Labels of protocols that are left out.
        **options: Keywords of `mean_interval`: level, resamples, seed.

    Returns:
        One row per dataset, model, protocol and method.

    Raises:
        InputError: No method of the run has this label.
    """
    blocks = read_blocks(scores, outcomes, ranges, replicates, without)
    labels = {scores.method for block in blocks for scores in block.methods}
    if control not in labels:
        raise unknown("method of this run", control, labels)
    rows = []
    for block in blocks:
        for reference in _named(block.methods, control):
            rows += _compare(block, reference, options)
    return rows


def _named(methods: Sequence[MethodScores], name: str) -> list[MethodScores]:
    return [scores for scores in methods if scores.method == name and len(scores)]


def _compare(
    block: Block, control: MethodScores, options: BootstrapOptions
) -> list[ControlComparison]:
    others = [scores for scores in block.methods if scores is not control and len(scores)]
    ranked = _simultaneous(block, control, options)
    alone = [scores for scores in others if scores.method not in ranked]
    higher = block.higher_is_better
    gaps = block.gaps([(s, control) if higher else (control, s) for s in alone], options)
    ranked |= {s.method: gap for s, gap in zip(alone, gaps, strict=True)}
    return [_row(block, s, control, ranked[s.method]) for s in others]


def _simultaneous(
    block: Block, control: MethodScores, options: BootstrapOptions
) -> dict[str, Interval]:
    """The differences of ranked methods from a ranked control, as the leaderboard has them."""
    if control.status != "ok" or not len(block.common):
        return {}
    differences = block.differences(block.ranked, options)
    sign = 1.0 if block.higher_is_better else -1.0
    there = block.ranked.index(control)
    gaps = {}
    for here, scores in enumerate(block.ranked):
        mean, one, other = (
            sign * float(ends[here, there])
            for ends in (differences.mean, differences.low, differences.high)
        )
        gaps[scores.method] = Interval(mean, min(one, other), max(one, other), differences.n_groups)
    return gaps


def _row(
    block: Block, scores: MethodScores, control: MethodScores, interval: Interval
) -> ControlComparison:
    both = scores.status == control.status == "ok" and len(block.common)
    n = len(block.common) if both else len(shared_rows([scores, control]))
    certain = interval.n_groups >= FEWEST_GROUPS and not math.isnan(interval.low)
    verdict = "above" if interval.low > 0 else "below" if interval.high < 0 else "unclear"
    return ControlComparison(
        dataset=block.dataset,
        model=block.model,
        protocol=block.protocol,
        method=scores.method,
        control=control.method,
        status=scores.status,
        n=n,
        difference=interval.mean,
        low=interval.low,
        high=interval.high,
        verdict=verdict if certain else "unclear",
    )
