"""A network of the same architecture with new random weights."""

import copy
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import nn

from assay.types import Model

RESETS = ("reset_parameters", "_reset_parameters")  # the names that torch's modules use


def fresh_copy(model: Model, seed: int) -> Model:
    """A copy of a model with new weights; the same seed gives the same weights on every device.

    Each module draws its weights by its own `reset_parameters`, inner modules first, so that a
    network may define one for all its parts. Weights of a module without one are drawn from a
    normal distribution with the mean and the standard deviation of the present weights.
    """
    net = copy.deepcopy(model.net).cpu()
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        _reset(net)
    net.requires_grad_(True).to(model.device)
    return replace(model, net=net.eval(), name=f"fresh {model.name}", card={}, observed=None)


def _reset(module: nn.Module) -> None:
    """Draw new weights for the parts of a module, then for the module itself."""
    for part in module.children():
        _reset(part)
    own = _own_reset(module)
    if own is not None:
        own()
        return
    for weight in module.parameters(recurse=False):
        spread = weight.std().nan_to_num() if weight.numel() > 1 else weight.new_tensor(0.0)
        weight.copy_(weight.mean() + spread * torch.randn(weight.shape, dtype=weight.dtype))


def _own_reset(module: nn.Module) -> Callable[[], object] | None:
    return next((f for name in RESETS if callable(f := getattr(module, name, None))), None)
