"""How far maps miss what their formula promises: once per formula and shard, kept with the run."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from assay.errors import InputError
from assay.plan.plan import Plan, Shard
from assay.store import CHECKS, Store
from assay.suite.spec import Choice
from assay.types import Batch


def check_passes(method: Choice) -> int:
    """Forward passes that the check of a sample's map takes."""
    return 0 if method.check is None else method.check.passes(method.options)


def is_checked(plan: Plan, shard: Shard, store: Store, method: Choice) -> bool:
    """Whether nothing is left to check."""
    return method.check is None or Store.has_table(_path(plan, shard, store, method), CHECKS)


def write_check(
    plan: Plan, shard: Shard, store: Store, method: Choice, raw: Tensor, batch: Batch
) -> None:
    """Check what a method's formula gave for the samples of a shard.

    Raises:
        InputError: The check does not give one number for each sample.
    """
    if method.check is None:
        return
    model = plan.models[shard.model]
    with torch.no_grad():
        found = method.check.function(model, batch, raw, method.options)
    if tuple(found.shape) != (len(batch),):
        raise InputError(
            f"Expected the {method.check.name} of `{method.label}` to be one number for each of "
            f"{len(batch)} samples, got the shape {tuple(found.shape)}."
        )
    n = len(batch)
    columns = {
        "dataset": [shard.dataset] * n,
        "model": [shard.model] * n,
        "checkpoint": [model.checkpoint] * n,
        "method": [method.label] * n,
        "sample": list(batch.ids),
        "seed": np.full(n, shard.seed),
        "check": [method.check.name] * n,
        "value": found.double().cpu().numpy(),
    }
    table = pa.table(columns, schema=CHECKS)
    store.write_table(_path(plan, shard, store, method), table)


def _path(plan: Plan, shard: Shard, store: Store, method: Choice) -> Path:
    return store.path("checks", f"{plan.checks_key(shard, method)}-{shard.id}.parquet")
