"""Scores tables for tests, in the columns of DESIGN 5."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

CONTROLS = {"random": "random", "centre": "model_free", "edge": "model_free", "oracle": "other"}

DEFAULTS: dict[str, Any] = {
    "cell": "c",
    "dataset": "shapes",
    "model": "net",
    "checkpoint": "",
    "method": "saliency",
    "method_version": 1,
    "method_options": "{}",
    "protocol": "deletion",
    "protocol_version": 1,
    "protocol_options": "{}",
    "metric": "area",
    "target": "label",
    "sample": "",
    "group": "",
    "seed": 0,
    "value": float("nan"),
    "higher_is_better": True,
    "status": "ok",
    "headline": True,
}


def row(**fields: Any) -> dict[str, Any]:
    """Give one row, defaults where nothing is said."""
    return {**DEFAULTS, **fields}


def rows(method: str, values: Sequence[float], **fields: Any) -> list[dict[str, Any]]:
    """Give one row per sample of a method."""
    return [
        row(method=method, sample=f"s{i:03d}", value=float(value), **fields)
        for i, value in enumerate(values)
    ]


def several(values: Mapping[str, Sequence[float]], **fields: Any) -> list[dict[str, Any]]:
    """Give the rows of several methods."""
    return [line for method, scores in values.items() for line in rows(method, scores, **fields)]


def arrow(lines: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Give rows as an Arrow table."""
    return pa.Table.from_pylist([dict(line) for line in lines])
