"""Networks and images in miniature, with known or knowable answers: those of the package."""

from dataclasses import replace

import torch

from assay.conformance.worlds import LinearImages, SmallNet, make_images, make_net
from assay.types import Batch
from assay.units.features import Features, make_units

__all__ = ["LinearImages", "SmallNet", "length_of", "make_images", "make_net", "some_entries"]


def some_entries(batch: Batch) -> Features:
    """Single entries as units, of which each sample has another number: `length_of` its id."""
    units = make_units(batch, "elements")
    lengths = torch.tensor([length_of(i, units.count) for i in batch.ids])
    return replace(units, key="some entries", valid=torch.arange(units.count) < lengths[:, None])


def length_of(sample: str, most: int) -> int:
    """How many units a sample has: half of them to all."""
    return most // 2 + sum(sample.encode()) % (most - most // 2 + 1)
