"""Objects with an `attribute` method, such as captum's, as methods; captum is not required."""

import contextlib
import inspect
import os
import re
from collections.abc import Iterator
from importlib import metadata
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from assay.engine.respondent import micro_batches
from assay.errors import InputError, NotApplicable, unknown
from assay.methods.call_types import Keywords
from assay.methods.cam import enlarge
from assay.plugins.option_types import Options
from assay.plugins.registry import Method, canonical, code_identity, identity, label
from assay.suite.fields import REDUCTION, take_reduction
from assay.suite.spec import Choice
from assay.types import Batch, Model


class Attributor(Protocol):
    """An object that explains, such as one of captum's."""

    def attribute(self, inputs: Tensor, *, target: Tensor, **options: object) -> object:
        """The maps of these inputs for these classes."""


def is_attributor(thing: object) -> bool:
    """Whether an object has a method `attribute(inputs, target=..., ...)`."""
    return callable(getattr(thing, "attribute", None))


def attributor(source: Any, options: Options, model: Model, name: str = "") -> Choice:
    """An attribution object as a method: `source.attribute(inputs, target=targets, **options)`.

    It is called by micro-batch, with random numbers seeded by the first sample of each. Options are
    its own; tensors among them are passed unchanged to every call. `reduce`, and `abs` if it has no
    such option, set how channels become one map. Maps of a layer are summed over channels and
    enlarged bilinearly to the input.

    Raises:
        InputError: It is a class instead of an object, or an option is unknown to `attribute`.
    """
    if inspect.isclass(source):
        raise InputError(
            f"Expected an object with a method `attribute`, got the class `{source.__name__}`. "
            f"Create one: `{source.__name__}(net)`."
        )
    own, reduction = _split(source, options)
    recorded = {option: _recorded(value) for option, value in own.items()}
    kind = _snake_case(source)

    def run(
        model: Model, batch: Batch, *, arguments: object = None, source_hash: str = ""
    ) -> Tensor:
        if model.binary and getattr(source, "forward_func", None) is model.net:
            raise NotApplicable(
                f"`{type(source).__name__}` cannot choose between the two classes of a network "
                f"with one logit. Give it a forward function that returns both: "
                f"`lambda x: torch.cat([-net(x), net(x)], 1)`."
            )
        parts = []
        for samples, _, asked in micro_batches(
            len(batch), 1, model.micro_batch, batch.inputs.device
        ):
            x = batch.inputs[samples].detach()
            x.requires_grad_(x.is_floating_point())
            with torch.enable_grad(), _seeded(batch, int(samples[0])):
                maps = source.attribute(x, target=batch.targets[samples], **own)
            parts.append(_at_input(maps, batch, name or kind)[:asked].detach())
        return torch.cat(parts)

    coarse = hasattr(source, "layer")  # as captum's attributions to a layer
    plugin = Method(kind, run, family="given", title=name or kind, coarse=coarse)
    chosen = name or label(kind, {**recorded, **reduction}, REDUCTION)
    # Its arguments are separate, because one of them may also be called `abs`.
    known = {"arguments": recorded, "source_hash": _identity(source, model.net)}
    return Choice(chosen, plugin, known, reduction)


def parameters_of(source: Any) -> list[str]:
    """The names of the options of its `attribute`."""
    parameters = inspect.signature(source.attribute).parameters
    return [p for p in parameters if p not in ("inputs", "target")]


def _split(source: Attributor, options: Options) -> tuple[Keywords, Keywords]:
    """The object's own options, and how channels become one map."""
    known = parameters_of(source)
    parameters = inspect.signature(source.attribute).parameters.values()
    anything = any(p.kind is p.VAR_KEYWORD for p in parameters)
    rest = {o: v for o, v in options.items() if o in REDUCTION and o not in known}
    own = {o: v for o, v in options.items() if o not in rest}
    for option in own:
        if option in ("inputs", "target") or (option not in known and not anything):
            raise unknown(f"option of `{type(source).__name__}.attribute`:", option, known)
    return own, take_reduction(rest)


def _at_input(maps: object, batch: Batch, name: str) -> Tensor:
    """The maps at the input's size."""
    if not isinstance(maps, Tensor):
        raise InputError(
            f"Expected `attribute` of `{name}` to return a tensor, got {type(maps).__name__}."
        )
    coarse = maps.ndim == 4 and tuple(maps.shape[2:]) != batch.map_shape
    if coarse and len(batch.map_shape) == 2:
        return enlarge(maps.sum(1), batch.map_shape)
    return maps


@contextlib.contextmanager
def _seeded(batch: Batch, sample: int) -> Iterator[None]:
    """Fix all random numbers inside, and restore their state afterwards."""
    before = np.random.get_state()
    with torch.random.fork_rng():
        seed = batch.stream(sample, "attribute").seed
        torch.manual_seed(seed)
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            np.random.set_state(before)


def _snake_case(source: object) -> str:
    """`captum_integrated_gradients` for captum's IntegratedGradients."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(source).__name__).lower()
    return f"captum_{words}" if _package(source) == "captum" else words


def _package(thing: object) -> str:
    """The package that defines a function, or an object's class."""
    defined = thing if inspect.isroutine(thing) else type(thing)
    return str(defined.__module__).split(".")[0]


# --- identity of the object -------------------------------------------------------------------


def _recorded(value: object) -> object:
    """An option as it is recorded; functions by their code."""
    return code_identity(value) if callable(value) else canonical(value)


def _identity(source: object, net: nn.Module) -> str:
    """Captum's classes by name, version and settings, if they wrap only the network.

    The state of anything else is unknown, so its identity is valid in this process only.
    """
    try:
        return identity([metadata.version("captum"), _state(source, net)])
    except (TypeError, InputError, metadata.PackageNotFoundError):
        return f"process {os.getpid()} object {id(source)}"


def _state(value: object, net: nn.Module) -> object:
    if isinstance(value, nn.Module):
        names = [name for name, module in net.named_modules() if module is value]
        if not names:
            raise TypeError("another network")
        return {"module": names[0]}
    if inspect.isfunction(value) or is_attributor(value):
        if _package(value) != "captum":
            raise TypeError("code that may change")
        if inspect.isfunction(value):
            return value.__qualname__
        inside = {name: _state(part, net) for name, part in vars(value).items()}
        return {"class": type(value).__qualname__, "state": inside}
    return canonical(value)
