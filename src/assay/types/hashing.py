"""What a network is, as one short text: weights, settings and code, not its name."""

import functools
import hashlib
import inspect

import torch
from torch import Tensor, nn


def hash_network(net: nn.Module) -> str:
    """The hash of all modules with their settings, all parameters and all buffers."""
    digest = hashlib.sha256()
    for name, module in net.named_modules():
        kind = _kind(type(module))  # type: ignore[arg-type]  # a class has a hash
        digest.update(f"{name} {kind} {_settings(module)}".encode())
    tensors = [*net.named_parameters(), *net.named_buffers()]
    for name, tensor in sorted(tensors, key=lambda pair: pair[0]):
        digest.update(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode())
        raw = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
        digest.update(raw.numpy().tobytes())
    return digest.hexdigest()[:16]


def _settings(module: nn.Module) -> list[tuple[str, object]]:
    """The plain attributes that change what a module computes: stride, slope, a user's own k."""
    plain = (bool, int, float, str, tuple, list, type(None))
    return sorted(
        (name, value)
        for name, value in vars(module).items()
        if not name.startswith("_") and name != "training" and isinstance(value, plain)
    )


@functools.cache  # to find a class in its file takes longer than to hash a small network
def _kind(kind: type) -> str:
    """A module class by its source, wherever it lies; torch's own, or one without, by its name."""
    named = f"{kind.__module__}.{kind.__qualname__}"
    if kind.__module__.startswith("torch."):
        return named
    try:
        return f"{kind.__qualname__} {inspect.getsource(kind)}"
    except (OSError, TypeError):
        return named


def count_distinct(samples: Tensor) -> int:
    """How many of the samples `[n, ...]` differ, bit for bit."""
    return len({hashlib.sha256(one.numpy().tobytes()).digest() for one in samples.cpu()})
