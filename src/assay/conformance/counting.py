"""Count the forward and backward passes of a network, in samples."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn


@dataclass
class Counted:
    """Passes in samples. A gradient through the network or a part of it is one backward pass."""

    forward: int = 0
    backward: int = 0
    calls: int = 0

    def take(self, inputs: Any, output: Any) -> None:
        """Count one call of the network, and its backward passes later."""
        rows = len(output)
        self.forward += rows
        self.calls += 1
        fired = {"inputs": 0, "output": 0}

        def listen(end: str, other: str) -> Any:
            def hook(_: Tensor) -> None:
                fired[end] += 1
                if fired[end] > fired[other]:  # each gradient counts once
                    self.backward += rows

            return hook

        for tensor, end, other in ((output, "output", "inputs"), (inputs, "inputs", "output")):
            if isinstance(tensor, Tensor) and tensor.requires_grad:
                tensor.register_hook(listen(end, other))  # type: ignore[no-untyped-call]


@contextlib.contextmanager
def counting(*networks: nn.Module) -> Iterator[Counted]:
    """Count the passes of these networks, of whole inputs or of the patches of a BagNet."""
    counted, handles = Counted(), []
    inside: list[bool] = []

    def leave(_: nn.Module, args: Any, output: Any) -> None:
        inside.pop()
        counted.take(args[0] if args else None, output)

    for net in dict.fromkeys(networks):
        handles.append(net.register_forward_pre_hook(lambda _, __: inside.append(True)))
        handles.append(net.register_forward_hook(leave))
        if hasattr(net, "patch_logits"):
            _count_patches(net, counted, inside)
    try:
        yield counted
    finally:
        for handle in handles:
            handle.remove()
        for net in networks:
            vars(net).pop("patch_logits", None)


def _count_patches(net: Any, counted: Counted, inside: list[bool]) -> None:
    original = net.patch_logits

    def patch_logits(images: Tensor) -> Tensor:
        output: Tensor = original(images)
        if not inside:
            counted.take(images, output)
        return output

    net.patch_logits = patch_logits
