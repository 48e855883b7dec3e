"""Proof of use: a network that was trained on a plant must need it, and nothing else.

A part of the plant may be all that the network needs. Parts of many shapes are tried; that none of
them suffices does not show that no part does.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace

import torch
from torch import Tensor

from assay.environments.plants import Plant, blocks, parts, show
from assay.errors import PrerequisiteError
from assay.types.hashing import count_distinct

RIGHT = 0.9  # the accuracy that is required where the plant is shown
MARGIN = 0.1  # how much more often than by chance an answer may stay right without the plant
BLOCKS = (0.6, 0.7, 0.8, 0.9)  # the shares of a plant's pixels in larger parts
SUFFICES = 0.9  # a part that keeps this share of the accuracy that the whole plant adds suffices


@dataclass(frozen=True)
class Proof:
    """A network's accuracy with its plant, without it, with nothing else, and with parts of it.

    Attributes:
        images: The number of images, the same for every accuracy.
        distinct: How many of them differ before anything is planted.
        chance: One over the number of labels.
        planted: Accuracy on held-out images with the plant.
        removed: Accuracy on the same images without it. It does not prove use: a network that does
            not see the label is right by chance.
        changed: Of the right answers to images that show a plant, the share that is wrong without
            it. A network that ignores the plant changes none.
        alone: Accuracy with the plant on a canvas of the mean colour.
        moved: Accuracy with the plant on another image.
        parts: Accuracy with a part of the plant: halves, border, interior, quarter. Where none of
            them suffices, also blocks of 60 to 90 % of it, up to the first share that does.
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
        """Whether the plant is necessary and sufficient."""
        with_it = min(self.planted, self.alone, self.moved) >= RIGHT
        return with_it and self.changed >= self.least_changed

    @property
    def image_count(self) -> str:
        """The number of images, and of distinct ones where these are fewer."""
        count = f"{self.images} held-out images"
        if self.distinct == self.images:
            return count
        return f"{count}, of which {self.distinct} {'is' if self.distinct == 1 else 'are'} distinct"

    @property
    def least_changed(self) -> float:
        """The required value of `changed`: below 1, because some answers stay right by chance."""
        return 1 - self.chance - MARGIN

    @property
    def sufficient(self) -> tuple[str, ...]:
        """The parts that do as well as the whole plant: the network may not use the rest."""
        least = self.removed + SUFFICES * (self.planted - self.removed)
        return tuple(part for part, right in self.parts.items() if right >= least)

    def require(self, name: str) -> None:
        """Refuse an environment whose truth is not proved.

        Raises:
            Unproved: The network does not use the plant, or not the plant alone.
        """
        if self.used:
            return
        raise Unproved(
            self,
            f"`{name}` cannot be used: there is no proof that its network uses the plant and "
            f"nothing else. Of {self.image_count}, it classifies {self.planted:.1%} correctly with "
            f"the plant, {self.alone:.1%} with the plant on a blank canvas, {self.moved:.1%} with "
            f"the plant on other images (expected at least {RIGHT:.0%} each), and "
            f"{self.removed:.1%} without it (chance is {self.chance:.0%}). Of its correct answers "
            f"where the plant is shown, {self.changed:.1%} are wrong without it (expected at least "
            f"{self.least_changed:.0%}). Train longer (`epochs`) or with more images (`train`), or "
            f"use another `net`.",
        )

    def card(self) -> dict[str, object]:
        """The numbers, and the parts that suffice."""
        return {**asdict(self), "sufficient": list(self.sufficient)}


class Unproved(PrerequisiteError):
    """A network that was trained on a plant does not use it, or uses something else too.

    Attributes:
        proof: What was measured.
    """

    def __init__(self, proof: Proof, message: str) -> None:
        """The measurements, and the message."""
        super().__init__(message)
        self.proof = proof


def prove(
    answer: Callable[[Tensor], Tensor], plant: Plant, images: Tensor, mean: Tensor, seed: int
) -> Proof:
    """Measure a network's accuracy with the plant, without it, and with parts of it.

    Args:
        answer: From pixels `[B, 3, H, W]` to the predicted classes `[B]`.
        plant: What was planted.
        images: Held-out pixels; every label is planted on the same number of them. Neighbouring
            images must differ, because the plant is also shown on the neighbour.
        mean: The mean colour, for the canvas that shows the plant alone.
        seed: The seed of the places and of the random part.
    """
    generator = torch.Generator().manual_seed(seed)
    n = len(images)
    labels = torch.arange(n) % plant.classes
    colours, region = plant.paint(labels, plant.random_places(n, generator))

    def are_right(background: Tensor, shown: Tensor) -> Tensor:  # [B] bool
        return answer(show(background, colours, shown)) == labels

    def right(background: Tensor, shown: Tensor) -> float:
        return float(are_right(background, shown).double().mean())

    def accuracies(some: Mapping[str, Tensor]) -> dict[str, float]:
        return {name: right(images, shown) for name, shown in some.items()}

    before, after = are_right(images, region), are_right(images, torch.zeros_like(region))
    known = before & region.flatten(1).any(1)  # right, and there is something to remove
    proof = Proof(
        images=n,
        distinct=count_distinct(images),
        chance=1 / plant.classes,
        planted=float(before.double().mean()),
        removed=float(after.double().mean()),
        changed=float((known & ~after).sum() / known.sum().clamp(min=1)),
        alone=right(mean.expand_as(images), region),
        moved=right(images.roll(1, 0), region),
        parts=accuracies(parts(region, plant.thickness, generator)),
    )
    for share in BLOCKS:
        if proof.used and not proof.sufficient:
            larger = accuracies(blocks(region, share))
            proof = replace(proof, parts={**proof.parts, **larger})
    return proof


def needs_plant(
    answer: Callable[[Tensor], Tensor], planted: Tensor, clean: Tensor, labels: Tensor
) -> Tensor:  # [B] bool
    """Whether each answer needs its plant: it is right with the plant and wrong without it.

    Args:
        answer: From pixels `[B, 3, H, W]` to the predicted classes `[B]`.
        planted: Images that show a plant.
        clean: The same images without it.
        labels: The labels that the plants show.
    """
    return (answer(planted) == labels) & (answer(clean) != labels)
