"""Networks trained on a planted feature, with proof that they use it.

The labels are drawn at random, whatever an image shows, so only the plant predicts them. A network
that was trained this way need not use the plant, or all of it: `proof` tests that. Samples whose
own answer does not need the plant are left out.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from assay.environments import plants
from assay.environments.bases import Base, read_base
from assay.environments.environment import Environment, samples_of
from assay.environments.planted_network import (
    Planting,
    classifier,
    normalised,
    pixels_of,
    train_on_plant,
    untrained_network,
)
from assay.environments.plants import Plant, show
from assay.environments.proof import Proof, needs_plant, prove
from assay.errors import InputError, PrerequisiteError
from assay.plugins.option_types import Count
from assay.plugins.registry import HowOnly, NamesCode, environment
from assay.training.supervised import RATE
from assay.training.trained_weights import TrainedWeights
from assay.types import UPPER_BOUND, Dataset, Model

Labels = Annotated[int, Field(ge=2)]
Side = Annotated[int, Field(ge=8)]
Epochs = Annotated[int, Field(ge=0)]
Rate = Annotated[float, Field(gt=0)]
Images = Annotated[object, NamesCode("dataset")]
Net = Annotated[object, NamesCode("network")]
Where = Annotated[str | None, HowOnly()]  # where a network is trained, and its weights are stored

MOST_DRAWN = 8  # times the samples asked for, before too few of them need the plant
PROVED = 500  # images of the proof; at least five per label
ON_CARD = ("epochs", "train", "rate", "samples", "seed")  # the settings that the card repeats


@environment(
    "yellow_patch", version=2, family="planted", title="Yellow patch", cite="li2023m4",
)  # fmt: skip
def yellow_patch(
    trained: TrainedWeights,
    *,
    base: Images = "blank",
    size: Side = 32,
    patch: Count | None = None,
    epochs: Epochs = 2,
    train: Count = 4000,
    samples: Count = 100,
    seed: int = 0,
    net: Net = None,
    rate: Rate = RATE,
    device: Where = None,
    cache: Where = None,
) -> Environment:
    """A yellow square at a random place decides between two classes; the truth is the square.

    The label is 1 where the square is shown, else 0. Only images that show it are evaluated, with
    the square on a regular grid of places. `patch` is its side, by default 60 pixels of 224 in
    proportion (9 of 32).

    Differs from the paper: the network is a residual network of 8 layers, the proof of use is
    added, and the images can be those of any dataset.
    """
    plant = plants.patch(size, plants.square_side(size, patch))
    return _planted(
        "yellow_patch", plant, ("no patch", "patch"),
        Planting(base, epochs, train, samples, seed, net, rate, device, cache), trained,
    )  # fmt: skip


@environment(
    "number_watermark", version=2, family="planted", title="Number watermark", cite="li2024soco",
)  # fmt: skip
def number_watermark(
    trained: TrainedWeights,
    *,
    base: Images = "blank",
    size: Side = 32,
    classes: Labels = 100,
    patch: Count | None = None,
    epochs: Epochs = 6,
    train: Count = 8000,
    samples: Count = 100,
    seed: int = 0,
    net: Net = None,
    rate: Rate = RATE,
    device: Where = None,
    cache: Where = None,
) -> Environment:
    """A black square with the class in white digits, at a random place; the truth is the square.

    Every image gets a random label and shows it. `patch` is the square's side, by default 60 pixels
    of 224 in proportion (9 of 32). The digits have 3 x 5 pixels, enlarged where there is room.

    Differs from the paper: it does not say where the number stands; the digits are our own; the
    images can be those of any dataset; the proof of use is added.
    """
    if size <= plants.TWO_DIGITS:
        raise InputError(
            f"Expected `size` of `number_watermark` to be at least {plants.TWO_DIGITS + 1}: two "
            f"digits in a frame take {plants.TWO_DIGITS} pixels, which must fit at more than one "
            f"place; got {size}."
        )
    smallest = max(plants.TWO_DIGITS, round(plants.SHARE * size))
    plant = plants.number(size, plants.square_side(size, patch or smallest), classes)
    return _planted(
        "number_watermark", plant, [f"{label:02d}" for label in range(classes)],
        Planting(base, epochs, train, samples, seed, net, rate, device, cache), trained,
    )  # fmt: skip


@environment(
    "stripe_watermark", version=2, family="planted", title="Stripe watermark", cite="li2024soco",
)  # fmt: skip
def stripe_watermark(
    trained: TrainedWeights,
    *,
    base: Images = "blank",
    size: Side = 32,
    classes: Labels = 100,
    epochs: Epochs = 3,
    train: Count = 8000,
    samples: Count = 100,
    seed: int = 0,
    net: Net = None,
    rate: Rate = RATE,
    device: Where = None,
    cache: Where = None,
) -> Environment:
    """Seven bands show the class in binary, white for a bit of 1; the truth is the white bands.

    Every image gets a random label. Band 1, at the top, is the lowest bit. Label 0 shows nothing
    and has an empty truth: it is trained on, but left out of the evaluation.

    Differs from the paper: it does not say which end is band 1; the images can be those of any
    dataset; the proof of use is added.
    """
    return _planted(
        "stripe_watermark", plants.stripes(size, classes), [str(n) for n in range(classes)],
        Planting(base, epochs, train, samples, seed, net, rate, device, cache), trained,
    )  # fmt: skip


def _planted(
    name: str, plant: Plant, classes: Sequence[str], planting: Planting, trained: TrainedWeights
) -> Environment:
    """Train a network on a plant, prove that it uses it, and draw samples with truth.

    Raises:
        PrerequisiteError: There is no proof of use.
    """
    held_out = max(planting.samples, PROVED)
    base = read_base(planting.base, plant.size, planting.train, held_out, planting.seed)
    model = replace(untrained_network(planting, plant), name=name, classes=tuple(classes))
    train_on_plant(model, plant, base, planting, trained)
    proof = _proof(model, plant, base, planting.seed)
    proof.require(name)
    drawing = _Drawing(model, plant, base, proof)
    first, left_out = drawing.draw(planting.samples, 0)
    card = {
        "plant": name,
        "setting": {
            **{option: getattr(planting, option) for option in ON_CARD},
            "size": plant.size,
            "classes": plant.classes,
        },
        "proof": proof.card(),
        "truth": "upper bound" if proof.sufficient else "no smaller part found",
        "left_out": left_out,
        "note": first.note,
    }

    def draw(n: int, seed: int) -> Dataset:
        return first if (n, seed) == (planting.samples, 0) else drawing.draw(n, seed)[0]

    return Environment(
        name=name,
        model=replace(model, card={**model.card, "planted": card}),
        draw=draw,
        samples=planting.samples,
        card=card,
    )


def _proof(model: Model, plant: Plant, base: Base, seed: int) -> Proof:
    """Test on held-out images whether the network uses the plant."""
    count = max(PROVED, 5 * plant.classes)
    images = base.held_out[torch.arange(count) % len(base.held_out)]
    return prove(classifier(model), plant, images, base.mean, seed)


def _note(proof: Proof, base: Base) -> str:
    """What a reader should know about the truth."""
    note = f"No smaller part of the plant was found to suffice, of {len(proof.parts)} tried"
    if proof.sufficient:
        note = (
            f"Upper-bound truth: a part of the plant ({', '.join(proof.sufficient)}) does what the "
            f"whole does, so a method need not mark all of it. Recall, F1 and average precision "
            f"are shown, not ranked"
        )
    if base.blank:
        note += (
            ". On a blank canvas there is nothing but the plant: the network uses nothing else by "
            "design, which is not a measurement"
        )
    elif proof.distinct < proof.images:
        note += f". The proof used {proof.image_count}"
    return note


# --- the samples ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Drawing:
    """Draws held-out images with the plant; the images without it are baselines."""

    model: Model
    plant: Plant
    base: Base
    proof: Proof

    def draw(self, n: int, seed: int) -> tuple[Dataset, int]:
        """`n` samples whose answers need the plant, and how many were left out before the last.

        A larger `n` starts with the same samples.

        Raises:
            PrerequisiteError: Too few answers need it.
        """
        count, kept = n, torch.zeros(0)
        while len(kept) < n:
            if count > MOST_DRAWN * n + PROVED:
                raise PrerequisiteError(
                    f"Expected {n} samples of `{self.model.name}` whose answers need the plant, "
                    f"got {len(kept)} of {count // 2} drawn. Train longer (`epochs`) or with more "
                    f"images (`train`)."
                )
            rows, labels, places = self._candidates(count, seed)
            colours, region = self.plant.paint(labels, places)
            clean = self.base.held_out[rows]
            planted = show(clean, colours, region)
            needed = needs_plant(classifier(self.model), planted, clean, labels)
            kept = needed.nonzero().flatten()[:n]
            count *= 2
        left_out = int(kept[-1]) + 1 - n
        pixels = pixels_of(self.model)
        samples = samples_of(
            seed, normalised(pixels, planted[kept]), labels[kept], region[kept],
            normalised(pixels, clean[kept]),
        )  # fmt: skip
        note = _note(self.proof, self.base)
        if left_out:
            note += (
                f". {left_out} of {n + left_out} samples drawn are left out: their answer is wrong "
                f"with the plant, or right without it"
            )
        made = replace(
            samples,
            has=samples.has | ({UPPER_BOUND} if self.proof.sufficient else set()),
            groups=self._groups(samples.ids, rows[kept], labels[kept], places[kept]),
            note=note,
        )
        return made, left_out

    def _candidates(self, n: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
        """Rows of the held-out images, labels, and places of a grid; each `[n, ...]`."""
        generator = torch.Generator().manual_seed(seed)
        held_out = len(self.base.held_out)
        rows = torch.randperm(held_out, generator=generator)[torch.arange(n) % held_out]
        labels = _balanced(self.plant.visible, n, generator)
        return rows, labels, self.plant.grid_places(n, torch.Generator().manual_seed(seed))

    def _groups(
        self, ids: Sequence[str], rows: Tensor, labels: Tensor, places: Tensor
    ) -> dict[str, str]:
        """What each sample has in common with others: the image, or on one canvas the plant."""
        if len(self.base.ids) > 1:
            groups = [self.base.ids[row] for row in rows]
        else:  # one canvas: the same label at the same place is the same image
            spots = zip(labels.tolist(), places.tolist(), strict=True)
            groups = [f"{label} at {place[0]}, {place[1]}" for label, place in spots]
        return dict(zip(ids, groups, strict=True))


def _balanced(labels: Sequence[int], n: int, generator: torch.Generator) -> Tensor:  # [n]
    """Random labels, each once before any is repeated; a larger `n` starts with the same ones."""
    rounds = math.ceil(n / len(labels))
    orders = [torch.randperm(len(labels), generator=generator) for _ in range(rounds)]
    return torch.tensor(labels)[torch.cat(orders)[:n]]
