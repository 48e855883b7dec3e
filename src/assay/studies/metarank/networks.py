"""Two small networks for each pair of classes, and SqueezeNet for ImageNet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from assay.models.cifar_resnet import BasicBlock
from assay.models.weights import load_weights
from assay.studies.metarank.tasks import Task
from assay.training.fitting import Recipe, fit_network
from assay.training.trained_weights import copy_weights, packed_weights, write_whole
from assay.types import Model, Pixels, Preprocess

IMAGENET_PIXELS = Pixels(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))


def residual(channels: int, classes: int) -> nn.Module:
    """Three residual blocks at a half, a quarter and an eighth of the side, and a linear layer."""
    return nn.Sequential(
        nn.Sequential(
            nn.Conv2d(channels, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()
        ),
        BasicBlock(16, 24, 2),
        BasicBlock(24, 32, 2),
        BasicBlock(32, 48, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(48, classes),
    )


def plain(channels: int, classes: int) -> nn.Module:
    """Five convolutions with maxima between them and two linear layers: no shortcuts, no norms."""
    return nn.Sequential(
        _block(channels, 16),
        _block(16, 24),
        nn.Sequential(_convolution(24, 32), _convolution(32, 32), nn.MaxPool2d(2)),
        nn.Sequential(_convolution(32, 48)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(48, 32),
        nn.ReLU(),
        nn.Linear(32, classes),
    )


def _block(channels: int, out_channels: int) -> nn.Sequential:
    return nn.Sequential(_convolution(channels, out_channels), nn.MaxPool2d(2))


def _convolution(channels: int, out_channels: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(channels, out_channels, 3, padding=1), nn.ReLU())


FAMILIES: Mapping[str, Callable[[int, int], nn.Module]] = {"residual": residual, "plain": plain}
RATES = {"residual": 5e-3, "plain": 2e-3}
CAM_LAYER = "3"


def trained(task: Task, family: str, seed: int, epochs: int, folder: Path) -> dict[int, Model]:
    """The network half-way through its training and at its end, by epoch.

    What is stored in the folder is not trained again.
    """
    times = sorted({max(1, epochs // 2), epochs})
    files = {t: folder / f"{task.name}-{family}-s{seed}-e{t}.safetensors" for t in times}
    if not all(path.is_file() for path in files.values()):
        net = _untrained(task, family, seed)

        def store(epoch: int) -> None:
            if epoch in files:
                write_whole(packed_weights(copy_weights(net)), files[epoch])

        recipe = Recipe(
            epochs, batch=64, optimizer="adamw", rate=RATES[family], decay=1e-2,
            augment=task.mirrored,
        )  # fmt: skip
        fit_network(
            _model(net, task, family), task.training.images, task.training.labels, recipe,
            seed=seed, each_epoch=store, progress=False,
        )  # fmt: skip
    networks = {}
    for time, path in files.items():
        net = _untrained(task, family, seed)
        load_weights(net, path)
        networks[time] = _model(net.eval(), task, family)
    return networks


def _untrained(task: Task, family: str, seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return FAMILIES[family](task.training.images.shape[1], 2)


def _model(net: nn.Module, task: Task, family: str) -> Model:
    return Model(net, name=family, cam_layer=CAM_LAYER, pixels=task.pixels)


def accuracy(model: Model, task: Task) -> float:
    """The share of the task's test images that the network gets right."""
    with torch.inference_mode():
        predicted = model.net(task.inputs(task.testing.images)).argmax(1)
    return float((predicted == task.testing.labels).double().mean())


class Fire(nn.Module):
    """A narrow 1 x 1 convolution, then 1 x 1 and 3 x 3 convolutions side by side."""

    def __init__(self, channels: int, narrow: int, wide: int) -> None:
        """From `channels` through `narrow` to twice `wide`."""
        super().__init__()
        self.squeeze = nn.Conv2d(channels, narrow, 1)
        self.expand1x1 = nn.Conv2d(narrow, wide, 1)
        self.expand3x3 = nn.Conv2d(narrow, wide, 3, padding=1)
        self.relu1, self.relu2, self.relu3 = nn.ReLU(), nn.ReLU(), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, H, W] to [B, 2 wide, H, W]."""
        x = self.relu1(self.squeeze(x))
        return torch.cat([self.relu2(self.expand1x1(x)), self.relu3(self.expand3x3(x))], 1)


def squeezenet(weights: Path) -> Model:
    """SqueezeNet 1.0 for ImageNet; the ReLU after its class scores is left out."""

    def pool() -> nn.Module:
        return nn.MaxPool2d(3, 2, ceil_mode=True)

    net = nn.Sequential()
    net.features = nn.Sequential(
        nn.Conv2d(3, 96, 7, 2), nn.ReLU(), pool(),
        Fire(96, 16, 64), Fire(128, 16, 64), Fire(128, 32, 128), pool(),
        Fire(256, 32, 128), Fire(256, 48, 192), Fire(384, 48, 192), Fire(384, 64, 256), pool(),
        Fire(512, 64, 256),
    )  # fmt: skip
    net.classifier = nn.Sequential(
        nn.Dropout(), nn.Conv2d(512, 1000, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )
    load_weights(net, weights)
    return Model(
        net.eval(), name="squeezenet", cam_layer="features.12",
        prepare=Preprocess(224, IMAGENET_PIXELS, resize=256), pixels=IMAGENET_PIXELS,
    )  # fmt: skip
