"""A network of the user's own, from an address: built, filled with weights, described."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from assay.errors import InputError, unknown
from assay.models.weights import load_weights
from assay.models.wrap import model
from assay.plugins.registry import ModelFactory
from assay.types import Model, Prepare

# What can be said of any network beside its factory's own options.
DESCRIPTION = (
    "weights", "mean", "std", "size", "resize", "classes", "cam_layer", "cam_reshape", "output",
    "checkpoint",
)  # fmt: skip


def build_model(plugin: ModelFactory, options: Mapping[str, Any], name: str) -> Model:
    """Call a factory and make a model of what it gives.

    Args:
        plugin: The factory: a function, a class or a network.
        options: The factory's own, and `weights`, `mean`, `std`, `size`, `resize`, `classes`,
            `cam_layer`, `cam_reshape`, `output`, `checkpoint`.
        name: What the model is called in tables.
    """
    made = plugin.function
    parameters = () if isinstance(made, nn.Module) else tuple(inspect.signature(made).parameters)
    own = _own(plugin.name, parameters, options)
    net = made if isinstance(made, nn.Module) else made(**own)
    if isinstance(net, Model):
        extra = [option for option in options if option not in own]
        if extra:
            raise InputError(
                f"Expected no `{extra[0]}` for `{plugin.name}`: it gives a ready `Model`, which "
                f"says that itself."
            )
        return net
    if not isinstance(net, nn.Module):
        raise InputError(
            f"Expected `{plugin.name}` to give a torch.nn.Module, got {type(net).__name__}."
        )
    return describe(net, options, name)


def describe(
    net: nn.Module, options: Mapping[str, Any], name: str, prepare: Prepare | None = None
) -> Model:
    """A network with its weights and all that was said of it; `prepare` where nothing was."""
    loaded = load_weights(net, options["weights"]) if options.get("weights") else ""
    wrapped = model(
        net,
        mean=options.get("mean"),
        std=options.get("std"),
        size=options.get("size"),
        resize=options.get("resize"),
        classes=options.get("classes"),
        cam_layer=options.get("cam_layer"),
        cam_reshape=options.get("cam_reshape"),
        output=options.get("output"),
        name=name,
        prepare=None if options.get("size") else prepare,
    )
    card = {"weights": loaded} if loaded else {}
    return replace(wrapped, checkpoint=str(options.get("checkpoint", "")), card=card)


def _own(name: str, parameters: Sequence[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that go to the factory itself."""
    mine = {n: v for n, v in options.items() if n in parameters and n not in DESCRIPTION}
    for option in options:
        if option not in mine and option not in DESCRIPTION:
            known = [*parameters, *DESCRIPTION, "label"]
            raise unknown(f"option of model `{name}`:", option, known)
    return mine
