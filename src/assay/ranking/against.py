"""Every method compared with one control, sample by sample."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Unpack

import pyarrow as pa

from assay.errors import unknown
from assay.ranking.blocks import Block, MethodScores, read_blocks, shared_rows
from assay.ranking.orders import FEWEST_GROUPS
from assay.ranking.resampling import BootstrapOptions
from assay.ranking.rows import PublicRow
from assay.ranking.sets import Key, Outcome
from assay.store import Limits


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
        n: Number of samples that both have.
        difference: Paired difference, positive where the method is better.
        low: Lower end of the interval of this pair alone.
        high: Upper end of the interval of this pair alone.
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
    scores: pa.Table,
    control: str,
    outcomes: Mapping[Key, Outcome] | None = None,
    ranges: Mapping[str, Limits] | None = None,
    replicates: Mapping[str, Sequence[str]] | None = None,
    **options: Unpack[BootstrapOptions],
) -> list[ControlComparison]:
    """Compare every method with a control under every protocol.

    Args:
        scores: The `scores` of a run.
        control: Label of the method that the others are compared with.
        outcomes: The curves of the protocols that score whole sets.
        ranges: The lowest and highest score of a protocol, by its label.
        replicates: The metrics that hold one replicate each, by the label of the protocol.
        **options: Keywords of `mean_interval`: level, resamples, seed.

    Returns:
        One row per dataset, model, protocol and method.

    Raises:
        InputError: No method of the run has this label.
    """
    labels = set(scores["method"].to_pylist())
    if control not in labels:
        raise unknown("method of this run", control, labels)
    return [
        _compare(block, method, reference, options)
        for block in read_blocks(scores, outcomes, ranges, replicates)
        for reference in _named(block.methods, control)
        for method in block.methods
        if method.method != control and len(method)
    ]


def _named(methods: Sequence[MethodScores], name: str) -> list[MethodScores]:
    return [scores for scores in methods if scores.method == name and len(scores)]


def _compare(
    block: Block, scores: MethodScores, control: MethodScores, options: BootstrapOptions
) -> ControlComparison:
    better, worse = (scores, control) if block.higher_is_better else (control, scores)
    interval = block.difference(better, worse, options)
    certain = interval.n_groups >= FEWEST_GROUPS and not math.isnan(interval.low)
    verdict = "above" if interval.low > 0 else "below" if interval.high < 0 else "unclear"
    return ControlComparison(
        dataset=block.dataset,
        model=block.model,
        protocol=block.protocol,
        method=scores.method,
        control=control.method,
        status=scores.status,
        n=len(shared_rows([scores, control])),
        difference=interval.mean,
        low=interval.low,
        high=interval.high,
        verdict=verdict if certain else "unclear",
    )
