"""A protocol's answer: one value per sample, with the curves it came from."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True)
class Scores:
    """A protocol's answer per sample, with the curves it came from; `extra` is never ranked.

    A protocol with a `reduce` of its own is judged on the whole set, by its curves: its values are
    NaN until then.
    """

    value: Tensor  # [B]
    curves: Mapping[str, Tensor] = field(default_factory=dict)  # name -> [B, K]
    x: Tensor | None = None  # [K]
    extra: Mapping[str, Tensor] = field(default_factory=dict)  # name -> [B]
    degenerate: Tensor | None = None  # [B]: whose map the protocol can do nothing with
