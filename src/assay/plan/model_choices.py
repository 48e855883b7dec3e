"""The models of a run as Python writes them: one network, or several by name."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from torch import Tensor, nn

from assay.errors import InputError
from assay.methods.attributors import is_attributor
from assay.models.wrap import model as as_model
from assay.plan.resolving import build_models, build_one
from assay.types import Model

Network = nn.Module | Model | str
ModelItem = Mapping[str, Mapping[str, object]]  # as in a suite: a name with options
SeveralNetworks = Network | Mapping[str, Network] | ModelItem | Sequence[ModelItem | str]


def models_of(net: SeveralNetworks) -> list[Model]:
    """The models of a run; those of a dict have its keys as their names.

    Raises:
        InputError: The dict is empty, or a key is not a name.
    """
    if isinstance(net, Sequence) and not isinstance(net, str):
        return _of_items(net)
    if not isinstance(net, Mapping):
        return [one_model(net)]
    if len(net) == 1 and isinstance(next(iter(net.values())), Mapping):
        return _of_items([net])
    if not net or not all(isinstance(name, str) and name for name in net):
        raise InputError(
            f"Expected a dict of networks by name, {{'a': net, 'b': net}}, got the keys "
            f"{list(net)!r}."
        )
    return [replace(one_model(one), name=name, series="") for name, one in net.items()]


def _of_items(items: Sequence[object]) -> list[Model]:
    """The models of items as in a suite."""
    named = all(isinstance(item, str) or _is_item(item) for item in items)
    if not items or not named:
        raise InputError(
            "Expected a torch Module, a dict of them by name, or models as a suite lists them, "
            "[{name: {option: value}}], got "
            f"{[item if isinstance(item, str) else type(item).__name__ for item in items]}. Give "
            f"networks as a dict by name."
        )
    return build_models(items)


def _is_item(item: object) -> bool:
    return isinstance(item, Mapping) and len(item) == 1


def one_model(net: Network | Mapping[str, object]) -> Model:
    """A network, model or name as a model."""
    if isinstance(net, Mapping):
        raise InputError(
            "Expected one network, got a dict. Only `assay.benchmark` and `assay.dry_run` take "
            "several."
        )
    if not isinstance(net, str):
        return as_model(net)
    model: Model = build_one("model", net)
    return model


def check_shared(items: Sequence[object]) -> None:
    """Reject methods that belong to one network, for a run of several.

    Raises:
        InputError: A method is a tensor of maps, an object with `attribute`, or names its layer by
            a module.
    """
    for item in items:
        label, value = next(iter(item.items())) if isinstance(item, Mapping) else (item, None)
        layer = value.get("layer") if isinstance(value, Mapping) else None
        what = "objects with `attribute`" if any(map(is_attributor, (label, value))) else ""
        what = "layers given as modules" if isinstance(layer, nn.Module) else what
        what = "maps" if isinstance(value, Tensor) or hasattr(value, "__array__") else what
        if what:
            raise InputError(
                f"Expected methods for several networks, got `{label}`: {what} belong to one "
                f"network. Use names, or functions `(model, batch) -> Tensor`."
            )
