"""The runs behind SoCo's claims: their suites, and how they are read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from assay.plugins.option_types import Item, Options
from assay.studies.soco import value

if TYPE_CHECKING:
    from assay.studies.reading import Reading
    from assay.studies.setting import Study
    from assay.suite.spec import Spec

MODIFIED = "assay.studies.soco.modified:modified"  # the method that changes maps, by address
ENSEMBLES = ("ig_sg", "ig_sg_sq", "ig_var")
# 20 copies with noise of 0.3 after normalisation, as in the paper's appendix G.4.
NOISE = {"samples": 20, "sigma": 0.3, "relative": False}
KINDS = ("smoothgrad", "smoothgrad_sq", "vargrad")
# The methods whose maps are changed in Table 1, and the run that holds each.
EXPLAINED = {
    "gradcam": "modified", "integrated_gradients": "modified", "extremal_perturbation": "masks",
}  # fmt: skip
# What deletion removes, and what stands there: single pixels, the mean colour.
MEAN_COLOUR: Options = {"units": "elements", "fill": "zero"}
SCHEMES: tuple[value.Scheme, ...] = ("constant", "random", "partial")
WAYS = ("original", "remove", "introduce")
FEWER = 1000  # samples of InputIBA
METHODS = ("gradcam", "extremal_perturbation", "deepshap", "integrated_gradients", "iba")


def ensembles_suite(study: Study, model: str) -> Spec:
    """Integrated gradients and its ensembles under metrics of value and of order."""
    ig = {"steps": study.steps}
    methods: list[Item] = [{"integrated_gradients": {**ig, "label": "ig"}}]
    methods += [{name: {**ig, "noise": NOISE, "label": name}} for name in ENSEMBLES]
    deletion: Item = {"accuracy_morf": {**MEAN_COLOUR, "label": "accuracy_morf"}}
    protocols: list[Item] = ["soundness", "completeness", "road_morf", "road_lerf", deletion]
    return study.suite(model, methods, protocols)


def modified_suite(study: Study, model: str) -> Spec:
    """Two methods' maps, original and changed, under metrics of value and of order."""
    methods = [changed("integrated_gradients", study, "ranks", "original")]
    methods += _all_changes(study, "modified")
    return study.suite(model, methods, CHANGES_SHOW)


def masks_suite(study: Study, model: str) -> Spec:
    """The same for Extremal Perturbation's masks, in a separate run because of their cost."""
    return study.suite(model, _all_changes(study, "masks"), CHANGES_SHOW)


CHANGES_SHOW: list[Item] = [
    {"soundness": {"label": "soundness"}},
    {"completeness": {"label": "completeness"}},
    {"completeness": {"relative": False, "label": "completeness_absolute"}},
    {"road_morf": {"steps": 10, "label": "road"}},
    {"accuracy_morf": {**MEAN_COLOUR, "steps": 10, "label": "deletion"}},
]


def removed_suite(study: Study, model: str) -> Spec:
    """Two methods' maps, original and with attribution removed, under soundness."""
    methods = []
    for of in removed_of():
        methods.append(changed(of, study, "original", "original"))
        methods += [changed(of, study, scheme, "remove") for scheme in SCHEMES]
    return study.suite(model, methods, ["soundness"])


def removed_of() -> list[str]:
    """The methods whose maps lose attribution in claim 11."""
    return [of for of, run in EXPLAINED.items() if run == "modified"]


def methods_suite(study: Study, model: str) -> Spec:
    """The methods of the paper's figure 9, and DeepSHAP's ensembles, under metrics of value."""
    methods = [_with_steps(name, study, label=name) for name in METHODS]
    methods += [
        {"deepshap": {"noise": {**NOISE, "kind": kind}, "label": f"deepshap {kind}"}}
        for kind in KINDS
    ]
    return study.suite(model, methods, METHODS_SHOW)


def input_iba_suite(study: Study, model: str) -> Spec:
    """InputIBA alone, on fewer samples: it takes about 4,700 passes per sample."""
    study = replace(study, n=min(study.n, FEWER))
    return study.suite(model, [_with_steps("input_iba", study, label="input_iba")], METHODS_SHOW)


METHODS_SHOW = ["soundness", "completeness"]


def _all_changes(study: Study, run: str) -> list[Item]:
    methods = []
    for of in (of for of, mine in EXPLAINED.items() if mine == run):
        methods.append(changed(of, study, "original", "original"))
        methods += [changed(of, study, s, way) for s in SCHEMES for way in WAYS[1:]]
    return methods


def changed(of: str, study: Study, scheme: str, way: str) -> Item:
    """A method whose maps are changed."""
    options = {"of": _with_steps(of, study), "scheme": scheme, "label": label(of, scheme, way)}
    return {
        "assay.studies.soco.modified:modified": options
        | ({} if way == "original" else {"way": way})
    }


def label(of: str, scheme: str, way: str) -> str:
    """The label of the changed maps in the run."""
    if way == "original":
        return f"{of} ranks" if scheme == "ranks" else f"{of} original"
    return f"{of} {scheme} {way}"


def _with_steps(name: str, study: Study, **more: object) -> Item:
    """A method with the study's number of steps, if it has steps."""
    steps = {"integrated_gradients": study.steps, "extremal_perturbation": 16 * study.steps}
    options = ({"steps": steps[name]} if name in steps else {}) | more
    return {name: options} if options else name


SUITES = {
    "modified": modified_suite,
    "masks": masks_suite,
    "removed": removed_suite,
    "ensembles": ensembles_suite,
    "methods": methods_suite,
    "input_iba": input_iba_suite,
}


def read(part: str, study: Study, model: str) -> Reading:
    """The results of a run; missing cells are run first."""
    return study.read(part, model, SUITES[part](study, model))
