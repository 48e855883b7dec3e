"""A fill on a copy of the input with tiny noise: how much do answers depend on what is not seen?"""

from dataclasses import replace

import torch

from assay.errors import NotApplicable
from assay.plugins.option_types import NonNegative
from assay.plugins.registry import fill as register_fill
from assay.removal import FillChoice, Removal, make_removal
from assay.types import Batch


@register_fill("shaken", title="Another fill, on a noisy copy")
def shaken(batch: Batch, *, fill: FillChoice = "zero", noise: NonNegative = 0.02) -> Removal:
    """Another fill, on a copy of the input with normal noise everywhere.

    `noise` is a share of the input's own standard deviation; for most images 0.02 is about one of
    255 grey levels. One noise field per sample is used for all its sets.
    """
    if batch.tokens is not None:
        raise NotApplicable("The fill `shaken` adds noise to numbers; these inputs are tokens.")
    spread = torch.stack([row.std() for row in batch.inputs])
    drawn = batch.draw("shaken copy", batch.inputs.shape[1:], normal=True)
    sizes = (noise * spread).reshape(-1, *[1] * (drawn.ndim - 1))
    return make_removal(replace(batch, inputs=batch.inputs + sizes * drawn), fill)
