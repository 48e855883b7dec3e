"""Gaps between maps and what their formula promises, stored once per formula and shard."""

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from assay.engine.engine import Engine
from assay.errors import InputError
from assay.plan.finished import promises_place
from assay.plan.plan import Plan, Shard
from assay.store import CHECKS
from assay.store.pieces import TablePiece
from assay.suite.spec import Choice


def promise_passes(method: Choice) -> int:
    """Forward passes per sample for the comparison of maps with the promise."""
    return 0 if method.promise is None else method.promise.passes(method.options)


def promise_gaps(
    plan: Plan, shard: Shard, method: Choice, raw: Tensor, engine: Engine
) -> TablePiece | None:
    """The gaps between a shard's maps and what the formula promises; None without a promise.

    Raises:
        InputError: The promise does not return one number for each sample.
    """
    if method.promise is None:
        return None
    batch = engine.batch
    with torch.no_grad():
        gaps = method.promise.function(engine.model, batch, raw, method.options)
    if tuple(gaps.shape) != (len(batch),):
        raise InputError(
            f"Expected the {method.promise.name} of `{method.label}` to be one number for each of "
            f"{len(batch)} samples, got the shape {tuple(gaps.shape)}."
        )
    n = len(batch)
    columns = {
        "dataset": [shard.dataset] * n,
        "model": [shard.model] * n,
        "checkpoint": [engine.model.checkpoint] * n,
        "method": [method.label] * n,
        "sample": list(batch.ids),
        "seed": np.full(n, shard.seed),
        "check": [method.promise.name] * n,
        "value": gaps.double().cpu().numpy(),
    }
    return TablePiece(promises_place(plan, shard, method), pa.table(columns, schema=CHECKS))
