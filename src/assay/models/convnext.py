"""A ConvNeXt-like network for 32 x 32 images: 7 x 7 convolutions of single channels, layer norm."""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from assay.models.cifar_model import cifar_model
from assay.plugins.registry import model
from assay.types import Model

STARTING_SCALE = 0.1  # of what a block adds


class ChannelNorm(nn.LayerNorm):
    """Layer norm over the channels of each position."""

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, H, W] to the same shape."""
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)


class ConvNeXtBlock(nn.Module):
    """7 x 7 of each channel alone, layer norm, two 1 x 1 layers with GELU, a scale; a shortcut."""

    def __init__(self, channels: int) -> None:
        """A block that keeps the shape."""
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = ChannelNorm(channels, eps=1e-6)
        self.grow = nn.Conv2d(channels, 4 * channels, 1)
        self.gelu = nn.GELU()
        self.shrink = nn.Conv2d(4 * channels, channels, 1)
        self.scale = nn.Parameter(torch.full((channels, 1, 1), STARTING_SCALE))

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, H, W] to the same shape."""
        added: Tensor = self.shrink(self.gelu(self.grow(self.norm(self.depthwise(x)))))
        return x + self.scale * added


class CifarConvNeXt(nn.Module):
    """Two stages of blocks at 16 and 8 pixels, the mean, layer norm and one linear layer."""

    def __init__(self, width: int = 96, classes: int = 10) -> None:
        """`width` channels at 16 pixels, twice as many at 8."""
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 2, 2), ChannelNorm(width, eps=1e-6))
        self.layer1 = nn.Sequential(*(ConvNeXtBlock(width) for _ in range(3)))
        self.downsample = nn.Sequential(
            ChannelNorm(width, eps=1e-6), nn.Conv2d(width, 2 * width, 2, 2)
        )
        self.layer2 = nn.Sequential(*(ConvNeXtBlock(2 * width) for _ in range(4)))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.norm = nn.LayerNorm(2 * width, eps=1e-6)
        self.linear = nn.Linear(2 * width, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        """[B, 3, H, W] to logits [B, classes]."""
        x = self.layer2(self.downsample(self.layer1(self.stem(x))))  # [B, 2 width, H / 4, W / 4]
        logits: Tensor = self.linear(self.norm(self.flatten(self.pool(x))))
        return logits


@model("convnext", title="ConvNeXt-like network (CIFAR-10)", cite="liu2022")
def convnext(
    *,
    weights: str | None = None,
    width: Annotated[int, Field(ge=1)] = 96,
    classes: Annotated[int, Field(ge=2)] = 10,
    seed: int = 0,
) -> Model:
    """A ConvNeXt-like network of seven blocks for images of 32 pixels.

    Without `weights` it is untrained, with random weights drawn by `seed`; `assay zoo train` trains
    it.
    """
    return cifar_model(
        lambda: CifarConvNeXt(width, classes),
        name="convnext",
        title="ConvNeXt-like network",
        cite="liu2022",
        weights=weights,
        seed=seed,
        classes=classes,
        cam_layer="layer2",
    )
