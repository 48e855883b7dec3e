"""What is done already, and what is missing: the one place that asks the folder."""

import json
from collections.abc import Callable
from dataclasses import dataclass

from assay.engine.engine import Arrays
from assay.plan.plan import Plan, Shard
from assay.store import CHECKS, CURVES, SCORES, Array, ShardSummary, Store
from assay.store.pieces import ArraysPiece, Piece, StoredPath
from assay.suite.spec import Choice


@dataclass(frozen=True)
class Finished:
    """What the folder of a run holds of a plan; a file that is not whole counts as missing."""

    plan: Plan
    store: Store

    def cell(self, shard: Shard, method: Choice, protocol: Choice) -> bool:
        """Whether the rows of a cell are there, whole and without failure."""
        name = self.plan.piece(shard, method, protocol)
        scores = Store.has_table(self.store.path("scores", f"{name}.parquet"), SCORES)
        curves = Store.has_table(self.store.path("curves", f"{name}.parquet"), CURVES)
        about = Store.read_json(self.store.path("cells", f"{name}.json"))
        return scores and curves and about is not None and about["status"] != "failed"

    def missing(self, shard: Shard) -> dict[str, list[Choice]]:
        """For each method, by its label, the protocols it is not scored under yet."""
        return {
            method.label: [p for p in self.plan.protocols if not self.cell(shard, method, p)]
            for method in self.plan.methods
        }

    def shard(self, shard: Shard) -> bool:
        """Whether nothing of a shard is missing."""
        return self.summary(shard) is not None and not any(self.missing(shard).values())

    def unfinished(self) -> list[Shard]:
        """The shards of which something is missing."""
        return [shard for shard in self.plan.shards if not self.shard(shard)]

    def summary(self, shard: Shard) -> ShardSummary | None:
        """What is known of a shard's samples, and what it has cost so far."""
        stored = Store.read_json(self.store.path(*summary_place(shard)))
        return None if stored is None else ShardSummary.from_json(stored)

    def maps(self, shard: Shard, method: Choice) -> tuple[Array, float] | None:
        """A method's maps, where they are those of these samples, and the seconds they took."""
        kept = Store.read_arrays(self.store.path(*maps_place(self.plan, shard, method)))
        if kept is None or json.loads(kept[1]["samples"]) != list(shard.samples):
            return None
        return kept[0]["maps"], float(kept[1]["seconds"])

    def promises(self, shard: Shard, method: Choice) -> bool:
        """Whether the maps of a method are compared with what its formula promises."""
        path = self.store.path(*promises_place(self.plan, shard, method))
        return method.promise is None or Store.has_table(path, CHECKS)


def summary_place(shard: Shard) -> StoredPath:
    """Where the summary of a shard is kept."""
    return "shards", f"{shard.id}.json"


def maps_place(plan: Plan, shard: Shard, method: Choice) -> StoredPath:
    """Where a method's maps of a shard are kept."""
    return "attributions", plan.maps_key(shard, method), f"{shard.id}.safetensors"


def promises_place(plan: Plan, shard: Shard, method: Choice) -> StoredPath:
    """Where it is kept how far a method's maps miss what its formula promises."""
    return "checks", f"{plan.checks_key(shard, method)}-{shard.id}.parquet"


@dataclass(frozen=True)
class ResponseShelf:
    """Method-independent answers of one shard: read from the folder, given away to be written."""

    finished: Finished
    shard: Shard
    put: Callable[[Piece], None] = lambda piece: None

    def load(self, group: str) -> tuple[Arrays, dict[str, str]] | None:
        """The answers of a group, if all its samples are these."""
        kept = Store.read_arrays(self.finished.store.path(*self._place(group)))
        if kept is None or json.loads(kept[1]["samples"]) != list(self.shard.samples):
            return None
        return kept

    def save(self, group: str, arrays: Arrays, about: dict[str, str]) -> None:
        """Keep the answers of a group."""
        samples = json.dumps(self.shard.samples)
        self.put(ArraysPiece(self._place(group), arrays, {**about, "samples": samples}))

    def _place(self, group: str) -> StoredPath:
        key = self.finished.plan.responses_key(self.shard, group)
        return "responses", key, f"{self.shard.id}.safetensors"
