"""Residual networks of one block type for 32 x 32 images: any depth and width, three norms.

With batch-norm and width 1 the names of the weights are those of `cifar_resnet20` and the others.
Without normalisation the initial weights follow Fixup. Without bias as well the network is
homogeneous: f(kx) = k f(x) for k > 0.
"""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from assay.errors import InputError
from assay.models.cifar_model import cifar_model, he_normal
from assay.models.cifar_resnet import Shortcut
from assay.plugins.registry import model
from assay.types import Model

# Batch-norm; Fixup's single numbers (biases, one scale a block); neither scale nor bias anywhere.
Norm = Literal["batch", "fixup", "homogeneous"]


class AddedNumber(nn.Module):
    """One learned number that is added to everything."""

    def __init__(self) -> None:
        """The number starts at 0."""
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        """The shape stays."""
        return x + self.bias


class MultipliedNumber(nn.Module):
    """One learned number by which everything is multiplied."""

    def __init__(self) -> None:
        """The number starts at 1."""
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        """The shape stays."""
        return x * self.scale


class ResidualBlock(nn.Module):
    """Two 3 x 3 convolutions added to a parameter-free shortcut; the last ReLU follows the sum."""

    def __init__(self, channels: int, out_channels: int, stride: int, norm: Norm) -> None:
        """A block that keeps the resolution (stride 1) or halves it (stride 2)."""
        super().__init__()
        self.before1 = _number(norm)
        self.conv1 = nn.Conv2d(channels, out_channels, 3, stride, padding=1, bias=False)
        self.bn1 = _after(norm, out_channels)
        self.relu1 = nn.ReLU()
        self.before2 = _number(norm)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.bn2 = _after(norm, out_channels, scaled=True)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1:
            self.shortcut = Shortcut(channels, out_channels)
        self.relu2 = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, H, W] to [B, C', H / stride, W / stride]."""
        y = self.relu1(self.bn1(self.conv1(self.before1(x))))
        y = self.bn2(self.conv2(self.before2(y)))
        out: Tensor = self.relu2(y + self.shortcut(x))
        return out


class ResidualNetwork(nn.Module):
    """Three stages of blocks at 32, 16 and 8 pixels, then the mean and one linear layer."""

    def __init__(
        self, depth: int = 20, width: int = 1, norm: Norm = "batch", classes: int = 10
    ) -> None:
        """A network of `depth` = 6n + 2 layers, n blocks per stage, 16 `width` channels at first.

        Raises:
            InputError: No number of blocks gives this depth.
        """
        super().__init__()
        if depth < 8 or (depth - 2) % 6:
            raise InputError(
                f"Expected `depth` to be 6n + 2 (8, 14, 20, 26, ...): n blocks of two layers in "
                f"each of three stages, got {depth}."
            )
        blocks, channels = (depth - 2) // 6, 16 * width
        self.conv1 = nn.Conv2d(3, channels, 3, padding=1, bias=False)
        self.bn1 = _after(norm, channels)
        self.relu1 = nn.ReLU()
        self.layer1 = _stage(channels, channels, blocks, 1, norm)
        self.layer2 = _stage(channels, 2 * channels, blocks, 2, norm)
        self.layer3 = _stage(2 * channels, 4 * channels, blocks, 2, norm)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.before = _number(norm)
        self.linear = nn.Linear(4 * channels, classes, bias=norm != "homogeneous")
        if norm != "batch":
            _fixup(self, 3 * blocks)

    def forward(self, x: Tensor) -> Tensor:
        """[B, 3, H, W] to logits [B, classes]."""
        x = self.relu1(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))  # [B, 64 width, H / 4, W / 4]
        logits: Tensor = self.linear(self.before(self.flatten(self.pool(x))))
        return logits


def _number(norm: Norm) -> nn.Module:
    return AddedNumber() if norm == "fixup" else nn.Identity()


def _after(norm: Norm, channels: int, scaled: bool = False) -> nn.Module:
    """What follows a convolution."""
    if norm == "batch":
        return nn.BatchNorm2d(channels)
    if norm == "fixup" and scaled:
        return nn.Sequential(MultipliedNumber(), AddedNumber())
    return _number(norm)


def _stage(channels: int, out_channels: int, blocks: int, stride: int, norm: Norm) -> nn.Sequential:
    first = ResidualBlock(channels, out_channels, stride, norm)
    rest = (ResidualBlock(out_channels, out_channels, 1, norm) for _ in range(blocks - 1))
    return nn.Sequential(first, *rest)


def _fixup(net: nn.Module, blocks: int) -> None:
    """Every block starts as its shortcut, and the first layer of each is reduced by the depth."""
    he_normal(net)
    for module in net.modules():
        if isinstance(module, ResidualBlock):
            with torch.no_grad():
                module.conv1.weight.mul_(blocks**-0.5)
            nn.init.zeros_(module.conv2.weight)


@model("residual", title="Residual network (CIFAR-10)", cite="he2016")
def residual(
    *,
    weights: str | None = None,
    depth: int = 20,
    width: Annotated[int, Field(ge=1)] = 1,
    norm: Norm = "batch",
    classes: Annotated[int, Field(ge=2)] = 10,
    seed: int = 0,
) -> Model:
    """A residual network of `depth` = 6n + 2 layers, `width` times 16 to 64 channels wide.

    `norm` is `batch`, `fixup` (no normalisation; single learned numbers and Fixup's initial
    weights) or `homogeneous` (no normalisation, no bias, no scale: f(kx) = k f(x)). Without
    `weights` it is untrained, with random weights drawn by `seed`; `assay zoo train` trains it.
    """
    return cifar_model(
        lambda: ResidualNetwork(depth, width, norm, classes),
        name="residual",
        title=f"ResNet-{depth}, width {width}, {norm}",
        cite="he2016" if norm == "batch" else "zhang2019",
        weights=weights,
        seed=seed,
        classes=classes,
        cam_layer="layer3",
    )
