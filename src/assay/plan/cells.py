"""The tables of a cell: one method under one protocol on the samples of one shard."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from assay.plan.plan import Plan, Shard
from assay.plugins.identity import canonical
from assay.store import CURVES, SCORES, Array, CellRecord
from assay.store.pieces import CellPiece
from assay.suite.spec import Choice
from assay.types import Scores


@dataclass(frozen=True)
class CellOutcome:
    """The result of a cell: a status, a message, and the numbers if it was scored."""

    status: str
    message: str = ""
    metrics: Mapping[str, Array] = field(default_factory=dict)  # name -> one number per sample
    statuses: Array | None = None  # one per sample; None: all have the status of the cell
    scores: Scores | None = None  # including curves
    seconds: float | None = None  # for scoring
    explain_seconds: float | None = None
    forwards: int = 0


@dataclass(frozen=True)
class Cell:
    """One method under one protocol on one shard. Builds the rows of its tables."""

    plan: Plan
    shard: Shard
    method: Choice
    protocol: Choice

    def piece(self, groups: Sequence[str], outcome: CellOutcome) -> CellPiece:
        """The rows of this cell, ready to be written."""
        record = CellRecord(
            cell=self._id,
            shard=self.shard.id,
            dataset=self.shard.dataset,
            model=self.shard.model,
            method=self.method.label,
            protocol=self.protocol.label,
            status=outcome.status,
            message=outcome.message,
            seconds=outcome.seconds,
            explain_seconds=outcome.explain_seconds,
            forwards=outcome.forwards,
        )
        name = self.plan.piece(self.shard, self.method, self.protocol)
        curves, scores = self._curve_table(outcome.scores), self._score_table(groups, outcome)
        return CellPiece(name, record.to_json(), curves, scores)

    @property
    def _id(self) -> str:
        return self.plan.cell(self.shard, self.method, self.protocol)

    def _score_table(self, groups: Sequence[str], outcome: CellOutcome) -> pa.Table:
        method, protocol, size = self.method, self.protocol, len(self.shard.samples)
        headline = protocol.plugin.metric
        metrics = outcome.metrics or {headline: np.full(size, np.nan)}
        statuses = outcome.statuses if outcome.statuses is not None else [outcome.status] * size
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
            columns = {
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
