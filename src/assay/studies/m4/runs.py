"""M4's yellow patch: networks are trained on it, tested for its use, explained and scored."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from assay.api import benchmark
from assay.environments.environment import Environment
from assay.environments.proof import Unproved
from assay.plugins.option_types import Item, Options
from assay.studies.m4.networks import Kind
from assay.studies.planting import planted, read_once
from assay.studies.reading import Reading

if TYPE_CHECKING:
    from assay.studies.setting import Study

SIZE = 32  # pixels per side
EPOCHS, TRAIN = 3, 8000  # as many epochs as M4, and the number of training images
DRAWS = 5  # random baselines of integrated gradients
CLASS: dict[str, object] = {"output": "probability"}  # what is explained of the class
NOISE = 0.001  # of SmoothGrad, as a share of the image's range


@dataclass(frozen=True)
class PatchNetwork:
    """A network that was trained on the patch.

    Attributes:
        name: Kind and seed.
        kind: Its kind of network.
        proof: The result of the test whether it uses the patch.
        made: The samples it is scored on; None without proof of use.
    """

    name: str
    kind: Kind
    proof: Options
    made: Environment | None


@dataclass
class Scored:
    """The mean SynScore of each method, by network, and the networks without proof of use."""

    values: dict[str, dict[str, float]] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)


def trained(kinds: Sequence[Kind], study: Study) -> Iterator[PatchNetwork]:
    """Networks of these kinds, one by one: at least half as many as the study's trials."""
    images = read_once(study, SIZE)
    seeds = math.ceil(study.trials / 2 / len(kinds))
    for kind in kinds:
        for seed in range(study.seed, study.seed + seeds):
            name = f"{kind.name}-{seed}"
            try:
                made = planted(
                    "yellow_patch", study, label=name, base=images, size=SIZE, net=kind,
                    rate=kind.rate, epochs=EPOCHS, train=TRAIN, samples=study.n, seed=seed,
                )  # fmt: skip
            except Unproved as refusal:
                yield PatchNetwork(name, kind, refusal.proof.card(), None)
            else:
                yield PatchNetwork(name, kind, made.card["proof"], made)


def scored(kinds: Sequence[Kind], study: Study) -> Scored:
    """The scores of the methods on networks of these kinds that use the patch."""
    scores = Scored()
    for network in trained(kinds, study):
        if network.made is None:
            scores.refused.append(network.name)
        else:
            scores.values[network.name] = _score(network.name, network.kind, network.made, study)
    return scores


def _score(name: str, kind: Kind, made: Environment, study: Study) -> dict[str, float]:
    """The mean over images; images with another prediction than the patch's class are left out."""
    results = benchmark(
        made.model,
        made.dataset,
        methods_of(kind, study),
        ["synscore"],
        seed=study.seed,
        out=study.out / f"patch-{name}-{study.n}",
        target="predicted",
        device=study.device,
        micro_batch=study.micro_batch,
        keep_maps=False,
        controls="off",
    )
    reading = Reading(results)
    return {m: float(np.nanmean(reading.values("synscore", m))) for m in reading.methods}


def methods_of(kind: Kind, study: Study) -> list[Item]:
    """The methods as M4 runs them for this score; with 50 steps they take as many passes."""
    passes = 2 * study.steps
    gradients = {**CLASS, "reduce": "sum_abs"}
    return [
        {
            "integrated_gradients": {
                **gradients, "steps": max(1, passes // DRAWS), "baseline": "normal",
                "draws": DRAWS, "label": "integrated_gradients",
            }
        },
        {
            "smoothgrad": {
                **gradients, "label": "smoothgrad",
                "noise": {"kind": "smoothgrad", "samples": passes, "sigma": NOISE},
            }
        },
        *(_by_layer(kind) if kind.convolutional else _by_attention(kind)),
    ]  # fmt: skip


def _by_layer(kind: Kind) -> list[Item]:
    *earlier, last = kind.layers
    layers = {"gradcam": last, **{f"gradcam at {layer}": layer for layer in earlier}}
    return [{"gradcam": {**CLASS, "layer": at, "label": label}} for label, at in layers.items()]


def _by_attention(kind: Kind) -> list[Item]:
    common = {**CLASS, "start": kind.start, "resize": "bilinear"}
    return [
        {"generic_attention": {**common, "form": "m4", "label": "generic_attention"}},
        {"generic_attention": {**common, "label": "generic_attention of chefer"}},
        {"bt_head": {**common, "label": "bt_head"}},
        {"bt_token": {**common, "label": "bt_token"}},
    ]
