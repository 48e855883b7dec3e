"""Methods that ask the engine: what does the model answer when parts of the input are absent?"""

import functools
import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from assay.engine.engine import engine_of, intervention
from assay.errors import InputError
from assay.methods.gradients import Output
from assay.plugins.registry import Passes, method
from assay.removal import FillChoice, all_absent
from assay.types import Batch, Model
from assay.units.absent import each
from assay.units.features import Features, UnitsChoice, known_count, make_units

Share = Annotated[float, Field(gt=0, lt=1)]
Count = Annotated[int, Field(ge=1)]
Spread = Literal["full", "share"]


def _one_row_a_cell(options: Mapping[str, Any]) -> Passes:
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
    *,
    units: UnitsChoice = "grid",
    fill: FillChoice = "zero",
    output: Output = "logit",
    spread: Spread = "full",
) -> Tensor:
    """What the answer loses when a unit is absent, at all its positions.

    Formula: f(x) - f(x without the unit); where units overlap a position takes their mean.

    `share` divides a unit's loss by its size, so that the map's sum over a unit that overlaps no
    other is the loss.

    Beside the paper: it slides a grey square in small steps and watches the probability; here the
    cells of a grid, zero, the logit. `units: windows` are overlapping squares.
    """
    engine, features = engine_of(model, batch), make_units(batch, units)
    answers = engine.respond(features, each(features), fill).output(output)
    lost = engine.clean.output(output).double() - answers.double()  # [B, P]
    return painted(batch, features, lost, spread)


def painted(batch: Batch, features: Features, values: Tensor, spread: Spread) -> Tensor:
    """The units' values `[B, P]` as a map, each in full at all its positions or shared out."""
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
    *,
    masks: Count = 1000,
    side: Annotated[int, Field(ge=2)] = 8,
    keep: Share = 0.1,
    fill: FillChoice = "zero",
    output: Output = "probability",
    normalise: bool = False,
) -> Tensor:
    """The mean answer under random smooth masks, over those that keep a place.

    Formula: sum_i f(z_i) M_i / (`masks` times `keep`), z_i = M_i x + (1 - M_i) fill.

    A mask is a grid of `side` x `side` cells, each kept with probability `keep`, enlarged
    bilinearly to one cell more than the image and shifted by part of a cell. `normalise` divides
    each place by its own share of masks instead of `keep`.

    Beside the paper: it takes 4000 to 8000 masks of 7 x 7 cells, half of them kept; these are the
    settings of IDSDS. Every sample has masks of its own.
    """
    height, width = batch.map_shape
    if side > min(height, width):
        raise InputError(f"Expected `side` to be at most {min(height, width)} here, got {side}.")
    nothing = all_absent(batch, fill)
    made = _masks(batch, masks, side, keep)

    def place(samples: Tensor, rows: Tensor) -> Tensor:
        mask = made(samples, rows)[:, None]
        return torch.lerp(nothing[samples], batch.inputs[samples], mask)

    answers = engine_of(model, batch).answers(masks, place).output(output).to(batch.dtype)
    everyone = torch.arange(masks, device=batch.inputs.device)
    total = batch.inputs.new_zeros(len(batch), height * width)
    seen = torch.zeros_like(total)
    for part in torch.split(everyone, 64):  # a few masks at a time: all of them are large
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
    *,
    masks: Count = 1000,
    side: Annotated[int, Field(ge=2)] = 8,
    keep: Share = 0.1,
    output: Output = "probability",
    normalise: bool = False,
) -> Tensor:
    """RISE with the same masks over uniform noise in [-1, 1], one fixed field per sample.

    Formula: that of `rise` with a uniform fill.

    Beside the paper: the paper fills with zero; this is RISE-U of IDSDS, which takes one field for
    all images.
    """
    return rise(
        model, batch, masks=masks, side=side, keep=keep, fill="uniform", output=output,
        normalise=normalise,
    )  # fmt: skip


def _masks(
    batch: Batch, masks: int, side: int, keep: float
) -> Callable[[Tensor, Tensor], Tensor]:  # (samples, rows) -> [n, H, W]
    """Each sample's own smooth masks, made from a few random numbers whenever they are needed."""
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
    """The matrix that enlarges `side` values bilinearly to (side + 1) * cell, ends repeated."""
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
