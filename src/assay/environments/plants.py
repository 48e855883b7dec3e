"""Plants: pixels that alone decide the label, where they are, and parts of them."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from assay.errors import InputError

ACROSS = 50  # places along a side where samples are evaluated, as in M4
SHARE = 60 / 224  # the side of the square as a share of the image's side, in M4 and SoCo
BANDS = 7
YELLOW = (1.0, 1.0, 0.0)
WHOLE = 1e-6  # of a pixel: a share that rounding makes a little too small is still whole
TWO_DIGITS = 9  # pixels a side of the smallest square that holds two digits in a frame

# Ten digits of 3 x 5 pixels, row by row.
GLYPHS = (
    "### #.# #.# #.# ###", ".#. ##. .#. .#. ###", "### ..# ### #.. ###", "### ..# .## ..# ###",
    "#.# #.# ### ..# ..#", "### #.. ### ..# ###", "### #.. ### #.# ###", "### ..# .#. .#. .#.",
    "### #.# ### #.# ###", "### #.# ### ..# ###",
)  # fmt: skip

# (labels [B], places [B, 2]) -> colours [B, 3, H, W] in [0, 1], the region [B, H, W] they fill
Paint = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Plant:
    """Pixels painted over an image, which depend on its label and a place.

    Attributes:
        classes: The number of labels.
        size: Pixels a side of the image.
        side: Pixels a side of the planted square; `size` where the plant spans the image.
        paint: From labels and places (the upper left corners) to colours and the region they fill.
        visible: The labels that show something; the others have no truth.
        thickness: The thickness of the part called border.
        rows: The number of heights that the label depends on; 1 where the place does not matter.
    """

    classes: int
    size: int
    side: int
    paint: Paint
    visible: tuple[int, ...]
    thickness: int
    rows: int = 1

    def random_places(self, n: int, generator: torch.Generator) -> Tensor:  # [n, 2]
        """Random places in the whole image."""
        return torch.randint(0, self.size - self.side + 1, (n, 2), generator=generator)

    def grid_places(self, n: int, generator: torch.Generator) -> Tensor:  # [n, 2]
        """Points of M4's grid in random order; a larger `n` starts with the same ones.

        As in M4, the distance to the last row and column is divided by the number of points, so
        that no point reaches them.
        """
        rounds = [torch.randperm(ACROSS**2, generator=generator) for _ in range(-(-n // ACROSS**2))]
        index = torch.cat(rounds)[:n]
        points = torch.stack([index // ACROSS, index % ACROSS], 1)
        return (points * (self.size - self.side) / ACROSS).long()


def show(images: Tensor, colours: Tensor, region: Tensor) -> Tensor:  # [B, 3, H, W]
    """The images with the colours painted over the region."""
    return torch.where(region[:, None], colours, images)


def square_side(size: int, side: int | None) -> int:
    """The side of the planted square: `side`, or by default 60 pixels of 224 in proportion.

    Raises:
        InputError: It does not fit into the image.
    """
    chosen = round(SHARE * size) if side is None else side
    if chosen >= size:
        raise InputError(f"Expected `patch` to be below `size`, {size}, got {chosen}.")
    return chosen


def patch(size: int, side: int) -> Plant:
    """A yellow square where the label is 1, nothing where it is 0."""

    def paint(labels: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        colours = torch.tensor(YELLOW)[:, None, None].expand(len(labels), 3, size, size)
        return colours, _square(size, side, places) & (labels == 1)[:, None, None]

    return Plant(2, size, side, paint, (1,), _thickness(side))


def number(size: int, side: int, classes: int) -> Plant:
    """A black square with the label in white digits.

    Raises:
        InputError: Two digits do not fit into the square, or there are more than 100 labels.
    """
    tiles = _tiles(side, classes)  # [classes, side, side]

    def paint(labels: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        down, right = (torch.arange(size) - first[:, None] for first in places.unbind(1))
        rows, columns = down.clamp(0, side - 1), right.clamp(0, side - 1)
        grey = tiles[labels[:, None, None], rows[:, :, None], columns[:, None, :]]
        return grey[:, None].expand(-1, 3, -1, -1), _square(size, side, places)

    return Plant(classes, size, side, paint, tuple(range(classes)), _thickness(side))


def stripes(size: int, classes: int, bands: int = BANDS) -> Plant:
    """The label in binary, lowest bit at the top: a band is white where its bit is 1.

    Raises:
        InputError: There are more labels than bits can show, or more bands than rows.
    """
    if classes > 2**bands:
        raise InputError(f"Expected `classes` to be at most {2**bands}, got {classes}.")
    if size < bands:
        raise InputError(f"Expected `size` to be at least {bands}, one row a band, got {size}.")
    edges = [size * band // bands for band in range(bands + 1)]
    band_of = torch.bucketize(torch.arange(size), torch.tensor(edges[1:-1]), right=True)

    def paint(labels: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        white = (labels[:, None] >> band_of) & 1 == 1  # [B, H]
        colours = torch.ones(1, 3, 1, 1).expand(len(labels), 3, size, size)
        return colours, white[:, :, None].expand(-1, -1, size)

    visible = tuple(range(1, classes))
    return Plant(classes, size, size, paint, visible, _thickness(size // bands), rows=8)


def parts(region: Tensor, thickness: int, generator: torch.Generator) -> dict[str, Tensor]:
    """Parts of a plant of about half its pixels or fewer, by name, each `[B, H, W]`.

    The halves lie at its four sides. `border` is its outermost pixels, `interior` the others,
    `quarter` a random quarter of its pixels.
    """
    inside = F.pad(region[:, None].float(), [thickness] * 4)
    interior = -F.max_pool2d(-inside, 2 * thickness + 1, stride=1)[:, 0] > 0
    flat = region.flatten(1)
    draws = torch.rand(flat.shape, generator=generator).masked_fill(~flat, 2.0)
    place = draws.argsort(1).argsort(1)
    quarter = (place < (flat.sum(1, keepdim=True) / 4).ceil()) & flat
    return {
        **{f"{side} half": half for side, half in _at_sides(region, 0.5).items()},
        "border": region & ~interior,
        "interior": interior,
        "quarter": quarter.reshape(region.shape),
    }


def blocks(region: Tensor, share: float) -> dict[str, Tensor]:
    """Contiguous parts with this share of a plant's pixels, by name, each `[B, H, W]`.

    They lie at its four sides, in its four corners and in its centre.
    """
    corners = {
        "upper left": (0.0, 0.0),
        "upper right": (0.0, 1.0),
        "lower left": (1.0, 0.0),
        "lower right": (1.0, 1.0),
        "central": (0.5, 0.5),
    }
    found = {
        **_at_sides(region, share),
        **{
            name: _lines(region, share, down) & _lines(region.mT, share, across).mT
            for name, (down, across) in corners.items()
        },
    }
    return {f"{name} {share:.0%}": block for name, block in found.items()}


def _at_sides(region: Tensor, share: float) -> dict[str, Tensor]:
    """Contiguous parts at each side, cut to the pixel: lines from that side, then part of one."""
    across = region.mT
    return {
        "left": _first(across, share).mT,
        "right": _first(across.flip(1, 2), share).flip(1, 2).mT,
        "top": _first(region, share),
        "bottom": _first(region.flip(1, 2), share).flip(1, 2),
    }


def _first(region: Tensor, share: float) -> Tensor:
    """The first pixels of each region, row by row, up to a share of them."""
    flat = region.flatten(1)
    first = (flat.cumsum(1) <= share * flat.sum(1, keepdim=True) + WHOLE) & flat
    return first.reshape(region.shape)


def _lines(region: Tensor, share: float, position: float) -> Tensor:
    """The root of a share of the rows that a region fills, from its first (0) to its last (1)."""
    filled = region.any(2)
    count = filled.sum(1, keepdim=True)
    chosen = (math.sqrt(share) * count + WHOLE).floor()
    first = (position * (count - chosen)).floor()
    rank = filled.cumsum(1) - 1
    return region & (filled & (rank >= first) & (rank < first + chosen))[:, :, None]


def _square(size: int, side: int, places: Tensor) -> Tensor:  # [B, H, W]
    at = torch.arange(size)
    rows, columns = (
        (at >= first[:, None]) & (at < first[:, None] + side) for first in places.unbind(1)
    )
    return rows[:, :, None] & columns[:, None, :]


def _thickness(side: int) -> int:
    """The thickness of a frame that takes about half of a square's pixels."""
    return max(1, round(side * (1 - math.sqrt(0.5)) / 2))


def _tiles(side: int, classes: int) -> Tensor:  # [classes, side, side]
    if classes > 100:
        raise InputError(f"Expected `classes` to be at most 100, two digits, got {classes}.")
    scale = (side - 2) // 7
    if scale < 1:
        raise InputError(
            f"Expected `patch` to be at least {TWO_DIGITS}, two digits in a frame, got {side}."
        )
    glyphs = torch.tensor([[[c == "#" for c in row] for row in g.split()] for g in GLYPHS])
    tiles = torch.zeros(classes, side, side)
    top, left = (side - 5 * scale) // 2, (side - 7 * scale) // 2
    for label in range(classes):
        for n, digit in enumerate(divmod(label, 10)):
            big = glyphs[digit].repeat_interleave(scale, 0).repeat_interleave(scale, 1)
            start = left + 4 * scale * n
            tiles[label, top : top + 5 * scale, start : start + 3 * scale] = big.float()
    return tiles
