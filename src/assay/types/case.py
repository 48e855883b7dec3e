"""The input of a protocol: samples, maps and the engine's `respond`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from assay.types.batch import Batch
from assay.types.response import Response


class Respond(Protocol):
    """The engine's function `respond`, as a protocol sees it."""

    def __call__(self, features: Any, absent: Any, fill: Any) -> Response:
        """The model's answers when these units are absent."""
        ...


@dataclass(frozen=True)
class Case:
    """The input of a protocol. It has no model, so every forward pass goes through the engine."""

    batch: Batch
    attribution: Tensor  # [B, *map_shape]
    respond: Respond
    clean: Response  # [B, 1]
    # The same method on changed inputs [B, ...], and its forward passes per sample (None: unknown).
    explain: Callable[[Tensor], Tensor] | None = None
    explain_passes: int | None = 0
    # The same method's maps of other samples, one per sample, to measure the score by chance.
    partner: Callable[[], Tensor] | None = None

    @property
    def constant(self) -> Tensor:
        """Which maps are constant over all removable positions, `[B]`."""
        flat = self.attribution.flatten(1)
        able = self.batch.removable
        if able is None:
            return flat.amax(1) == flat.amin(1)
        lowest, highest = torch.where(able, flat, torch.inf), torch.where(able, flat, -torch.inf)
        return highest.amax(1) == lowest.amin(1)
