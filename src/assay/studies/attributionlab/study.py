"""The claims of AttributionLab (Zhang et al. 2023), on designed networks and on real ones.

    python -m assay.studies.attributionlab.study --device cuda --n 100 --out DIR

Differs from the paper: the paper does not give its generator, colours, temperature and the weights
of redundant channels; ours are in `assay.environments`. Logits are divided by 100 before the
softmax, because otherwise every probability is 0 or 1. SAM's segments, with which LIME passes in
the paper, are replaced by the true patches, an upper bound. Sensitivity-N correlates with the drop
of the probability.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from assay.errors import PrerequisiteError
from assay.ranking.arithmetic import spearman
from assay.ranking.resampling import Floats
from assay.studies.attributionlab.claims import CLAIMS as CLAIMS
from assay.studies.attributionlab.claims import GAMMA
from assay.studies.attributionlab.runs import (
    MODULO_TABLE,
    PAPERS_METRICS,
    SETTINGS,
    SMALL,
    SUITES,
    TABLE,
    read,
)
from assay.studies.claim import (
    Claim,
    ClaimRow,
    Direction,
    Effect,
    SettingKind,
    apart,
    bootstrap,
    make_row,
)
from assay.studies.effect import share
from assay.studies.soco.numbers import how, means

if TYPE_CHECKING:
    from assay.studies.reading import Reading
    from assay.studies.setting import Study
    from assay.suite.spec import Spec

POSITIVE = ("gradcam", "guided_backprop", "lrp", "iba")  # as the paper runs them
# Pairs named before any run: a map of few cells, and one of single pixels.
CROSSING = tuple(product(("gradcam", "iba"), ("integrated_gradients", "deepshap")))
FEW, MANY = 0.02, 0.5  # shares of removed pixels, at most and at least
COARSE = ("gradcam", "iba", "extremal_perturbation")
USUAL_N = 100  # the default number of images
NEARLY = 0.99
# The paper gives neither the weights of its redundant channels nor a temperature.
SETTING: SettingKind = "stand-in"
UNSEEN, SEEN = "softmax-unseen-nonuniform", "softmax-seen-nonuniform"


def _f1(reading: Reading, method: str, side: str, metric: str | None = None) -> Floats:
    return reading.values(side, method, metric)


def right_places_wrong_signs(claim: Claim, study: Study) -> list[ClaimRow]:
    """2: DeepSHAP from black."""
    reading = read("gradients", study, UNSEEN)
    values = {side: _f1(reading, "deepshap", side) - GAMMA for side in TRUTHS}
    return [make_row(claim, _directed(means(values, study), ["above", "below", "below"]), SETTING)]


TRUTHS = ("overall", "positive", "negative")


def _directed(effects: Sequence[Effect], directions: Sequence[Direction]) -> list[Effect]:
    return [
        replace(effect, direction=direction)
        for effect, direction in zip(effects, directions, strict=True)
    ]


def segments_decide(claim: Claim, study: Study) -> list[ClaimRow]:
    """3: the same LIME on three segmentations, from both fills."""
    reading = read("segments", study, UNSEEN)
    rows = []
    for fill, star in (("black", ""), ("background", "*")):
        values = {
            "felzenszwalb - .5": _f1(reading, f"lime felzenszwalb{star}", "overall") - 0.5,
            "quickshift - .6": _f1(reading, f"lime{star}", "overall") - 0.6,
            "true patches - .6": _f1(reading, f"lime patches{star}", "overall") - 0.6,
        }
        effects = _directed(means(values, study), ["below", "below", "above"])
        note = "True patches stand for SAM's segments"
        rows.append(make_row(claim, effects, SETTING, fill, note))
    return rows


def baselines_decide(claim: Claim, study: Study) -> list[ClaimRow]:
    """4: black, or the true background."""
    reading = read("colors", study, UNSEEN)
    values: dict[str, Floats] = {}
    directions: list[Direction] = []
    for method in ("integrated_gradients", "occlusion"):
        values[f"{method} from black"] = _f1(reading, method, "overall") - GAMMA
        values[f"{method} from background"] = _f1(reading, f"{method}*", "overall") - GAMMA
        better, worse = (_f1(reading, m, "overall", "precision") for m in (f"{method}*", method))
        values[f"{method}, precision gained"] = better - worse
        directions += ["below", "above", "above"]
    return [make_row(claim, _directed(means(values, study), directions), SETTING)]


def coarse_pass(claim: Claim, study: Study) -> list[ClaimRow]:
    """5: positive truth without holes."""
    reading = read("colors", study, UNSEEN)
    values = {m: _f1(reading, m, "positive_smooth") - GAMMA for m in COARSE}
    return [make_row(claim, means(values, study), SETTING)]


def imprecise_and_best(claim: Claim, study: Study) -> list[ClaimRow]:
    """6: Extremal Perturbation's precision, IBA's F1."""
    reading = read("colors", study, UNSEEN)
    values: dict[str, Floats] = {}
    directions: list[Direction] = []
    comparisons: tuple[tuple[str | None, str, Direction], ...] = (
        ("precision", COARSE[2], "below"), (None, "iba", "above"),
    )  # fmt: skip
    for metric, one, direction in comparisons:
        for other in (m for m in COARSE if m != one):
            mine, theirs = (_f1(reading, m, "positive_smooth", metric) for m in (one, other))
            values[f"{metric or 'F1'} of {one} - {other}"] = mine - theirs
            directions.append(direction)
    return [make_row(claim, _directed(means(values, study), directions), SETTING)]


def correlations(
    reading: Reading, methods: Sequence[str], truth: str, metrics: Sequence[str], weights: Floats
) -> Floats:  # [b, metrics]
    """Spearman over the methods between the mean truth and each mean score."""
    better = reading.results.manifest["protocols"]
    shares = weights / weights.sum(1, keepdims=True)

    def scores(protocol: str) -> Floats:
        values = np.stack([reading.values(protocol, m) for m in methods], 1)
        sign = 1 if better[protocol]["higher_is_better"] else -1
        mean: Floats = sign * (shares @ np.nan_to_num(values))
        return mean

    true = scores(truth)
    return np.stack([spearman(scores(metric), true) for metric in metrics], 1)


def unseen_disagrees(claim: Claim, study: Study) -> list[ClaimRow]:
    """7: agreement with the truth, without minus with the unseen effect."""
    pair = _with_and_without("colors", "nonuniform", study)
    lost = partial(_lost, pair)
    effects = bootstrap(list(PAPERS_METRICS), lost, len(pair[0].samples), **how(study))
    return [make_row(claim, effects, SETTING, note=_agreement(pair))]


def uniform_weights_too(claim: Claim, study: Study) -> list[ClaimRow]:
    """12: with uniform weights at least half of that agreement is lost too."""
    uniform, usual = (
        _with_and_without("metrics", weights, study) for weights in ("uniform", "nonuniform")
    )

    def beyond_half(counts: Floats) -> Floats:
        return _lost(uniform, counts) - _lost(usual, counts) / 2

    n = len(uniform[0].samples)
    effects = bootstrap(list(PAPERS_METRICS), beyond_half, n, **how(study))
    note = f"Uniform weights, {_agreement(uniform)}. Non-uniform, {_agreement(usual)}"
    return [make_row(claim, effects, SETTING, note=note)]


def _with_and_without(part: str, weights: str, study: Study) -> tuple[Reading, Reading]:
    with_it, without = (
        read(part, study, f"softmax-{effect}-{weights}") for effect in ("unseen", "seen")
    )
    return with_it, without


def _lost(pair: tuple[Reading, Reading], counts: Floats) -> Floats:  # [b, metrics]
    """The rank correlation with the truth that the unseen effect takes from each metric."""
    with_it, without = (
        correlations(reading, TABLE, "positive", PAPERS_METRICS, counts) for reading in pair
    )
    return without - with_it


def _agreement(pair: tuple[Reading, Reading]) -> str:
    ones = np.ones((1, len(pair[0].samples)))
    whole = [correlations(r, TABLE, "positive", PAPERS_METRICS, ones)[0] for r in pair]
    return "; ".join(
        f"{name}: {', '.join(f'{v:.2f}' for v in values)}"
        for name, values in zip(("with the effect", "without"), whole, strict=True)
    )


def optimal_on_modulo(claim: Claim, study: Study) -> list[ClaimRow]:
    """8: nearly every image."""
    reading = read("modulo", study, "modulo")
    effects = []
    for method in ("lrp", "deepshap", "integrated_gradients"):
        optimal = reading.values("truth_f1", method) > NEARLY
        effects.append(share(method, int(optimal.sum()), len(optimal)))
    return [make_row(claim, effects, "scaled")]


def blurred_on_modulo(claim: Claim, study: Study) -> list[ClaimRow]:
    """9: recall and precision of four methods."""
    reading = read("modulo", study, "modulo")

    def of(method: str, metric: str) -> Floats:
        return reading.values("truth_f1", method, metric)

    values = {
        "guided_backprop recall - .9": of("guided_backprop", "recall") - 0.9,
        "guided_backprop precision - .6": of("guided_backprop", "precision") - 0.6,
        "gradcam precision - .6": of("gradcam", "precision") - 0.6,
        "iba precision - .6": of("iba", "precision") - 0.6,
    }
    effects = _directed(means(values, study), ["above", "below", "below", "below"])
    return [make_row(claim, effects, "scaled")]


def modulo_metrics_agree(claim: Claim, study: Study) -> list[ClaimRow]:
    """10: the three adapted metrics and overall F1."""
    reading = read("modulo", study, "modulo")
    metrics = ["modulo_insertion", "modulo_deletion", "modulo_sensitivity_n"]

    def agreement(weights: Floats) -> Floats:
        return correlations(reading, MODULO_TABLE, "truth_f1", metrics, weights)

    effects = bootstrap(metrics, agreement, len(reading.samples), **how(study))
    return [make_row(claim, effects, "scaled", note="The paper's: .94, .98 and 1.00")]


def negative_curve(claim: Claim, study: Study) -> list[ClaimRow]:
    """11: DeepSHAP under Sensitivity-N."""
    reading = read("gradients", study, UNSEEN)
    values = {"deepshap": np.nan_to_num(reading.values("sensitivity_n", "deepshap"))}
    return [make_row(claim, means(values, study), SETTING)]


def positive_recall(claim: Claim, study: Study) -> list[ClaimRow]:
    """13: of methods without negative values."""
    reading = read("gradients", study, UNSEEN)
    values = {
        m: _f1(reading, m, "positive", "recall") - _f1(reading, m, "overall", "recall")
        for m in POSITIVE
    }
    return [make_row(claim, means(values, study), SETTING)]


def bottleneck_better(claim: Claim, study: Study) -> list[ClaimRow]:
    """14: the images differ between the settings, so the errors add up."""
    colors = _f1(read("gradients", study, UNSEEN), "iba", "positive", "precision")
    modulo = read("bottleneck", study, "modulo").values("truth_f1", "iba", "precision")
    gained = apart("multi-colour - modulo", colors.tolist(), modulo.tolist())
    return [make_row(claim, [gained], SETTING)]


def curves_cross(claim: Claim, study: Study) -> list[ClaimRow]:
    """15: one leads where few pixels are removed, the other where many are."""
    reading = read("gradients", study, UNSEEN)
    x = reading.x("sensitivity_n", CROSSING[0][0])
    few, many = x <= FEW, x >= MANY

    def leads(weights: Floats) -> Floats:
        mean = weights / weights.sum(1, keepdims=True)
        smaller = []
        for pair in CROSSING:
            one, other = (
                np.nan_to_num(reading.curves("sensitivity_n", m)["correlation"]) for m in pair
            )
            apart = mean @ (one - other)  # [b, K]
            early, late = apart[:, few].mean(1), apart[:, many].mean(1)
            smaller.append(np.maximum(np.minimum(early, -late), np.minimum(-early, late)))
        return np.stack(smaller, 1)

    names = [f"{one} and {other}" for one, other in CROSSING]
    effects = bootstrap(names, leads, len(reading.samples), **how(study))
    return [make_row(claim, effects, SETTING)]


def some_ignore_the_centre(claim: Claim, study: Study) -> list[ClaimRow]:
    """1: equally accurate networks use different objects."""
    from assay.studies.attributionlab.rashomon import rashomon

    networks = [rashomon(study.seed + i) for i in range(max(claim.n, study.trials))]
    if not all(one.whole == 1 for one in networks):
        raise PrerequisiteError("Expected every network to learn the two images; train longer.")
    ignoring = share("share", sum(one.ignores_the_centre for one in networks), len(networks))
    both = sum(one.centre == one.edge == 1 for one in networks)
    note = f"{both} of {len(networks)} use both objects; the paper shows one network"
    return [make_row(claim, [ignoring], SETTING, note=note)]


def _on_real(test: str) -> Callable[[Claim, Study], list[ClaimRow]]:
    """16 to 18: explain real networks. Torch is imported here, not when claims are only read."""

    def rows(claim: Claim, study: Study) -> list[ClaimRow]:
        from assay.studies.attributionlab import real as lab_real

        made: list[ClaimRow] = getattr(lab_real, test)(claim, study)
        return made

    return rows


TESTS: dict[str, Callable[[Claim, Study], list[ClaimRow]]] = {
    "attributionlab.1": some_ignore_the_centre,
    "attributionlab.2": right_places_wrong_signs,
    "attributionlab.3": segments_decide,
    "attributionlab.4": baselines_decide,
    "attributionlab.5": coarse_pass,
    "attributionlab.6": imprecise_and_best,
    "attributionlab.7": unseen_disagrees,
    "attributionlab.8": optimal_on_modulo,
    "attributionlab.9": blurred_on_modulo,
    "attributionlab.10": modulo_metrics_agree,
    "attributionlab.11": negative_curve,
    "attributionlab.12": uniform_weights_too,
    "attributionlab.13": positive_recall,
    "attributionlab.14": bottleneck_better,
    "attributionlab.15": curves_cross,
    "attributionlab.16": _on_real("mixed_signs"),
    "attributionlab.17": _on_real("baselines_matter"),
    "attributionlab.18": _on_real("segments_matter"),
}


RESTS_ON = {
    ("modulo", "modulo"): (8, 9, 10),
    ("bottleneck", "modulo"): (14,),
    ("gradients", UNSEEN): (2, 11, 13, 14, 15),
    ("segments", UNSEEN): (3,),
    ("colors", UNSEEN): (4, 5, 6, 7),
    ("colors", SEEN): (7,),
    **{("metrics", f"softmax-{setting}"): (12,) for setting in SETTINGS},
}
# Claims on images of a size that the command chooses.
DESIGNED = tuple(f"attributionlab.{number}" for number in range(2, 16))
TWO_IMAGES = 32  # pixels a side of the two images of claim 1


def image_size(claim: str, study: Study) -> int | None:
    """Pixels a side of the images behind a claim."""
    if claim == "attributionlab.1":
        return TWO_IMAGES
    if claim == "attributionlab.12":  # many protocols
        return min(study.size, SMALL)
    return study.size if claim in DESIGNED else study.pixels


def suites_of(claims: Iterable[str], study: Study) -> dict[str, Spec]:
    """The suites of the runs behind these claims, by folder."""
    chosen = set(claims)
    return {
        f"{part}-{name}": SUITES[part](study, name)
        for (part, name), mine in RESTS_ON.items()
        if chosen & {f"attributionlab.{number}" for number in mine}
    }


if __name__ == "__main__":
    from assay.studies.setting import main

    main("attributionlab")
