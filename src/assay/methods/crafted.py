"""Maps made from another method's maps to fit one kind of data: a square, and bands.

SoCo uses them to show that a benchmark with planted features rewards a method that knows their
shape: the square wins where a square was planted, bands win where bands were planted.
"""

from itertools import pairwise

import torch
from torch import Tensor

from assay.engine.engine import Engine
from assay.errors import NotApplicable
from assay.methods.attribution import attribute
from assay.methods.controls import MethodChoice, needs_of, passes_of, passes_on_of
from assay.plugins.option_types import Count
from assay.plugins.registry import method
from assay.suite.spec import choose_one
from assay.types import Batch, Model

SIDE = 60 / 224  # the side of SoCo's square, as a share of the image's


@method(
    "rect",
    control="other",
    needs=lambda options: {"image"} | needs_of(options),
    passes=passes_of,
    passes_on=passes_on_of,
    family="crafted",
    cite="li2024soco",
    title="Rectangle",
)
def rect(
    model: Model,
    batch: Batch,
    engine: Engine,
    *,
    of: MethodChoice = "integrated_gradients",
    side: Count | None = None,
) -> Tensor:
    """A square of ones at the centre of a method's positive attribution, zero elsewhere.

    Formula: 1 within `side` pixels around the centre of mass of max(A, 0), A the map of `of`.

    `side` defaults to 60 pixels of 224 in proportion, 9 of 32. A square that would cross the border
    is shifted inside; a map without positive values has its centre in the middle.

    Differs from the paper: the paper does not say what happens at the border.
    """
    height, width = batch.map_shape
    length = side or round(SIDE * min(height, width)) or 1
    if length > min(height, width):
        raise NotApplicable(
            f"A square of {length} pixels per side does not fit into an image of {height} x "
            f"{width} pixels."
        )
    positive = attribute(model, batch, choose_one("method", of), engine).double().clamp(min=0)
    squares = torch.zeros(len(batch), height, width, device=positive.device, dtype=batch.dtype)
    for square, mass in zip(squares, positive, strict=True):
        top, left = (_start(mass.sum(axis), length) for axis in (1, 0))
        square[top : top + length, left : left + length] = 1
    return squares


def _start(mass: Tensor, length: int) -> int:
    """The start of the segment of this length whose middle is nearest to the centre of mass."""
    places = torch.arange(len(mass), device=mass.device, dtype=mass.dtype)
    total = mass.sum()
    centre = float((mass * places).sum() / total) if bool(total > 0) else (len(mass) - 1) / 2
    first = int(centre - (length - 1) / 2 + 0.5) if centre > (length - 1) / 2 else 0
    return min(first, len(mass) - length)


@method(
    "pooling",
    control="other",
    needs=lambda options: {"image"} | needs_of(options),
    passes=passes_of,
    passes_on=passes_on_of,
    family="crafted",
    cite="li2024soco",
    title="Pooled bands",
)
def pooling(
    model: Model,
    batch: Batch,
    engine: Engine,
    *,
    of: MethodChoice = "integrated_gradients",
    bands: Count = 7,
) -> Tensor:
    """A method's map with every value replaced by the mean of its horizontal band.

    Formula: the mean of A over the rows of the band, of `bands` equally high ones, A the map of
    `of`. Where the height is not a multiple of `bands` they differ by one row.

    Differs from the paper: nothing.
    """
    height, _ = batch.map_shape
    if bands > height:
        raise NotApplicable(f"An image of {height} rows cannot have {bands} bands.")
    maps = attribute(model, batch, choose_one("method", of), engine)
    pooled = torch.empty_like(maps)
    edges = [height * band // bands for band in range(bands + 1)]
    for bands_map, original in zip(pooled, maps, strict=True):
        for top, bottom in pairwise(edges):
            bands_map[top:bottom] = original[top:bottom].mean()
    return pooled
