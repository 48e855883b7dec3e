"""The tables of a run, made from its shards: scores, curves and promise checks."""

import json
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from assay.store.cell_records import StoredCell
from assay.store.manifest_entries import ShardEntry
from assay.store.run_arrays import STATUSES
from assay.store.run_files import RunFiles
from assay.store.shard_content import ShardContent
from assay.store.tables import CHECKS, CURVES, SCORES

_STATUSES = np.array(STATUSES, dtype=object)


def score_tables(files: RunFiles) -> Iterator[pa.Table]:
    """The scores of one shard after the other, in the order of the suite."""
    for shard in files.manifest.shards:
        content = files.shard(shard, with_curves=False)
        parts = [
            part
            for labels, key in files.planned(shard)
            if (cell := content.cells.get(key)) is not None
            for part in _score_parts(files, shard, content, labels, cell)
        ]
        if parts:
            yield pa.concat_tables(parts)


def curve_tables(files: RunFiles) -> Iterator[pa.Table]:
    """The curves of one shard after the other, in the order of the suite."""
    for shard in files.manifest.shards:
        cells = files.cells(shard)
        parts = [part for _, cell in cells for part in _curve_parts(shard, cell)]
        if parts:
            yield pa.concat_tables(parts)


def check_tables(files: RunFiles) -> Iterator[pa.Table]:
    """The gaps between maps and promises of one shard after the other."""
    for shard in files.manifest.shards:
        gaps = files.shard(shard, with_curves=False).gaps if shard.checks else {}
        n = len(shard.samples)
        for method, key in shard.checks.items():
            if key in gaps:
                columns = {
                    "dataset": pa.repeat(shard.dataset, n),
                    "model": pa.repeat(shard.model, n),
                    "checkpoint": pa.repeat(shard.checkpoint, n),
                    "method": pa.repeat(method, n),
                    "sample": pa.array(shard.samples, pa.string()),
                    "seed": pa.repeat(pa.scalar(shard.seed, pa.int64()), n),
                    "check": pa.repeat(gaps[key].promise, n),
                    "value": pa.array(gaps[key].values, pa.float64()),
                }
                yield pa.table(columns, schema=CHECKS)


def _score_parts(
    files: RunFiles,
    shard: ShardEntry,
    content: ShardContent,
    labels: tuple[str, str],
    cell: StoredCell,
) -> Iterator[pa.Table]:
    """One table for each metric of a cell."""
    protocol, method = labels
    protocols, methods = files.manifest.protocols[protocol], files.manifest.methods[method]
    n = len(shard.samples)
    fixed = {
        "cell": cell.cell,
        "dataset": shard.dataset,
        "model": shard.model,
        "checkpoint": shard.checkpoint,
        "method": method,
        "method_version": methods.version,
        "method_options": json.dumps(methods.options),
        "protocol": protocol,
        "protocol_version": protocols.version,
        "protocol_options": json.dumps(protocols.options),
        "target": shard.target or str(files.manifest.target),
        "seed": shard.seed,
        "higher_is_better": protocols.higher_is_better,
    }
    metrics = cell.metrics or {protocols.metric: np.full(n, np.nan)}
    groups = content.groups or shard.samples
    for metric, values in metrics.items():
        own = {"metric": metric, "headline": metric == protocols.metric}
        columns = {name: _repeated(name, value, n) for name, value in (fixed | own).items()}
        columns |= {
            "sample": pa.array(shard.samples, pa.string()),
            "group": pa.array(groups, pa.string()),
            "value": pa.array(values, pa.float64()),
            "status": pa.array(_STATUSES[cell.statuses], pa.string()),
        }
        yield pa.table([columns[name] for name in SCORES.names], schema=SCORES)


def _repeated(name: str, value: object, n: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, SCORES.field(name).type), n)


def _curve_parts(shard: ShardEntry, cell: StoredCell) -> Iterator[pa.Table]:
    """One table for each curve of a cell."""
    samples: Sequence[str] = shard.samples
    for name, values in cell.curves.items():
        n, k = values.shape
        yield pa.table(
            [
                pa.repeat(cell.cell, n * k),
                pa.array(samples, pa.string()).take(pa.array(np.repeat(np.arange(n), k))),
                pa.repeat(pa.scalar(shard.seed, pa.int64()), n * k),
                pa.repeat(name, n * k),
                pa.array(np.tile(np.arange(k), n), pa.int64()),
                pa.array(np.tile(cell.x, n), pa.float64()),
                pa.array(values.ravel(), pa.float64()),
            ],
            schema=CURVES,
        )
