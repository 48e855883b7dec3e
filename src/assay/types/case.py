"""All that a batch protocol sees: samples, maps and the engine's one verb."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from assay.types.batch import Batch
from assay.types.response import Response


class Respond(Protocol):
    """The engine's one verb, as a protocol sees it."""

    def __call__(self, features: Any, absent: Any, fill: Any) -> Response:
        """The model's answers when these units are absent."""
        ...


@dataclass(frozen=True)
class Case:
    """All that a batch protocol sees; it has no model, so it cannot go round the engine."""

    batch: Batch
    attribution: Tensor  # [B, *map_shape]
    respond: Respond
    clean: Response  # [B, 1]
    # The same method on changed inputs [B, ...], and its forward passes a sample (None: not known).
    explain: Callable[[Tensor], Tensor] | None = None
    explain_passes: int | None = 0
    # The same method's maps of other samples, one for each: what a map is worth by accident.
    partner: Callable[[], Tensor] | None = None

    @property
    def constant(self) -> Tensor:
        """Which maps say nothing: all values equal where something can be removed. `[B]`."""
        flat = self.attribution.flatten(1)
        able = self.batch.removable
        if able is None:
            return flat.amax(1) == flat.amin(1)
        lowest, highest = torch.where(able, flat, torch.inf), torch.where(able, flat, -torch.inf)
        return highest.amax(1) == lowest.amin(1)
