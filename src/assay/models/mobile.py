"""Networks of separable convolutions for 32 x 32 images: plain, and with squeeze-excitation."""

from typing import Annotated

from pydantic import Field
from torch import Tensor, nn

from assay.models.cifar_model import cifar_model, he_normal
from assay.plugins.registry import model
from assay.types import Model

# Channels and stride of each block.
SEPARABLE = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (256, 1), (512, 1), (512, 1))
INVERTED = ((24, 1), (40, 2), (40, 1), (80, 2), (80, 1), (112, 1), (112, 1))
EXPANDED = 4  # times as many channels inside an inverted block


class SeparableBlock(nn.Module):
    """A 3 x 3 convolution of each channel alone, then a 1 x 1 convolution of all."""

    def __init__(self, channels: int, out_channels: int, stride: int) -> None:
        """A block that keeps the resolution (stride 1) or halves it (stride 2)."""
        super().__init__()
        self.depthwise = nn.Conv2d(
            channels, channels, 3, stride, padding=1, groups=channels, bias=False
        )
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu1 = nn.ReLU()
        self.pointwise = nn.Conv2d(channels, out_channels, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.relu2 = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, H, W] to [B, C', H / stride, W / stride]."""
        y = self.relu1(self.bn1(self.depthwise(x)))
        out: Tensor = self.relu2(self.bn2(self.pointwise(y)))
        return out


class SeparableNetwork(nn.Module):
    """A stem, separable blocks down to 8 x 8 positions, the mean and one linear layer."""

    def __init__(self, classes: int = 10) -> None:
        """Random weights."""
        super().__init__()
        self.conv1 = nn.Conv2d(3, 32, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(32)
        self.relu1 = nn.ReLU()
        before = (32, *(channels for channels, _ in SEPARABLE))
        self.blocks = nn.Sequential(
            *(SeparableBlock(c, *block) for c, block in zip(before, SEPARABLE, strict=False))
        )
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.linear = nn.Linear(before[-1], classes)
        he_normal(self)

    def forward(self, x: Tensor) -> Tensor:
        """[B, 3, H, W] to logits [B, classes]."""
        x = self.blocks(self.relu1(self.bn1(self.conv1(x))))
        logits: Tensor = self.linear(self.flatten(self.pool(x)))
        return logits


class SqueezeExcitation(nn.Module):
    """Every channel is multiplied by a number in (0, 1) that depends on the means of all."""

    def __init__(self, channels: int, squeezed: int) -> None:
        """Two 1 x 1 convolutions on the means."""
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.squeeze = nn.Conv2d(channels, squeezed, 1)
        self.silu = nn.SiLU()
        self.excite = nn.Conv2d(squeezed, channels, 1)
        self.sigmoid = nn.Sigmoid()

    def forward(self, x: Tensor) -> Tensor:
        """The shape stays."""
        gates: Tensor = self.sigmoid(self.excite(self.silu(self.squeeze(self.pool(x)))))
        return x * gates


class InvertedBlock(nn.Module):
    """1 x 1 to more channels, 3 x 3 of each alone, squeeze-excitation, 1 x 1 back; a shortcut."""

    def __init__(self, channels: int, out_channels: int, stride: int) -> None:
        """The shortcut exists where input and output have one shape."""
        super().__init__()
        inside = EXPANDED * channels
        self.expand = nn.Conv2d(channels, inside, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(inside)
        self.silu1 = nn.SiLU()
        self.depthwise = nn.Conv2d(inside, inside, 3, stride, padding=1, groups=inside, bias=False)
        self.bn2 = nn.BatchNorm2d(inside)
        self.silu2 = nn.SiLU()
        self.excitation = SqueezeExcitation(inside, max(4, channels // 4))
        self.project = nn.Conv2d(inside, out_channels, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out_channels)
        self.added = stride == 1 and channels == out_channels

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, H, W] to [B, C', H / stride, W / stride]."""
        y = self.silu1(self.bn1(self.expand(x)))
        y = self.excitation(self.silu2(self.bn2(self.depthwise(y))))
        out: Tensor = self.bn3(self.project(y))
        return x + out if self.added else out


class SqueezeExciteNetwork(nn.Module):
    """A stem, inverted blocks down to 8 x 8 positions, a 1 x 1 layer, the mean, a linear layer."""

    def __init__(self, classes: int = 10) -> None:
        """Random weights."""
        super().__init__()
        self.conv1 = nn.Conv2d(3, 24, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(24)
        self.silu1 = nn.SiLU()
        before = (24, *(channels for channels, _ in INVERTED))
        self.blocks = nn.Sequential(
            *(InvertedBlock(c, *block) for c, block in zip(before, INVERTED, strict=False))
        )
        self.conv2 = nn.Conv2d(before[-1], 320, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(320)
        self.silu2 = nn.SiLU()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.linear = nn.Linear(320, classes)
        he_normal(self)

    def forward(self, x: Tensor) -> Tensor:
        """[B, 3, H, W] to logits [B, classes]."""
        x = self.blocks(self.silu1(self.bn1(self.conv1(x))))
        x = self.silu2(self.bn2(self.conv2(x)))
        logits: Tensor = self.linear(self.flatten(self.pool(x)))
        return logits


@model("separable", title="Separable network (CIFAR-10)", cite="howard2017")
def separable(
    *,
    weights: str | None = None,
    classes: Annotated[int, Field(ge=2)] = 10,
    seed: int = 0,
) -> Model:
    """A MobileNet-like network of separable convolutions for images of 32 pixels.

    Without `weights` it is untrained, with random weights drawn by `seed`; `assay zoo train` trains
    it.
    """
    return cifar_model(
        lambda: SeparableNetwork(classes),
        name="separable",
        title="Separable network",
        cite="howard2017",
        weights=weights,
        seed=seed,
        classes=classes,
        cam_layer="blocks",
    )


@model("squeeze_excite", title="Squeeze-excitation network (CIFAR-10)", cite="hu2018")
def squeeze_excite(
    *,
    weights: str | None = None,
    classes: Annotated[int, Field(ge=2)] = 10,
    seed: int = 0,
) -> Model:
    """An EfficientNet-like network (inverted blocks, squeeze-excitation, SiLU) for 32 pixels.

    Without `weights` it is untrained, with random weights drawn by `seed`; `assay zoo train` trains
    it.
    """
    return cifar_model(
        lambda: SqueezeExciteNetwork(classes),
        name="squeeze_excite",
        title="Squeeze-excitation network",
        cite="hu2018",
        weights=weights,
        seed=seed,
        classes=classes,
        cam_layer="silu2",
    )
