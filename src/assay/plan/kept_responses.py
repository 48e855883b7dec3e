"""Answers that do not depend on an attribution, kept on disk between runs."""

import json
from dataclasses import dataclass
from typing import Any

from assay.engine.engine import Arrays
from assay.plan.plan import Plan, Shard
from assay.store import Store


@dataclass(frozen=True)
class ResponseShelf:
    """Method-independent answers of one shard on disk."""

    plan: Plan
    shard: Shard
    store: Store

    def load(self, group: str) -> tuple[Arrays, dict[str, str]] | None:
        """The answers of a group, if all its samples are these."""
        found = Store.read_arrays(self._path(group))
        if found is None or json.loads(found[1]["samples"]) != list(self.shard.samples):
            return None
        return found

    def save(self, group: str, arrays: Arrays, about: dict[str, str]) -> None:
        """Keep the answers of a group."""
        samples = json.dumps(self.shard.samples)
        self.store.write_arrays(self._path(group), arrays, {**about, "samples": samples})

    def _path(self, group: str) -> Any:
        key = self.plan.responses_key(self.shard, group)
        return self.store.path("responses", key, f"{self.shard.id}.safetensors")
