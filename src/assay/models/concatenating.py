"""Networks that concatenate channels, for 32 x 32 images: DenseNet-like and Inception-like."""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from assay.models.cifar_model import cifar_model, he_normal
from assay.plugins.registry import model
from assay.types import Model

GROWTH = 24  # channels that a dense layer adds
DENSE_LAYERS = 8  # in each of the three dense blocks


class DenseLayer(nn.Module):
    """Batch-norm, ReLU, 1 x 1, batch-norm, ReLU, 3 x 3; its channels join those before."""

    def __init__(self, channels: int, growth: int) -> None:
        """From `channels` to `channels + growth`."""
        super().__init__()
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu1 = nn.ReLU()
        self.conv1 = nn.Conv2d(channels, 4 * growth, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(4 * growth)
        self.relu2 = nn.ReLU()
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, H, W] to [B, C + growth, H, W]."""
        y = self.conv1(self.relu1(self.bn1(x)))
        return torch.cat([x, self.conv2(self.relu2(self.bn2(y)))], 1)


class Transition(nn.Module):
    """Batch-norm, ReLU, a 1 x 1 layer to half of the channels, and means of 2 x 2 positions."""

    def __init__(self, channels: int) -> None:
        """From `channels` to half as many."""
        super().__init__()
        self.bn = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU()
        self.conv = nn.Conv2d(channels, channels // 2, 1, bias=False)
        self.pool = nn.AvgPool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, H, W] to [B, C / 2, H / 2, W / 2]."""
        out: Tensor = self.pool(self.conv(self.relu(self.bn(x))))
        return out


class CifarDenseNet(nn.Module):
    """Three dense blocks at 32, 16 and 8 pixels, the mean and one linear layer."""

    def __init__(self, growth: int = GROWTH, layers: int = DENSE_LAYERS, classes: int = 10) -> None:
        """Every layer adds `growth` channels; `layers` per block."""
        super().__init__()
        channels = 2 * growth
        self.conv1 = nn.Conv2d(3, channels, 3, padding=1, bias=False)
        parts: list[nn.Module] = []
        for block in range(3):
            for _ in range(layers):
                parts.append(DenseLayer(channels, growth))
                channels += growth
            if block < 2:
                parts.append(Transition(channels))
                channels //= 2
        self.blocks = nn.Sequential(*parts)
        self.bn = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.linear = nn.Linear(channels, classes)
        he_normal(self)

    def forward(self, x: Tensor) -> Tensor:
        """[B, 3, H, W] to logits [B, classes]."""
        x = self.relu(self.bn(self.blocks(self.conv1(x))))
        logits: Tensor = self.linear(self.flatten(self.pool(x)))
        return logits


class ConvNormReLU(nn.Sequential):
    """A convolution that keeps the size at stride 1, batch-norm and ReLU."""

    def __init__(self, channels: int, out_channels: int, kernel: int, stride: int = 1) -> None:
        """Without bias: batch-norm has one."""
        super().__init__(
            nn.Conv2d(channels, out_channels, kernel, stride, kernel // 2, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(),
        )


class InceptionModule(nn.Module):
    """Four branches side by side: 1 x 1, 3 x 3, 5 x 5 as two 3 x 3, and a local mean."""

    def __init__(self, channels: int, width: int) -> None:
        """From `channels` to 4 `width`."""
        super().__init__()
        self.point = ConvNormReLU(channels, width, 1)
        self.small = nn.Sequential(
            ConvNormReLU(channels, width // 2, 1), ConvNormReLU(width // 2, width, 3)
        )
        self.large = nn.Sequential(
            ConvNormReLU(channels, width // 2, 1),
            ConvNormReLU(width // 2, width, 3),
            ConvNormReLU(width, width, 3),
        )
        self.mean = nn.Sequential(
            nn.AvgPool2d(3, 1, 1, count_include_pad=False), ConvNormReLU(channels, width, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, H, W] to [B, 4 width, H, W]."""
        return torch.cat([self.point(x), self.small(x), self.large(x), self.mean(x)], 1)


class CifarInception(nn.Module):
    """A stem, seven inception modules at 16 and 8 pixels, the mean and one linear layer."""

    def __init__(self, classes: int = 10) -> None:
        """Random weights."""
        super().__init__()
        self.stem = nn.Sequential(ConvNormReLU(3, 48, 3), ConvNormReLU(48, 96, 3, 2))
        self.middle = nn.Sequential(
            InceptionModule(96, 40), InceptionModule(160, 40), InceptionModule(160, 48)
        )
        self.pool1 = nn.MaxPool2d(2)
        self.late = nn.Sequential(
            InceptionModule(192, 64),
            InceptionModule(256, 64),
            InceptionModule(256, 80),
            InceptionModule(320, 80),
        )
        self.pool2 = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.linear = nn.Linear(320, classes)
        he_normal(self)

    def forward(self, x: Tensor) -> Tensor:
        """[B, 3, H, W] to logits [B, classes]."""
        x = self.late(self.pool1(self.middle(self.stem(x))))  # [B, 320, 8, 8]
        logits: Tensor = self.linear(self.flatten(self.pool2(x)))
        return logits


@model("densenet", title="DenseNet-like network (CIFAR-10)", cite="huang2017")
def densenet(
    *,
    weights: str | None = None,
    growth: Annotated[int, Field(ge=1)] = GROWTH,
    layers: Annotated[int, Field(ge=1)] = DENSE_LAYERS,
    classes: Annotated[int, Field(ge=2)] = 10,
    seed: int = 0,
) -> Model:
    """A DenseNet-like network: three blocks of `layers`, each adding `growth` channels.

    Without `weights` it is untrained, with random weights drawn by `seed`; `assay zoo train` trains
    it.
    """
    return cifar_model(
        lambda: CifarDenseNet(growth, layers, classes),
        name="densenet",
        title=f"DenseNet-{6 * layers + 4}",
        cite="huang2017",
        weights=weights,
        seed=seed,
        classes=classes,
        cam_layer="relu",
    )


@model("inception", title="Inception-like network (CIFAR-10)", cite="szegedy2015")
def inception(
    *,
    weights: str | None = None,
    classes: Annotated[int, Field(ge=2)] = 10,
    seed: int = 0,
) -> Model:
    """An Inception-like network of parallel branches with batch-norm, for images of 32 pixels.

    Without `weights` it is untrained, with random weights drawn by `seed`; `assay zoo train` trains
    it.
    """
    return cifar_model(
        lambda: CifarInception(classes),
        name="inception",
        title="Inception-like network",
        cite="szegedy2015",
        weights=weights,
        seed=seed,
        classes=classes,
        cam_layer="late",
    )
