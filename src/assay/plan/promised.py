"""Gaps between maps and what their formula promises, stored once per formula and shard."""

import torch
from torch import Tensor

from assay.engine.engine import Engine
from assay.errors import InputError
from assay.plan.plan import Plan, Shard
from assay.store import StoredGaps
from assay.store.pieces import GapsPiece
from assay.suite.spec import Choice


def promise_passes(method: Choice) -> int:
    """Forward passes per sample for the comparison of maps with the promise."""
    return 0 if method.promise is None else method.promise.passes(method.options)


def promise_gaps(
    plan: Plan, shard: Shard, method: Choice, raw: Tensor, engine: Engine
) -> GapsPiece | None:
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
    stored = StoredGaps(method.promise.name, gaps.double().cpu().numpy())
    return GapsPiece(shard.id, plan.checks_key(shard, method), stored)
