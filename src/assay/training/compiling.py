"""Compiled training: what stands between a network's layers runs in fewer, larger kernels."""

import contextlib
import copy
from collections import Counter
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from assay.errors import warn

BACKEND = "inductor"
CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
APART = 0.25  # how far the gradients of one weight may be apart, as a share of their norm
SMALL = 1e-3  # as a share of the norm of all gradients: below it bfloat16 leaves only noise


@contextlib.contextmanager
def compiled(net: nn.Module, on: bool = True) -> Iterator[None]:
    """Compile the repeated blocks of a network inside, or the whole network; plain afterwards.

    A small network spends its time between its convolutions, where normalisation and ReLU read and
    write everything. Blocks of one shape are compiled once, whatever their number.

    Args:
        net: The network; its weights and its hash stay.
        on: Whether to compile.
    """
    parts = repeated_blocks(net) or [net] if on else []
    for part in parts:
        part.compile(dynamic=False, backend=BACKEND)
    try:
        yield
    finally:
        for part in parts:
            part._compiled_call_impl = None  # torch has no public way back


def repeated_blocks(net: nn.Module) -> list[nn.Module]:
    """The outermost modules with parts of their own whose class occurs more than once."""
    blocks = {
        name: module
        for name, module in net.named_modules()
        if name and next(module.children(), None) is not None and not isinstance(module, CONTAINERS)
    }
    counts = Counter(type(module) for module in blocks.values())
    repeated = {name: module for name, module in blocks.items() if counts[type(module)] > 1}
    return [
        module
        for name, module in repeated.items()
        if not any(name.startswith(f"{other}.") for other in repeated)
    ]


def can_compile(net: nn.Module, loss: Callable[[nn.Module], Tensor]) -> bool:
    """Whether the compiled network has the gradients of the plain one; if not, say so.

    Compilers have faults: torch 2.13 gives zero gradients below a max-pooling on the CPU.

    Args:
        net: The network in training mode, not changed.
        loss: The loss `[]` of a network on fixed samples.
    """
    try:
        plain, other = (_gradients(copy.deepcopy(net), loss, on) for on in (False, True))
    except Exception as error:  # whatever a compiler raises
        reason = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200]}"
        warn(f"torch cannot compile the network ({reason}). It is trained without compiling.")
        return False
    whole = torch.stack([g.norm() for g in plain.values()]).norm()
    for name, gradient in plain.items():
        apart = (gradient - other[name]).norm() / (gradient.norm() + SMALL * whole)
        if not bool(apart <= APART):
            warn(
                f"The compiled network has other gradients for `{name}` (difference {apart:.0%}). "
                f"It is trained without compiling."
            )
            return False
    return True


def _gradients(net: nn.Module, loss: Callable[[nn.Module], Tensor], on: bool) -> dict[str, Tensor]:
    with torch.random.fork_rng(), torch.enable_grad(), compiled(net, on):
        torch.manual_seed(0)
        torch.autograd.backward(loss(net))
    named = net.named_parameters()
    return {name: p.grad.float() for name, p in named if p.grad is not None}
