"""How alike two networks are: their probabilities, Grad-CAM maps and channels.

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
TOP = 10  # images that activate a channel most


def look(model: Model, batch: Batch, grid: int, fill: Item) -> dict[str, Array]:
    """The answers of a network that comparisons need.

    `probability` `[n]` of the label; `right` `[n]`; `worst` `[n]`: right without each single cell;
    `lowest` `[n]`: right without the cell whose removal leaves the lowest logit of the label; and
    where there is a spatial layer, `cam` `[n, 8, 8]` scaled to [0, 1] and `top` `[channels, 10]`,
    the images that activate a channel most.
    """
    with model.evaluating(), torch.no_grad():
        engine = network_engine(model, batch)
        seen = {**_corrupted(engine, grid, fill), **_spatial(model, batch)}
    return {name: value.cpu().numpy() for name, value in seen.items()}


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
    cams, peaks = [], []
    try:
        for activation, gradient in activations(model, batch, None, "logit"):
            weighted = gradient.mean((2, 3), keepdim=True) * activation
            cams.append(functional.relu(weighted.sum(1, keepdim=True)))
            peaks.append(activation.amax((2, 3)))
    except NotApplicable:
        return {}
    maps = functional.interpolate(torch.cat(cams), (SIDE, SIDE), mode="bilinear")[:, 0]
    low, high = maps.amin((1, 2), keepdim=True), maps.amax((1, 2), keepdim=True)
    top = torch.cat(peaks).topk(min(TOP, len(batch)), 0).indices.T  # [channels, 10]
    return {"cam": ((maps - low) / (high - low + 1e-8)).half(), "top": top.short()}


def facts(seen: Mapping[str, Array]) -> dict[str, float]:
    """The accuracies of one network."""
    return {
        "accuracy_seen": float(seen["right"].mean()),
        "worst_patch": float(seen["worst"].mean()),
        "lowest_patch": float(seen["lowest"].mean()),
    }


def compare(one: Mapping[str, Array], other: Mapping[str, Array]) -> dict[str, float | None]:
    """How far two networks are apart: mean absolute differences, and overlap of top images.

    The overlap is the mean over channels of the Jaccard index of both sets of images; it needs two
    networks with the same channels.
    """
    apart: dict[str, float | None] = {
        "mad_softmax": float(np.abs(one["probability"] - other["probability"]).mean()),
        "mad_gradcam": None,
        "overlap": None,
    }
    if "cam" in one and "cam" in other:
        difference: Floats = one["cam"].astype(np.float64) - other["cam"].astype(np.float64)
        apart["mad_gradcam"] = float(np.abs(difference).mean())
        if one["top"].shape == other["top"].shape:
            apart["overlap"] = overlap(one["top"], other["top"])
    return apart


def overlap(one: Array, other: Array) -> float:
    """The mean Jaccard index of the rows of two tables of image numbers `[channels, k]`."""
    pairs = [(set(a), set(b)) for a, b in zip(one.tolist(), other.tolist(), strict=True)]
    return float(np.mean([len(a & b) / len(a | b) for a, b in pairs]))
