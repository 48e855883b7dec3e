"""How alike two networks are: their probabilities and Grad-CAM maps.

Each network is looked at once. Pairs are compared later, on what was stored.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from assay.engine.engine import Engine, network_engine
from assay.errors import NotApplicable
from assay.methods.cam import activations
from assay.plugins.option_types import Item
from assay.ranking.resampling import Floats
from assay.store import Array
from assay.types import Batch, Model
from assay.units.absent import each
from assay.units.features import make_units

SIDE = 8  # of the stored Grad-CAM maps, the resolution of most networks' last layer


def look(model: Model, batch: Batch, grid: int, fill: Item) -> dict[str, Array]:
    """The answers of a network that comparisons need.

    `probability` `[n]` of the label; `right` `[n]`; `worst` `[n]`: right without each single cell;
    `lowest` `[n]`: right without the cell whose removal leaves the lowest logit of the label; and
    where there is a spatial layer, `cam` `[n, 8, 8]` scaled to [0, 1].
    """
    with model.evaluating(), torch.no_grad():
        engine = network_engine(model, batch)
        seen = {**_corrupted(engine, grid, fill), **_spatial(model, batch)}
    # safetensors stores the bytes of an array in memory order, whatever its strides are.
    return {name: np.ascontiguousarray(value.cpu().numpy()) for name, value in seen.items()}


def _corrupted(engine: Engine, grid: int, fill: Item) -> dict[str, Tensor]:
    labels = engine.batch.targets[:, None]
    cells = make_units(engine.batch, {"grid": {"side": grid}})
    without = engine.respond(cells, each(cells), fill)
    right = without.predicted == labels  # [n, P]
    lowest = without.logit.argmin(1, keepdim=True)
    return {
        "probability": engine.clean.probability[:, 0].float(),
        "right": (engine.clean.predicted == labels)[:, 0],
        "worst": right.all(1),
        "lowest": right.gather(1, lowest)[:, 0],
    }


def _spatial(model: Model, batch: Batch) -> dict[str, Tensor]:
    cams = []
    try:
        for activation, gradient in activations(model, batch, None, "logit"):
            weighted = gradient.mean((2, 3), keepdim=True) * activation
            cams.append(functional.relu(weighted.sum(1, keepdim=True)))
    except NotApplicable:
        return {}
    maps = functional.interpolate(torch.cat(cams), (SIDE, SIDE), mode="bilinear")[:, 0]
    low, high = maps.amin((1, 2), keepdim=True), maps.amax((1, 2), keepdim=True)
    return {"cam": ((maps - low) / (high - low + 1e-8)).half()}


def facts(seen: Mapping[str, Array]) -> dict[str, float]:
    """The accuracies of one network."""
    return {
        "accuracy_seen": float(seen["right"].mean()),
        "worst_patch": float(seen["worst"].mean()),
        "lowest_patch": float(seen["lowest"].mean()),
    }


def compare(one: Mapping[str, Array], other: Mapping[str, Array]) -> dict[str, float | None]:
    """How far two networks are apart: mean absolute differences."""
    apart: dict[str, float | None] = {
        "mad_softmax": float(np.abs(one["probability"] - other["probability"]).mean()),
        "mad_gradcam": None,
    }
    if "cam" in one and "cam" in other:
        difference: Floats = one["cam"].astype(np.float64) - other["cam"].astype(np.float64)
        apart["mad_gradcam"] = float(np.abs(difference).mean())
    return apart
