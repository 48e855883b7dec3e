"""The stored form of a cell: one method under one protocol on the samples of one shard."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from assay.plan.plan import Plan, Shard
from assay.store import Array, StoredCell, status_codes
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


def stored_cell(
    plan: Plan, shard: Shard, method: Choice, protocol: Choice, outcome: CellOutcome
) -> StoredCell:
    """The outcome of a method under a protocol on a shard, ready to be written."""
    scores, statuses = outcome.scores, outcome.statuses
    curves = {} if scores is None or scores.x is None else scores.curves
    return StoredCell(
        cell=plan.cell(shard, method, protocol),
        method=method.label,
        protocol=protocol.label,
        status=outcome.status,
        message=outcome.message,
        seconds=outcome.seconds,
        explain_seconds=outcome.explain_seconds,
        forwards=outcome.forwards,
        metrics={name: np.asarray(v, np.float64) for name, v in outcome.metrics.items()},
        statuses=status_codes(
            [outcome.status] * len(shard.samples) if statuses is None else statuses
        ),
        x=np.empty(0) if scores is None or scores.x is None else scores.x.double().cpu().numpy(),
        curves={name: curve.double().cpu().numpy() for name, curve in curves.items()},
    )
