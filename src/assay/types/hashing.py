"""What a network is, as one short text: weights, settings and code, not its name."""

import hashlib
import inspect
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from assay.plugins.identity import class_identity, from_elsewhere, setting_identity

PLAIN = (bool, int, float, str, tuple, list, type(None))


def hash_network(net: nn.Module) -> str:
    """The hash of all modules with their settings, all parameters and all buffers."""
    digest = hashlib.sha256()
    kinds = {kind: _kind(kind) for kind in {type(module) for module in net.modules()}}
    for name, module in net.named_modules():
        settings = sorted(_settings(module))
        digest.update(f"{name} {kinds[type(module)]} {settings}".encode())
    tensors = [*net.named_parameters(), *net.named_buffers()]
    for name, tensor in sorted(tensors, key=lambda pair: pair[0]):
        digest.update(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode())
        raw = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
        digest.update(raw.numpy().tobytes())
    return digest.hexdigest()[:16]


def own_classes(net: nn.Module) -> list[str]:
    """The classes of a network's modules that are not torch's own."""
    return sorted({type(m).__name__ for m in net.modules() if not _is_torch(type(m))})


def _is_torch(kind: type[nn.Module]) -> bool:
    """Whether torch alone made a class; some of its tools make classes out of users' own."""
    return kind.__module__.startswith("torch.") and all(map(from_elsewhere, kind.__mro__))


def _kind(kind: type[nn.Module]) -> str:
    """A module class by what its code means, wherever it lies; torch's own by its name."""
    if _is_torch(kind):
        return f"{kind.__module__}.{kind.__qualname__}"
    return f"{kind.__name__} {class_identity(kind)}"


def _settings(module: nn.Module) -> Iterator[tuple[str, object]]:
    """The attributes that change what a module computes: stride, slope, a user's own k.

    Of users' own modules also the functions and dataclasses they were given.
    """
    own = not _is_torch(type(module))
    for name, value in vars(module).items():
        if name.startswith("_") or name == "training":
            continue
        if isinstance(value, PLAIN):
            yield name, _plain(value, type(module)) if own else value
        elif own and (inspect.isroutine(value) or _is_chosen(value, type(module))):
            yield name, setting_identity(value, type(module))


def _is_chosen(value: object, kind: type[nn.Module]) -> bool:
    """Whether a value is a dataclass of options: a library's own may also hold paths and dates."""
    declared = getattr(value, "__dataclass_params__", None)
    if declared is None or isinstance(value, type):
        return False
    return bool(declared.frozen) or type(value).__module__ == kind.__module__


def _plain(value: object, kind: type[nn.Module]) -> object:
    """A plain value; what lies in a list may be told by where it is in memory."""
    if isinstance(value, list | tuple):
        return [_plain(part, kind) for part in value]
    if isinstance(value, nn.Module):  # which torch does not know to be a part
        return repr(value)
    return value if isinstance(value, PLAIN) else setting_identity(value, kind)


def count_distinct(samples: Tensor) -> int:
    """How many of the samples `[n, ...]` differ, bit for bit."""
    return len({hashlib.sha256(one.numpy().tobytes()).digest() for one in samples.cpu()})
