"""The tasks: pairs of classes with images of their own, and halves of the ImageNet sample."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from assay.environments.parts import class_table, draw
from assay.errors import PrerequisiteError
from assay.plan.resolving import build_one
from assay.studies.metarank.digits import read_digits
from assay.types import Dataset, Pixels, Sample

PAIRS = ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))
SOURCES = ("cifar10", "mnist", "parts", "imagenet")
DEVELOPMENT = 5000  # the first test images of CIFAR-10 and of MNIST
SIDE = 32  # pixels of CIFAR-10 and of painted animals
ANIMALS = 398  # the first rows of the ImageNet sample


@dataclass(frozen=True, eq=False)
class TaskImages:
    """TaskImages of 8 bits `[N, C, H, W]` and their classes, 0 or 1, `[N]`."""

    images: Tensor
    labels: Tensor

    def first(self, n: int) -> TaskImages:
        """The first n images, half of each class."""
        rows = torch.cat([(self.labels == c).nonzero().flatten()[: n // 2] for c in (0, 1)])
        rows = rows.sort().values
        return TaskImages(self.images[rows], self.labels[rows])


@dataclass(frozen=True, eq=False)
class Task:
    """Two classes, their training images and their test images.

    Attributes:
        name: Its name.
        source: Where its images come from.
        training: The training images.
        testing: The test images.
        mirrored: Whether training images are moved and mirrored.
    """

    name: str
    source: str
    training: TaskImages
    testing: TaskImages
    mirrored: bool

    @functools.cached_property
    def pixels(self) -> Pixels:
        """Mean and deviation of the training images, per channel."""
        values = self.training.images.double() / 255
        mean, std = values.mean((0, 2, 3)), values.std((0, 2, 3))
        return Pixels(tuple(mean.tolist()), tuple(std.tolist()))

    def inputs(self, images: Tensor) -> Tensor:
        """TaskImages of 8 bits as the networks take them."""
        mean, std = (torch.tensor(v)[:, None, None] for v in (self.pixels.mean, self.pixels.std))
        return ((images.float() / 255 - mean) / std).float()

    def dataset(self, n: int) -> Dataset:
        """The first n test images, half of each class."""
        chosen = self.testing.first(n)
        inputs, labels = self.inputs(chosen.images), chosen.labels.tolist()
        ids = tuple(f"{row:04d}" for row in range(len(inputs)))
        digest = hashlib.sha256(self.name.encode())
        for part in (inputs, chosen.labels):
            digest.update(part.numpy().tobytes())
        return Dataset(
            self.name, "image", ids,
            lambda sample: Sample(inputs[int(sample)].clone(), labels[int(sample)]),
            digest.hexdigest(), labels=dict(zip(ids, labels, strict=True)),
        )  # fmt: skip


def cifar_tasks(data: Path) -> Iterator[Task]:
    """Five pairs of classes of CIFAR-10."""
    folder = data / "cifar10"
    training = _decoded(folder / "cifar10_train_first10k_lossless.parquet")
    testing = _decoded(folder / "cifar10_test_lossless.parquet", DEVELOPMENT)
    yield from _pairs("cifar10", training, testing, mirrored=True)


def digit_tasks(folder: Path) -> Iterator[Task]:
    """Five pairs of digits, from the files of MNIST."""
    training, testing = (TaskImages(*read_digits(folder, part)) for part in ("train", "t10k"))
    testing = TaskImages(testing.images[:DEVELOPMENT], testing.labels[:DEVELOPMENT])
    yield from _pairs("mnist", training, testing, mirrored=False)


def painted_tasks(training: int, testing: int) -> Iterator[Task]:
    """Two pairs of painted animals; each is painted anew for training and for the test."""
    for number, classes in enumerate(((0, 1), (2, 3))):
        table = class_table()[list(classes)]
        known = _stacked(draw(table, SIDE, training, 10 + number))
        tested = _stacked(draw(table, SIDE, 3 * testing, 20 + number))
        yield Task(f"parts{classes[0]}{classes[1]}", "parts", known, tested, mirrored=False)


def imagenet_halves(data: Path, n: int) -> Iterator[Dataset]:
    """Animals and objects of the ImageNet sample, n images each, evenly among its even rows."""
    path = data / "imagenet-sample" / "imagenet_sample_1000.parquet"
    dataset: Dataset = build_one("dataset", {"parquet": {"path": str(path)}})
    for name, rows in (("animals", (0, ANIMALS)), ("objects", (ANIMALS, 1000))):
        even = dataset.ids[rows[0] : rows[1] : 2]
        ids = tuple(even[place * len(even) // n] for place in range(n))
        mark = hashlib.sha256(f"{dataset.fingerprint} {ids}".encode()).hexdigest()
        labels = {one: dataset.labels[one] for one in ids}
        yield replace(dataset, name=name, ids=ids, fingerprint=mark, labels=labels)


def _pairs(
    source: str, training: TaskImages, testing: TaskImages, mirrored: bool
) -> Iterator[Task]:
    for pair in PAIRS:
        name = f"{source}-{pair[0]}{pair[1]}"
        yield Task(name, source, _of(training, pair), _of(testing, pair), mirrored)


def _of(images: TaskImages, pair: Sequence[int]) -> TaskImages:
    """The images of two classes, which become 0 and 1."""
    rows = ((images.labels == pair[0]) | (images.labels == pair[1])).nonzero().flatten()
    return TaskImages(images.images[rows], (images.labels[rows] == pair[1]).long())


def _decoded(path: Path, most: int | None = None) -> TaskImages:
    if not path.is_file():
        raise PrerequisiteError(
            f"Expected a file `{path}`, found none. Pass the folder that holds `cifar10/` with "
            f"`--data`."
        )
    dataset: Dataset = build_one("dataset", {"parquet": {"path": str(path)}})
    return _stacked(replace(dataset, ids=dataset.ids[:most]))


def _stacked(dataset: Dataset) -> TaskImages:
    """All samples of a dataset as 8-bit images."""
    samples = [dataset.fetch(name) for name in dataset.ids]
    images = torch.stack([_eight_bits(sample.input) for sample in samples])
    return TaskImages(images, torch.tensor([sample.label for sample in samples]))


def _eight_bits(image: Image.Image | Tensor | str) -> Tensor:  # [C, H, W]
    if isinstance(image, Tensor):
        return (image * 255).round().to(torch.uint8)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)
