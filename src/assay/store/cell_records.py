"""Cells of one shard as records of its log: provenance, scores, statuses and curves."""

import hashlib
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from assay.store.json_records import StoredObject
from assay.store.run_arrays import STATUSES
from assay.store.shard_log import LogRecord
from assay.store.tables import Array

CELLS = "cells"  # kind of record
_CODES = {status: code for code, status in enumerate(STATUSES)}
# A cell's key, its statuses (one for each sample, or one for all) and its scores by metric.
CellScores = tuple[str, int | Array, Mapping[str, Array]]
# A cell's key, where its curves were taken, and the curves by name.
CellCurves = tuple[str, Array, Mapping[str, Array]]
_Provenance = tuple[str, str, str, str, str, float | None, float | None, int]


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


def read_cells(record: LogRecord, with_curves: bool = True) -> Iterator[StoredCell]:
    """The cells of a record, with or without their curves; curves have double precision again."""
    for number, facts in enumerate(record.facts["cells"]):
        _, codes, metrics = _scores(record, number, facts)
        x, curves = _curves(record, number, facts) if with_curves else (np.empty(0), {})
        statuses = np.full(facts["n"], codes, np.uint8) if isinstance(codes, int) else codes
        yield StoredCell(*_provenance(facts), metrics, statuses, x, curves)


def read_provenance(record: LogRecord) -> Iterator[StoredCell]:
    """The cells of a record without any numbers."""
    return (StoredCell(*_provenance(facts)) for facts in record.facts["cells"])


def read_scores(record: LogRecord, wanted: Container[str]) -> Iterator[CellScores]:
    """The scores of the wanted cells of a record."""
    for number, facts in enumerate(record.facts["cells"]):
        if facts["cell"] in wanted:
            yield _scores(record, number, facts)


def read_cell_curves(record: LogRecord, wanted: Container[str]) -> Iterator[CellCurves]:
    """The curves of the wanted cells of a record; some have none."""
    for number, facts in enumerate(record.facts["cells"]):
        if facts["cell"] in wanted:
            yield facts["cell"], *_curves(record, number, facts)


def _provenance(facts: StoredObject) -> _Provenance:
    """The first fields of a `StoredCell`, in order."""
    optional = (facts.get(name, default) for name, default in _OPTIONAL.items())
    cell, method, protocol, status = (facts[name] for name in _PLAIN)
    message, seconds, explain_seconds, forwards = optional
    return cell, method, protocol, status, message, seconds, explain_seconds, forwards


def _scores(record: LogRecord, number: int, facts: StoredObject) -> CellScores:
    codes = facts["code"] if "code" in facts else record.array(f"{number}s")
    metrics = {name: record.array(f"{number}m{i}") for i, name in enumerate(facts["metrics"])}
    return facts["cell"], codes, metrics


def _curves(record: LogRecord, number: int, facts: StoredObject) -> tuple[Array, dict[str, Array]]:
    names = facts.get("curves", ())
    curves = {n: record.array(f"{number}c{i}").astype(np.float64) for i, n in enumerate(names)}
    # Copies: a view would keep the bytes of the whole log in memory.
    return record.array(f"{number}x").copy() if names else np.empty(0), curves


def _narrowed(values: Array) -> Array:
    """The values in single precision, if that loses nothing."""
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32)
    same = narrow.astype(np.float64).view(np.int64) == values.view(np.int64)
    return narrow if same.all() else values
