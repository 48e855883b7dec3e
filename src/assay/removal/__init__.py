"""What stands where feature units are absent: fills, imputation, painting anew."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor

from assay.errors import InputError
from assay.plugins.registry import Fill, Nested, canonical, get, identity, pick
from assay.removal.imputation import noisy_linear as noisy_linear
from assay.types import Batch
from assay.units.features import Features, elements
from assay.units.usual import kind_of

FillChoice = Annotated[Any, Nested("fill")]

# (features, absent [n, P], samples [n]) -> inputs [n, ...]
Removal = Callable[[Features, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Replace:
    """Absent positions take their values from `nothing`."""

    inputs: Tensor  # [B, ...]
    nothing: Tensor  # broadcasts to inputs

    def __call__(self, features: Features, absent: Tensor, samples: Tensor) -> Tensor:
        """The inputs of these samples without their absent units."""
        gone = features.spread(absent, samples)  # [n, *shape]
        if self.inputs.ndim > gone.ndim:
            gone = gone[:, None]
        nothing = self.nothing[samples] if len(self.nothing) > 1 else self.nothing
        if not self.inputs.is_floating_point():
            return torch.where(gone, nothing, self.inputs[samples])
        # As exact as `where`, since all values are finite, and three times as fast.
        left = self.inputs[samples].mul_((~gone).to(self.inputs.dtype))
        return left if self.empty else left.addcmul_(gone.to(self.inputs.dtype), nothing)

    @functools.cached_property
    def empty(self) -> bool:
        """Whether `nothing` is zero everywhere."""
        return not bool(self.nothing.any())


def make_removal(batch: Batch, fill: FillChoice) -> Removal:
    """The removal for a fill: a registered one, or a tensor of values."""
    if isinstance(fill, Tensor):
        return Replace(batch.inputs, _tensor_fill(batch, fill))
    name, options = pick(fill)
    plugin = get("fill", name)
    made = plugin.function(batch, **plugin.configure(options))
    return Replace(batch.inputs, made.to(batch.inputs)) if isinstance(made, Tensor) else made


def all_absent(batch: Batch, fill: FillChoice) -> Tensor:
    """The inputs with every unit absent."""
    features = elements(batch)
    samples = torch.arange(len(batch), device=batch.inputs.device)
    return make_removal(batch, fill)(features, features.valid, samples)


def fill_key(batch: Batch, fill: FillChoice) -> str:
    """A short text that identifies a fill with its options: equal texts, equal removals."""
    if isinstance(fill, Tensor):
        return f"given({identity(canonical(fill))})"
    name, options = pick(chosen_fill(batch, fill))
    plugin = get("fill", name)
    told = identity(plugin.configure(options))
    return f"{plugin.name}.{plugin.version}{plugin.code}({told})"


def chosen_fill(batch: Batch, fill: FillChoice) -> FillChoice:
    """The fill itself, or the one it stands for on these data."""
    plugin: Fill = get("fill", pick(fill)[0])
    return plugin.stands_for.get(kind_of(batch), fill)


def imputes(batch: Batch, fill: FillChoice | None) -> bool:
    """Whether a fill solves for the absent pixels, which costs as much as a small network."""
    if fill is None or isinstance(fill, Tensor):
        return False
    plugin: Fill = get("fill", pick(chosen_fill(batch, fill))[0])
    return plugin.imputes


def _tensor_fill(batch: Batch, value: Tensor) -> Tensor:
    shape = tuple(batch.inputs.shape[1:])
    if value.ndim == 1 and len(shape) > 1 and len(value) == shape[0]:
        value = value.reshape(-1, *[1] * (len(shape) - 1))  # one number per channel
    trailing = shape[len(shape) - value.ndim :]
    fits = value.ndim <= len(shape) and all(
        size in (1, whole) for size, whole in zip(value.shape, trailing, strict=True)
    )
    if not fits:
        raise InputError(
            f"Expected a fill that broadcasts to the shape of one input, {shape}, got "
            f"{tuple(value.shape)}."
        )
    if not bool(torch.isfinite(value).all()):
        raise InputError("Expected a fill of finite numbers, got NaN or inf.")
    return value.to(batch.inputs).expand(1, *shape)
