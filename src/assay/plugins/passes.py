"""The cost of explaining one sample, and what a method promises about its maps."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Passes:
    """The cost of one sample in forward and backward passes.

    A backward pass through only a part of the network counts as one. None where the number depends
    on the sample or the network: on segments, channels or tokens, or on when a map converges.
    """

    forward: int | None = 0
    backward: int | None = 0
    by: str = ""  # where a number is None, what it depends on: "channels + 1"
    once: int = 0  # forward passes made once, before the first sample is explained
    finding: str = ""  # what these compute: methods that need the same share them

    def times(self, copies: int) -> "Passes":
        """The cost of explaining this many copies."""
        both = (self.forward, self.backward)
        forward, backward = (None if count is None else count * copies for count in both)
        return replace(self, forward=forward, backward=backward)


@dataclass(frozen=True)
class Trainings:
    """What a set protocol trains for one cell: so many networks, each with this recipe.

    The recipe holds what the protocol passes to `fit`, such as `epochs` and `batch`. Without
    `epochs`, the time of the trainings is unknown in advance.
    """

    networks: int
    recipe: Mapping[str, int | float | str | bool] = field(default_factory=dict)


@dataclass(frozen=True)
class Promise:
    """A number for how far a method's maps deviate from what its formula promises; 0 is perfect.

    `function(model, batch, raw, options)` returns one number per sample, from the formula's output
    before channels are reduced. `passes` returns its forward passes per sample.
    """

    name: str
    function: Callable[..., Any]
    passes: Callable[[Mapping[str, Any]], int]


# (batch, options) -> what is removed, the fill, the output that is used. A method that makes the
# same interventions as a protocol is circular under it.
Intervenes = Callable[[Any, Mapping[str, Any]], tuple[str, ...]]
