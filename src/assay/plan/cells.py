"""A cell of a run on disk: one method under one protocol on the samples of one shard."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from assay.plan.plan import Plan, Shard
from assay.plugins.registry import canonical
from assay.store import CURVES, SCORES, Store
from assay.suite.spec import Choice
from assay.types import Scores

Column = np.ndarray[Any, Any]  # one value for each sample


@dataclass(frozen=True)
class Cell:
    """Where the rows of a method under a protocol are, or will be."""

    plan: Plan
    shard: Shard
    store: Store
    method: Choice
    protocol: Choice

    @property
    def done(self) -> bool:
        """Whether its rows are there, whole and without failure."""
        piece = self._piece
        scores = Store.has_table(self.store.path("scores", f"{piece}.parquet"), SCORES)
        curves = Store.has_table(self.store.path("curves", f"{piece}.parquet"), CURVES)
        about = Store.read_json(self.store.path("cells", f"{piece}.json"))
        return scores and curves and about is not None and about["status"] != "failed"

    def write_word(self, groups: Sequence[str], status: str, message: str) -> None:
        """The same word for every sample, and no number."""
        size = len(self.shard.samples)
        nothing = {self.protocol.plugin.metric: np.full(size, np.nan)}
        self.write(groups, status, message, nothing, np.full(size, status), None, {})

    def write(
        self,
        groups: Sequence[str],
        status: str,
        message: str,
        metrics: dict[str, Column],
        statuses: Column,
        scores: Scores | None,
        about: dict[str, Any],
    ) -> None:
        """Provenance and curves first, scores last: a cell is done when its scores are there."""
        piece = self._piece
        self.store.path("scores", f"{piece}.parquet").unlink(missing_ok=True)  # of a failed try
        facts = {
            "cell": self._id,
            "shard": self.shard.id,
            "dataset": self.shard.dataset,
            "model": self.shard.model,
            "method": self.method.label,
            "protocol": self.protocol.label,
            "status": status,
            "message": message,
        }
        self.store.write_json(self.store.path("cells", f"{piece}.json"), {**facts, **about})
        curves = self._curve_table(scores)
        self.store.write_table(self.store.path("curves", f"{piece}.parquet"), curves)
        table = self._score_table(groups, metrics, statuses)
        self.store.write_table(self.store.path("scores", f"{piece}.parquet"), table)

    @property
    def _piece(self) -> str:
        return self.plan.piece(self.shard, self.method, self.protocol)

    @property
    def _id(self) -> str:
        return self.plan.cell(self.shard, self.method, self.protocol)

    def _score_table(
        self, groups: Sequence[str], metrics: dict[str, Column], statuses: Column
    ) -> pa.Table:
        method, protocol = self.method, self.protocol
        fixed = {
            "cell": self._id,
            "dataset": self.shard.dataset,
            "model": self.shard.model,
            "checkpoint": self.plan.models[self.shard.model].checkpoint,
            "method": method.label,
            "method_version": method.plugin.version,
            "method_options": json.dumps(canonical(method.shown_options)),
            "protocol": protocol.label,
            "protocol_version": protocol.plugin.version,
            "protocol_options": json.dumps(canonical(protocol.shown_options)),
            "target": str(self.plan.target(self.shard.dataset, self.shard.model)),
            "seed": self.shard.seed,
            "higher_is_better": protocol.plugin.higher_is_better,
        }
        headline = protocol.plugin.metric
        rows = [
            {
                **fixed,
                "sample": sample,
                "group": group,
                "metric": metric,
                "value": float(value),
                "status": str(state),
                "headline": metric == headline,
            }
            for metric, values in metrics.items()
            for sample, group, value, state in zip(
                self.shard.samples, groups, values, statuses, strict=True
            )
        ]
        return pa.Table.from_pylist(rows, SCORES)

    def _curve_table(self, scores: Scores | None) -> pa.Table:
        if scores is None or scores.x is None:
            return CURVES.empty_table()
        x = scores.x.double().cpu().numpy()
        parts = []
        for name, curve in scores.curves.items():
            n, k = curve.shape
            columns: dict[str, Any] = {
                "cell": [self._id] * (n * k),
                "sample": np.repeat(np.array(self.shard.samples, dtype=object), k),
                "seed": np.full(n * k, self.shard.seed),
                "name": [name] * (n * k),
                "step": np.tile(np.arange(k), n),
                "x": np.tile(x, n),
                "value": curve.double().cpu().numpy().ravel(),
            }
            parts.append(pa.table(columns, schema=CURVES))
        return pa.concat_tables(parts) if parts else CURVES.empty_table()
