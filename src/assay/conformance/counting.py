"""How many samples really pass through a network, forward and backward."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn


@dataclass
class Counted:
    """Samples that passed, in rows; a gradient's way back, or a part of it, is one backward."""

    forward: int = 0
    backward: int = 0
    calls: int = 0

    def take(self, inputs: Any, output: Any) -> None:
        """One call of the network, and whatever goes back through it later."""
        rows = len(output)
        self.forward += rows
        self.calls += 1
        fired = {"inputs": 0, "output": 0}

        def listen(end: str, other: str) -> Any:
            def hook(_: Tensor) -> None:
                fired[end] += 1
                if fired[end] > fired[other]:  # the first end that this gradient reaches
                    self.backward += rows

            return hook

        for tensor, end, other in ((output, "output", "inputs"), (inputs, "inputs", "output")):
            if isinstance(tensor, Tensor) and tensor.requires_grad:
                tensor.register_hook(listen(end, other))  # type: ignore[no-untyped-call]


@contextlib.contextmanager
def counting(*networks: nn.Module) -> Iterator[Counted]:
    """Count what passes through these networks, as a whole or as patches of a bag."""
    found, handles = Counted(), []
    inside: list[bool] = []

    def leave(_: nn.Module, args: Any, output: Any) -> None:
        inside.pop()
        found.take(args[0] if args else None, output)

    for net in dict.fromkeys(networks):
        handles.append(net.register_forward_pre_hook(lambda _, __: inside.append(True)))
        handles.append(net.register_forward_hook(leave))
        if hasattr(net, "patch_logits"):
            _count_patches(net, found, inside)
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()
        for net in networks:
            vars(net).pop("patch_logits", None)


def _count_patches(net: Any, found: Counted, inside: list[bool]) -> None:
    whole = net.patch_logits

    def patch_logits(images: Tensor) -> Tensor:
        output: Tensor = whole(images)
        if not inside:
            found.take(images, output)
        return output

    net.patch_logits = patch_logits
