"""Small networks that replace M4's: five convolutional kinds, three sizes of transformer.

For 32 x 32 pixels: residual networks of three depths for ResNet-50, -101 and -152, one with
separable convolutions for MobileNet, one without shortcuts and norms for VGG-16, and transformers
with patches of four pixels for ViT-S, -B and -L.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from assay.models.cifar_resnet import CifarResNet
from assay.models.mobile import SeparableBlock
from assay.models.small_vit import SmallViT
from assay.types import Model


def separable(classes: int) -> nn.Module:
    """Separable convolutions at 32, 16 and 8 pixels, then the mean and one linear layer."""
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()),
        nn.Sequential(SeparableBlock(16, 32, 1), SeparableBlock(32, 32, 1)),
        nn.Sequential(SeparableBlock(32, 64, 2), SeparableBlock(64, 64, 1)),
        nn.Sequential(SeparableBlock(64, 128, 2), SeparableBlock(128, 128, 1)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(128, classes),
    )


def plain(classes: int) -> nn.Module:
    """Pairs of convolutions at 32, 16 and 8 pixels, two linear layers, no norms, as in VGG."""
    return nn.Sequential(
        _pair(3, 32),
        nn.Sequential(nn.MaxPool2d(2), _pair(32, 64)),
        nn.Sequential(nn.MaxPool2d(2), _pair(64, 64)),
        nn.Flatten(),
        nn.Linear(64 * 8 * 8, 128),
        nn.ReLU(),
        nn.Linear(128, classes),
    )


def _pair(channels: int, out_channels: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, out_channels, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(out_channels, out_channels, 3, padding=1),
        nn.ReLU(),
    )


@dataclass(frozen=True)
class Kind:
    """A kind of network.

    Attributes:
        name: Its name.
        build: Makes an untrained network for a number of classes.
        rate: The highest learning rate of its training.
        layers: The layers for Grad-CAM, the last one last; empty for transformers.
        start: The layer of a transformer where attention methods begin, at a third of the depth.
    """

    name: str
    build: Callable[[int], nn.Module]
    rate: float = 1e-2
    layers: tuple[str, ...] = ()
    start: int = 0

    @property
    def convolutional(self) -> bool:
        """Whether it has spatial layers for Grad-CAM instead of attention."""
        return bool(self.layers)

    def __call__(self, classes: int) -> Model:
        """An untrained network."""
        return Model(
            net=self.build(classes),
            name=self.name,
            cam_layer=self.layers[-1] if self.layers else None,
            card={"title": self.name},
        )


def _residual(depth: int) -> Kind:
    stages = ("layer1", "layer2", "layer3")
    return Kind(f"resnet{depth}", lambda classes: CifarResNet(depth, classes), layers=stages)


def _transformer(name: str, width: int, depth: int, heads: int) -> Kind:
    def build(classes: int) -> nn.Module:
        return SmallViT(classes, width=width, depth=depth, heads=heads)

    return Kind(name, build, rate=1e-3, start=depth // 3)


CONVOLUTIONAL = (
    _residual(8),
    _residual(14),
    _residual(20),
    Kind("separable", separable, layers=("1", "2", "3")),
    Kind("plain", plain, rate=1e-3, layers=("0", "1", "2")),
)
TRANSFORMERS = (
    _transformer("vit_small", 64, 6, 4),
    _transformer("vit_base", 96, 7, 4),
    _transformer("vit_large", 128, 9, 8),
)
