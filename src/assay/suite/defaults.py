"""The default methods and protocols, for the command line and for Python."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from assay.plugins.identity import describe, pick

if TYPE_CHECKING:
    from assay.plugins.option_types import Item

# Cheap, from different families, with controls. A run uses those that apply to its model and
# data (`assay.plan.applicable`); the command line and Python take the same lists.
METHODS: tuple[Item, ...] = (
    "saliency", "input_x_gradient", {"integrated_gradients": {"steps": 24}}, "gradcam", "random",
    {"shuffled": {"of": "input_x_gradient"}}, "constant", "centre", "edge", "oracle",
)  # fmt: skip
# Different questions: necessity and sufficiency, each with two fills; effects, of single cells and
# of a hundred random sets. `docs/explanation/defaults.md` says why these.
PROTOCOLS: tuple[Item, ...] = (
    {"deletion": {"steps": 10}}, {"deletion": {"steps": 10, "fill": "second"}},
    {"insertion": {"steps": 10}}, {"insertion": {"steps": 10, "fill": "second"}},
    "single_deletion", {"sensitivity_n": {"subsets": 25}},
)  # fmt: skip
# Besides these, in a run of several models: what a comparison of the models shows beside them.
MODEL_PROTOCOLS: tuple[Item, ...] = ("drop_stability",)

# The control that every run that ranks methods has, and the one that keeps a method's own maps:
# whether a method differs from both is part of a protocol's signal.
RANDOM_CONTROL, SHUFFLED_CONTROL = "random", "shuffled"

# The methods of the IDSDS study (hesse2024), with controls: `assay finetune --score`.
_ATTRIBUTED = (
    "input_x_gradient", "ixg_sg", "integrated_gradients", "integrated_gradients_uniform", "ig_sg",
)  # fmt: skip
IN_DOMAIN_METHODS: tuple[Item, ...] = (
    *_ATTRIBUTED, *({name: {"abs": True}} for name in _ATTRIBUTED), "ig_sg_sq",
    {"saliency": {"abs": True}}, "rise", "rise_uniform", "gradcam", "gradcam_pp",
    "smooth_gradcam_pp", "xgradcam", "layercam", "rollout", "chefer_lrp", "bcos", "bagnet",
    "random", "constant", "centre", "edge",
)  # fmt: skip
FILL = "zero"
# On a fine-tuned network both give one score; on the network as it was only the second applies.
IN_DOMAIN_PROTOCOLS = ("in_domain_single_deletion", "single_deletion")

# One image or one text: `assay explain`.
IMAGE_METHOD, TEXT_METHOD = "gradcam", "integrated_gradients"

# Cheap, one per family: `assay check`.
CHECKED_METHODS = (
    "saliency", "input_x_gradient", "integrated_gradients", "deepshap", "lrp", "gradcam",
)  # fmt: skip


def in_words(items: Iterable[Item]) -> str:
    """The items of a list for a help text: `saliency, integrated_gradients (steps=24), ...`."""
    return ", ".join(
        f"{name} ({describe(options)})" if options else name for name, options in map(pick, items)
    )
