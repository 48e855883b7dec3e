"""The user's own network at an address: built, filled with weights, described."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace

from torch import nn

from assay.errors import InputError, unknown
from assay.models.weights import load_weights
from assay.models.wrap import model
from assay.plugins.display_names import AS
from assay.plugins.option_types import Options
from assay.plugins.registry import ModelFactory
from assay.types import Model, Prepare

# Options of any network, in addition to those of its factory.
DESCRIPTION = (
    "weights", "mean", "std", "size", "resize", "classes", "cam_layer", "cam_reshape", "output",
    "checkpoint", "stochastic",
)  # fmt: skip


def build_model(plugin: ModelFactory, options: Options, name: str) -> Model:
    """Call a factory and describe the network it returns.

    Args:
        plugin: The factory: a function, a class or a network.
        options: Those of the factory, and `weights`, `mean`, `std`, `size`, `resize`, `classes`,
            `cam_layer`, `cam_reshape`, `output`, `checkpoint`, `stochastic`.
        name: The model's name in tables.
    """
    factory = plugin.function
    ready = isinstance(factory, nn.Module)
    own = _own(plugin.name, plugin.option_names, options)
    net = factory if ready else _call(factory, own, plugin.name)
    if isinstance(net, Model):
        extra = [option for option in options if option not in own]
        if extra:
            raise InputError(
                f"Expected no `{extra[0]}` for `{plugin.name}`: it returns a `Model`, which "
                f"contains it already."
            )
        return net
    if not isinstance(net, nn.Module):
        raise InputError(
            f"Expected `{plugin.name}` to return a torch.nn.Module, got {type(net).__name__}."
        )
    return describe(net, options, name)


def _call(factory: Callable[..., object], own: Options, name: str) -> object:
    try:
        inspect.signature(factory).bind(**own)
    except TypeError as error:
        raise InputError(f"Expected `{name}` to be given its arguments: {error}.") from None
    except ValueError:  # compiled code may have no signature
        pass
    return factory(**own)


def describe(net: nn.Module, options: Options, name: str, prepare: Prepare | None = None) -> Model:
    """A network with its weights and options; `prepare` where no option describes the input."""
    weights = options.get("weights")
    note = "" if weights is None else load_weights(net, weights)
    described = model(
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
        stochastic=options.get("stochastic", False),
        prepare=None if options.get("size") else prepare,
    )
    return replace(
        described,
        checkpoint=str(options.get("checkpoint", "")),
        card={"weights": note} if note else {},
    )


def _own(name: str, parameters: Sequence[str], options: Options) -> dict[str, object]:
    """The options of the factory itself; those that also describe the network go to both."""
    own = {option: value for option, value in options.items() if option in parameters}
    if isinstance(own.get("classes"), list | tuple):  # a factory takes how many there are
        own["classes"] = len(own["classes"])
    for option in options:
        if option not in own and option not in DESCRIPTION:
            known = [*parameters, *DESCRIPTION, AS]
            raise unknown(f"option of model `{name}`:", option, known)
    return own
