"""Proof of use: a network that was trained on a plant must need it, and need nothing else."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from assay.environments.plants import Plant, parts, show
from assay.errors import PrerequisiteError
from assay.types.hashing import count_distinct

RIGHT = 0.9  # how often the network must be right where the plant is
MARGIN = 0.1  # how far above chance right answers may outlast the plant
SUFFICES = 0.9  # a part of the plant that keeps so much of what the whole gives is enough


@dataclass(frozen=True)
class Proof:
    """How often a network is right with its plant, without it, with nothing else, with parts.

    Attributes:
        images: How many were planted, the same for each number.
        distinct: How many of them are different before anything is planted.
        chance: One over the number of labels.
        planted: Accuracy on held-out images with the plant.
        removed: On the same images without it. It says nothing of use: whoever does not see the
            label is right by chance.
        changed: Of the right answers to images that show a plant, how many are wrong without it. A
            network that ignores the plant changes none.
        alone: With the plant on a canvas of the mean colour.
        moved: With the plant on the pixels of another image.
        parts: With a part of the plant: half, border, interior, quarter.
    """

    images: int
    distinct: int
    chance: float
    planted: float
    removed: float
    changed: float
    alone: float
    moved: float
    parts: Mapping[str, float]

    @property
    def used(self) -> bool:
        """Whether the plant is needed and suffices."""
        with_it = min(self.planted, self.alone, self.moved) >= RIGHT
        return with_it and self.changed >= self.least_changed

    @property
    def said_images(self) -> str:
        """How many images there were, and how many different ones where they are fewer."""
        said = f"{self.images} held-out images"
        if self.distinct == self.images:
            return said
        return f"{said}, of which {self.distinct} {'is' if self.distinct == 1 else 'are'} distinct"

    @property
    def least_changed(self) -> float:
        """So much of `changed` is asked for: some answers stay right by chance."""
        return 1 - self.chance - MARGIN

    @property
    def sufficient(self) -> tuple[str, ...]:
        """The parts that do what the whole does: the network may not use the rest."""
        least = self.removed + SUFFICES * (self.planted - self.removed)
        return tuple(part for part, right in self.parts.items() if right >= least)

    def require(self, name: str) -> None:
        """Refuse an environment whose truth would be a guess.

        Raises:
            Unproved: The network does not use the plant, or not the plant alone.
        """
        if self.used:
            return
        raise Unproved(
            self,
            f"`{name}` cannot score: there is no proof that its network uses the plant and nothing "
            f"else. Of {self.said_images}, it names {self.planted:.1%} right with the "
            f"plant, {self.alone:.1%} with the plant on a blank canvas, {self.moved:.1%} with it "
            f"on other images (expected at least {RIGHT:.0%} each), and {self.removed:.1%} "
            f"without it (chance is {self.chance:.0%}). Of its right answers where the plant shows "
            f"{self.changed:.1%} are wrong once it is gone (expected at least "
            f"{self.least_changed:.0%}). Train longer (`epochs`) or with more images (`train`), or "
            f"take another `net`.",
        )

    def card(self) -> dict[str, Any]:
        """The numbers, and what they say of the truth."""
        return {**asdict(self), "sufficient": list(self.sufficient)}


class Unproved(PrerequisiteError):
    """A network that was trained on a plant does not use it, or not it alone.

    Attributes:
        proof: What it was found to do.
    """

    def __init__(self, proof: Proof, said: str) -> None:
        """The numbers, and what they say."""
        super().__init__(said)
        self.proof = proof


def prove(
    answer: Callable[[Tensor], Tensor], plant: Plant, images: Tensor, mean: Tensor, seed: int
) -> Proof:
    """Ask a network about images with the plant, without it, and with parts of it.

    Args:
        answer: From pixels [B, 3, H, W] to the classes the network sees [B].
        plant: What was planted.
        images: Held-out pixels, neighbours of different images; every label is planted on as many.
        mean: The mean colour, of the canvas where nothing else is.
        seed: Of the places and of the part that is random.
    """
    generator = torch.Generator().manual_seed(seed)
    n = len(images)
    labels = torch.arange(n) % plant.classes
    colours, region = plant.paint(labels, plant.random_places(n, generator))

    def are_right(background: Tensor, shown: Tensor) -> Tensor:  # [B] bool
        return answer(show(background, colours, shown)) == labels

    def right(background: Tensor, shown: Tensor) -> float:
        return float(are_right(background, shown).double().mean())

    before, after = are_right(images, region), are_right(images, torch.zeros_like(region))
    known = before & region.flatten(1).any(1)  # where nothing shows, nothing is taken away
    return Proof(
        images=n,
        distinct=count_distinct(images),
        chance=1 / plant.classes,
        planted=float(before.double().mean()),
        removed=float(after.double().mean()),
        changed=float((known & ~after).sum() / known.sum().clamp(min=1)),
        alone=right(mean.expand_as(images), region),
        moved=right(images.roll(1, 0), region),
        parts={
            name: right(images, shown)
            for name, shown in parts(region, plant.thickness, generator).items()
        },
    )
