"""Rows of one protocol: each method's mean, rank and distance to the controls."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from assay.ranking.blocks import Block, Entry
from assay.ranking.intervals import Differences
from assay.ranking.orders import resolved, tied_ranks
from assay.ranking.resampling import Floats
from assay.ranking.table import UNRANKED

# Kinds of control that know nothing of the model: what a method must beat.
FLOOR = ("random", "model_free")


def block_rows(
    block: Block, controls: Mapping[str, str], options: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Give one row per method of a block, best first, unranked last.

    Args:
        block: All methods under one protocol.
        controls: Kind of each control by method label.
        options: Keywords of the interval functions: level, resamples, seed.

    Returns:
        The rows.
    """
    compared = _compare(block, controls, options)
    rows = [
        {
            "dataset": block.dataset,
            "model": block.model,
            "checkpoint": block.checkpoint,
            "protocol": block.protocol,
            "method": entry.method,
            **_mean(block, entry, options),
            "status": entry.status,
            "method_options": entry.options,
            "protocol_options": block.protocol_options,
            "metric": block.metric,
            "higher_is_better": block.higher_is_better,
            "failed": entry.failed,
            "degenerate": entry.degenerate,
            "control": controls.get(entry.method, ""),
            **compared.get(entry.method, UNRANKED),
        }
        for entry in block.entries
    ]
    return sorted(rows, key=_best_first)


def known(value: float) -> float | None:
    """Give None for NaN: what is not known is null in every format."""
    return None if math.isnan(value) else value


def _best_first(row: Mapping[str, Any]) -> tuple[bool, float, bool, float, str]:
    mean = row["mean"]
    ordered = math.inf if mean is None else -mean if row["higher_is_better"] else mean
    rank = row["rank"]
    return rank is None, rank or 0, mean is None, ordered, row["method"]


def _mean(block: Block, entry: Entry, options: Mapping[str, Any]) -> dict[str, Any]:
    if not entry.values:
        return {"mean": None, "low": None, "high": None, "n": 0, "n_groups": 0}
    interval = block.interval(entry, options)
    return {
        "mean": interval.mean,
        "low": known(interval.low),
        "high": known(interval.high),
        "n": len(entry.values),
        "n_groups": interval.n_groups,
    }


def _compare(
    block: Block, controls: Mapping[str, str], options: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Give rank and distance to the floor of every ranked method of a block."""
    ranked, common = block.ranked, block.common
    if not common:
        return {entry.method: {**UNRANKED, "n_common": 0} for entry in ranked}
    differences = block.differences(ranked, options)
    ranks = tied_ranks(differences, higher_is_better=block.higher_is_better)
    better = resolved(differences, higher_is_better=block.higher_is_better)
    sign = 1.0 if block.higher_is_better else -1.0
    means = sign * block.statistic(ranked, common)(np.ones((1, len(common))))[0]
    kinds = [controls.get(entry.method, "") for entry in ranked]
    random = _best(means, [kind == "random" for kind in kinds])
    floor = _best(means, [kind in FLOOR for kind in kinds])
    compared = {}
    for i, entry in enumerate(ranked):
        row = {
            "rank": int(ranks.ranks[i]),
            "ties_broken": ranks.ties_broken,
            "n_common": len(common),
            **_against("minus_random", differences, i, random, sign),
            **_against("minus_control", differences, i, floor, sign),
            "best_control": None if floor is None else ranked[floor].method,
            "below_control": None,
            "clearly_below": None,
        }
        if floor is not None and not kinds[i]:
            row["below_control"] = bool(sign * differences.mean[i, floor] < 0)
            row["clearly_below"] = bool(better[floor, i])
        compared[entry.method] = row
    return compared


def _best(means: Floats, chosen: Sequence[bool]) -> int | None:
    if not any(chosen):
        return None
    return int(np.argmax(np.where(chosen, means, -np.inf)))


def _against(
    name: str, differences: Differences, method: int, control: int | None, sign: float
) -> dict[str, float | None]:
    """Give a method's paired difference to a control, positive where the method is better."""
    if control is None or control == method:
        return {name: None, f"{name}_low": None, f"{name}_high": None}
    ends = sorted(
        (
            sign * float(differences.low[method, control]),
            sign * float(differences.high[method, control]),
        )
    )
    return {
        name: sign * float(differences.mean[method, control]),
        f"{name}_low": known(ends[0]),
        f"{name}_high": known(ends[1]),
    }
