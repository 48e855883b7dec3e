"""Score one network with many methods at once, and summarise the scores.

All images are explained together, as one shard, so that a GPU runs full batches. Nothing but the
summary is stored.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import nn

from assay.errors import InputError
from assay.plan.finished import Finished
from assay.plan.plan import Plan, Shard
from assay.plan.resolving import resolve
from assay.plugins.option_types import Item
from assay.ranking.resampling import Floats
from assay.run.shard import ShardTask, run_shard
from assay.store import NOWHERE, ShardSummary, StoredCell, status_codes
from assay.store.pieces import CellsPiece, Piece
from assay.suite.spec import Spec, make_suite
from assay.types import Batch, Dataset, Model

BLOCKS = 50  # groups of images whose means are stored; intervals resample them
MICRO_BATCH = 500  # divides the usual numbers of images, so that nothing is padded


@dataclass
class Panel:
    """The scores of every method under every protocol, image by image.

    Attributes:
        values: Scores `[n]` by protocol and method; NaN where there is none.
        statuses: `ok`, `n/a` or `failed`, by protocol and method.
        messages: Why a cell has no scores.
        degenerate: How many maps were constant, by protocol and method.
        accuracy: The share of these images that the network classifies correctly.
        forwards: Forward passes of the protocols and of methods that remove units.
        seconds: The time.
    """

    values: dict[tuple[str, str], Floats] = field(default_factory=dict)
    statuses: dict[tuple[str, str], str] = field(default_factory=dict)
    messages: dict[tuple[str, str], str] = field(default_factory=dict)
    degenerate: dict[tuple[str, str], int] = field(default_factory=dict)
    accuracy: float = float("nan")
    forwards: int = 0
    seconds: float = 0.0

    def passes(self, rows: int) -> None:
        """Passes are counted at the end."""

    def looked(self, shard: Shard, summary: ShardSummary) -> None:
        """Keep the accuracy."""
        self.accuracy = (summary.correct or 0) / summary.n

    def put(self, piece: Piece) -> None:
        """Keep the scores of cells; drop everything else."""
        for cell in piece.cells if isinstance(piece, CellsPiece) else ():
            self._keep(cell)

    def _keep(self, cell: StoredCell) -> None:
        place = (cell.protocol, cell.method)
        self.statuses[place] = cell.status
        self.messages[place] = cell.message
        self.forwards += cell.forwards
        size = len(cell.statuses)
        unscored = np.full(size, np.nan)
        self.degenerate[place] = int((cell.statuses == status_codes(["degenerate"])).sum())
        self.values[place] = np.asarray(next(iter(cell.metrics.values()), unscored), np.float64)
        if place[0] == "sets" and cell.curves:  # one row for every size
            table = np.asarray(next(iter(cell.curves.values())), np.float64)
            for k in range(table.shape[1]):
                part = (f"sets of {k + 1}", place[1])
                self.values[part], self.statuses[part] = table[:, k], self.statuses[place]
                self.degenerate[part] = self.degenerate[place]

    def rows(self) -> list[dict[str, object]]:
        """One summary for every protocol and method."""
        return [
            {
                "protocol": protocol,
                "method": method,
                "status": self.statuses[protocol, method],
                "message": self.messages.get((protocol, method), ""),
                "degenerate": self.degenerate[protocol, method],
                **summary(values),
            }
            for (protocol, method), values in self.values.items()
        ]


def summary(values: Floats) -> dict[str, object]:
    """Mean, standard deviation, number of scores, and the mean of each block of images."""
    known = values[np.isfinite(values)]
    parts = np.array_split(values, min(BLOCKS, max(1, len(values))))
    blocks = [float(p[np.isfinite(p)].mean()) if np.isfinite(p).any() else None for p in parts]
    return {
        "n": len(known),
        "mean": float(known.mean()) if len(known) else None,
        "sd": float(known.std(ddof=1)) if len(known) > 1 else None,
        "blocks": blocks if len(known) else [],
    }


def one_shard(
    model: Model,
    dataset: Dataset | Item,
    methods: Sequence[Item],
    protocols: Sequence[Item],
    n: int,
    device: str | None,
) -> tuple[Plan, Shard]:
    """A plan in which all samples are one shard."""
    spec = make_suite(
        {
            "datasets": [dataset],
            "models": [model],
            "methods": list(methods),
            "protocols": list(protocols),
            "limit": n,
        }
    )
    plan = resolve(spec, device)
    ((data, name),) = plan.pairs
    return plan, Shard("all", data, name, 0, plan.samples(data))


def first_samples(dataset: Dataset, n: int) -> tuple[str, ...]:
    """The samples of a run with the limit `n`: a fixed choice, balanced over the classes."""
    spec = Spec(datasets=[dataset], models=["-"], methods=["-"], protocols=["-"], limit=n)
    return Plan(spec, {dataset.name: dataset}, {}, (), (), ()).samples(dataset.name)


def score_panel(
    model: Model,
    dataset: Dataset | Item,
    methods: Sequence[Item],
    protocols: Sequence[Item],
    n: int,
    *,
    device: str | None = None,
    micro_batch: int = MICRO_BATCH,
) -> Panel:
    """Explain and score the first `n` samples with every method under every protocol."""
    started, panel = time.monotonic(), Panel()
    model = replace(model, micro_batch=micro_batch)
    plan, shard = one_shard(model, dataset, methods, protocols, n, device)
    run_shard(ShardTask(Finished(plan, NOWHERE), shard, panel.put, panel, keep_maps=False))
    panel.seconds = time.monotonic() - started
    return panel


def batch_of(
    model: Model, dataset: Dataset | Item, n: int, device: str | None, micro_batch: int
) -> tuple[Model, Batch]:
    """The prepared network and the first `n` samples."""
    model = replace(model, micro_batch=micro_batch)
    plan, shard = one_shard(model, dataset, ["saliency"], ["single_deletion"], n, device)
    batch = plan.batch(shard)
    with model.evaluating(), torch.no_grad():
        return plan.ready(shard, batch).model, batch


def tempered(model: Model, temperature: float) -> Model:
    """Divide all logits by a temperature, by changing the weights of the last linear layer.

    Raises:
        InputError: The network has no linear layer.
    """
    layers = [m for m in model.net.modules() if isinstance(m, nn.Linear)]
    if not layers:
        raise InputError(f"Expected `{model.name}` to end in a linear layer, but it has none.")
    with torch.no_grad():
        layers[-1].weight.div_(temperature)
        if layers[-1].bias is not None:
            layers[-1].bias.div_(temperature)
    return model
