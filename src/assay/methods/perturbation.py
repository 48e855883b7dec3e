"""Methods that compare the model's outputs with and without parts of the input."""

import functools
import math
from collections.abc import Callable
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from assay.engine.engine import Engine, intervention
from assay.errors import InputError
from assay.methods.gradients import Output
from assay.plugins.option_types import Count, InnerShare, Options
from assay.plugins.registry import Passes, method
from assay.removal import FillChoice, all_absent
from assay.types import Batch, Model
from assay.units.absent import each
from assay.units.features import Features, UnitsChoice, known_count, make_units

Spread = Literal["full", "share"]


def _one_row_a_cell(options: Options) -> Passes:
    count = known_count(options["units"])
    return Passes(forward=count, by="units" if count is None else "")


@method(
    "occlusion",
    passes=_one_row_a_cell,
    intervenes=lambda batch, options: intervention(
        batch, options["units"], options["fill"], options["output"]
    ),
    family="perturbation",
    cite="zeiler2014",
    title="Occlusion",
)
def occlusion(
    model: Model,
    batch: Batch,
    engine: Engine,
    *,
    units: UnitsChoice = "grid",
    fill: FillChoice = "zero",
    output: Output = "logit",
    spread: Spread = "full",
) -> Tensor:
    """The drop of the output when a unit is absent, at all its positions.

    Formula: f(x) - f(x without the unit); where units overlap a position takes their mean.

    `share` divides a unit's drop by its size, so that the map's sum over a unit without overlap is
    the drop.

    Differs from the paper: the paper slides a grey square in small steps and reads the probability;
    here units are the cells of a grid, the fill is zero and the logit is read. `units: windows` are
    overlapping squares.
    """
    features = make_units(batch, units)
    answers = engine.respond(features, each(features), fill).output(output)
    lost = engine.clean.output(output).double() - answers.double()  # [B, P]
    return painted(batch, features, lost, spread)


def painted(batch: Batch, features: Features, values: Tensor, spread: Spread) -> Tensor:
    """The units' values `[B, P]` as a map, in full at each position or divided among them."""
    if spread == "share":
        size = features.sum(values.new_ones(len(batch), *batch.map_shape))
        values = values / size.clamp(min=1)
    return features.paint(values).to(batch.dtype)


_rise = functools.partial(
    method,
    needs=["image"],
    passes=lambda options: Passes(forward=options["masks"]),
    intervenes=lambda batch, options: ("soft masks",),
    family="perturbation",
    cite="petsiuk2018",
)


@_rise("rise", title="RISE")
def rise(
    model: Model,
    batch: Batch,
    engine: Engine,
    *,
    masks: Count = 1000,
    side: Annotated[int, Field(ge=2)] = 8,
    keep: InnerShare = 0.1,
    fill: FillChoice = "zero",
    output: Output = "probability",
    normalise: bool = False,
) -> Tensor:
    """The mean output under random smooth masks, weighted by how much they keep a position.

    Formula: sum_i f(z_i) M_i / (`masks` times `keep`), z_i = M_i x + (1 - M_i) fill.

    A mask is a grid of `side` x `side` cells, each kept with probability `keep`, enlarged
    bilinearly to one cell more than the image and shifted by part of a cell. `normalise` divides
    each position by its own share of masks instead of `keep`.

    If the network is sure of another class under every mask, all probabilities may be 0 in single
    precision. The map is then constant; a larger `keep` shows more of the image.

    Differs from the paper: the paper uses 4000 to 8000 masks of 7 x 7 cells, half of them kept;
    these are the settings of IDSDS. Every sample has its own masks.
    """
    height, width = batch.map_shape
    if side > min(height, width):
        raise InputError(
            f"Expected `side` to be at most {min(height, width)} on these images, got {side}."
        )
    nothing = all_absent(batch, fill)
    made = _masks(batch, masks, side, keep)

    def place(samples: Tensor, rows: Tensor) -> Tensor:
        mask = made(samples, rows)[:, None]
        return torch.lerp(nothing[samples], batch.inputs[samples], mask)

    answers = engine.answers(masks, place).output(output).to(batch.dtype)
    everyone = torch.arange(masks, device=batch.inputs.device)
    total = batch.inputs.new_zeros(len(batch), height * width)
    seen = torch.zeros_like(total)
    for part in torch.split(everyone, 64):  # a few masks at a time, to save memory
        for b in range(len(batch)):
            some = made(torch.full_like(part, b), part).flatten(1)  # [n, H W]
            total[b] += answers[b, part] @ some
            seen[b] += some.sum(0)
    divisor = torch.where(seen > 0, seen, 1.0) if normalise else masks * keep
    return (total / divisor).reshape(-1, height, width)


@_rise("rise_uniform", title="RISE, uniform fill")
def rise_uniform(
    model: Model,
    batch: Batch,
    engine: Engine,
    *,
    masks: Count = 1000,
    side: Annotated[int, Field(ge=2)] = 8,
    keep: InnerShare = 0.1,
    output: Output = "probability",
    normalise: bool = False,
) -> Tensor:
    """RISE with the same masks over uniform noise in [-1, 1], one fixed field per sample.

    Formula: that of `rise` with a uniform fill.

    Differs from the paper: the paper fills with zero; this is RISE-U of IDSDS, which uses one field
    for all images.
    """
    return rise(
        model, batch, engine, masks=masks, side=side, keep=keep, fill="uniform", output=output,
        normalise=normalise,
    )  # fmt: skip


def _masks(
    batch: Batch, masks: int, side: int, keep: float
) -> Callable[[Tensor, Tensor], Tensor]:  # (samples, rows) -> [n, H, W]
    """Each sample's own smooth masks, made from a few random numbers on demand."""
    device = batch.inputs.device
    cells = (batch.draw(f"rise {side}", (masks, side, side)) < keep).to(batch.dtype)
    shift = batch.draw(f"rise shift {side}", (masks, 2))
    axes = []
    for axis, length in enumerate(batch.map_shape):
        cell = math.ceil(length / side)
        offset = (shift[..., axis] * cell).long()  # [B, masks]
        axes.append((_enlargement(side, cell).to(device, batch.dtype), offset, length))

    def make(samples: Tensor, rows: Tensor) -> Tensor:
        mask = cells[samples, rows]  # [n, side, side]
        sides = []
        for weights, offset, length in axes:
            window = offset[samples, rows][:, None] + torch.arange(length, device=device)
            sides.append(weights[window])  # [n, length, side]
        return sides[0] @ mask @ sides[1].transpose(1, 2)

    return make


def _enlargement(side: int, cell: int) -> Tensor:  # [(side + 1) cell, side]
    """The matrix that enlarges `side` values bilinearly to (side + 1) * cell, repeating ends."""
    length = (side + 1) * cell
    where = ((torch.arange(length, dtype=torch.float64) + 0.5) * side / length - 0.5).clamp(
        0, side - 1
    )
    low = where.floor().long().clamp(max=side - 2)
    part = (where - low).float()
    weights = torch.zeros(length, side)
    weights[torch.arange(length), low] = 1 - part
    weights[torch.arange(length), low + 1] = part
    return weights
