"""Which parts of a plan the run folder already holds; only this module looks them up."""

import functools
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from assay.engine.engine import Arrays
from assay.plan.plan import Plan, Shard
from assay.plan.set_cells import SetCell, applicable_sets, explains_split, set_cells
from assay.plan.shard_states import ShardState, ShardStates
from assay.store import Array, ShardSummary, Store
from assay.store.files import StoredPath, unpacked_arrays
from assay.store.pieces import ANSWERS, AnswersPiece, Piece
from assay.store.shard_log import LogContent, LogRecord
from assay.suite.spec import Choice


@dataclass(frozen=True)
class Finished:
    """The parts of a plan that the run folder holds. What is damaged counts as missing.

    Checksums are compared once. Of a log that has grown only the new part is read.
    """

    plan: Plan
    store: Store
    _missing: dict[tuple[object, ...], dict[str, list[Choice]]] = field(
        default_factory=dict, repr=False
    )

    @functools.cached_property
    def _states(self) -> ShardStates:
        return ShardStates(self.store)

    def state(self, shard: Shard) -> ShardState:
        """What is finished of a shard."""
        return self._states.of(shard)

    def mend(self) -> None:
        """Remove what is damaged from the logs; what it held is computed again.

        Files of a run of an older version are converted.
        """
        if self._states.convert():
            self.__dict__.pop("_states")
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
        """How many cells cannot be read, also after a run: files were lost or damaged."""
        plan = self.plan
        planned = len(plan.cells)
        counts: dict[tuple[object, ...], tuple[int, bool]] = {}  # missing cells, whether all failed
        lost = 0
        for shard in plan.shards:
            state = self.state(shard)
            alike = (shard.place, state.cells)
            if alike not in counts:
                cells = (plan.cell(shard, method, protocol) for method, protocol in plan.cells)
                statuses = [state.cells.by_key.get(cell) for cell in cells]
                counts[alike] = statuses.count(None), set(statuses) == {"failed"}
            missing, failed = counts[alike]
            whole = (state.summary is not None or failed) and not state.damaged
            lost += missing if whole else planned
        return lost

    def missing(self, shard: Shard) -> dict[str, list[Choice]]:
        """For each method label, the protocols under which the method is not scored yet.

        The labels of mixed maps are among them.
        """
        states = self.state(shard).cells
        place = (shard.dataset, shard.model, shard.seed, shard.split, states)
        if place not in self._missing:
            protocols = [] if shard.split else self.plan.batch_protocols
            dosed = [] if shard.split else self.plan.dosed_protocols
            doses = itertools.chain(*self.plan.doses.values())
            asked = [(m, protocols) for m in self.plan.methods] + [(d, dosed) for d in doses]
            self._missing[place] = {
                choice.label: [p for p in several if not self.cell(shard, choice, p)]
                for choice, several in asked
            }
        return self._missing[place]

    def unexplained(self, shard: Shard, cells: Sequence[SetCell]) -> set[str]:
        """The labels of the methods whose maps of a shard these set cells still need.

        Maps that were stored and are damaged are needed, too, and those whose comparison with their
        promise was lost.
        """
        needed = {
            cell.method.label: cell.method
            for cell in cells
            if cell.seed == shard.seed
            and cell.dataset == shard.dataset
            and shard.model in self.plan.pool(cell.dataset, cell.model, cell.protocol)
            and explains_split(cell, shard.split)
        }
        needed |= {m.label: m for m in self.plan.methods if self._lost_maps(shard, m)}
        needed |= {m.label: m for m in self.plan.methods if self._lost_promise(shard, m)}
        return {
            label
            for label, method in needed.items()
            if not self.has_maps(shard, method) and not self.plan.missing(shard, method)
        }

    def _lost_maps(self, shard: Shard, method: Choice) -> bool:
        """Whether maps were stored, and the file or its record is damaged."""
        state, place = self.state(shard), maps_place(self.plan, shard, method)
        path = "/".join(place)
        if path in state.lost:
            return True
        begun = bool(state.cells.by_key) or state.damaged
        return begun and path not in state.files and self.store.path(*place).exists()

    def _lost_promise(self, shard: Shard, method: Choice) -> bool:
        """Whether a method was scored, and how far it keeps its promise is not stored."""
        known = self.state(shard).cells.by_key
        if not known or shard.split or self.promises(shard, method):
            return False
        cells = (self.plan.cell(shard, method, p) for p in self.plan.batch_protocols)
        return any(known.get(cell) not in (None, "failed", "n/a") for cell in cells)

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
        if not self.has_maps(shard, method):
            return None
        place = maps_place(self.plan, shard, method)
        check = self.state(shard).files.get("/".join(place))
        content = None if check is None else self.store.read_checked(self.store.path(*place), check)
        stored = None if content is None else unpacked_arrays(content)
        if stored is None or json.loads(stored[1]["samples"]) != list(shard.samples):
            return None
        return stored[0]["maps"], float(stored[1]["seconds"])

    def has_maps(self, shard: Shard, method: Choice) -> bool:
        """Whether the maps of these samples are stored, and compared with their promise."""
        stored = "/".join(maps_place(self.plan, shard, method)) in self.state(shard).files
        return stored and (bool(shard.split) or self.promises(shard, method))

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
