"""Statistics of a layer over the data: mean, standard deviation and share of active units."""

import hashlib
from collections import OrderedDict
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from assay.engine.engine import Engine
from assay.errors import NotApplicable, warn
from assay.methods.cam import find_layer, outputs
from assay.types import Batch, Model

FEW = 100  # below this number of samples a warning says that the estimate is poor
MOST_ESTIMATES = 8  # in memory at once
_ESTIMATES: "OrderedDict[str, Usual]" = OrderedDict()


@dataclass(frozen=True)
class Usual:
    """Statistics of a layer's units over the data, each `[C, h, w]`."""

    mean: Tensor
    std: Tensor  # with n - 1
    active: Tensor  # the share of samples in which the unit is not zero


def usual(
    model: Model, batch: Batch, engine: Engine, layer: str | nn.Module | None, n: int
) -> Usual:
    """The layer's statistics over `n` fixed samples of the batch's dataset, or all it has.

    They are cached by what they depend on: weights, layer, data and preprocessing.

    Raises:
        InputError: The batch belongs to no dataset.
        NotApplicable: There is only one sample.
    """
    chosen = _chosen(batch, n)
    key = _key(model, batch, layer, chosen)
    if key in _ESTIMATES:
        _ESTIMATES.move_to_end(key)
        return _ESTIMATES[key]
    if len(chosen) < FEW:
        warn(
            f"The mean and standard deviation of a layer's units are estimated from only "
            f"{len(chosen)} samples; a bottleneck needs hundreds."
        )
    estimate = _estimate(model, batch, engine, layer, chosen)
    _ESTIMATES[key] = estimate
    while len(_ESTIMATES) > MOST_ESTIMATES:
        _ESTIMATES.popitem(last=False)
    return estimate


def usual_passes(
    model: Model, batch: Batch, layer: str | nn.Module | None, n: int
) -> tuple[int, str]:
    """The forward passes of these statistics, and their key."""
    chosen = _chosen(batch, n)
    return len(chosen), _key(model, batch, layer, chosen)


def _chosen(batch: Batch, n: int) -> list[str]:
    ids = batch.reference_ids(n)
    if len(ids) < 2:
        raise NotApplicable(
            "The standard deviation of a layer's units needs at least two samples, got one. Pass "
            "more in Python, `assay.explain(net, X, y, ...)`, or choose another method "
            "(`--method`)."
        )
    return ids


def _key(model: Model, batch: Batch, layer: str | nn.Module | None, chosen: list[str]) -> str:
    module = find_layer(model, layer)
    name = next((n for n, m in model.net.named_modules() if m is module), "")
    data = batch.dataset.fingerprint if batch.dataset else ""
    place = (model.weights_hash, name, batch.inputs.device, batch.inputs.dtype, batch.prepare)
    text = "\0".join((*map(repr, place), data, *chosen))
    return hashlib.sha256(text.encode()).hexdigest()


def _estimate(
    model: Model, batch: Batch, engine: Engine, layer: str | nn.Module | None, chosen: list[str]
) -> Usual:
    total: Tensor | float = 0.0
    square: Tensor | float = 0.0
    active: Tensor | float = 0.0
    for start in range(0, len(chosen), model.micro_batch):
        some = batch.others(chosen[start : start + model.micro_batch])
        for output, _, _, asked in outputs(model, some, layer):
            units = output[:asked].double()
            total = total + units.sum(0)
            square = square + units.square().sum(0)
            active = active + (units != 0).sum(0)
            engine.count(asked)
    mean = torch.as_tensor(total) / len(chosen)
    variance = (torch.as_tensor(square) - len(chosen) * mean.square()) / (len(chosen) - 1)
    parts = (mean, variance.clamp(min=0).sqrt(), torch.as_tensor(active) / len(chosen))
    return Usual(*(part.to(batch.dtype).contiguous() for part in parts))
