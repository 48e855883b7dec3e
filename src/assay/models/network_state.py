"""What code may change in a network or a batch: layers, hooks, modes and numbers, with the undo."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from assay.types.hashing import PLAIN

# What a module holds by name: its parts are compared by identity, hooks too.
PARTS = {"_modules": "layer", "_parameters": "parameter", "_buffers": "buffer"}
HOOKS = (
    "_forward_hooks", "_forward_pre_hooks", "_forward_hooks_with_kwargs",
    "_forward_pre_hooks_with_kwargs", "_forward_hooks_always_called", "_backward_hooks",
    "_backward_pre_hooks",
)  # fmt: skip
COPY = "Work on a copy of the network: `copy.deepcopy(model.net)`."
INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class SideEffect:
    """Something that was changed: what, how a method avoids it, and how to undo it."""

    what: str
    cure: str
    undo: Callable[[], object]


# --- numbers -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Copied:
    """A tensor and its copy, made while it was unchanged."""

    what: str
    tensor: Tensor
    copy: Tensor
    cure: str

    def restore(self) -> None:
        """Write the copy back, also where the tensor was given another shape or type."""
        if _alike(self.tensor, self.copy):
            with torch.no_grad():
                self.tensor.copy_(self.copy)
        else:
            self.tensor.data = self.copy.clone()


def copied(what: str, tensor: Tensor, cure: str) -> Iterator[Copied]:
    """The tensor with its copy; nothing for layouts that have no plain memory."""
    if tensor.layout is torch.strided and not (tensor.is_quantized or tensor.is_meta):
        yield Copied(what, tensor, tensor.detach().clone(), cure)


def copied_weights(net: nn.Module) -> list[Copied]:
    """All parameters and buffers of a network with their copies."""
    named = {"parameter": net.named_parameters(), "buffer": net.named_buffers()}
    return [
        one
        for kind, tensors in named.items()
        for name, tensor in tensors
        for one in copied(f"the {kind} `{name}` of the network", tensor, COPY)
    ]


def rewritten(copies: Sequence[Copied]) -> list[SideEffect]:
    """The tensors that differ in any bit from their copies. A GPU is waited for once."""
    different, waiting = [], []
    for one in copies:
        if not _alike(one.tensor, one.copy):
            different.append(one)
        elif one.tensor.is_cuda:
            waiting.append((one, torch.ne(*_bits(one.tensor, one.copy)).any()))
        elif not torch.equal(*_bits(one.tensor, one.copy)):
            different.append(one)
    if waiting:
        flags = torch.stack([flag for _, flag in waiting]).tolist()
        different += [one for (one, _), flag in zip(waiting, flags, strict=True) if flag]
    return [SideEffect(one.what, one.cure, one.restore) for one in different]


def _alike(one: Tensor, other: Tensor) -> bool:
    return (one.shape, one.dtype, one.device) == (other.shape, other.dtype, other.device)


def _bits(*tensors: Tensor) -> list[Tensor]:
    """The memory of alike tensors as integers: NaN equals itself, and -0 differs from 0."""
    plain = [tensor.detach().resolve_conj().resolve_neg() for tensor in tensors]
    plain = [torch.view_as_real(tensor) if tensor.is_complex() else tensor for tensor in plain]
    size = plain[0].element_size()
    whole = all(
        tensor.is_contiguous() and (count * size) % 8 == 0
        for tensor in plain
        for count in (tensor.numel(), tensor.storage_offset())
    )
    if whole:  # eight bytes at a time, which is faster
        return [tensor.flatten().view(torch.int64) for tensor in plain]
    return [tensor.view(INTEGERS[size]) for tensor in plain]


# --- layers, hooks and modes ---------------------------------------------------------------------


class Structure:
    """The layers of a network as they are now: parts, hooks, modes, settings, gradients."""

    def __init__(self, net: nn.Module) -> None:
        """Record the network."""
        self._modules = [(name, module, _record(module)) for name, module in net.named_modules()]
        self._weights = [(n, p, p.requires_grad, p.grad) for n, p in net.named_parameters()]

    def changed(self) -> list[SideEffect]:
        """What is different now."""
        changes: list[SideEffect] = []
        for name, module, before in self._modules:
            if _record(module) != before:
                changes += _module_changes(name or "the network itself", module, before)
        for name, weight, required, gradient in self._weights:
            if weight.requires_grad is not required:
                changes.append(
                    SideEffect(
                        f"`requires_grad` of the parameter `{name}` of the network",
                        f"Take gradients at the inputs only. {COPY}",
                        partial(weight.requires_grad_, required),
                    )
                )
            if weight.grad is not gradient:
                changes.append(
                    SideEffect(
                        f"the gradient of the parameter `{name}` of the network",
                        "Use `torch.autograd.grad` instead of `backward`.",
                        partial(setattr, weight, "grad", gradient),
                    )
                )
        return changes


class _Same(dict[str, object]):
    """A table whose equality is that of its keys, their order and the identity of its values."""

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _Same)
            and list(self) == list(other)
            and all(value is other[key] for key, value in self.items())
        )

    def __ne__(self, other: object) -> bool:
        return not self == other


def _record(module: nn.Module) -> tuple[object, ...]:
    """Mode, tables of parts and hooks, own forward, and the settings of torch's own layers."""
    held = vars(module)
    if isinstance(module, torch.jit.ScriptModule):  # its parts are not in Python
        return (module.training,)
    settings = (
        {k: v for k, v in held.items() if k[0] != "_" and isinstance(v, PLAIN)}
        if type(module).__module__.startswith("torch.nn.modules.")
        else {"training": held["training"]}
    )
    tables = [_Same(held[table]) for table in PARTS]
    hooks = [_Same(held[table]) for table in HOOKS if held[table]]
    return settings, held.get("forward"), tables, hooks, [t for t in HOOKS if held[t]]


def _module_changes(name: str, module: nn.Module, before: tuple[Any, ...]) -> Iterator[SideEffect]:
    """The parts of a module that differ from its record."""
    if len(before) == 1:
        yield _mode(name, module, before[0])
        return
    settings, forward, tables, hooks, hooked = before
    held = vars(module)
    for setting, value in settings.items():
        now = held.get(setting)
        if type(now) is type(value) and now == value:
            continue
        if setting == "training":
            yield _mode(name, module, value)
        else:
            what = f"the setting `{setting}` of the layer `{name}`"
            yield SideEffect(what, COPY, partial(held.__setitem__, setting, value))
    if held.get("forward") is not forward:
        undo = partial(held.pop, "forward", None)
        if forward is not None:
            undo = partial(held.__setitem__, "forward", forward)
        yield SideEffect(f"the function `forward` of the layer `{name}`", COPY, undo)
    for (table, kind), parts in zip(PARTS.items(), tables, strict=True):
        now = _Same(held[table])
        if now != parts:
            different = [k for k in {**parts, **now} if parts.get(k) is not now.get(k)]
            what = f"the {kind} `{(different or ['order'])[0]}` of the layer `{name}`"
            yield SideEffect(what, COPY, partial(_refill, held[table], parts))
    earlier = dict(zip(hooked, hooks, strict=True))
    for table in HOOKS:
        parts = earlier.get(table, _Same())
        if _Same(held[table]) != parts:
            cure = "Remove hooks in a `finally`, also when the network raises an error."
            what = f"the hooks of the layer `{name}`"
            yield SideEffect(what, cure, partial(_refill, held[table], parts))


def _mode(name: str, module: nn.Module, training: bool) -> SideEffect:
    mode = "training" if module.training else "evaluation"
    what = f"the mode of the layer `{name}`, which was left in {mode} mode"
    return SideEffect(what, COPY, partial(setattr, module, "training", training))


def _refill(table: dict[str, object], parts: dict[str, object]) -> None:
    table.clear()
    table.update(parts)
