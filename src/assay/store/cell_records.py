"""Cells of one shard as records of its log: provenance, scores, statuses and curves."""

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from assay.store.json_records import StoredObject
from assay.store.run_arrays import STATUSES
from assay.store.shard_log import LogRecord
from assay.store.tables import Array

CELLS = "cells"  # kind of record
_CODES = {status: code for code, status in enumerate(STATUSES)}


@dataclass(frozen=True, eq=False)
class StoredCell:
    """One method under one protocol on the samples of one shard.

    Attributes:
        cell: Key of the cell.
        method: Label of the method when it was computed.
        protocol: Label of the protocol when it was computed.
        status: ok | n/a | failed.
        message: Why it failed or does not apply.
        seconds: Time of scoring.
        explain_seconds: Time of explaining.
        forwards: Forward passes of scoring.
        metrics: One number per sample by metric; empty if nothing was scored.
        statuses: One status per sample, as places in `STATUSES`.
        x: Where the curves were taken.
        curves: One curve per sample by name, each [n, K].
    """

    cell: str
    method: str
    protocol: str
    status: str
    message: str = ""
    seconds: float | None = None
    explain_seconds: float | None = None
    forwards: int = 0
    metrics: Mapping[str, Array] = field(default_factory=dict)
    statuses: Array = field(default_factory=lambda: np.empty(0, np.uint8))
    x: Array = field(default_factory=lambda: np.empty(0))
    curves: Mapping[str, Array] = field(default_factory=dict)


_PLAIN = ("cell", "method", "protocol", "status")
_OPTIONAL: Mapping[str, object] = {
    "message": "", "seconds": None, "explain_seconds": None, "forwards": 0,
}  # fmt: skip


def status_codes(statuses: Sequence[str] | Array) -> Array:
    """Statuses as places in `STATUSES`."""
    return np.fromiter((_CODES[str(status)] for status in statuses), np.uint8, len(statuses))


def cells_record(cells: Sequence[StoredCell]) -> LogRecord:
    """A record of some cells, computed one after the other."""
    arrays: dict[str, Array] = {}
    facts = [_facts(cell, number, arrays) for number, cell in enumerate(cells)]
    key = hashlib.sha256(",".join(cell.cell for cell in cells).encode()).hexdigest()[:16]
    return LogRecord.make(CELLS, key, {"cells": facts}, arrays)


def _facts(cell: StoredCell, number: int, arrays: dict[str, Array]) -> StoredObject:
    """Describe a cell; its numbers go into `arrays`."""
    facts: StoredObject = {name: getattr(cell, name) for name in _PLAIN}
    facts |= {
        name: getattr(cell, name)
        for name, default in _OPTIONAL.items()
        if getattr(cell, name) != default
    }
    facts["metrics"] = list(cell.metrics)
    for place, values in enumerate(cell.metrics.values()):
        arrays[f"{number}m{place}"] = np.asarray(values, np.float64)
    codes = cell.statuses
    if len(codes) and (codes == codes[0]).all():
        facts["code"], facts["n"] = int(codes[0]), len(codes)
    else:
        arrays[f"{number}s"] = codes
    if cell.curves:
        facts["curves"] = list(cell.curves)
        arrays[f"{number}x"] = np.asarray(cell.x, np.float64)
        for place, values in enumerate(cell.curves.values()):
            arrays[f"{number}c{place}"] = _narrowed(np.asarray(values, np.float64))
    return facts


def read_cells(
    record: LogRecord, with_curves: bool = True, only: Collection[str] | None = None
) -> Iterator[StoredCell]:
    """The cells of a record, with or without their curves; curves have double precision again."""
    arrays = record.arrays()
    for number, facts in enumerate(record.facts["cells"]):
        if only is not None and facts["cell"] not in only:
            continue
        codes = arrays.get(f"{number}s")
        curves = facts.get("curves", ()) if with_curves else ()
        yield StoredCell(
            **{name: facts[name] for name in _PLAIN},
            **{name: facts.get(name, default) for name, default in _OPTIONAL.items()},
            metrics={name: arrays[f"{number}m{i}"] for i, name in enumerate(facts["metrics"])},
            statuses=np.full(facts["n"], facts["code"], np.uint8) if codes is None else codes,
            x=arrays[f"{number}x"] if curves else np.empty(0),
            curves={
                name: arrays[f"{number}c{i}"].astype(np.float64) for i, name in enumerate(curves)
            },
        )


def _narrowed(values: Array) -> Array:
    """The values in single precision, if that loses nothing."""
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32)
    same = narrow.astype(np.float64).view(np.int64) == values.view(np.int64)
    return narrow if same.all() else values
