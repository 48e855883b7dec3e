"""The small residual network of SoCo's experiments with training, trained on CIFAR-10."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from assay import registry
from assay.errors import PrerequisiteError
from assay.plan import build_one
from assay.studies import soco_masks
from assay.training.epochs import train_epochs
from assay.training.supervised import train_once
from assay.types import Model, Pixels, Preprocess

if TYPE_CHECKING:
    from assay.studies.setting import Study

SIZE, WIDTH, EPOCHS, BATCH = 32, 64, 35, 256
PIXELS = Pixels((0.5,) * 3, (0.25,) * 3)

# What training images lose by their class: (pixels a side, classes) -> [classes, side, side].
Removal = Callable[[int, int], Tensor]
STRATEGIES: dict[str, Removal] = {
    "disc": soco_masks.central,
    "disc and place": soco_masks.central_and_place,
    "place": soco_masks.place_only,
}
BLACK = ("place",)  # others get the mean colour


class Block(nn.Module):
    """Two 3 x 3 convolutions beside a shortcut, which is one of 1 x 1 where the shape changes."""

    def __init__(self, channels: int, out_channels: int, stride: int) -> None:
        """A block that keeps the resolution (stride 1) or halves it (stride 2)."""
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out_channels, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, out_channels, 1, stride, bias=False),
                nn.BatchNorm2d(out_channels),
            )
        self.relu2 = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, H, W] to [B, C', H / stride, W / stride]."""
        y = self.bn2(self.conv2(self.relu1(self.bn1(self.conv1(x)))))
        out: Tensor = self.relu2(y + self.shortcut(x))
        return out


def resnet8(classes: int = 10) -> Model:
    """Eight layers with weights in three blocks of 64, 128 and 256 channels, untrained."""
    net, width = nn.Sequential(), WIDTH
    net.add_module("stem", nn.Conv2d(3, width, 3, padding=1, bias=False))
    net.add_module("bn", nn.BatchNorm2d(width))
    net.add_module("relu", nn.ReLU())
    net.add_module("block1", Block(width, width, 1))
    net.add_module("block2", Block(width, 2 * width, 2))
    net.add_module("block3", Block(2 * width, 4 * width, 2))
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
    """Of the networks that are trained anew."""
    return range(study.seed, study.seed + max(2, study.trials // 2))


def trained(study: Study, strategy: str | None, seed: int) -> Model:
    """A network trained on images without what a strategy removes, or on whole ones."""
    images, labels, fingerprint = training_images(study)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = resnet8(int(labels.max()) + 1)
    model.net.to(study.device or "cpu")
    what = [fingerprint, len(images), strategy, seed, EPOCHS, BATCH, WIDTH]

    def train() -> None:
        shown = images if strategy is None else perturbed(strategy, images, labels, images)
        train_epochs(
            model, shown, labels, epochs=EPOCHS, batch=BATCH, seed=seed,
            what=f"network {seed}, {strategy or 'nothing'} removed",
        )  # fmt: skip

    train_once(f"resnet8-{registry.identity(what)}", model.net, train, study.out / "retrained")
    return model


def perturbed(strategy: str, images: Tensor, labels: Tensor, training: Tensor) -> Tensor:
    """Images `[B, 3, H, W]` without what the strategy removes from their classes.

    It is filled with the mean colour of the training images, or with black.
    """
    gone = STRATEGIES[strategy](images.shape[-1], int(labels.max()) + 1)[labels]  # [B, H, W]
    fill = training.mean((0, 2, 3))
    if strategy in BLACK:
        fill = -torch.tensor(PIXELS.mean) / torch.tensor(PIXELS.std)
    return torch.where(gone[:, None], fill[:, None, None], images)


# --- data -----------------------------------------------------------------------------------------


def training_images(study: Study) -> tuple[Tensor, Tensor, str]:
    """Images as the network takes them, their labels, and what identifies them."""
    study.require_networks()
    if not study.training:
        raise PrerequisiteError(
            "This claim trains networks. Put lossless training images as "
            "`cifar10/*train*lossless.parquet` into the folder given with `--data`."
        )
    found = [_read(json.dumps(item), None) for item in study.training]
    images, labels = (torch.cat(parts) for parts in list(zip(*found, strict=True))[:2])
    return images, labels, registry.identity([part[2] for part in found])


def test_images(study: Study) -> tuple[Tensor, Tensor]:
    """The images of the study's dataset and their labels."""
    images, labels, _ = _read(json.dumps(study.dataset), study.n)
    return images, labels


@functools.cache
def _read(item: str, limit: int | None) -> tuple[Tensor, Tensor, str]:
    dataset: Any = build_one("dataset", json.loads(item))
    batch = dataset.batch(dataset.ids[:limit], Preprocess(SIZE, PIXELS))
    if batch.labels is None:
        raise PrerequisiteError(f"The images of `{dataset.name}` have no labels to train on.")
    return batch.inputs, batch.labels, dataset.fingerprint
