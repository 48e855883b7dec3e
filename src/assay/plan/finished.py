"""Which parts of a plan the run folder already holds; only this module looks them up."""

import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from assay.engine.engine import Arrays
from assay.plan.plan import Plan, Shard
from assay.plan.set_cells import SetCell, applicable_sets, explains_split, set_cells
from assay.store import Array, FileCheck, ShardEntry, ShardSummary, Store, read_manifest
from assay.store.files import StoredPath, unpacked_arrays
from assay.store.old_layout import convert, is_old, read_old_shard
from assay.store.pieces import ANSWERS, AnswersPiece, Piece
from assay.store.shard_content import read_shard
from assay.store.shard_log import LogContent, LogRecord
from assay.suite.spec import Choice

Stamp = tuple[int, int]  # size and time of a log: when they change, it is read again


@dataclass(frozen=True, eq=False)
class CellStates:
    """The status of each finished cell by key; shards with the same states share one object."""

    by_key: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class ShardState:
    """What is finished of a shard, without any numbers.

    Attributes:
        cells: The status of each cell.
        samples: Whether its samples are stored.
        summary: Facts about the samples, and the cost so far.
        gaps: The keys of the maps that were compared with their promise.
        files: The files that are whole, by path.
        lost: The files that are missing or damaged, by path.
        damaged: Whether the log is damaged.
    """

    cells: CellStates
    samples: bool
    summary: ShardSummary | None
    gaps: frozenset[str]
    files: Mapping[str, FileCheck]
    lost: frozenset[str]
    damaged: bool

    @property
    def previews(self) -> bool:
        """Whether the files that the page shows are whole."""
        return not any(path.startswith("previews/") for path in self.lost)


@dataclass(frozen=True)
class Finished:
    """The parts of a plan that the run folder holds. What is damaged counts as missing.

    Checksums of logs are compared whenever these are read, checksums of other files once.
    """

    plan: Plan
    store: Store
    _states: dict[str, tuple[Stamp, ShardState]] = field(default_factory=dict, repr=False)
    _shared: dict[frozenset[tuple[str, str]], CellStates] = field(default_factory=dict, repr=False)
    _missing: dict[tuple[object, ...], dict[str, list[Choice]]] = field(
        default_factory=dict, repr=False
    )

    def state(self, shard: Shard) -> ShardState:
        """What is finished of a shard."""
        stamp = self._stamp(shard)
        known = self._states.get(shard.id)
        if known is None or known[0] != stamp:
            earlier = {} if known is None else known[1].files
            known = stamp, self._read_state(shard, earlier)
            self._states[shard.id] = known
        return known[1]

    def _stamp(self, shard: Shard) -> Stamp:
        try:
            facts = self.store.log(shard.id).path.stat()
        except OSError:
            return 0, 0
        return facts.st_size, facts.st_mtime_ns

    def _read_state(self, shard: Shard, earlier: Mapping[str, FileCheck]) -> ShardState:
        old = self._old.get(shard.id)
        if old is not None:
            content = read_old_shard(self.store, old)
        else:
            content = read_shard(self.store, shard.id, with_curves=False)
        files = {path: c for path, c in content.files.items() if self._is_whole(path, c, earlier)}
        statuses = frozenset((cell.cell, cell.status) for cell in content.cells.values())
        if statuses not in self._shared:
            self._shared[statuses] = CellStates(dict(statuses))
        return ShardState(
            self._shared[statuses],
            tuple(content.samples) == shard.samples,
            content.summary,
            frozenset(content.gaps),
            files,
            frozenset(content.files.keys() - files.keys()),
            content.damaged > 0,
        )

    @functools.cached_property
    def _old(self) -> Mapping[str, ShardEntry]:
        """The shards of a run of an older version, by id."""
        manifest = read_manifest(self.store)
        if manifest is None or manifest.layout > 1 or not is_old(self.store):
            return {}
        return {shard.id: shard for shard in manifest.shards}

    def _is_whole(self, path: str, check: FileCheck, earlier: Mapping[str, FileCheck]) -> bool:
        """Whether a file is whole; the bytes of one that was are not compared again."""
        place = self.store.path(path)
        if earlier.get(path) != check:
            return self.store.is_whole(place, check)
        return place.is_file() and place.stat().st_size == check.size

    def mend(self) -> None:
        """Remove what is damaged from the logs; what it held is computed again.

        Files of a run of an older version are converted.
        """
        manifest = read_manifest(self.store) if self._old else None
        if manifest is not None:
            convert(self.store, manifest)
            self.__dict__.pop("_old", None)
            self._states.clear()
        for shard in (*self.plan.shards, *self.plan.train_shards):
            if self.state(shard).damaged:
                self.store.log(shard.id).mend()
        for path in self.store.path("answers").glob("*.log"):
            self.store.answer_log(path.stem).mend()

    def cell(self, shard: Shard, method: Choice, protocol: Choice) -> bool:
        """Whether a cell is finished and records no failure."""
        return self.status(shard, method, protocol) not in (None, "failed")

    def status(self, shard: Shard, method: Choice, protocol: Choice) -> str | None:
        """The status of a cell; None if it is missing."""
        return self.state(shard).cells.by_key.get(self.plan.cell(shard, method, protocol))

    def lost(self) -> int:
        """How many cells of the shards are not stored, also after a run: files were lost."""
        plan = self.plan
        planned = len(plan.methods) * len(plan.protocols)
        lost = 0
        for shard in plan.shards:
            states = [self.status(shard, m, p) for m in plan.methods for p in plan.protocols]
            whole = self.state(shard).summary is not None or set(states) == {"failed"}
            lost += states.count(None) if whole else planned
        return lost

    def missing(self, shard: Shard) -> dict[str, list[Choice]]:
        """For each method label, the protocols under which the method is not scored yet."""
        states = self.state(shard).cells
        place = (shard.dataset, shard.model, shard.seed, shard.split, states)
        if place not in self._missing:
            protocols = [] if shard.split else self.plan.batch_protocols
            self._missing[place] = {
                method.label: [p for p in protocols if not self.cell(shard, method, p)]
                for method in self.plan.methods
            }
        return self._missing[place]

    def unexplained(self, shard: Shard, cells: Sequence[SetCell]) -> set[str]:
        """The labels of the methods whose maps of a shard these set cells still need.

        Maps that were stored and are damaged are needed, too.
        """
        needed = {
            cell.method.label: cell.method
            for cell in cells
            if cell.seed == shard.seed
            and cell.dataset == shard.dataset
            and shard.model in self.plan.pool(cell.dataset, cell.model, cell.protocol)
            and explains_split(cell, shard.split)
        }
        if lost := self.state(shard).lost:
            places = {m.label: "/".join(maps_place(self.plan, shard, m)) for m in self.plan.methods}
            needed |= {m.label: m for m in self.plan.methods if places[m.label] in lost}
        return {
            label
            for label, method in needed.items()
            if not self.has_maps(shard, method) and not self.plan.missing(shard, method)
        }

    def shard(self, shard: Shard, cells: Sequence[SetCell] = ()) -> bool:
        """Whether a shard is complete, with the maps that these set cells need."""
        state = self.state(shard)
        scored = bool(shard.split) or (state.summary is not None and state.samples)
        whole = scored and state.previews and not any(self.missing(shard).values())
        return whole and not self.unexplained(shard, cells)

    def unfinished(self) -> list[Shard]:
        """The shards that are not complete; those of training samples come last."""
        cells = self.computable_sets()
        shards = (*self.plan.shards, *self.plan.train_shards)
        return [shard for shard in shards if not self.shard(shard, cells)]

    def set_cell(self, cell: SetCell) -> bool:
        """Whether a cell of a set protocol is finished: its scores of all shards are stored."""
        shards = self.plan.shards_of(*cell.place)
        return all(self.cell(shard, cell.method, cell.protocol) for shard in shards)

    def unfinished_sets(self) -> list[SetCell]:
        """The cells of set protocols that are not finished."""
        return [cell for cell in set_cells(self.plan) if not self.set_cell(cell)]

    def computable_sets(self) -> list[SetCell]:
        """Those of them whose method and protocol apply."""
        return [cell for cell in applicable_sets(self.plan) if not self.set_cell(cell)]

    def summary(self, shard: Shard) -> ShardSummary | None:
        """The stored summary of a shard: facts about its samples, and its cost so far."""
        return self.state(shard).summary

    def maps(self, shard: Shard, method: Choice) -> tuple[Array, float] | None:
        """A method's stored maps if they belong to these samples, and the seconds they took."""
        place = maps_place(self.plan, shard, method)
        check = self.state(shard).files.get("/".join(place))
        content = None if check is None else self.store.read_checked(self.store.path(*place), check)
        stored = None if content is None else unpacked_arrays(content)
        if stored is None or json.loads(stored[1]["samples"]) != list(shard.samples):
            return None
        return stored[0]["maps"], float(stored[1]["seconds"])

    def has_maps(self, shard: Shard, method: Choice) -> bool:
        """Whether the maps of these samples are stored."""
        return "/".join(maps_place(self.plan, shard, method)) in self.state(shard).files

    def promises(self, shard: Shard, method: Choice) -> bool:
        """Whether the maps of a method were compared with what its formula promises."""
        return method.promise is None or (
            self.plan.checks_key(shard, method) in self.state(shard).gaps
        )


def maps_place(plan: Plan, shard: Shard, method: Choice) -> StoredPath:
    """The path of a method's maps of a shard."""
    return "attributions", plan.maps_key(shard, method), f"{shard.id}.safetensors"


@dataclass
class ResponseShelf:
    """Method-independent answers of one shard: read from the folder, passed to `put` to store."""

    finished: Finished
    shard: Shard
    put: Callable[[Piece], None] = lambda piece: None
    _log: LogContent | None = None  # read once

    def load(self, group: str) -> tuple[Arrays, dict[str, str]] | None:
        """The stored answers of a group."""
        key = self.finished.plan.responses_key(self.shard, group)
        parts = [record for record in self._records() if record.facts["group"] == key]
        if not parts:
            return None
        arrays = [part.arrays() for part in parts]
        rows = [row for part in parts for row in part.facts["rows"]]
        joined = {name: np.concatenate([a[name] for a in arrays], axis=1) for name in arrays[0]}
        return joined, {"rows": json.dumps(rows)}

    def stored_rows(self) -> frozenset[tuple[str, tuple[str, ...]]]:
        """The rows of each group that are stored."""
        facts = [record.facts for record in self._records()]
        return frozenset((one["group"], tuple(one["rows"])) for one in facts)

    def _records(self) -> Iterator[LogRecord]:
        if self._log is None:
            self._log = self.finished.store.answer_log(self.shard.id).read()
        return self._log.of_kind(ANSWERS)

    def save(self, group: str, arrays: Arrays, about: dict[str, str]) -> None:
        """Store further answers of a group."""
        key = self.finished.plan.responses_key(self.shard, group)
        self.put(AnswersPiece(self.shard.id, key, json.loads(about["rows"]), arrays))
