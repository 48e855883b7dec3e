"""The small residual network of SoCo's experiments with training, trained on CIFAR-10."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from assay.errors import InputError, PrerequisiteError
from assay.models.cifar_resnet import BasicBlock
from assay.plan.resolving import build_one
from assay.plugins import registry
from assay.studies.soco import masks as soco_masks
from assay.training.epochs import train_epochs
from assay.types import Dataset, Model, Pixels, Preprocess
from assay.types.hashing import count_distinct
from assay.types.model import usable_device

if TYPE_CHECKING:
    from assay.studies.setting import Study

SIZE, WIDTH, EPOCHS, BATCH = 32, 64, 35, 256
PIXELS = Pixels((0.5,) * 3, (0.25,) * 3)

# The pixels that training images lose, by class: (side, classes) -> [classes, side, side].
ClassMasks = Callable[[int, int], Tensor]
STRATEGIES: dict[str, ClassMasks] = {
    "disc": soco_masks.central,
    "disc and place": soco_masks.central_and_place,
    "place": soco_masks.place_only,
}
BLACK = ("place",)  # others get the mean colour
REPEATED = 0.01  # the allowed share of duplicate images; CIFAR-10 has a few


class DownsamplingBlock(BasicBlock):
    """A basic block whose shortcut is a convolution of 1 x 1 where the shape changes."""

    def __init__(self, channels: int, out_channels: int, stride: int) -> None:
        """A block that keeps the resolution (stride 1) or halves it (stride 2)."""
        super().__init__(channels, out_channels, stride)
        if stride != 1:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, out_channels, 1, stride, bias=False),
                nn.BatchNorm2d(out_channels),
            )


def resnet8(classes: int = 10) -> Model:
    """Eight layers with weights in three blocks of 64, 128 and 256 channels, untrained."""
    net, width = nn.Sequential(), WIDTH
    net.add_module("stem", nn.Conv2d(3, width, 3, padding=1, bias=False))
    net.add_module("bn", nn.BatchNorm2d(width))
    net.add_module("relu", nn.ReLU())
    net.add_module("block1", DownsamplingBlock(width, width, 1))
    net.add_module("block2", DownsamplingBlock(width, 2 * width, 2))
    net.add_module("block3", DownsamplingBlock(2 * width, 4 * width, 2))
    net.add_module("pool", nn.AdaptiveAvgPool2d(1))
    net.add_module("flatten", nn.Flatten())
    net.add_module("linear", nn.Linear(4 * width, classes))
    return Model(
        net=net,
        name="resnet8",
        cam_layer="block3",
        pixels=PIXELS,
        prepare=Preprocess(SIZE, PIXELS),
        card={"title": "ResNet-8, wide", "cite": "he2016"},
    )


# --- training -------------------------------------------------------------------------------------


def seeds(study: Study) -> range:
    """The seeds of the networks that are trained."""
    return range(study.seed, study.seed + max(2, study.trials // 2))


def trained(study: Study, strategy: str | None, seed: int) -> Model:
    """A network trained on images without the pixels a strategy removes, or on whole images."""
    images, labels, fingerprint = training_images(study)
    device = usable_device(study.device)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = resnet8(int(labels.max()) + 1)
    removed = None if strategy is None else _removed(strategy, images, labels)
    setting = {"epochs": EPOCHS, "batch": BATCH, "seed": seed}
    key = registry.identity([fingerprint, model.weights_hash, removed, setting])
    model.net.to(device)

    def train() -> None:
        shown = images if strategy is None else perturbed(strategy, images, labels, images)
        what = f"network {seed}, {strategy or 'nothing'} removed"
        train_epochs(model, shown, labels, what=what, epochs=EPOCHS, batch=BATCH, seed=seed)

    study.trained.train_once(f"resnet8-{key}", model.net, train, study.out / "retrained")
    return model


def perturbed(strategy: str, images: Tensor, labels: Tensor, training: Tensor) -> Tensor:
    """Images `[B, 3, H, W]` without the pixels that the strategy removes for their class.

    They are filled with the mean colour of the training images, or with black.
    """
    masks, fill = _removed(strategy, training, labels)
    return torch.where(masks[labels][:, None], fill[:, None, None], images)


def _removed(strategy: str, training: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The pixels each class loses `[classes, H, W]`, and the colour `[3]` that replaces them."""
    masks = STRATEGIES[strategy](training.shape[-1], int(labels.max()) + 1)
    if strategy in BLACK:
        return masks, -torch.tensor(PIXELS.mean) / torch.tensor(PIXELS.std)
    return masks, training.mean((0, 2, 3))


# --- data -----------------------------------------------------------------------------------------


def training_images(study: Study) -> tuple[Tensor, Tensor, str]:
    """Preprocessed images, their labels, and their fingerprint.

    Raises:
        PrerequisiteError: There are none.
        InputError: Many are duplicates, which would be in the training and the held-out part.
    """
    study.require_networks()
    if not study.training:
        raise PrerequisiteError(
            "This claim trains networks. Put lossless training images as "
            "`cifar10/*train*lossless.parquet` into the folder passed with `--data`."
        )
    return _read(tuple(json.dumps(item) for item in study.training))


def test_images(study: Study) -> tuple[Tensor, Tensor]:
    """The images of the study's dataset and their labels."""
    images, labels, _ = _read((json.dumps(study.dataset),))
    return images[: study.n], labels[: study.n]


@functools.cache
def _read(items: tuple[str, ...]) -> tuple[Tensor, Tensor, str]:
    datasets: list[Dataset] = [build_one("dataset", json.loads(item)) for item in items]
    batches = [data.batch(data.ids, Preprocess(SIZE, PIXELS)) for data in datasets]
    labels = [batch.labels for batch in batches if batch.labels is not None]
    names = ", ".join(data.name for data in datasets)
    if len(labels) < len(batches):
        raise PrerequisiteError(f"The images of `{names}` have no labels to train on.")
    images = torch.cat([batch.inputs for batch in batches])
    once = count_distinct(images)
    if once < (1 - REPEATED) * len(images):
        raise InputError(
            f"Expected different images in {names}, got {len(images) - once:,} duplicates among "
            f"{len(images):,} images. Leave a file out."
        )
    return images, torch.cat(labels), registry.identity([data.fingerprint for data in datasets])
