"""SoCo's claims about semi-natural data: ROAD ranks methods there as on a blank background."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy

from assay.api import benchmark
from assay.plan.resolving import build_one
from assay.ranking.resampling import Floats
from assay.studies.claim import Claim, ClaimRow, make_row, replicates
from assay.studies.planting import planted
from assay.studies.reading import Reading
from assay.studies.soco.networks import resnet8, seeds, trained
from assay.types import Dataset, Model

if TYPE_CHECKING:
    from assay.studies.setting import Study

MOST = 500  # images on which each network is evaluated
METHODS = ("rect", "gradcam", "integrated_gradients", "deepshap")  # of the paper's figure 3
KINDS = ("natural", "semi-natural", "synthetic")


def ranks_change(claim: Claim, study: Study) -> list[ClaimRow]:
    """4: ROAD ranks methods differently for planted labels and for the images' own labels."""
    scores, left_out = ranked(by_road(study))
    effects = [replicates("rank correlation", alike(scores, "semi-natural", "natural"))]
    return [make_row(claim, effects, "stand-in", note=f"{_area_note(scores)}{left_out}")]


def like_synthetic(claim: Claim, study: Study) -> list[ClaimRow]:
    """17: with planted labels ROAD ranks as on a blank background, not as with the own labels."""
    scores, left_out = ranked(by_road(study))
    synthetic = alike(scores, "semi-natural", "synthetic")
    natural = alike(scores, "semi-natural", "natural")
    both = f"With synthetic {synthetic.mean():.2f}, with natural {natural.mean():.2f}"
    effects = [replicates("synthetic - natural", synthetic - natural)]
    return [make_row(claim, effects, "stand-in", note=f"{both}; {_area_note(scores)}{left_out}")]


def ranked(scores: dict[str, Floats]) -> tuple[dict[str, Floats], str]:
    """The scores `[networks, methods]` without networks where all methods tie, and a note."""
    exact = {kind: np.round(areas, 9) for kind, areas in scores.items()}  # equal areas tie
    tied = np.any([np.ptp(areas, axis=1) == 0 for areas in exact.values()], axis=0)
    note = f"; left out: {tied.sum()} of {len(tied)} networks, where all methods tie"
    return {kind: areas[~tied] for kind, areas in exact.items()}, note if tied.any() else ""


def alike(scores: dict[str, Floats], one: str, other: str) -> Floats:
    """The rank correlation of the methods `[networks]`, from scores `[networks, methods]`."""
    pairs = zip(scores[one], scores[other], strict=True)
    return np.array([scipy.stats.spearmanr(a, b).statistic for a, b in pairs])


def by_road(study: Study) -> dict[str, Floats]:
    """The area under ROAD's accuracy `[networks, methods]`, by kind of data; lower is better."""
    return {kind: np.stack([_areas(study, kind, s) for s in seeds(study)]) for kind in KINDS}


def _areas(study: Study, kind: str, seed: int) -> Floats:  # [methods]
    model, data = _natural(study, seed) if kind == "natural" else _planted(study, kind, seed)
    results = benchmark(
        model, data, list(METHODS), [{"road_morf": {"steps": 10, "label": "road"}}], seed,
        study.out / f"road-{kind}-{seed}",
        limit=min(study.n, MOST), device=study.device, micro_batch=study.micro_batch,
        keep_maps=False, controls="off",
    )  # fmt: skip
    reading = Reading(results)
    return np.array([reading.values("road", method).mean() for method in METHODS])


def _natural(study: Study, seed: int) -> tuple[Model, Dataset]:
    return trained(study, None, seed), build_one("dataset", study.dataset)


def _planted(study: Study, kind: str, seed: int) -> tuple[Model, Dataset]:
    base = study.dataset if kind == "semi-natural" else "blank"
    made = planted(
        "number_watermark", study, base=base, samples=min(study.n, MOST), seed=seed, net=resnet8
    )
    return made.model, made.dataset


def _area_note(scores: dict[str, Floats]) -> str:
    each = []
    for kind, areas in scores.items():
        means = ", ".join(f"{m} {v:.3f}" for m, v in zip(METHODS, areas.mean(0), strict=True))
        apart = np.ptp(areas, axis=1).mean()
        each.append(f"{kind} {means}, best and worst apart by {apart:.3f}")
    return f"Area under ROAD's accuracy, lower is better: {'; '.join(each)}"
