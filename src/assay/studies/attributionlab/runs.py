"""The runs behind AttributionLab's claims: their suites, and how they are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from assay.plugins.option_types import Item
from assay.suite.spec import Spec, make_suite

if TYPE_CHECKING:
    from assay.studies.reading import Reading
    from assay.studies.setting import Study

# The settings of the paper's tables: with and without the unseen effect, by weights.
SETTINGS = {
    f"{effect}-{weights}": {"unseen": effect == "unseen", "weights": weights}
    for effect in ("unseen", "seen")
    for weights in ("nonuniform", "uniform")
}
TARGETS = ("softmax", "contrast")
WINDOW, STEP = 5 / 224, 3 / 224  # occlusion's window and step, as shares of the side
SIDES = ("overall", "positive", "negative", "positive_smooth")
PAPERS_METRICS = ("insertion", "deletion", "sensitivity_n")
# Shares of the pixels that Sensitivity-N removes; the paper uses every number of pixels.
SHARES = (0.001, 0.01, 0.1, 0.3, 0.6, 0.9)
SUBSETS = 30  # of each share; the paper takes 100
SMALL = 64  # pixels per side where every protocol is run
PATCHES = "assay.studies.attributionlab.units:true_patches"

# The rows of the paper's tables; a star marks the true background as baseline.
TABLE = (
    "gradcam", "guided_backprop", "lime", "extremal_perturbation", "occlusion", "deepshap",
    "integrated_gradients", "iba",
)  # fmt: skip
MODULO_TABLE = (
    "gradcam", "guided_backprop", "lrp", "extremal_perturbation", "occlusion", "deepshap",
    "integrated_gradients", "integrated_gradients*", "iba", "random", "constant",
)  # fmt: skip


def modulo_suite(study: Study, _: str = "") -> Spec:
    """The eleven methods of Tables 3 and 4 on the modulo network."""
    methods: list[Item] = [
        {"gradcam": {"layer": "layers.5", "label": "gradcam"}},
        "guided_backprop",
        "lrp",
        {"extremal_perturbation": {"steps": 16 * study.steps, "label": "extremal_perturbation"}},
        _occlusion("occlusion"),
        "deepshap",
        {"integrated_gradients": {"steps": study.steps, "label": "integrated_gradients"}},
        {
            "integrated_gradients": {
                "steps": study.steps, "baseline": "given", "label": "integrated_gradients*",
            }
        },
        {"iba": {"layer": "layers.11", "beta": 20, "estimate": study.n, "label": "iba"}},
        "random",
        "constant",
    ]  # fmt: skip
    environment = {"single_color_modulo": {"size": study.size, "samples": study.n, "label": "here"}}
    protocols: list[Item] = [
        "truth_f1",
        "modulo_insertion",
        "modulo_deletion",
        "modulo_sensitivity_n",
    ]
    return _suite(environment, methods, protocols, study)


def colors_suite(study: Study, name: str) -> Spec:
    """The methods of Tables 5 and 6 in one of the settings, under the paper's metrics."""
    return _colors(study, name, study.size, papers_protocols())


def metrics_suite(study: Study, name: str) -> Spec:
    """The same methods under every protocol, on small images."""
    protocols = [*papers_protocols(), *OTHERS]
    return _colors(study, name, min(study.size, SMALL), protocols)


def _colors(study: Study, name: str, size: int, protocols: list[Item]) -> Spec:
    target, _, setting = name.partition("-")
    environment = {
        "multi_color_sum": {
            "size": size, "samples": study.n, "target": target, "temperature": 100.0,
            "label": "here", **SETTINGS[setting],
        }
    }  # fmt: skip
    output = "probability" if target == "softmax" else "logit"
    uniform = SETTINGS[setting]["weights"] == "uniform"
    return _suite(environment, color_methods(study, output, uniform), protocols, study)


def color_methods(study: Study, output: str, uniform: bool) -> list[Item]:
    """The paper's methods and their variants, with the paper's settings where they are known."""
    second, third = ("layers.3", "layers.5") if uniform else ("layers.5", "layers.7")
    ig = {"steps": study.steps, "output": output}
    lime = {"samples": 20 * study.steps, "output": output}
    return [
        {"gradcam": {"layer": second, "label": "gradcam"}},
        {"guided_backprop": {"output": output, "label": "guided_backprop"}},
        {"lime": {**lime, "units": "quickshift", "label": "lime"}},
        {"lime": {**lime, "units": "felzenszwalb", "label": "lime felzenszwalb"}},
        {"lime": {**lime, "units": PATCHES, "label": "lime patches"}},
        {
            "extremal_perturbation": {
                "steps": 16 * study.steps, "output": output, "label": "extremal_perturbation",
            }
        },
        _occlusion("occlusion"),
        _occlusion("occlusion*", fill="given"),
        {"deepshap": {"output": output, "label": "deepshap"}},
        {"deepshap": {"output": output, "baseline": "given", "label": "deepshap*"}},
        {"integrated_gradients": {**ig, "label": "integrated_gradients"}},
        {"integrated_gradients": {**ig, "baseline": "given", "label": "integrated_gradients*"}},
        {"iba": {"layer": third, "beta": 20, "estimate": study.n, "label": "iba"}},
        {"saliency": {"output": output, "label": "saliency"}},
        {"input_x_gradient": {"output": output, "label": "input_x_gradient"}},
        {"lrp": {"output": output, "label": "lrp"}},
        "random",
        "constant",
    ]  # fmt: skip


def papers_protocols() -> list[Item]:
    """Truth on all sides, and the paper's metrics with black and with the true background."""
    pixels = {"units": "elements", "output": "probability", "shares": SHARES, "subsets": SUBSETS}
    return [
        *({"truth_f1": {"truth": side, "label": side}} for side in SIDES),
        "insertion",
        "deletion",
        {"sensitivity_n": {**pixels, "label": "sensitivity_n"}},
        {"insertion": {"fill": "given", "label": "insertion given"}},
        {"deletion": {"fill": "given", "label": "deletion given"}},
        {"sensitivity_n": {**pixels, "fill": "given", "label": "sensitivity_n given"}},
    ]


# Every other protocol that runs the network, with its defaults (black).
OTHERS: tuple[Item, ...] = (
    {"sensitivity_n": {"label": "sensitivity_n cells"}},
    "morf", "lerf", "abpc", "incremental_deletion", "accuracy_morf", "accuracy_lerf", "road_morf",
    "road_lerf", "single_deletion", "infidelity", "faithfulness_correlation", "soundness",
    "completeness", "comprehensiveness", "sufficiency",
)  # fmt: skip


def _occlusion(label: str, fill: str = "zero") -> Item:
    units = {"windows": {"sizes": (WINDOW,), "stride": STEP}}
    return {"occlusion": {"units": units, "fill": fill, "label": label}}


def _suite(environment: Item, methods: list[Item], protocols: list[Item], study: Study) -> Spec:
    return make_suite(
        {
            "environments": [environment],
            "methods": methods,
            "protocols": protocols,
            "seeds": [study.seed],
        }
    )


SUITES: dict[str, Callable[[Study, str], Spec]] = {
    "modulo": modulo_suite, "colors": colors_suite, "metrics": metrics_suite,
}  # fmt: skip


def read(part: str, study: Study, name: str) -> Reading:
    """The results of a run; missing cells are run first."""
    return study.read(part, name, SUITES[part](study, name))
