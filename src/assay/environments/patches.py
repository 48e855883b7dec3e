"""Patches: filled shapes that neither touch each other nor reach beyond the image."""

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from assay.errors import InputError

Mask = NDArray[np.bool_]  # [H, W]
Points = NDArray[np.float64]  # [n, 2]: row, column
Shape = Literal["blob", "circle", "square", "triangle"]

FULL_SIDE = 224  # radii are given for images of this side, and scaled for others
ANCHORS = 8  # of a blob's outline
TRIES = 200  # to place one patch, before all are drawn again


def draw_patches(
    random: np.random.Generator, size: int, shapes: Sequence[Shape], radii: tuple[float, float]
) -> list[Mask]:
    """One mask per shape, with a random radius between `radii`, in pixels at a side of 224.

    Raises:
        InputError: So many patches of this size do not fit.
    """
    for _ in range(TRIES):
        placed = _place(random, size, len(shapes), radii)
        if placed is not None:
            masks = [
                SHAPES[shape](random, size, row, column, radius)
                for shape, (row, column, radius) in zip(shapes, placed, strict=True)
            ]
            if all(mask.any() for mask in masks):
                return masks
    low, high = radii
    raise InputError(
        f"Expected {len(shapes)} patches of radius {low:g} to {high:g} (at a side of {FULL_SIDE}) "
        f"to fit into an image without touching. Use fewer or smaller ones."
    )


def _place(
    random: np.random.Generator, size: int, count: int, radii: tuple[float, float]
) -> list[tuple[float, float, float]] | None:
    """Rows, columns and radii of squares that do not overlap; None if a patch found no place."""
    placed: list[tuple[float, float, float]] = []
    for _ in range(count):
        radius = random.uniform(*radii) * size / FULL_SIDE
        if 2 * radius + 1 > size:
            return None
        for _ in range(TRIES):
            row, column = random.uniform(radius, size - 1 - radius, 2)
            if all(
                max(abs(row - r), abs(column - c)) > radius + other + 1 for r, c, other in placed
            ):
                placed.append((float(row), float(column), float(radius)))
                break
        else:
            return None
    return placed


def circle(
    random: np.random.Generator, size: int, row: float, column: float, radius: float
) -> Mask:
    """A filled circle."""
    rows, columns = _rows_and_columns(size)
    inside: Mask = (rows - row) ** 2 + (columns - column) ** 2 <= radius**2
    return inside


def square(
    random: np.random.Generator, size: int, row: float, column: float, radius: float
) -> Mask:
    """An upright square of side twice the radius."""
    rows, columns = _rows_and_columns(size)
    inside: Mask = np.maximum(abs(rows - row), abs(columns - column)) <= radius
    return inside


def triangle(
    random: np.random.Generator, size: int, row: float, column: float, radius: float
) -> Mask:
    """An equilateral triangle inscribed in a circle of that radius, rotated at random."""
    turn = random.uniform(0, 2 * np.pi) + np.arange(3) * 2 * np.pi / 3
    corners = np.stack([row + radius * np.sin(turn), column + radius * np.cos(turn)], 1)
    return fill_polygon(corners, size)


def blob(random: np.random.Generator, size: int, row: float, column: float, radius: float) -> Mask:
    """A closed outline of cubic Bezier curves through anchors at jittered angles and distances.

    The radius is that of the square around it; the anchors lie at 0.48 to 1 of it.
    """
    angles = (np.arange(ANCHORS) + random.uniform(-0.35, 0.35, ANCHORS)) * 2 * np.pi / ANCHORS
    reach = radius / BLOB_REACH * (1 + random.uniform(-BLOB_JITTER, BLOB_JITTER, ANCHORS))
    anchors = np.stack([row + reach * np.sin(angles), column + reach * np.cos(angles)], 1)
    return fill_polygon(bezier_outline(anchors), size)


BLOB_JITTER = 0.35  # of an anchor's distance from the centre
BLOB_REACH = 1 + BLOB_JITTER


def bezier_outline(anchors: Points, steps: int = 12) -> Points:
    """A smooth closed curve through the anchors; tangents are parallel to neighbours' chords."""
    before, after = np.roll(anchors, 1, 0), np.roll(anchors, -1, 0)
    tangent = (after - before) / 6
    out, back = anchors + tangent, after - np.roll(tangent, -1, 0)
    t = np.linspace(0, 1, steps, endpoint=False)[None, :, None]
    curve: Points = (
        (1 - t) ** 3 * anchors[:, None]
        + 3 * (1 - t) ** 2 * t * out[:, None]
        + 3 * (1 - t) * t**2 * back[:, None]
        + t**3 * after[:, None]
    )
    return curve.reshape(-1, 2)


def fill_polygon(corners: Points, size: int) -> Mask:
    """The pixels whose centres lie inside: a ray to the right crosses an odd number of edges."""
    inside = np.zeros((size, size), dtype=bool)
    low, high = np.floor(corners.min(0)).astype(int), np.ceil(corners.max(0)).astype(int) + 1
    box = tuple(slice(max(0, a), max(0, b)) for a, b in zip(low, high, strict=True))
    rows, columns = np.arange(size)[box[0], None], np.arange(size)[None, box[1]]
    boxed = inside[box]  # a view: everything outside of it is outside of the polygon
    for (r1, c1), (r2, c2) in zip(corners, np.roll(corners, -1, 0), strict=True):
        crosses = (rows >= min(r1, r2)) & (rows < max(r1, r2))
        if r1 != r2:
            boxed ^= crosses & (columns < c1 + (rows - r1) * (c2 - c1) / (r2 - r1))
    return inside


def _rows_and_columns(size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return np.arange(size)[:, None], np.arange(size)[None]


SHAPES: dict[Shape, Callable[[np.random.Generator, int, float, float, float], Mask]] = {
    "blob": blob,
    "circle": circle,
    "square": square,
    "triangle": triangle,
}
