"""The identity of a network: a hash of weights, settings and code, not of its name."""

import hashlib
import inspect
from collections.abc import Iterator, Mapping

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
    for name, module in net.named_modules():
        if is_quantised(module):  # its weights are neither parameters nor buffers
            digest.update(f"{name}{_packed(module.state_dict())}".encode())
    return digest.hexdigest()[:16]


def is_quantised(module: nn.Module) -> bool:
    """Whether a module is one of torch's with quantised weights, which have no gradients."""
    return _is_torch(type(module)) and ".quantized." in f"{type(module).__module__}."


def _packed(value: object) -> object:
    """Quantised weights as a text of their numbers."""
    if isinstance(value, Mapping):
        return {name: _packed(part) for name, part in value.items()}
    if isinstance(value, tuple | list):
        return [_packed(part) for part in value]
    if isinstance(value, Tensor):
        plain = value.dequantize() if value.is_quantized else value
        raw = plain.detach().cpu().contiguous().flatten().view(torch.uint8)
        return [
            str(value.dtype),
            list(value.shape),
            hashlib.sha256(raw.numpy().tobytes()).hexdigest(),
        ]
    return str(value)


def own_classes(net: nn.Module) -> list[str]:
    """The classes of a network's modules that are not torch's own."""
    return sorted({type(m).__name__ for m in net.modules() if not _is_torch(type(m))})


def _is_torch(kind: type[nn.Module]) -> bool:
    """Whether a class is purely torch's; some torch tools derive classes from users' own."""
    return kind.__module__.startswith("torch.") and all(map(from_elsewhere, kind.__mro__))


def _kind(kind: type[nn.Module]) -> str:
    """The identity of a module class: its code, wherever the file is; for torch its name."""
    if _is_torch(kind):
        return f"{kind.__module__}.{kind.__qualname__}"
    return f"{kind.__name__} {class_identity(kind)}"


def _settings(module: nn.Module) -> Iterator[tuple[str, object]]:
    """The attributes that change what a module computes: stride, slope, a user's own k.

    For users' own modules this includes functions and dataclasses held as attributes.
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
    """Whether a value is a dataclass of options; those of libraries may hold paths and dates."""
    declared = getattr(value, "__dataclass_params__", None)
    if declared is None or isinstance(value, type):
        return False
    return bool(declared.frozen) or type(value).__module__ == kind.__module__


def _plain(value: object, kind: type[nn.Module]) -> object:
    """A plain value; items of a list are identified by content, not by memory address."""
    if isinstance(value, list | tuple):
        return [_plain(part, kind) for part in value]
    if isinstance(value, nn.Module):  # not registered as a submodule
        return repr(value)
    return value if isinstance(value, PLAIN) else setting_identity(value, kind)


def count_distinct(samples: Tensor) -> int:
    """The number of distinct samples in `[n, ...]`, compared bit for bit."""
    return len({hashlib.sha256(one.numpy().tobytes()).digest() for one in samples.cpu()})


def hash_numbers(numbers: Tensor) -> str:
    """The hash of whole numbers in their order, such as the hashes of samples."""
    return hashlib.sha256(numbers.cpu().long().numpy().tobytes()).hexdigest()[:16]
