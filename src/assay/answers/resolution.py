"""The resolution of maps that were enlarged, and the truth at that resolution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from assay.protocols.agreement import TruthSide, soft_scores

Enlargement = Literal["nearest", "bilinear"]
ROUNDING = 1e-4  # of a map's largest value: what may be left when enlarged values are fitted
PROBES = 4  # random mixtures that rule out most numbers of cells before every line is fitted


@dataclass(frozen=True)
class NativeGrid:
    """The cells at which maps vary before they are enlarged to the image."""

    rows: int
    columns: int
    mode: Enlargement

    def __str__(self) -> str:
        """Its size, as in `8 x 8`."""
        return f"{self.rows} x {self.columns}"

    def show(self, truth: Tensor) -> Tensor:  # [n, H, W]
        """The truth averaged in each cell and enlarged again, as the maps are."""
        height, width = truth.shape[1:]
        left = _there_and_back(self.rows, height, self.mode)
        right = _there_and_back(self.columns, width, self.mode)
        return (left @ truth.double() @ right.mT).to(truth.dtype)


def native_grid(maps: Tensor) -> NativeGrid | None:  # of [n, H, W]
    """The coarsest grid whose enlargement gives these maps; None for full resolution.

    It is found from the maps alone: enlarged maps are linear in the values of their cells, so a fit
    of these values leaves nothing. Whether they were enlarged, only the method can say: gradients
    of windows without overlap are constant in each, too. Grids of more than half the image's side
    count as full resolution, and so do maps that are constant, which have no cells.
    """
    values = maps.double()
    top = values.abs().amax((1, 2), keepdim=True)
    values = values / torch.where(top == 0, 1.0, top)
    if bool((values.amax((1, 2)) - values.amin((1, 2)) <= ROUNDING).all()):
        return None
    modes: tuple[Enlargement, ...] = ("nearest", "bilinear")
    for mode in modes:
        rows = _cells(values.transpose(0, 1).flatten(1), mode)
        columns = rows and _cells(values.permute(2, 0, 1).flatten(1), mode)
        if rows and columns:
            return NativeGrid(rows, columns, mode)
    return None


def ceilings(truth: Tensor, grid: NativeGrid | None, side: TruthSide) -> Tensor:  # [n]
    """The F1 that the truth itself reaches at this resolution, by sample.

    Methods without negative values are compared with a smooth truth; theirs is the positive part.
    """
    shown = truth.clamp(min=0) if side == "positive_smooth" else truth
    return soft_scores(shown if grid is None else grid.show(shown), truth, side)[2]


def _cells(lines: Tensor, mode: Enlargement) -> int | None:  # of [length, lines]
    """The smallest number of cells along one axis; None where there are too many."""
    length = len(lines)
    generator = torch.Generator().manual_seed(0)
    mixed = lines @ torch.randn(lines.shape[1], PROBES, generator=generator, dtype=lines.dtype)
    for cells in range(1, length // 2 + 1):
        basis = torch.linalg.qr(_enlargement(cells, length, mode))[0]
        near = ROUNDING * lines.shape[1]
        if _left(mixed, basis) <= near and _left(lines, basis) <= ROUNDING:
            return cells
    return None


def _left(lines: Tensor, basis: Tensor) -> float:
    """The largest value that the basis does not explain."""
    return float((lines - basis @ (basis.mT @ lines)).abs().max())


def _enlargement(cells: int, length: int, mode: Enlargement) -> Tensor:  # [length, cells]
    """The matrix that enlarges the values of the cells along one axis."""
    each = torch.eye(cells, dtype=torch.float64)[:, None]
    if mode == "nearest":
        return functional.interpolate(each, length, mode="nearest")[:, 0].mT
    return functional.interpolate(each, length, mode="linear", align_corners=False)[:, 0].mT


def _there_and_back(cells: int, length: int, mode: Enlargement) -> Tensor:  # [length, length]
    """The matrix that averages in the cells along one axis and enlarges the averages."""
    inside = _enlargement(cells, length, "nearest").mT
    return _enlargement(cells, length, mode) @ (inside / inside.sum(1, keepdim=True))
