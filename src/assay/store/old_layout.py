"""Runs of older versions, with one file per cell: read as they are, converted when continued."""

import contextlib
import json
import shutil
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assay.errors import InputError
from assay.store.cell_records import StoredCell, status_codes
from assay.store.files import FileCheck, Store, unpacked_arrays
from assay.store.manifest_entries import Manifest, ShardEntry
from assay.store.pieces import (
    AnswersPiece,
    CellsPiece,
    GapsPiece,
    SamplesPiece,
    SummaryPiece,
)
from assay.store.shard_content import ShardContent, StoredGaps, file_record
from assay.store.shard_records import CellRecord, ShardSummary
from assay.store.tables import CHECKS, CURVES, REDUCED, SCORES, Array

FOLDERS = ("scores", "curves", "cells", "checks", "responses")


def is_old(store: Store) -> bool:
    """Whether a run has files that no longer are in use."""
    return any(store.path(name).is_dir() for name in FOLDERS)


def read_old_shard(store: Store, shard: ShardEntry) -> ShardContent:
    """The whole cells of a shard, its summary and promises."""
    cells = dict(_read_cells(store, shard))
    return ShardContent(
        samples=shard.samples,
        groups=_groups(store, shard),
        cells=cells,
        summary=_read_summary(store, shard.id),
        gaps=dict(_read_gaps(store, shard)),
        files={path: check for path, check, _ in _map_files(store, shard)},
    )


def unreadable_old_files(store: Store, shard: ShardEntry) -> Iterator[Path]:
    """The files of cells that are there and cannot be read."""
    for piece in shard.pieces:
        for path, schema in (
            (store.path("scores", f"{piece}.parquet"), SCORES),
            (store.path("curves", f"{piece}.parquet"), CURVES),
        ):
            if path.exists() and store.read_table(path, schema) is None:
                yield path
        path = store.path("cells", f"{piece}.json")
        if path.exists() and store.read_json(path, *CellRecord.required()) is None:
            yield path


def convert(store: Store, manifest: Manifest) -> None:
    """Turn the files of an older run into logs. Damaged files are dropped, and computed again."""
    for shard in manifest.shards:
        content = read_old_shard(store, shard)
        SamplesPiece(shard.id, shard.samples, content.groups).write(store)
        if content.summary is not None:
            SummaryPiece(shard.id, content.summary).write(store)
            for preview in content.summary.previews:
                for file in (preview.image, preview.truth):
                    _keep_file(store, shard.id, f"previews/{file}" if file else "")
        for cell in content.cells.values():
            CellsPiece(shard.id, [cell]).write(store)
        for key, gaps in content.gaps.items():
            GapsPiece(shard.id, key, gaps).write(store)
        for path, check, _ in _map_files(store, shard):
            store.append(store.log(shard.id), file_record(path, check))
    _convert_answers(store)
    _drop_old_files(store)


def _keep_file(store: Store, shard: str, path: str) -> None:
    """Add the checksum of a file that is there."""
    if path and store.path(path).is_file():
        content = store.path(path).read_bytes()
        check = FileCheck(len(content), zlib.crc32(content))
        store.append(store.log(shard), file_record(path, check))


def _read_cells(store: Store, shard: ShardEntry) -> Iterator[tuple[str, StoredCell]]:
    for cell, piece in zip(shard.cells, shard.pieces, strict=True):
        scores = store.read_table(store.path("scores", f"{piece}.parquet"), SCORES)
        record = store.read_json(store.path("cells", f"{piece}.json"), *CellRecord.required())
        if scores is None or record is None:
            continue
        curves = store.read_table(store.path("curves", f"{piece}.parquet"), CURVES)
        if curves is None:
            continue
        with contextlib.suppress(InputError, ValueError):
            yield (
                cell,
                _cell(cell, CellRecord.from_json(record), scores, curves, len(shard.samples)),
            )


def _cell(
    cell: str, record: CellRecord, scores: pa.Table, curves: pa.Table, size: int
) -> StoredCell:
    metrics = _columns(scores, "metric", "value", size)
    headline = scores.filter(scores["headline"])
    x, named = _curves(curves, size)
    return StoredCell(
        cell, record.method, record.protocol, record.status, record.message, record.seconds,
        record.explain_seconds, record.forwards, metrics,
        status_codes(headline["status"].to_pylist()), x, named,
    )  # fmt: skip


def _columns(table: pa.Table, name: str, value: str, size: int) -> dict[str, Array]:
    """The values under each name, which lie together."""
    names = pc.unique(table[name]).to_pylist()
    values = table[value].to_numpy()
    return {one: values[i * size : (i + 1) * size] for i, one in enumerate(names)}


def _curves(table: pa.Table, size: int) -> tuple[Array, dict[str, Array]]:
    if not len(table):
        return np.empty(0), {}
    names = pc.unique(table["name"]).to_pylist()
    steps = len(table) // (len(names) * size)
    flat = _columns(table, "name", "value", size * steps)
    return table["x"].to_numpy()[:steps], {n: v.reshape(size, steps) for n, v in flat.items()}


def _groups(store: Store, shard: ShardEntry) -> list[str]:
    """The group of each sample, from the first table that is whole."""
    for piece in shard.pieces:
        scores = store.read_table(store.path("scores", f"{piece}.parquet"), SCORES)
        if scores is not None:
            return [str(group) for group in scores["group"].to_pylist()[: len(shard.samples)]]
    return list(shard.samples)


def _read_summary(store: Store, shard: str) -> ShardSummary | None:
    stored = store.read_json(store.path("shards", f"{shard}.json"))
    try:
        return None if stored is None else ShardSummary.from_json(stored)
    except InputError:
        return None


def _read_gaps(store: Store, shard: ShardEntry) -> Iterator[tuple[str, StoredGaps]]:
    for key in dict.fromkeys(shard.checks.values()):
        table = store.read_table(store.path("checks", f"{key}-{shard.id}.parquet"), CHECKS)
        if table is not None and len(table) == len(shard.samples):
            yield key, StoredGaps(str(table["check"][0]), table["value"].to_numpy())


def _map_files(
    store: Store, shard: ShardEntry
) -> Iterator[tuple[str, FileCheck, Mapping[str, str]]]:
    """The whole map files of a shard, with their checksums and descriptions."""
    for key in dict.fromkeys(shard.maps.values()):
        path = f"attributions/{key}/{shard.id}.safetensors"
        content = store.read_checked(store.path(path), None)
        arrays = None if content is None else unpacked_arrays(content)
        if content is not None and arrays is not None:
            yield path, FileCheck(len(content), zlib.crc32(content)), arrays[1]


def _convert_answers(store: Store) -> None:
    for path in sorted(store.path("responses").glob("*/*.safetensors")):
        content = store.read_checked(path, None)
        arrays = None if content is None else unpacked_arrays(content)
        if arrays is not None:
            rows = json.loads(arrays[1]["rows"])
            AnswersPiece(path.stem, path.parent.name, rows, arrays[0]).write(store)


def _drop_old_files(store: Store) -> None:
    for name in FOLDERS:
        shutil.rmtree(store.path(name), ignore_errors=True)
    for path in (*store.path("shards").glob("*.json"), *store.path("previews").glob("*.json")):
        path.unlink(missing_ok=True)


def read_old_reduction(
    store: Store, key: str
) -> tuple[dict[int, tuple[list[str], Array]], dict[int, float]] | None:
    """The stored numbers of a user's own reduction: by seed, and by weighted set."""
    table = store.read_table(store.path("reductions", f"{key}.parquet"), REDUCED)
    if table is None:
        return None
    of_samples = table.filter(table["draw"].is_null())
    own = {}
    for seed in of_samples["seed"].unique().to_pylist():
        mine = of_samples.filter(pc.equal(of_samples["seed"], seed))
        own[seed] = mine["sample"].to_pylist(), mine["value"].to_numpy()
    of_draws = table.filter(table["draw"].is_valid())
    return own, dict(zip(of_draws["draw"].to_pylist(), of_draws["value"].to_pylist(), strict=True))
