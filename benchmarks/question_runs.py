"""The runs of `benchmarks.questions`: trained networks, methods of every kind, all protocols."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from assay.plugins import registry
from assay.results import Results, load
from assay.run import run
from assay.suite.spec import Spec, make_suite

ROOT = Path(__file__).parents[1]
ZOO, SMALL = ROOT / "results" / "zoo", ROOT / "tests" / "weights"

# Protocols that know the truth are not here: they need networks of their own.
PROTOCOLS = (
    "morf", "deletion", "accuracy_morf", "road_morf", "comprehensiveness",
    "lerf", "insertion", "accuracy_lerf", "road_lerf", "sufficiency", "incremental_deletion",
    "abpc", "single_deletion", "in_domain_single_deletion",
    "infidelity", "sensitivity_n", "faithfulness_correlation", "soundness", "completeness",
)  # fmt: skip


def declared_questions() -> dict[str, tuple[str, ...]]:
    """The protocols of each question, as they are declared."""
    asked: dict[str, tuple[str, ...]] = {}
    for name in PROTOCOLS:
        question = registry.get("protocol", name).question
        asked[question] = (*asked.get(question, ()), name)
    return asked


QUESTIONS = declared_questions()

# The same curve, but for the clean probability: in the matrix, but not counted twice in the rule.
SAME_CURVE = {"deletion": "morf", "insertion": "lerf"}

# Options that differ from the defaults. Infidelity has windows at every fourth pixel rather than at
# every pixel: a sample of the same windows, which saves 90 % of its passes.
OPTIONS = {"infidelity": {"stride": 1 / 8}}

# Methods that apply to a network take part. Those that sample take fewer samples than by default;
# occlusion has cells of 4 x 4 pixels, because with its own it is circular under single deletion.
METHODS = (
    "saliency", "input_x_gradient", "integrated_gradients", "smoothgrad", "smoothgrad_sq",
    "guided_backprop", "deconvolution", "deeplift", "lrp", "excitation_backprop",
    "gradcam", "gradcam_pp", "layercam", "guided_gradcam", "scorecam",
    "rollout", "generic_attention", "chefer_lrp", "attention_gradcam", "bt_token",
    {"occlusion": {"units": {"grid": {"side": 8}}}},
    {"rise": {"masks": 200}},
    {"lime": {"samples": 200}},
)  # fmt: skip


def networks(data: Path) -> dict[str, Any]:
    """The trained networks by name, as suites write them; `data` holds those of He et al."""
    he = data / "weights" / "cifar10-resnet" / "cifar10_resnet20.safetensors"
    vit, bag = {"width": 96, "depth": 6, "heads": 4}, {"field": 9, "normalise": "cifar10"}
    return {
        "resnet20": {"cifar_resnet20": {"weights": str(he)}},
        "vit_small": {"small_vit": {**vit, "weights": _zoo("vit_small-s0-base")}},
        "resnet20_tuned": {"residual": {"weights": _zoo("resnet20-s0-tuned")}},
        "bagnet9": {"bagnet": {**bag, "weights": _zoo("bagnet9-s0-base")}},
        "resnet20_s1": {"residual": {"weights": _zoo("resnet20-s1-base")}},
        "bcos_resnet20": {
            "bcos_resnet": {"weights": str(SMALL / "bcos_resnet20_cifar10.safetensors")}
        },
    }


def _zoo(name: str) -> str:
    return str(ZOO / f"{name}.safetensors")


def suite(data: Path, network: str, limit: int, without: Collection[str] = ()) -> Spec:
    """Every method under every protocol on one network, but for some protocols."""
    labels = [p for declared in QUESTIONS.values() for p in declared if p not in without]
    return make_suite(
        {
            "title": f"Which protocols ask the same question: {network}",
            "datasets": [
                {"parquet": {"path": str(data / "cifar10" / "cifar10_test_lossless.parquet")}}
            ],
            "models": [networks(data)[network]],
            "methods": list(METHODS),
            "protocols": [
                {label: {**OPTIONS[label], "as": label}} if label in OPTIONS else label
                for label in labels
            ],
            "limit": limit,
            "controls": "off",
        }
    )


def run_network(
    data: Path, out: Path, network: str, limit: int, without: Collection[str] = ()
) -> Results:
    """Run, or resume, one network; each has a folder of its own below `out`."""
    return run(suite(data, network, limit, without), out / network, workers=1)


def finished(data: Path, out: Path) -> Iterator[tuple[str, Results]]:
    """The runs that are there, by network."""
    for network in networks(data):
        if (out / network / "manifest.json").is_file():
            yield network, load(out / network)
