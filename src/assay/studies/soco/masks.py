"""The pixels that SoCo's test of retraining removes: a disc, and a spot by class."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from assay.errors import InputError

SHARE = 0.7  # of the pixels that both strategies of figure 1 remove
SPOT = 0.1  # the radius of the spot that depends on the class, as a share of the side
LITTLE = 0.05  # the share of pixels removed in figure 10
ON_AN_EDGE = 3  # spots on each edge of the image


def central(size: int, classes: int) -> Tensor:  # [classes, size, size]
    """Strategy 1: the 70 % of the pixels that are nearest to the centre, whatever the class."""
    nothing = torch.zeros(size, size, dtype=torch.bool)
    return _filled(nothing, round(SHARE * size**2)).expand(classes, -1, -1)


def central_and_place(size: int, classes: int) -> Tensor:  # [classes, size, size]
    """Strategy 2: as many pixels, among them a small disc at the border that depends on the class.

    The authors' code blurs two discs and fills up to 70 % in the order of sorting; here the numbers
    are exact and the rest are the pixels nearest to the centre.
    """
    spots = [_distance(size, *place(label, size)) <= SPOT * size for label in range(classes)]
    return torch.stack([_filled(spot, round(SHARE * size**2)) for spot in spots])


def place_only(size: int, classes: int) -> Tensor:  # [classes, size, size]
    """Figure 10: 5 % of the pixels, around a spot at the border that depends on the class."""
    count = round(LITTLE * size**2)
    removed = torch.zeros(classes, size * size, dtype=torch.bool)
    for label in range(classes):
        nearest = _distance(size, *place(label, size)).flatten().argsort(stable=True)
        removed[label, nearest[:count]] = True
    return removed.reshape(classes, size, size)


def place(label: int, size: int) -> tuple[int, int]:
    """The spot at the border for a class: three classes per edge.

    Raises:
        InputError: There are more classes than spots.
    """
    if label >= 4 * ON_AN_EDGE:
        raise InputError(f"Expected at most {4 * ON_AN_EDGE} classes, got class {label}.")
    margin = int(SPOT * size)
    step = (size - 2 * margin) // ON_AN_EDGE
    edge, along = divmod(label, ON_AN_EDGE)
    near, far, gone = margin, margin + ON_AN_EDGE * step, along * step
    return ((near + gone, near), (far, near + gone), (far - gone, far), (near, far - gone))[edge]


def _distance(size: int, row: float, column: float) -> Tensor:  # [size, size]
    at = torch.arange(size, dtype=torch.float64)
    return torch.hypot(at[:, None] - row, at[None, :] - column)


def _filled(removed: Tensor, count: int) -> Tensor:  # [size, size]
    """The removed pixels and those nearest to the centre, `count` in all."""
    middle = (len(removed) - 1) / 2
    far = _distance(len(removed), middle, middle).masked_fill(removed, math.inf)
    nearest = far.flatten().argsort(stable=True)[: count - int(removed.sum())]
    filled = removed.flatten().clone()
    filled[nearest] = True
    return filled.reshape(removed.shape)
