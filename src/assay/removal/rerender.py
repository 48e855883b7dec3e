"""Re-rendering: the image is painted again without the absent parts."""

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.errors import NotApplicable
from assay.plugins.registry import fill
from assay.types import Batch, Parts
from assay.units.features import Features, parts_of


@dataclass(frozen=True)
class Rerender:
    """The images of a batch, painted again without the absent parts."""

    parts: Parts
    batch: Batch

    def __call__(self, features: Features, absent: Tensor, samples: Tensor) -> Tensor:
        """The inputs of these samples without their absent parts."""
        if not features.key.startswith("parts("):
            if not bool((absent | ~features.valid[samples]).all()):
                raise NotApplicable(
                    f"The fill `rerender` removes whole parts, got units `{features.key}`. Use "
                    f"`units: parts`."
                )
            # Everything is absent, whatever the units: no part is painted.
            absent = absent.new_ones(len(absent), len(self.parts.names))
        painted = [
            self.parts.without(self.batch.ids[b], frozenset(row.nonzero().flatten().tolist()))
            for b, row in zip(samples.tolist(), absent.cpu(), strict=True)
        ]
        return torch.stack(painted).to(self.batch.inputs)


@fill("rerender", natural=True, title="Painted without the part")
def rerender(batch: Batch) -> Rerender:
    """The image painted without the absent part: what lies behind it becomes visible."""
    return Rerender(parts_of(batch, "parts to leave out, as the fill `rerender` does,"), batch)
