"""Types of the operators that a network calls, and of what is watched or replaced in them."""

from collections.abc import Callable
from typing import Any, Protocol

from torch import Tensor

Tensors = tuple[Tensor, ...]
Returned = Any  # what an operator returns: a tensor, several of them, a shape, a number
Operator = Callable[..., Returned]
Arguments = tuple[Any, ...]
Keywords = dict[str, Any]
Backward = tuple[Tensor | None, ...]  # a gradient for each argument of an autograd function


class Context(Protocol):
    """The `ctx` of an autograd function: it saves tensors and takes any other attribute."""

    saved_tensors: Tensors

    def save_for_backward(self, *tensors: Tensor) -> None:
        """Keep tensors for the way back."""

    def __getattr__(self, name: str) -> Any:
        """What the forward pass has kept."""

    def __setattr__(self, name: str, value: object) -> None:
        """Keep anything else for the way back."""
