"""Every method against one control, sample by sample."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from assay.errors import unknown
from assay.ranking.blocks import Block, Entry, Range, read_blocks
from assay.ranking.orders import FEWEST_GROUPS
from assay.ranking.sets import Key, Outcome


def against(
    scores: pa.Table,
    control: str,
    outcomes: Mapping[Key, Outcome] | None = None,
    ranges: Mapping[str, Range] | None = None,
    **options: Any,
) -> list[dict[str, Any]]:
    """Give the paired difference of every method to a control under every protocol.

    Args:
        scores: The `scores` of a run.
        control: Label of the method held against.
        outcomes: What protocols that judge whole sets judge by.
        ranges: Where a protocol's score can lie, by its label.
        **options: Keywords of `mean_interval`: level, resamples, seed.

    Returns:
        One row per dataset, model, protocol and method: `difference`, positive where the method is
        better, its interval `low` to `high` (of this pair alone), and `verdict`: `above` or
        `below` where the interval excludes zero, else `unclear`.
    """
    labels = set(scores["method"].to_pylist())
    if control not in labels:
        raise unknown("method of this run", control, labels)
    return [
        _row(block, entry, reference, options)
        for block in read_blocks(scores, outcomes, ranges)
        for reference in _named(block.entries, control)
        for entry in block.entries
        if entry.method != control and entry.values
    ]


def _named(entries: Sequence[Entry], name: str) -> list[Entry]:
    return [entry for entry in entries if entry.method == name and entry.values]


def _row(block: Block, entry: Entry, control: Entry, options: dict[str, Any]) -> dict[str, Any]:
    better, worse = (entry, control) if block.higher_is_better else (control, entry)
    found = block.difference(better, worse, options)
    sure = found.n_groups >= FEWEST_GROUPS and not math.isnan(found.low)
    verdict = "above" if found.low > 0 else "below" if found.high < 0 else "unclear"
    return {
        "dataset": block.dataset,
        "model": block.model,
        "protocol": block.protocol,
        "method": entry.method,
        "control": control.method,
        "status": entry.status,
        "n": len(entry.values.keys() & control.values.keys()),
        "difference": found.mean,
        "low": found.low,
        "high": found.high,
        "verdict": verdict if sure else "unclear",
    }
