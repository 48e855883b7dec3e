"""Feature units: entries or pixels, grid cells, overlapping windows, painted parts."""

import functools
import math
from dataclasses import dataclass, replace
from typing import Annotated, Any

import torch
from torch import Tensor

from assay.errors import InputError, NotApplicable
from assay.plugins.option_types import Count, Share
from assay.plugins.registry import Nested, Units, get, pick, units
from assay.types import Batch, Parts

UnitsChoice = Annotated[Any, Nested("units")]


@dataclass(frozen=True)
class Features:
    """P units over the positions of a map.

    Exactly one form applies: `index` (position -> unit, -1 = never removed), `boxes` (unit -> top,
    left, bottom, right; they may overlap), or neither (every position is its own unit).
    """

    key: str
    shape: tuple[int, ...]
    count: int
    valid: Tensor  # [B, P]
    index: Tensor | None = None  # [*shape] or [B, *shape]
    boxes: Tensor | None = None  # [P, 4]

    @property
    def ragged(self) -> bool:
        """Whether another sample may have more or fewer units."""
        own_index = self.index is not None and self.index.ndim > len(self.shape)
        return own_index or not bool(self.valid.all())

    @property
    def coverage(self) -> str:
        """Which positions are absent when all units are: equal texts mean equal positions."""
        if self.boxes is None and self._whole and bool(self.valid.all()):
            return "everything"
        samples = torch.arange(len(self.valid), device=self.valid.device)
        return "everything" if bool(self.spread(self.valid, samples).all()) else self.key

    @functools.cached_property
    def _whole(self) -> bool:
        """Whether every position belongs to a unit."""
        return self.index is None or bool((self.index >= 0).all())

    def sum(self, values: Tensor) -> Tensor:  # [B, *shape] -> [B, P]
        """Each unit's total, in double precision so that equal units get equal sums."""
        flat = values.flatten(1)  # [B, N]
        if self.boxes is not None:
            return self._box_sums(flat.double())
        if self.index is None:
            return flat
        index = self.index.reshape(-1, flat.shape[1]).expand(len(flat), -1)
        index = index if self._whole else torch.where(index < 0, self.count, index)
        totals = flat.new_zeros(len(flat), self.count + 1, dtype=torch.float64)
        return totals.scatter_add_(1, index, flat.double())[
            :, : self.count
        ]  # the last column holds protected positions

    def _box_sums(self, flat: Tensor) -> Tensor:
        """Totals over the boxes, from cumulative sums in both directions."""
        grid = torch.nn.functional.pad(flat.reshape(-1, *self.shape), (1, 0, 1, 0))
        area = grid.cumsum(1).cumsum(2)  # [B, H + 1, W + 1]
        top, left, bottom, right = self._corners
        inner = area[:, bottom, right] - area[:, top, right]
        return inner - area[:, bottom, left] + area[:, top, left]

    @property
    def _corners(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        if self.boxes is None:
            raise InputError("Expected units made of boxes.")
        top, left, bottom, right = self.boxes.T
        return top, left, bottom, right

    def spread(self, absent: Tensor, samples: Tensor) -> Tensor:  # [n, P] -> [n, *shape]
        """Which positions are absent when these units are."""
        if self.boxes is not None:
            return self._cover(absent)
        if self.index is None:
            return absent.reshape(-1, *self.shape)
        one_for_all = self.index.ndim == len(self.shape)
        index = self.index if one_for_all else self.index[samples]
        inside = index if self._whole else index.clamp(min=0)
        if one_for_all:
            gone = absent[:, inside]
        else:
            gone = absent.gather(1, inside.flatten(1)).reshape(-1, *self.shape)
        return gone if self._whole else gone & (index >= 0)

    def paint(self, values: Tensor) -> Tensor:  # [B, P] -> [B, *shape]
        """Each position's value: its unit's, or the mean of the units that cover it; else 0."""
        if self.boxes is not None:
            cover = self._pile(torch.ones_like(values, dtype=torch.int32))
            return torch.where(cover > 0, self._pile(values) / cover.clamp(min=1), 0.0)
        if self.index is None:
            return values.reshape(-1, *self.shape)
        index = self.index.reshape(-1, math.prod(self.shape)).expand(len(values), -1)
        painted = values.gather(1, index.clamp(min=0)) * (index >= 0)
        return painted.reshape(-1, *self.shape)

    def _cover(self, absent: Tensor) -> Tensor:
        """The union of the absent boxes."""
        return self._pile(absent.int()) > 0

    def _pile(self, marks: Tensor) -> Tensor:  # [n, P] -> [n, *shape]
        """The sum of the boxes' marks at each position, by cumulative sums of their corners."""
        height, width = self.shape
        top, left, bottom, right = self._corners
        corners = torch.zeros(
            len(marks), (height + 1) * (width + 1), dtype=marks.dtype, device=marks.device
        )
        for row, column, sign in (
            (top, left, 1),
            (bottom, right, 1),
            (top, right, -1),
            (bottom, left, -1),
        ):
            corners.index_add_(1, row * (width + 1) + column, marks, alpha=sign)
        grid = corners.reshape(-1, height + 1, width + 1)
        return grid.cumsum(1, dtype=marks.dtype).cumsum(2, dtype=marks.dtype)[:, :height, :width]


def make_units(batch: Batch, choice: UnitsChoice) -> Features:
    """The units that a protocol's option names."""
    name, options = pick(choice)
    plugin = get("units", name)
    features: Features = plugin.function(batch, **plugin.configure(options))
    return replace(features, key=f"{features.key} {plugin.code}") if plugin.code else features


def known_count(choice: UnitsChoice) -> int | None:
    """The number of units of a choice; None unless its options alone determine it."""
    name, options = pick(choice)
    plugin: Units = get("units", name)
    return None if plugin.count is None else plugin.count(plugin.configure(options))


def one_of(name: str, value: Any, usual: Any, chosen: UnitsChoice) -> None:
    """Reject an option that has no effect together with `units`."""
    if chosen is not None and value != usual:
        raise InputError(
            f"Expected `{name}` or `units`, not both: `{name}` is for the default units. Drop one."
        )


@units("elements", title="Single entries")
def elements(batch: Batch) -> Features:
    """Every entry of a vector, every pixel of an image, every token that is not special."""
    count = math.prod(batch.map_shape)
    valid = batch.removable
    if valid is None:
        valid = torch.ones(len(batch), count, dtype=torch.bool, device=batch.inputs.device)
    return Features("elements", batch.map_shape, count, valid)


@units("grid", title="Grid cells", count=lambda options: options["side"] ** 2)
def grid(batch: Batch, *, side: Count = 4) -> Features:
    """`side` x `side` cells that cover the image; on anything else the units are the entries."""
    if len(batch.map_shape) != 2:
        return elements(batch)
    height, width = _sides(batch, side)
    rows = columns = side
    device = batch.inputs.device
    row = torch.arange(height, device=device) * rows // height
    column = torch.arange(width, device=device) * columns // width
    index = row[:, None] * columns + column  # [H, W]
    everywhere = torch.ones(len(batch), rows * columns, dtype=torch.bool, device=device)
    return Features(
        f"grid({rows}x{columns})", batch.map_shape, rows * columns, everywhere, index=index
    )


def _sides(batch: Batch, side: int) -> tuple[int, int]:
    """Height and width of the images; both hold a grid of `side` cells.

    Raises:
        InputError: A cell would be smaller than a pixel.
    """
    height, width = batch.map_shape
    if side > min(height, width):
        raise InputError(
            f"Expected a grid of at most {min(height, width)} cells a side on images of {height} x "
            f"{width} pixels, got {side}."
        )
    return height, width


@units("shifted_grid", title="Grid cells, shifted at random")
def shifted_grid(batch: Batch, *, side: Count = 8) -> Features:
    """The cells of `grid`, in each sample shifted by its own random part of a cell.

    Cells at the border are cut, so there are up to `side` + 1 in a row. On anything but images the
    units are the entries.
    """
    if len(batch.map_shape) != 2:
        return elements(batch)
    height, width = _sides(batch, side)
    device = batch.inputs.device
    shifts = batch.draw("grid offset", (2,)).double().unbind(1)  # [B] each, from 0 to 1
    lines = [  # [B, H] and [B, W]: from 0 to `side`
        (torch.arange(n, device=device) + (shift * -(-n // side)).floor()[:, None]).long()
        * side
        // n
        for n, shift in zip((height, width), shifts, strict=True)
    ]
    index = lines[0][:, :, None] * (side + 1) + lines[1][:, None, :]  # [B, H, W]
    count = (side + 1) ** 2
    valid = torch.zeros(len(batch), count, dtype=torch.bool, device=device)
    valid.scatter_(1, index.flatten(1), True)
    return Features(f"grid({side}x{side};offset)", batch.map_shape, count, valid, index=index)


@units("windows", title="Overlapping windows")
def windows(
    batch: Batch,
    *,
    sizes: tuple[float, ...] = (1 / 7, 2 / 7, 4 / 7),
    stride: Share = 1 / 28,
) -> Features:
    """Square windows of several sizes on a regular stride; those crossing the border are dropped.

    Sizes and stride are shares of the image's shorter side: the defaults are 32, 64, 128 and 8
    pixels at 224.
    """
    if len(batch.map_shape) != 2:
        raise NotApplicable("Windows exist on images only; these inputs have no height and width.")
    height, width = batch.map_shape
    side = min(height, width)
    step = max(1, round(stride * side))
    boxes = [
        (top, left, top + size, left + size)
        for size in (max(1, round(share * side)) for share in sizes)
        for top in range(0, height - size + 1, step)
        for left in range(0, width - size + 1, step)
    ]
    if not boxes:
        raise InputError(f"Expected window sizes of at most 1 (the shorter side), got {sizes}.")
    device = batch.inputs.device
    everywhere = torch.ones(len(batch), len(boxes), dtype=torch.bool, device=device)
    pixels = ",".join(str(max(1, round(share * side))) for share in sizes)
    return Features(
        f"windows({pixels};{step})",
        batch.map_shape,
        len(boxes),
        everywhere,
        boxes=torch.tensor(boxes, device=device),
    )


@units("parts", title="Painted parts")
def parts(batch: Batch, *, things: bool = False) -> Features:
    """The parts that images are painted of; `things` around the animal are further units.

    A hidden part is a unit without pixels. The body and the scene are never removed.
    """
    of = parts_of(batch, "units `parts`")
    counts = [len(of.names) + (of.things(i) if things else 0) for i in batch.ids]
    count = max(counts)
    owners = torch.tensor([-1, *of.pieces, *range(len(of.names), count)])  # of pieces, from -1
    places = torch.stack([of.places(i) for i in batch.ids])  # [B, H, W]
    known = places + 1 < len(owners)
    index = torch.where(known, owners[torch.where(known, places + 1, 0)], -1)
    valid = torch.arange(count) < torch.tensor(counts)[:, None]
    device = batch.inputs.device
    return Features(
        f"parts(things={things})", batch.map_shape, count, valid.to(device), index=index.to(device)
    )


def parts_of(batch: Batch, who: str) -> Parts:
    """The parts that the images of a batch are painted of.

    Raises:
        NotApplicable: They are not painted of parts.
    """
    if batch.dataset is None or batch.dataset.parts is None:
        raise NotApplicable(
            f"Expected images painted of parts, as in the environment `parts`: no others have "
            f"{who.rstrip(',')}."
        )
    return batch.dataset.parts
