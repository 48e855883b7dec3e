"""Which parts of a plan the run folder already holds; only this module looks them up."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from assay.engine.engine import Arrays
from assay.plan.plan import Plan, Shard
from assay.plan.set_cells import SetCell, applicable_sets, explains_split, set_cells, shards_of
from assay.store import CHECKS, CURVES, SCORES, Array, CellRecord, ShardSummary, Store, read_summary
from assay.store.pieces import ArraysPiece, Piece, StoredPath
from assay.suite.spec import Choice


@dataclass(frozen=True)
class Finished:
    """The parts of a plan that the run folder holds. A damaged file counts as missing."""

    plan: Plan
    store: Store

    def cell(self, shard: Shard, method: Choice, protocol: Choice) -> bool:
        """Whether the files of a cell exist, are complete, and record no failure."""
        return self.status(shard, method, protocol) not in (None, "failed")

    def status(self, shard: Shard, method: Choice, protocol: Choice) -> str | None:
        """The status of a cell; None if one of its files is missing or not complete."""
        name = self.plan.piece(shard, method, protocol)
        scores = Store.has_table(self.store.path("scores", f"{name}.parquet"), SCORES)
        curves = Store.has_table(self.store.path("curves", f"{name}.parquet"), CURVES)
        record = Store.read_json(self.store.path("cells", f"{name}.json"), *CellRecord.required())
        return str(record["status"]) if scores and curves and record is not None else None

    def lost(self) -> int:
        """How many cells of the shards have no whole tables, also after a run: files were lost."""
        plan = self.plan
        lost = 0
        for shard in plan.shards:
            states = [self.status(shard, m, p) for m in plan.methods for p in plan.protocols]
            whole = self.summary(shard) is not None or set(states) == {"failed"}
            lost += states.count(None) if whole else len(states)
        return lost

    def missing(self, shard: Shard) -> dict[str, list[Choice]]:
        """For each method label, the protocols under which the method is not scored yet."""
        protocols = [] if shard.split else self.plan.batch_protocols
        return {
            method.label: [p for p in protocols if not self.cell(shard, method, p)]
            for method in self.plan.methods
        }

    def unexplained(self, shard: Shard, cells: Sequence[SetCell]) -> set[str]:
        """The labels of the methods whose maps of a shard these set cells still need."""
        needed = {
            cell.method.label: cell.method
            for cell in cells
            if cell.seed == shard.seed
            and cell.dataset == shard.dataset
            and shard.model in self.plan.pool(cell.dataset, cell.model, cell.protocol)
            and explains_split(cell, shard.split)
        }
        return {
            label
            for label, method in needed.items()
            if not self.has_maps(shard, method) and not self.plan.missing(shard, method)
        }

    def shard(self, shard: Shard, cells: Sequence[SetCell] = ()) -> bool:
        """Whether a shard is complete, with the maps that these set cells need."""
        scored = bool(shard.split) or self.summary(shard) is not None
        whole = scored and not any(self.missing(shard).values())
        return whole and not self.unexplained(shard, cells)

    def unfinished(self) -> list[Shard]:
        """The shards that are not complete; those of training samples come last."""
        cells = self.computable_sets()
        shards = (*self.plan.shards, *self.plan.train_shards)
        return [shard for shard in shards if not self.shard(shard, cells)]

    def set_cell(self, cell: SetCell) -> bool:
        """Whether a cell of a set protocol is finished: its scores of all shards are stored."""
        shards = shards_of(self.plan.shards, *cell.place)
        return all(self.cell(shard, cell.method, cell.protocol) for shard in shards)

    def unfinished_sets(self) -> list[SetCell]:
        """The cells of set protocols that are not finished."""
        return [cell for cell in set_cells(self.plan) if not self.set_cell(cell)]

    def computable_sets(self) -> list[SetCell]:
        """Those of them whose method and protocol apply."""
        return [cell for cell in applicable_sets(self.plan) if not self.set_cell(cell)]

    def summary(self, shard: Shard) -> ShardSummary | None:
        """The stored summary of a shard: facts about its samples, and its cost so far."""
        return read_summary(self.store, shard.id)

    def maps(self, shard: Shard, method: Choice) -> tuple[Array, float] | None:
        """A method's stored maps if they belong to these samples, and the seconds they took."""
        stored = Store.read_arrays(self.store.path(*maps_place(self.plan, shard, method)))
        if stored is None or json.loads(stored[1]["samples"]) != list(shard.samples):
            return None
        return stored[0]["maps"], float(stored[1]["seconds"])

    def has_maps(self, shard: Shard, method: Choice) -> bool:
        """Whether the maps of these samples are stored."""
        about = Store.read_about(self.store.path(*maps_place(self.plan, shard, method)))
        return about is not None and json.loads(about["samples"]) == list(shard.samples)

    def promises(self, shard: Shard, method: Choice) -> bool:
        """Whether the maps of a method were compared with what its formula promises."""
        path = self.store.path(*promises_place(self.plan, shard, method))
        return method.promise is None or Store.has_table(path, CHECKS)


def summary_place(shard: Shard) -> StoredPath:
    """The path of a shard's summary."""
    return "shards", f"{shard.id}.json"


def maps_place(plan: Plan, shard: Shard, method: Choice) -> StoredPath:
    """The path of a method's maps of a shard."""
    return "attributions", plan.maps_key(shard, method), f"{shard.id}.safetensors"


def promises_place(plan: Plan, shard: Shard, method: Choice) -> StoredPath:
    """The path of the gaps between a method's maps and what its formula promises."""
    return "checks", f"{plan.checks_key(shard, method)}-{shard.id}.parquet"


@dataclass(frozen=True)
class ResponseShelf:
    """Method-independent answers of one shard: read from the folder, passed to `put` to store."""

    finished: Finished
    shard: Shard
    put: Callable[[Piece], None] = lambda piece: None

    def load(self, group: str) -> tuple[Arrays, dict[str, str]] | None:
        """The stored answers of a group if they belong to the samples of this shard."""
        stored = Store.read_arrays(self.finished.store.path(*self._place(group)))
        if stored is None or json.loads(stored[1]["samples"]) != list(self.shard.samples):
            return None
        return stored

    def save(self, group: str, arrays: Arrays, about: dict[str, str]) -> None:
        """Store the answers of a group."""
        samples = json.dumps(self.shard.samples)
        self.put(ArraysPiece(self._place(group), arrays, {**about, "samples": samples}))

    def _place(self, group: str) -> StoredPath:
        key = self.finished.plan.responses_key(self.shard, group)
        return "responses", key, f"{self.shard.id}.safetensors"
