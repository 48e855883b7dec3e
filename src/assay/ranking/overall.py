"""The overall order of one model's methods over its protocols."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from assay.ranking.blocks import Block, model_of
from assay.ranking.intervals import Statistic
from assay.ranking.orders import ProtocolScores, overall_order
from assay.ranking.resampling import Floats
from assay.ranking.rows import known
from assay.store import SHOWN_ONLY


def model_order(
    blocks: Sequence[Block],
    controls: Mapping[str, str],
    options: Mapping[str, Any],
    apart: Collection[str] = (),
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Order the methods of one model that are ranked in every protocol that ranks any method.

    A method whose scores under some protocols are only shown is ordered by the others.

    Args:
        blocks: All protocols of one dataset, model and checkpoint.
        controls: Kind of each control by method label; kind `other` stays out of the order.
        options: Keywords of `overall_order`: level, resamples, seed.
        apart: Protocols that are not mixed with others; they order where no other one ranks.

    Returns:
        One row per method in order, and one row per reason for which a method is left out.
    """
    used = [
        block
        for block in blocks
        if block.common and any(entry.method not in controls for entry in block.ranked)
    ]
    used = [block for block in used if block.protocol not in apart] or used
    key = dict(zip(("dataset", "model", "checkpoint"), model_of(blocks[0]), strict=True))
    names = sorted({entry.method for block in blocks for entry in block.entries})
    reasons = {name: _reasons(name, used, controls) for name in names}
    left_out = [
        {**key, "method": name, "protocol": protocol, "reason": reason}
        for name in names
        for protocol, reason in reasons[name]
    ]
    kept = [name for name in names if not reasons[name]]
    if not kept:
        return [], left_out
    used = [block for block in used if any(entry.method in kept for entry in block.ranked)]
    ranked = [{entry.method for entry in block.ranked} for block in used]
    order = overall_order([_scores(block, kept) for block in used], **options)
    rows = [
        {
            **key,
            "method": name,
            "control": controls.get(name, ""),
            "mean_rank": float(order.mean_rank[i]),
            "low": known(float(order.low[i])),
            "high": known(float(order.high[i])),
            "position": int(order.position[i]),
            "first_share": known(float(order.first_share[i])),
            "n_groups": order.n_groups,
            "protocols": sum(name in here for here in ranked),
        }
        for i, name in enumerate(kept)
    ]
    return sorted(rows, key=_place), left_out


def _place(row: Mapping[str, Any]) -> tuple[int, float, str]:
    """Who of a tie comes first more often stands before the others."""
    return row["position"], -(row["first_share"] or 0.0), row["method"]


def _reasons(
    name: str, used: Sequence[Block], controls: Mapping[str, str]
) -> list[tuple[str, str]]:
    """Say where and why a method cannot be in the order; nothing if it can."""
    if controls.get(name) == "other":
        return [("", "control that is no floor")]
    if not used:
        return [("", "no protocol ranks a method")]
    statuses = [
        (block.protocol, next((e.status for e in block.entries if e.method == name), "absent"))
        for block in used
    ]
    if all(status in SHOWN_ONLY for _, status in statuses):
        return statuses
    # Where a method is shown only it has no place; its other protocols decide.
    fine = ("ok", *SHOWN_ONLY)
    return [(protocol, status) for protocol, status in statuses if status not in fine]


def _scores(block: Block, names: Sequence[str]) -> ProtocolScores:
    entries = {entry.method: entry for entry in block.ranked}
    common = block.common
    values = np.full((len(common), len(names)), np.nan)
    here = [i for i, name in enumerate(names) if name in entries]
    values[:, here] = block.matrix([entries[names[i]] for i in here])
    return ProtocolScores(
        values=values,
        groups=None if common == [""] else block.groups_of(common),
        higher_is_better=block.higher_is_better,
        statistic=_statistic(block, names, here) if block.judges_sets else None,
    )


def _statistic(block: Block, names: Sequence[str], here: Sequence[int]) -> Statistic:
    """Give the scores of all names [b, m] from weights; NaN where a method has no place."""
    entries = {entry.method: entry for entry in block.ranked}
    found = block.statistic([entries[names[i]] for i in here], block.common)

    def scores(weights: Floats) -> Floats:
        values = np.full((len(weights), len(names)), np.nan)
        values[:, here] = found(weights)
        return values

    return scores
