"""AttributionLab's claims about real networks, measured: signs, baselines, segments."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from assay.api import explain
from assay.plan.resolving import build_one
from assay.ranking.arithmetic import spearman
from assay.ranking.resampling import Floats
from assay.studies.claim import Claim, ClaimRow, Effect, make_row
from assay.studies.soco.numbers import means
from assay.types import Batch, Model

if TYPE_CHECKING:
    from assay.studies.setting import Study

ALIKE = 0.05  # the largest difference of similar neighbours, as a share of the pixel range
FAINT = 0.01  # values below this share of the map's largest have no meaningful sign
MORE = 0.05  # how many more neighbours than under another method have opposite signs
TOP = 0.1  # the share of pixels that a map highlights
FIRST = 100  # images at most, from the beginning of the data


def _samples(study: Study, name: str) -> tuple[Model, Batch]:
    """A network and the first images that it classifies correctly."""
    study.require_networks()
    model: Model = build_one("model", {**study.models, **study.others}[name])
    dataset = build_one("dataset", study.dataset)
    chosen = dataset.ids[: 2 * min(study.n, FIRST)]
    batch = dataset.batch(chosen, model.prepare, pixels=model.pixels)
    with model.evaluating(), torch.no_grad():
        right = (model(batch.inputs).argmax(1) == batch.targets).nonzero().flatten()
    return model, batch.select(right[: min(FIRST, study.n)].tolist())


def mixed_signs(claim: Claim, study: Study) -> list[ClaimRow]:
    """16: neighbours of nearly the same colour with opposite signs."""
    rows = []
    for name in study.models:
        model, batch = _samples(study, name)
        shares = {
            "deepshap": _flips(model, batch, "deepshap"),
            "integrated_gradients": _flips(model, batch, "integrated_gradients", steps=study.steps),
        }
        apart = shares["deepshap"] - shares["integrated_gradients"]
        values = {"deepshap": shares["deepshap"], "deepshap - integrated_gradients": apart}
        effects = means(values, study)
        effects[1] = replace(effects[1], margin=MORE)
        note = f"Integrated gradients: {shares['integrated_gradients'].mean():.2f}"
        rows.append(make_row(claim, effects, "stand-in", name, note))
    return rows


def _flips(model: Model, batch: Batch, method: str, **options: Any) -> Floats:  # [n]
    maps = explain(model, batch.inputs, batch.targets, method, **options)
    pixels = model.pixels.to_pixels(batch.inputs) if model.pixels else batch.inputs
    alike = ((pixels[..., 1:] - pixels[..., :-1]).abs().amax(1) <= ALIKE) & (_strong(maps) > 0)
    opposite = maps[..., 1:] * maps[..., :-1] < 0
    shares = (opposite & alike).flatten(1).sum(1) / alike.flatten(1).sum(1).clamp(min=1)
    flips: Floats = shares.double().numpy()
    return flips


def _strong(maps: Tensor) -> Tensor:
    """1 for neighbours that are both strong enough to have a sign."""
    strong = maps.abs() > FAINT * maps.abs().amax((1, 2), keepdim=True)
    return (strong[..., 1:] & strong[..., :-1]).int()


def baselines_matter(claim: Claim, study: Study) -> list[ClaimRow]:
    """17: what black and white baselines highlight."""
    rows = []
    for name in study.models:
        model, batch = _samples(study, name)
        tops = []
        white = (
            torch.ones_like(batch.inputs[0])
            if model.pixels is None
            else (model.pixels.to_input(1.0).expand_as(batch.inputs[0]))
        )
        for baseline in ("black", white):
            maps = explain(
                model, batch.inputs, batch.targets, "integrated_gradients",
                baseline=baseline, steps=study.steps,
            )  # fmt: skip
            flat = maps.flatten(1)
            most = flat.topk(round(TOP * flat.shape[1]), 1).indices
            tops.append(torch.zeros_like(flat, dtype=torch.bool).scatter_(1, most, True))
        shared = (tops[0] & tops[1]).sum(1) / tops[0].sum(1)
        effects = means({"not shared": (1 - shared).double().numpy()}, study)
        note = f"By chance they share {TOP:.0%}"
        rows.append(make_row(claim, effects, "stand-in", name, note))
    return rows


def segments_matter(claim: Claim, study: Study) -> list[ClaimRow]:
    """18: LIME on two segmentations."""
    effects: list[Effect] = []
    networks = [next(iter(study.models)), *study.others]
    for name in networks:
        model, batch = _samples(study, name)
        maps = [
            explain(
                model, batch.inputs, batch.targets, "lime", units=units, samples=4 * study.steps
            )
            for units in ({"felzenszwalb": {"min_size": 8}}, {"quickshift": {"kernel_size": 2}})
        ]
        flat = [m.flatten(1).double().numpy() for m in maps]
        apart = 1 - np.nan_to_num(spearman(flat[0], flat[1]))
        effects += means({name: apart}, study)
    note = "" if study.others else "No transformer was at hand"
    return [make_row(claim, effects, "stand-in", note=note)]
