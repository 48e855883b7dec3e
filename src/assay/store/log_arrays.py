"""The scores and curves of a run as arrays, read from its shards."""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from assay.store.cell_records import CELLS, StoredCell, read_cells
from assay.store.manifest_entries import ShardEntry
from assay.store.run_arrays import CurvePart, ScoreArrays
from assay.store.run_files import RunFiles
from assay.store.tables import Array

MOST_BYTES = 1 << 30  # of the scores that are read at once
_EACH = 9  # bytes of a score and its status

LogPlace = tuple[int, int]  # of a record in its log


class LogArrays:
    """The scores and curves of a run; the blocks of one setting are in memory at a time."""

    def __init__(self, files: RunFiles) -> None:
        """Set the run; nothing is read yet."""
        self.files = files
        self._curves: dict[str, dict[str, LogPlace]] = {}  # by shard and cell: records with curves

    def scores(self) -> Iterator[ScoreArrays]:
        """The scores, one block per setting and protocol, in the order of the suite."""
        manifest = self.files.manifest
        for setting in manifest.settings:
            shards = [shard for shard in manifest.shards if shard.setting == setting]
            size = _EACH * len(manifest.methods) * sum(len(shard.samples) for shard in shards)
            at_once = max(1, MOST_BYTES // max(1, size))
            labels = list(manifest.protocols)
            for start in range(0, len(labels), at_once):
                yield from self._blocks(shards, labels[start : start + at_once])

    def curves(self, block: ScoreArrays, method: str) -> Iterator[CurvePart]:
        """The curves of a method in a block, in the order of the run; none where it has none."""
        manifest = self.files.manifest
        place = list(manifest.protocols).index(block.protocol) * len(manifest.methods)
        place += list(manifest.methods).index(method)
        setting = (block.dataset, block.model, block.checkpoint)
        shards = [shard for shard in manifest.shards if shard.setting == setting]
        for shard, rows in _rows(shards):
            cell = self._cell_with_curves(shard, shard.cells[place])
            if cell is not None:
                yield CurvePart(cell.cell, shard.seed, rows, cell.x, cell.curves)

    def _cell_with_curves(self, shard: ShardEntry, key: str) -> StoredCell | None:
        if self.files.old:
            cell = self.files.shard(shard).cells.get(key)
            return cell if cell is not None and cell.curves else None
        if shard.id not in self._curves:
            self._curves[shard.id] = {}
            for stored in self.files.log(shard).of_kind(CELLS):
                self._note_curves(shard, stored.facts["cells"], stored.place)
        place = self._curves[shard.id].get(key)
        record = None if place is None else self.files.store.log(shard.id).read_at(place)
        if record is None:
            return None
        return next(cell for cell in read_cells(record, only=(key,)))

    def _note_curves(
        self, shard: ShardEntry, facts: Sequence[Mapping[str, object]], place: LogPlace
    ) -> None:
        noted = self._curves.setdefault(shard.id, {})
        for cell in facts:
            if "curves" in cell:
                noted[str(cell["cell"])] = place
            else:
                noted.pop(str(cell["cell"]), None)

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
            own_groups, cells = self._cells(shard)
            for row, group in zip(rows.tolist(), own_groups, strict=False):
                groups[row] = group
            together = rows[-1] - rows[0] + 1 == len(rows)
            where = slice(rows[0], rows[-1] + 1) if together else rows
            seed = seeds.index(shard.seed)
            for cell in cells:
                if cell.cell not in places[shard.seed]:
                    continue
                label, method = places[shard.seed][cell.cell]
                statuses[label][seed, method, where] = cell.statuses
                here = values[label]
                for metric in cell.metrics.keys() - here.keys():
                    here[metric] = _unknown(shape)
                for metric, table in here.items():  # an earlier record may have had more of them
                    table[seed, method, where] = cell.metrics.get(metric, np.nan)
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

    def _places(self, shard: ShardEntry, labels: Sequence[str]) -> dict[str, tuple[str, int]]:
        """The protocol, and the number of the method, by the key of the cell."""
        methods = len(self.files.manifest.methods)
        chosen = set(labels)
        return {
            shard.cells[i * methods + m]: (label, m)
            for i, label in enumerate(self.files.manifest.protocols)
            if label in chosen
            for m in range(methods)
        }

    def _cells(self, shard: ShardEntry) -> tuple[Sequence[str], Iterator[StoredCell]]:
        """The groups of a shard's samples, and its cells in the order of computation."""
        if self.files.old:
            content = self.files.shard(shard, with_curves=False)
            return content.groups, iter(content.cells.values())
        log = self.files.log(shard)
        samples = log.get("samples")
        groups = [] if samples is None else samples.facts.get("groups") or shard.samples
        records = list(log.of_kind(CELLS))
        for record in records:
            self._note_curves(shard, record.facts["cells"], record.place)
        return groups, itertools.chain.from_iterable(read_cells(r, False) for r in records)


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
