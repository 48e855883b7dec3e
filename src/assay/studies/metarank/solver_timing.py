"""Seconds of ROAD's imputation by the share of masked pixels: a sparse direct solve, and ours.

They are seconds of the processor, the fewest of three, so other work on the machine counts little.
"""

from __future__ import annotations

import time

import numpy as np
import scipy
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.ranking.resampling import Floats
from assay.removal.imputation import TOLERANCE, linear
from assay.studies.metarank.claims import TIMED
from assay.studies.metarank.imputation_times import (
    DIRECT,
    MULTIGRID,
    SHARES,
    SIDE,
    ImputationTime,
)

NEIGHBOURS = tuple((i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j)
REPEATS = 3  # the fastest counts
Masked = NDArray[np.bool_]


def measure(images: int = TIMED, side: int = SIDE) -> list[ImputationTime]:
    """Time both solvers on images of smooth noise; masks are blobs with scattered pixels."""
    times = []
    linear(*_torch(*drawn(0, side, 0.5)), TOLERANCE)  # what is made once
    for image in range(images):
        for share in SHARES:
            pixels, gone = drawn(image, side, share)
            direct, multigrid, difference = [], [], 0.0
            for _ in range(REPEATS):
                start = time.process_time()
                exact = solve_directly(pixels, gone)
                middle = time.process_time()
                ours = linear(*_torch(pixels, gone), TOLERANCE)
                end = time.process_time()
                direct.append(middle - start)
                multigrid.append(end - middle)
                difference = float(np.abs(ours[0].numpy() - exact).max())
            times.append(ImputationTime(image, share, DIRECT, min(direct), 0.0))
            times.append(ImputationTime(image, share, MULTIGRID, min(multigrid), difference))
    return times


def solve_directly(pixels: Floats, gone: Masked) -> Floats:  # [C, H, W], [H, W] -> [C, H, W]
    """Every missing pixel is the weighted mean of its neighbours: one sparse system, solved."""
    height, width = gone.shape
    number = np.full(gone.shape, -1)
    number[gone] = np.arange(gone.sum())
    row, column = np.nonzero(gone)
    own = number[row, column]
    diagonal, right = np.zeros(len(own)), np.zeros((len(own), len(pixels)))
    entries = []
    for down, across in NEIGHBOURS:
        weight = 1 / 6 if 0 in (down, across) else 1 / 12
        r, c = row + down, column + across
        inside = (r >= 0) & (r < height) & (c >= 0) & (c < width)
        diagonal += weight * inside
        mine, r, c = own[inside], r[inside], c[inside]
        missing = gone[r, c]
        entries.append((mine[missing], number[r, c][missing], np.full(missing.sum(), -weight)))
        known = ~missing
        np.add.at(right, mine[known], weight * pixels[:, r[known], c[known]].T)
    rows, columns, values = (np.concatenate(part) for part in zip(*entries, strict=True))
    matrix = scipy.sparse.csc_matrix((values, (rows, columns)), shape=(len(own),) * 2)
    matrix = matrix + scipy.sparse.diags(diagonal, format="csc")
    filled = np.array(pixels, np.float64)
    filled[:, gone] = scipy.sparse.linalg.spsolve(matrix.tocsc(), right).reshape(len(own), -1).T
    return filled


def drawn(image: int, side: int, share: float) -> tuple[Floats, Masked]:
    """Smooth noise [3, H, W], and a mask of blobs with scattered pixels [H, W]."""
    generator = np.random.default_rng([image, side])
    pixels = scipy.ndimage.gaussian_filter(generator.normal(size=(3, side, side)), (0, 4, 4))
    field = scipy.ndimage.gaussian_filter(generator.normal(size=(side, side)), 6)
    field = field / field.std() + 0.5 * generator.normal(size=field.shape)
    return pixels / pixels.std(), field > np.quantile(field, 1 - share)


def _torch(pixels: Floats, gone: Masked) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(pixels).float()[None], torch.from_numpy(~gone)[None]
