"""How alike two networks are, and how right each is without one cell of an image."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from assay.errors import NotApplicable
from assay.methods.cam import activations
from assay.models.prepare import Prepared, choose_micro_batch, prepare_network
from assay.progress import bar
from assay.removal import FillChoice, make_removal
from assay.training.fitting import normalised
from assay.training.labelled import Labelled
from assay.types import Batch, Model
from assay.units.features import grid as grid_cells

TOP = 10  # samples that activate a channel most


@dataclass(frozen=True, eq=False)
class Measured:
    """The answers of one network on the measured samples."""

    probability: Tensor  # [N] of the label
    right: Tensor  # [N] of the whole image
    all_right: Tensor  # [N] without each of the cells
    lowest_right: Tensor  # [N] without the cell that leaves the label's logit lowest
    maps: Tensor | None  # [N, h, w] Grad-CAM from 0 to 1; None without a spatial layer
    channels: Tensor | None  # [N, C] the highest activation of each channel of that layer

    @property
    def accuracy(self) -> float:
        """The share of whole images that are classified correctly."""
        return _share(self.right)

    @property
    def worst_patch(self) -> float:
        """The share that is classified correctly without each of the cells."""
        return _share(self.all_right)

    @property
    def lowest_patch(self) -> float:
        """The share that is classified correctly without the cell that costs most."""
        return _share(self.lowest_right)


@dataclass(frozen=True)
class Distance:
    """How far two networks are from each other."""

    mad_softmax: float
    mad_gradcam: float | None
    overlap: float | None


def measure_network(
    model: Model,
    samples: Labelled,
    grid: int,
    fill: FillChoice,
    *,
    what: str = "measuring",
    progress: bool = True,
) -> Measured:
    """Measure a network on whole images and without each cell, in full precision."""
    parts: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
    spatial: list[tuple[Tensor, Tensor]] | None = []
    first = normalised(model, samples.inputs[:1].to(model.device))
    size = choose_micro_batch(first)
    with model.evaluating(), bar(what, len(samples), progress) as done:
        with torch.no_grad():
            ready = prepare_network(replace(model, observed=None, micro_batch=size), first)
        for batch in samples.batches(model, size):
            with torch.no_grad():
                parts.append(_answers(ready, batch, grid, fill))
            spatial = None if spatial is None else _seen(ready.model, batch, spatial)
            done(len(batch))
    joined = [torch.cat(column).cpu() for column in zip(*parts, strict=True)]
    seen = [torch.cat(column).cpu() for column in zip(*spatial, strict=True)] if spatial else None
    return Measured(
        joined[0], joined[1], joined[2], joined[3],
        None if seen is None else seen[0],
        None if seen is None else seen[1],
    )  # fmt: skip


def distance(one: Measured, other: Measured) -> Distance:
    """The mean absolute differences of two networks, and the overlap of their top samples."""
    maps = None
    if one.maps is not None and other.maps is not None and one.maps.shape == other.maps.shape:
        maps = (one.maps - other.maps).abs().mean().item()
    return Distance(
        (one.probability - other.probability).abs().mean().item(),
        maps,
        None
        if one.channels is None or other.channels is None
        else top_overlap(one.channels, other.channels),
    )


def top_overlap(one: Tensor, other: Tensor, top: int = TOP) -> float | None:
    """The mean Jaccard index, over channels, of the samples that activate a channel most.

    Args:
        one: Activations `[N, C]` of the channels of one network.
        other: Those of the other network on the same samples.
        top: The size of the sets.

    Returns:
        None if the networks differ in their channels, if there are fewer than twice `top` samples,
        or if every channel is constant in one of the networks.
    """
    if one.shape != other.shape or len(one) < 2 * top:
        return None
    live = (one.amax(0) > one.amin(0)) & (other.amax(0) > other.amin(0))
    if not bool(live.any()):
        return None
    sets = []
    for values in (one[:, live], other[:, live]):
        marks = torch.zeros_like(values, dtype=torch.bool)
        order = values.argsort(dim=0, descending=True, stable=True)[:top]
        sets.append(marks.scatter_(0, order, True))
    both, either = (sets[0] & sets[1]).sum(0), (sets[0] | sets[1]).sum(0)
    return (both / either).mean().item()


def _answers(
    ready: Prepared, batch: Batch, grid: int, fill: FillChoice
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The label's probability, and whether a sample is right whole, always, at its lowest."""
    at = batch.targets[:, None]
    logits = ready.forward(batch.inputs)
    probability = ready.model.log_probs(logits).exp().gather(1, at)[:, 0]
    right = logits.argmax(1) == batch.targets
    units = grid_cells(batch, side=grid)
    remove = make_removal(batch, fill)
    rows = torch.arange(len(batch), device=batch.inputs.device)
    always = torch.ones_like(right)
    lowest, at_lowest = torch.full_like(probability, torch.inf), torch.zeros_like(right)
    for cell in range(units.count):
        absent = torch.zeros_like(units.valid)
        absent[:, cell] = True
        logits = ready.forward(remove(units, absent, rows))
        correct = logits.argmax(1) == batch.targets
        always &= correct
        own = logits.gather(1, at)[:, 0]
        at_lowest = torch.where(own < lowest, correct, at_lowest)
        lowest = torch.minimum(own, lowest)
    return probability, right, always, at_lowest


def _seen(
    model: Model, batch: Batch, before: list[tuple[Tensor, Tensor]]
) -> list[tuple[Tensor, Tensor]] | None:
    """What the last spatial layer shows, added to that of earlier batches; None without one."""
    try:
        for activation, gradient in activations(model, batch, None, "logit"):
            coarse = functional.relu((gradient.mean((2, 3), keepdim=True) * activation).sum(1))
            low, high = coarse.amin((1, 2), keepdim=True), coarse.amax((1, 2), keepdim=True)
            maps = (coarse - low) / (high - low + 1e-8)
            before.append((maps, activation.amax((2, 3))))
    except NotApplicable:
        return None
    return before


def _share(marks: Tensor) -> float:
    return marks.double().mean().item()
