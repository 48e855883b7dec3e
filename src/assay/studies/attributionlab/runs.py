"""The runs behind AttributionLab's claims: their suites, and how they are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from assay.plugins.option_types import Item, Options
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
PIXELS: Options = {
    "units": "elements", "output": "probability", "shares": SHARES, "subsets": SUBSETS,
}  # fmt: skip
# What the paper's curves remove, and what stands there: single pixels, black.
BLACK: Options = {"units": "elements", "fill": "zero"}
CELLS = 14  # a side, of random sets that are not of single pixels
SMALL = 64  # pixels per side where every protocol is run
PATCHES = "assay.studies.attributionlab.units:true_patches"

# The rows of the paper's tables; a star marks the true background as baseline.
TABLE = (
    "gradcam", "guided_backprop", "lime", "extremal_perturbation", "occlusion", "deepshap",
    "integrated_gradients", "iba",
)  # fmt: skip
FEW_PASSES = ("gradcam", "guided_backprop", "deepshap", "integrated_gradients", "lrp", "iba")
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
        bottleneck(study, "layers.11"),
        "random",
        "constant",
    ]  # fmt: skip
    protocols: list[Item] = [
        "truth_f1",
        "modulo_insertion",
        "modulo_deletion",
        "modulo_sensitivity_n",
    ]
    return _suite(_modulo_environment(study), methods, protocols, study)


def colors_suite(study: Study, name: str) -> Spec:
    """The methods of Tables 5 and 6 in one of the settings, under the paper's metrics."""
    return _colors(study, name, study.size, papers_protocols())


def metrics_suite(study: Study, name: str) -> Spec:
    """The same methods under every protocol, on small images."""
    protocols = [*papers_protocols(), *OTHERS]
    return _colors(study, name, min(study.size, SMALL), protocols)


def gradients_suite(study: Study, name: str) -> Spec:
    """Methods that take few passes, under truth and Sensitivity-N: minutes on two cores."""
    methods = [m for m in _methods_in(study, name) if _label(m) in FEW_PASSES]
    return _suite(_color_environment(study, name, study.size), methods, truth_and_subsets(), study)


def segments_suite(study: Study, name: str) -> Spec:
    """LIME on three segmentations, absent segments filled with black and with the background."""
    limes = [m for m in _methods_in(study, name) if _label(m).startswith("lime")]
    both = limes + [
        {"lime": {**_options(m), "fill": "given", "label": f"{_label(m)}*"}} for m in limes
    ]
    return _suite(_color_environment(study, name, study.size), both, truth(), study)


def bottleneck_suite(study: Study, _: str = "") -> Spec:
    """IBA alone on the modulo network."""
    methods = [bottleneck(study, "layers.11")]
    return _suite(_modulo_environment(study), methods, ["truth_f1"], study)


def _colors(study: Study, name: str, size: int, protocols: list[Item]) -> Spec:
    methods = _methods_in(study, name)
    return _suite(_color_environment(study, name, size), methods, protocols, study)


def _color_environment(study: Study, name: str, size: int) -> Item:
    target, _, setting = name.partition("-")
    return {
        "multi_color_sum": {
            "size": size, "samples": study.n, "target": target, "temperature": 100.0,
            "label": "here", **SETTINGS[setting],
        }
    }  # fmt: skip


def _modulo_environment(study: Study) -> Item:
    return {"single_color_modulo": {"size": study.size, "samples": study.n, "label": "here"}}


def _methods_in(study: Study, name: str) -> list[Item]:
    target, _, setting = name.partition("-")
    output = "probability" if target == "softmax" else "logit"
    return color_methods(study, output, uniform=SETTINGS[setting]["weights"] == "uniform")


def _options(method: Item) -> Options:
    return next(iter(method.values())) if isinstance(method, dict) else {}


def _label(method: Item) -> str:
    return str(_options(method).get("label", method))


def bottleneck(study: Study, layer: str) -> Item:
    """IBA at a layer, with the paper's weight of information."""
    return {"iba": {"layer": layer, "beta": 20, "estimate": study.n, "label": "iba"}}


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
        bottleneck(study, third),
        {"saliency": {"output": output, "label": "saliency"}},
        {"input_x_gradient": {"output": output, "label": "input_x_gradient"}},
        {"lrp": {"output": output, "label": "lrp"}},
        "random",
        "constant",
    ]  # fmt: skip


def papers_protocols() -> list[Item]:
    """Truth on all sides, and the paper's metrics with black and with the true background."""
    return [
        *truth(),
        *(_black(name) for name in ("insertion", "deletion")),
        {"sensitivity_n": {**PIXELS, "label": "sensitivity_n"}},
        {"insertion": {**BLACK, "fill": "given", "label": "insertion given"}},
        {"deletion": {**BLACK, "fill": "given", "label": "deletion given"}},
        {"sensitivity_n": {**PIXELS, "fill": "given", "label": "sensitivity_n given"}},
    ]


def truth() -> list[Item]:
    """F1, precision and recall of all, positive, negative and smooth positive truth."""
    return [{"truth_f1": {"truth": side, "label": side}} for side in SIDES]


def truth_and_subsets() -> list[Item]:
    """Truth on all sides, and Sensitivity-N with black."""
    return [*truth(), {"sensitivity_n": {**PIXELS, "label": "sensitivity_n"}}]


def _black(name: str) -> Item:
    return {name: {**BLACK, "label": name}}


# Every other protocol that runs the network, with black where nothing is imputed.
CURVES = (
    "morf", "lerf", "abpc", "incremental_deletion", "accuracy_morf", "accuracy_lerf",
    "comprehensiveness", "sufficiency",
)  # fmt: skip
OTHERS: tuple[Item, ...] = (
    {"sensitivity_n": {"grid": CELLS, "label": "sensitivity_n cells"}},
    {"faithfulness_correlation": {"grid": CELLS, "label": "faithfulness_correlation"}},
    *map(_black, CURVES),
    "road_morf", "road_lerf", "single_deletion", "infidelity", "soundness",
    "completeness",
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
            "controls": "off",
        }
    )


SUITES: dict[str, Callable[[Study, str], Spec]] = {
    "modulo": modulo_suite, "colors": colors_suite, "metrics": metrics_suite,
    "gradients": gradients_suite, "segments": segments_suite, "bottleneck": bottleneck_suite,
}  # fmt: skip


def read(part: str, study: Study, name: str) -> Reading:
    """The results of a run; missing cells are run first."""
    return study.read(part, name, SUITES[part](study, name))
