"""The claims of SoCo (Li et al. 2024, soundness and completeness of attribution).

    python -m assay.studies.soco.study --data DIR --device cuda --n 5000 --out DIR

Differs from the paper: ResNets on CIFAR-10 replace its VGG-16 on ImageNet, so the setting is a
stand-in. Maps have single precision; the paper stores them in 8 bits. IBA and InputIBA are placed
after the last layer with beta 10 and 20, which the paper does not specify; Extremal Perturbation
preserves a tenth of the image; noise of 0.3 is a standard deviation, which the paper leaves open.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from assay.progress import bar
from assay.ranking.resampling import Floats
from assay.studies.claim import (
    Claim,
    ClaimRow,
    Direction,
    Effect,
    SettingKind,
    bootstrap,
    make_row,
    replicates,
)
from assay.studies.soco import value
from assay.studies.soco.claims import CLAIMS as CLAIMS
from assay.studies.soco.claims import LEVEL
from assay.studies.soco.numbers import (
    both,
    cases_of,
    changed_maps,
    count_of,
    gain,
    how,
    input_iba,
    means,
    other_slopes,
    soundness_of,
)
from assay.studies.soco.runs import (
    ENSEMBLES,
    KINDS,
    METHODS,
    SCHEMES,
    SUITES,
    read,
    removed_of,
)

if TYPE_CHECKING:
    from assay.studies.setting import Study
    from assay.studies.soco.gaussian import GaussianTrial, GaussianVariant
    from assay.suite.spec import Spec

USUAL_N = 5000  # the default number of images
SAME = 1e-3  # the share of predictions that rounding may change

# --- the claims -----------------------------------------------------------------------------------


def by_network(
    test: Callable[[Claim, Study, str], ClaimRow],
) -> Callable[[Claim, Study], list[ClaimRow]]:
    """One row for each network of the study."""

    def rows(claim: Claim, study: Study) -> list[ClaimRow]:
        study.require_networks()
        return [test(claim, study, model) for model in study.models]

    return rows


@by_network
def blind_to_magnitude(claim: Claim, study: Study, model: str) -> ClaimRow:
    """6: replacing values by ranks changes nothing for metrics of order."""
    reading = read("modified", study, model)
    maps = [f"integrated_gradients {name}" for name in ("original", "ranks")]

    def moved(weights: Floats) -> Floats:
        mean = weights / weights.sum(1, keepdims=True)
        sound = [soundness_of(reading, name, weights) for name in maps]
        raw = [mean @ reading.values("completeness", name, "raw") for name in maps]
        return np.stack([sound[1] - sound[0], raw[1] - raw[0]], 1)

    effects = []
    # Prediction by prediction; a GPU may round one in thousands differently.
    for name in ("road", "deletion"):
        curves = [reading.curves(name, m)["correct"] for m in maps]
        changed = float(np.abs(curves[0] - curves[1]).mean())
        effects.append(Effect(name, changed, 0.0, len(reading.samples), "within", SAME))
    names = ["soundness", "completeness"]
    effects += bootstrap(names, moved, len(reading.samples), **how(study))
    return make_row(claim, effects, "exact", model)  # the claim is about any network


@by_network
def curves_apart(claim: Claim, study: Study, model: str) -> ClaimRow:
    """9: metrics of value separate changed maps from the original, metrics of order hardly do."""
    readings = changed_maps(study, model)
    metrics = ("soundness", "completeness", "completeness_absolute", "road", "deletion")
    pairs = [(a, b) for a in metrics[:2] for b in metrics[3:]]

    def distances(weights: Floats) -> Floats:  # [b, metrics, cases]
        return np.stack(
            [cases_of(readings, m, weights, value.smallest_distance) for m in metrics], 1
        )

    def contrasts(weights: Floats) -> Floats:
        mean = dict(zip(metrics, np.moveaxis(distances(weights).mean(2), 1, 0), strict=True))
        return np.stack([mean[a] - mean[b] for a, b in pairs], 1)

    names = [f"{a} - {b}" for a, b in pairs]
    effects = bootstrap(names, contrasts, count_of(readings), **how(study))
    whole = distances(np.ones((1, count_of(readings))))[0]
    table = ", ".join(
        f"{name} {each.mean():.3f} ± {each.std():.3f}"
        for name, each in zip(metrics, whole, strict=True)
    )
    note = f"Distances over {whole.shape[1]} cases, mean ± std: {table}"
    return make_row(claim, effects, study.setting, model, note)


@by_network
def curves_overlap(claim: Claim, study: Study, model: str) -> ClaimRow:
    """10: under metrics of order, removed and introduced attribution look the same."""
    readings = changed_maps(study, model)

    def ends(curves: dict[str, Floats]) -> Floats:
        return value.hausdorff(curves["remove"], curves["introduce"])

    def distances(weights: Floats) -> Floats:
        return np.stack([cases_of(readings, m, weights, ends).mean(1) for m in metrics], 1)

    metrics = ("road", "deletion")
    effects = bootstrap(metrics, distances, count_of(readings), **how(study))
    return make_row(claim, effects, study.setting, model)


@by_network
def removal_unsound(claim: Claim, study: Study, model: str) -> ClaimRow:
    """11: removing attribution does not always raise soundness."""
    reading = read("removed", study, model)
    cases = [(of, scheme) for of in removed_of() for scheme in SCHEMES]

    def falls(weights: Floats, epsilon: float = 1.0) -> Floats:
        score = partial(soundness_of, reading, weights=weights, epsilon=epsilon)
        left = [score(f"{of} original") - score(f"{of} {s} remove") for of, s in cases]
        return np.stack(left, 1)

    names = [f"{of} {scheme}" for of, scheme in cases]
    effects = bootstrap(names, falls, len(reading.samples), **how(study))
    return make_row(claim, effects, study.setting, model, other_slopes(falls, reading))


@by_network
def ensembles_sounder(claim: Claim, study: Study, model: str) -> ClaimRow:
    """12: every ensemble is sounder than integrated gradients."""
    reading = read("ensembles", study, model)

    def gains(weights: Floats, epsilon: float = 1.0) -> Floats:
        score = partial(soundness_of, reading, weights=weights, epsilon=epsilon)
        return np.stack([score(method) - score("ig") for method in ENSEMBLES], 1)

    effects = bootstrap(ENSEMBLES, gains, len(reading.samples), **how(study))
    plain = float(soundness_of(reading, "ig", np.ones((1, len(reading.samples))))[0])
    note = f"IG itself {plain:.3f}; {other_slopes(gains, reading)}"
    return make_row(claim, effects, study.setting, model, note)


@by_network
def one_ensemble_completer(claim: Claim, study: Study, model: str) -> ClaimRow:
    """13: the mean over noisy copies is more complete, squares and variance are not."""
    reading = read("ensembles", study, model)
    directions: tuple[Direction, ...] = ("above", "below", "below")

    def gained(metric: str | None) -> list[Effect]:
        gains = {m: gain(reading, "completeness", m, metric) for m in ENSEMBLES}
        return means(gains, study)

    effects = [
        replace(effect, direction=direction)
        for effect, direction in zip(gained("raw"), directions, strict=True)
    ]
    excess = "; ".join(str(effect) for effect in gained(None))
    note = f"Over the same maps dealt to other images: {excess}"
    return make_row(claim, effects, study.setting, model, note)


@by_network
def no_gain_by_order(claim: Claim, study: Study, model: str) -> ClaimRow:
    """14: areas under curves of order do not show whether ensembles are better."""
    reading = read("ensembles", study, model)
    gains: dict[str, Floats] = {}
    each: dict[str, float] = {}
    for name, sign in (("road_morf", -1), ("road_lerf", 1), ("accuracy_morf", -1)):
        mine = {m: sign * gain(reading, name, m) for m in ENSEMBLES}
        gains[name] = np.mean(list(mine.values()), axis=0)
        each |= {f"{name} {m}": float(v.mean()) for m, v in mine.items()}
    note = "Each: " + ", ".join(f"{name} {v:+.3f}" for name, v in each.items())
    return make_row(claim, means(gains, study), study.setting, model, note)


@by_network
def none_best_in_both(claim: Claim, study: Study, model: str) -> ClaimRow:
    """15: sound methods are not complete; masks are complete, Grad-CAM and IBA sound."""
    reading = read("methods", study, model)
    rest = [m for m in METHODS if m not in ("gradcam", "iba")]

    def leads(weights: Floats) -> Floats:
        mean = weights / weights.sum(1, keepdims=True)
        sound = {m: soundness_of(reading, m, weights) for m in METHODS}
        whole = {m: mean @ reading.values("completeness", m, "raw") for m in METHODS}
        behind = [
            np.maximum(
                np.max(list(sound.values()), axis=0) - sound[m],
                np.max(list(whole.values()), axis=0) - whole[m],
            )
            for m in METHODS
        ]
        others = [whole[m] for m in METHODS if m != "extremal_perturbation"]
        usual = np.mean([sound[m] for m in rest], axis=0)
        return np.stack(
            [
                np.min(behind, axis=0),
                whole["extremal_perturbation"] - np.mean(others, axis=0),
                *(sound[m] - usual for m in ("gradcam", "iba")),
            ],
            1,
        )

    names = ("nearest to best in both", "masks completer", "gradcam sounder", "iba sounder")
    effects = bootstrap(names, leads, len(reading.samples), **how(study))
    note = f"{both(reading, METHODS)}. {input_iba(study, model)}"
    return make_row(claim, effects, study.setting, model, note)


@by_network
def ensembles_of_deepshap(claim: Claim, study: Study, model: str) -> ClaimRow:
    """16: every ensemble is sounder than DeepSHAP."""
    reading = read("methods", study, model)
    ensembles = [f"deepshap {kind}" for kind in KINDS]

    def gains(weights: Floats, epsilon: float = 1.0) -> Floats:
        score = partial(soundness_of, reading, weights=weights, epsilon=epsilon)
        return np.stack([score(method) - score("deepshap") for method in ensembles], 1)

    effects = bootstrap(ensembles, gains, len(reading.samples), **how(study))
    note = f"{both(reading, ('deepshap', *ensembles))}; {other_slopes(gains, reading)}"
    return make_row(claim, effects, study.setting, model, note)


def synthetic_soundness(claim: Claim, study: Study) -> list[ClaimRow]:
    """7: where the truth is known, soundness detects introduced attribution."""
    from assay.studies.soco import gaussian

    rows = []
    for variant, setting in GAUSSIAN.items():
        trials = _trials(claim, study, variant)
        sound = {m: [t.sound_at(m, LEVEL) for t in trials] for m in gaussian.MAPS}
        exact = {m: replicates(f"{m} - 1", [q - 1 for q in sound[m]]) for m in gaussian.MAPS[:2]}
        effects = [replace(effect, direction="within") for effect in exact.values()]
        less = np.array(sound["truth"]) - np.array(sound["introduce"])
        effects.append(replicates("truth - introduce", less.tolist()))
        rows.append(make_row(claim, effects, setting, variant, CHOSEN[variant]))
    return rows


def _trials(claim: Claim, study: Study, variant: GaussianVariant) -> list[GaussianTrial]:
    """The study's number of draws of the Gaussian data."""
    from assay.studies.soco import gaussian

    with bar(f"{claim.id} {variant}", study.trials) as done:
        trials = []
        for seed in range(study.seed, study.seed + study.trials):
            trials.append(gaussian.trial(variant, seed))
            done(1)
    return trials


def synthetic_completeness(claim: Claim, study: Study) -> list[ClaimRow]:
    """8: where the truth is known, completeness detects removed attribution."""
    from assay.studies.soco import gaussian

    rows = []
    for variant, setting in GAUSSIAN.items():
        trials = _trials(claim, study, variant)
        fall = {m: np.array([t.completeness[m].mean() for t in trials]) for m in gaussian.MAPS}
        effects = [
            replicates("introduce - truth", (fall["introduce"] - fall["truth"]).tolist()),
            replicates("truth - remove", (fall["truth"] - fall["remove"]).tolist()),
        ]
        rows.append(make_row(claim, effects, setting, variant, CHOSEN[variant]))
    return rows


# How each variant of the Gaussian data relates to the paper's, which is not fully described.
GAUSSIAN: dict[GaussianVariant, SettingKind] = {"literal": "stand-in", "clean": "stand-in"}
CHOSEN: dict[GaussianVariant, str] = {
    "literal": "Data and network are the paper's; it gives neither fill nor sizes of the changes, "
    "here zero and 30 % of the features",
    "clean": "Half of the features have weight zero, absent ones are drawn anew",
}


def trains(module: str, test: str) -> Callable[[Claim, Study], list[ClaimRow]]:
    """A test that trains networks; its module, which needs torch, is imported when it is run."""

    def rows(claim: Claim, study: Study) -> list[ClaimRow]:
        made: list[ClaimRow] = getattr(importlib.import_module(module), test)(claim, study)
        return made

    return rows


TESTS: dict[str, Callable[[Claim, Study], list[ClaimRow]]] = {
    "soco.1": trains("assay.studies.soco.retraining", "retraining_restores"),
    "soco.2": trains("assay.studies.soco.retraining", "whole_images_fail"),
    "soco.3": trains("assay.studies.soco.planted_features", "each_wins_at_home"),
    "soco.4": trains("assay.studies.soco.semi_natural", "ranks_change"),
    "soco.6": blind_to_magnitude,
    "soco.7": synthetic_soundness,
    "soco.8": synthetic_completeness,
    "soco.9": curves_apart,
    "soco.10": curves_overlap,
    "soco.11": removal_unsound,
    "soco.12": ensembles_sounder,
    "soco.13": one_ensemble_completer,
    "soco.14": no_gain_by_order,
    "soco.15": none_best_in_both,
    "soco.16": ensembles_of_deepshap,
    "soco.17": trains("assay.studies.soco.semi_natural", "like_synthetic"),
}
RESTS_ON = {
    "modified": ("soco.6", "soco.9", "soco.10"),
    "masks": ("soco.9", "soco.10"),
    "removed": ("soco.11",),
    "ensembles": ("soco.12", "soco.13", "soco.14"),
    "methods": ("soco.15", "soco.16"),
    "input_iba": ("soco.15",),
}


DESIGNED: tuple[str, ...] = ()  # claims on images of a size that the command chooses
NUMBERS = ("soco.7", "soco.8")  # claims on vectors of numbers
PLANTED_SIZE = 32  # pixels a side of images with a planted watermark


def image_size(claim: str, study: Study) -> int | None:
    """Pixels a side of the images behind a claim; None without images."""
    if claim in NUMBERS:
        return None
    return PLANTED_SIZE if claim == "soco.3" else study.pixels


def suites_of(claims: Iterable[str], study: Study) -> dict[str, Spec]:
    """The suites of the runs behind these claims, by folder."""
    chosen = set(claims)
    parts = [part for part, mine in RESTS_ON.items() if chosen & set(mine)]
    if parts:
        study.require_networks()
    return {
        f"{part}-{model}": SUITES[part](study, model) for part in parts for model in study.models
    }


if __name__ == "__main__":
    from assay.studies.setting import main

    main("soco")
