"""The scores and curves of a run as arrays, read from its shards."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from assay.store.cell_records import (
    CELLS,
    CellCurves,
    CellScores,
    read_cell_curves,
    read_scores,
)
from assay.store.manifest_entries import ShardEntry
from assay.store.run_arrays import CurveChunk, CurveKey, CurvePart, ScoreArrays
from assay.store.run_files import RunFiles
from assay.store.shard_content import SAMPLES
from assay.store.tables import Array

MOST_BYTES = 1 << 30  # of the scores that are read at once
_EACH = 9  # bytes of a score and its status

CellPlaces = Mapping[str, tuple[str, int]]  # protocol and number of the method, by key of the cell


class LogArrays:
    """The scores and curves of a run; the blocks of one setting are in memory at a time."""

    def __init__(self, files: RunFiles) -> None:
        """Set the run; nothing is read yet."""
        self.files = files

    def scores(self, protocols: Collection[str] | None = None) -> Iterator[ScoreArrays]:
        """The scores, one block per setting and protocol, in the order of the suite."""
        manifest = self.files.manifest
        labels = [p for p in manifest.protocols if protocols is None or p in protocols]
        for setting in manifest.settings:
            shards = [shard for shard in manifest.shards if shard.setting == setting]
            size = _EACH * len(manifest.methods) * sum(len(shard.samples) for shard in shards)
            at_once = max(1, MOST_BYTES // max(1, size))
            for start in range(0, len(labels), at_once):
                yield from self._blocks(shards, labels[start : start + at_once])

    def curves(self, protocols: Collection[str] | None = None) -> Iterator[CurveChunk]:
        """All curves, some samples at a time. All seeds of a sample are in the same chunk."""
        manifest = self.files.manifest
        labels = [p for p in manifest.protocols if protocols is None or p in protocols]
        methods = list(manifest.methods)
        for setting in manifest.settings:
            shards = [shard for shard in manifest.shards if shard.setting == setting]
            for together in _of_same_samples(shards):
                chunk: dict[CurveKey, list[CurvePart]] = {}
                for shard, rows in together:
                    places = self._places(shard, labels)
                    latest = {one[0]: one for one in self._cell_curves(shard, places)}
                    for key, x, curves in latest.values():
                        if curves:
                            label, method = places[key]
                            part = CurvePart(key, shard.seed, rows, x, curves)
                            chunk.setdefault((*setting, label, methods[method]), []).append(part)
                yield chunk

    def _blocks(self, shards: Sequence[ShardEntry], labels: Sequence[str]) -> Iterator[ScoreArrays]:
        """The blocks of these protocols, on the shards of one setting."""
        manifest = self.files.manifest
        samples = _samples(shards)
        groups = list(samples)
        seeds = list(dict.fromkeys(shard.seed for shard in shards))
        shape = (len(seeds), len(manifest.methods), len(samples))
        values = {label: {manifest.protocols[label].metric: _unknown(shape)} for label in labels}
        statuses = {label: np.zeros(shape, np.uint8) for label in labels}
        places = {shard.seed: self._places(shard, labels) for shard in shards}
        for shard, rows in _rows(shards):
            own_groups, cells = self._cell_scores(shard, places[shard.seed])
            for row, group in zip(rows.tolist(), own_groups, strict=False):
                groups[row] = group
            together = rows[-1] - rows[0] + 1 == len(rows)
            where = slice(rows[0], rows[-1] + 1) if together else rows
            seed = seeds.index(shard.seed)
            for key, codes, metrics in cells:
                label, method = places[shard.seed][key]
                statuses[label][seed, method, where] = codes
                here = values[label]
                for metric in metrics.keys() - here.keys():
                    here[metric] = _unknown(shape)
                for metric, table in here.items():  # an earlier record may have had more of them
                    table[seed, method, where] = metrics.get(metric, np.nan)
        for label in labels:
            protocol, setting, own = manifest.protocols[label], shards[0].setting, values.pop(label)
            yield ScoreArrays(
                *setting,
                label,
                json.dumps(protocol.options),
                protocol.metric,
                protocol.higher_is_better,
                samples,
                groups,
                list(manifest.methods),
                [json.dumps(method.options) for method in manifest.methods.values()],
                seeds,
                own.pop(protocol.metric),
                statuses.pop(label),
                dict(sorted(own.items())),
            )

    def _places(self, shard: ShardEntry, labels: Sequence[str]) -> CellPlaces:
        """The protocol, and the number of the method, by the key of the cell."""
        methods = len(self.files.manifest.methods)
        chosen = set(labels)
        return {
            shard.cells[i * methods + m]: (label, m)
            for i, label in enumerate(self.files.manifest.protocols)
            if label in chosen
            for m in range(methods)
        }

    def _cell_scores(
        self, shard: ShardEntry, wanted: CellPlaces
    ) -> tuple[Sequence[str], Iterator[CellScores]]:
        """The groups of a shard's samples, and scores of its cells in the order of computation."""
        if self.files.old:
            content = self.files.shard(shard, with_curves=False)
            cells = (cell for key, cell in content.cells.items() if key in wanted)
            return content.groups, ((c.cell, c.statuses, c.metrics) for c in cells)
        log = self.files.log(shard)
        samples = log.get(SAMPLES)
        groups = [] if samples is None else samples.facts.get("groups") or shard.samples
        return groups, (one for r in log.of_kind(CELLS) for one in read_scores(r, wanted))

    def _cell_curves(self, shard: ShardEntry, wanted: CellPlaces) -> Iterator[CellCurves]:
        """The curves of a shard's cells in the order of computation."""
        if self.files.old:
            for key, cell in self.files.shard(shard).cells.items():
                if key in wanted:
                    yield key, cell.x, cell.curves
            return
        for record in self.files.log(shard).of_kind(CELLS):
            yield from read_cell_curves(record, wanted)


def _unknown(shape: tuple[int, ...]) -> Array:
    return np.full(shape, np.nan)


def _samples(shards: Sequence[ShardEntry]) -> list[str]:
    """The samples of some shards, each once: all seeds have the same."""
    return list(dict.fromkeys(sample for shard in shards for sample in shard.samples))


def _rows(shards: Sequence[ShardEntry]) -> Iterator[tuple[ShardEntry, Array]]:
    """Each shard with the rows of its samples."""
    rows = {sample: row for row, sample in enumerate(_samples(shards))}
    for shard in shards:
        yield shard, np.array([rows[sample] for sample in shard.samples])


def _of_same_samples(
    shards: Sequence[ShardEntry],
) -> Iterator[Sequence[tuple[ShardEntry, Array]]]:
    """The shards of one setting with their rows, those of the same samples together."""
    alike: dict[tuple[str, ...], list[tuple[ShardEntry, Array]]] = {}
    for shard, rows in _rows(shards):
        alike.setdefault(tuple(shard.samples), []).append((shard, rows))
    if sum(map(len, alike)) == len(_samples(shards)):
        return iter(alike.values())
    return iter([[one for some in alike.values() for one in some]])  # they overlap
