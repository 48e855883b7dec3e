"""The runs that SoCo's claims rest on: their suites, and how they are read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from assay.studies.soco import value

if TYPE_CHECKING:
    from assay.studies.reading import Reading
    from assay.studies.setting import Study
    from assay.suite.spec import Spec

MODIFIED = "assay.studies.soco.modified:modified"  # the method that changes maps, by address
ENSEMBLES = ("ig_sg", "ig_sg_sq", "ig_var")
# 20 copies with noise of 0.3 after normalisation, as the paper's appendix G.4 has it.
NOISE = {"samples": 20, "sigma": 0.3, "relative": False}
KINDS = ("smoothgrad", "smoothgrad_sq", "vargrad")
# Maps that are changed in Table 1, and the run that holds each.
EXPLAINED = {
    "gradcam": "modified", "integrated_gradients": "modified", "extremal_perturbation": "masks",
}  # fmt: skip
SCHEMES: tuple[value.Scheme, ...] = ("constant", "random", "partial")
WAYS = ("original", "remove", "introduce")
FEWER = 1000  # samples of InputIBA
METHODS = ("gradcam", "extremal_perturbation", "deepshap", "integrated_gradients", "iba")


def ensembles_suite(study: Study, model: str) -> Spec:
    """Integrated gradients and its ensembles under metrics of value and of order."""
    ig = {"steps": study.steps}
    methods = [{"integrated_gradients": {**ig, "label": "ig"}}]
    methods += [{name: {**ig, "noise": NOISE, "label": name}} for name in ENSEMBLES]
    protocols = ["soundness", "completeness", "road_morf", "road_lerf", "accuracy_morf"]
    return study.suite(model, methods, protocols)


def modified_suite(study: Study, model: str) -> Spec:
    """Two methods' maps, original and changed, under metrics of value and of order."""
    methods = [changed("integrated_gradients", study, "ranks", "original")]
    methods += _all_changes(study, "modified")
    return study.suite(model, methods, CHANGES_SHOW)


def masks_suite(study: Study, model: str) -> Spec:
    """The same of Extremal Perturbation's masks, a run of their own for what they cost."""
    return study.suite(model, _all_changes(study, "masks"), CHANGES_SHOW)


CHANGES_SHOW: list[Any] = [
    {"soundness": {"label": "soundness"}},
    {"completeness": {"label": "completeness"}},
    {"completeness": {"relative": False, "label": "completeness_absolute"}},
    {"road_morf": {"steps": 10, "label": "road"}},
    {"accuracy_morf": {"steps": 10, "label": "deletion"}},
]


def removed_suite(study: Study, model: str) -> Spec:
    """Two methods' maps, original and with attribution removed, under soundness."""
    methods = []
    for of in removed_of():
        methods.append(changed(of, study, "original", "original"))
        methods += [changed(of, study, scheme, "remove") for scheme in SCHEMES]
    return study.suite(model, methods, ["soundness"])


def removed_of() -> list[str]:
    """Whose maps lose attribution in claim 11."""
    return [of for of, run in EXPLAINED.items() if run == "modified"]


def methods_suite(study: Study, model: str) -> Spec:
    """The methods of the paper's figure 9, and DeepSHAP's ensembles, under metrics of value."""
    methods: list[Any] = [_told(name, study, label=name) for name in METHODS]
    methods += [
        {"deepshap": {"noise": {**NOISE, "kind": kind}, "label": f"deepshap {kind}"}}
        for kind in KINDS
    ]
    return study.suite(model, methods, METHODS_SHOW)


def input_iba_suite(study: Study, model: str) -> Spec:
    """InputIBA alone, on fewer samples: it takes some 4,700 passes for each."""
    study = replace(study, n=min(study.n, FEWER))
    return study.suite(model, [_told("input_iba", study, label="input_iba")], METHODS_SHOW)


METHODS_SHOW = ["soundness", "completeness"]


def _all_changes(study: Study, run: str) -> list[dict[str, Any]]:
    methods = []
    for of in (of for of, mine in EXPLAINED.items() if mine == run):
        methods.append(changed(of, study, "original", "original"))
        methods += [changed(of, study, s, way) for s in SCHEMES for way in WAYS[1:]]
    return methods


def changed(of: str, study: Study, scheme: str, way: str) -> dict[str, Any]:
    """A method whose maps are changed."""
    told = {"of": _told(of, study), "scheme": scheme, "label": label(of, scheme, way)}
    return {
        "assay.studies.soco.modified:modified": told | ({} if way == "original" else {"way": way})
    }


def label(of: str, scheme: str, way: str) -> str:
    """What the changed maps are called in the run."""
    if way == "original":
        return f"{of} ranks" if scheme == "ranks" else f"{of} original"
    return f"{of} {scheme} {way}"


def _told(name: str, study: Study, **more: Any) -> Any:
    """A method with the study's number of steps, where it takes any."""
    steps = {"integrated_gradients": study.steps, "extremal_perturbation": 16 * study.steps}
    told = ({"steps": steps[name]} if name in steps else {}) | more
    return {name: told} if told else name


SUITES = {
    "modified": modified_suite,
    "masks": masks_suite,
    "removed": removed_suite,
    "ensembles": ensembles_suite,
    "methods": methods_suite,
    "input_iba": input_iba_suite,
}


def read(part: str, study: Study, model: str) -> Reading:
    """What a run gave; what of it is missing is run."""
    return study.read(part, model, SUITES[part](study, model))
