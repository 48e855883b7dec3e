"""The output of a protocol: one value per sample, with its curves."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True)
class Scores:
    """The output of a protocol: one value per sample, with its curves; `extra` is never ranked.

    A protocol with its own `reduce` computes its score from the curves of the whole set. Its values
    are NaN until then.
    """

    value: Tensor  # [B]
    curves: Mapping[str, Tensor] = field(default_factory=dict)  # name -> [B, K]
    x: Tensor | None = None  # [K]
    extra: Mapping[str, Tensor] = field(default_factory=dict)  # name -> [B]
    degenerate: Tensor | None = None  # [B]: samples whose map the protocol cannot score
