"""B-cos networks: every answer of a filter is scaled by its cosine with the input.

A layer returns |cos(x, w)| times the projection of x on the unit vector along w. With the cosines
held constant, a network of such layers is one linear map of its input: it explains itself.
"""

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from assay.errors import InputError
from assay.models.cifar_resnet import CLASSES
from assay.models.weights import load_weights
from assay.plugins.registry import model
from assay.types import Model, Pixels, Preprocess

PIXELS = Pixels(mean=(0.0,) * 3, std=(1.0,) * 3)  # the network takes pixels in [0, 1] as they are


class Encode(nn.Module):
    """Every colour with its complement, so that dark colours carry information too."""

    def forward(self, x: Tensor) -> Tensor:
        """Pixels in [0, 1], [B, 3, H, W] to [B, 6, H, W]."""
        return torch.cat([x, 1 - x], 1)


class BcosConv2d(nn.Module):
    """A convolution with unit filters, each output scaled by its cosine: |cos| w^T x, so B = 2."""

    def __init__(self, channels: int, out_channels: int, kernel: int = 1, stride: int = 1) -> None:
        """A convolution that keeps the size at stride 1."""
        super().__init__()
        self.window = (kernel, stride, kernel // 2)  # side, step, zeros around
        self.linear = nn.Conv2d(channels, out_channels, *self.window, bias=False)
        self.cosines_given = False  # whether autograd takes the cosines as constants

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, H, W] to [B, C', H / stride, W / stride]."""
        length = self.linear.weight.flatten(1).norm(dim=1).clamp(min=1e-12)
        projected = self.linear(x) / length[:, None, None]
        energy = F.avg_pool2d(x.square().sum(1, keepdim=True), *self.window, divisor_override=1)
        cosine = (projected / (energy + 1e-6).sqrt()).abs()
        answer: Tensor = (cosine.detach() if self.cosines_given else cosine) * projected
        return answer


class UncentredNorm(nn.Module):
    """Batch norm that neither subtracts the mean nor adds a bias, so that it stays linear."""

    running_var: Tensor

    def __init__(self, channels: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        """A scale for each channel."""
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.weight = nn.Parameter(torch.ones(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        """The input, scaled per channel; the shape stays."""
        variance = self.running_var
        if self.training:
            variance = x.var((0, 2, 3), unbiased=False)
            self.running_var.lerp_(variance.detach().to(self.running_var), self.momentum)
        scale = self.weight * (variance + self.eps).rsqrt()
        return x * scale[:, None, None]


class BcosBlock(nn.Module):
    """Two 3 x 3 B-cos convolutions added to a shortcut, without any ReLU."""

    def __init__(self, channels: int, out_channels: int, stride: int) -> None:
        """A block that keeps the resolution (stride 1) or halves it (stride 2)."""
        super().__init__()
        self.conv1 = BcosConv2d(channels, out_channels, 3, stride)
        self.norm1 = UncentredNorm(out_channels)
        self.conv2 = BcosConv2d(out_channels, out_channels, 3)
        self.norm2 = UncentredNorm(out_channels)
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or channels != out_channels:
            self.shortcut = nn.Sequential(
                BcosConv2d(channels, out_channels, 1, stride), UncentredNorm(out_channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, H, W] to [B, C', H / stride, W / stride]."""
        y = self.norm1(self.conv1(x))
        out: Tensor = self.norm2(self.conv2(y)) + self.shortcut(x)
        return out


class BcosResNet(nn.Module):
    """Three stages of blocks at full, half and quarter size, a B-cos head, the mean over positions.

    It takes pixels in [0, 1]. A constant, the log-odds of one class in `classes`, is added at the
    end; everything else is linear in the encoded input once the cosines are held constant.
    """

    def __init__(self, depth: int = 20, width: int = 24, classes: int = 10) -> None:
        """A network of `depth` = 6n + 2 layers, n blocks per stage, `width` channels at first."""
        super().__init__()
        if depth < 8 or (depth - 2) % 6:
            raise InputError(
                f"Expected `depth` to be 6n + 2 (8, 14, 20, 26, ...): n blocks of two layers in "
                f"each of three stages, got {depth}."
            )
        if classes < 2:
            raise InputError(f"Expected at least 2 `classes`, got {classes}.")
        blocks = (depth - 2) // 6
        self.encode = Encode()
        self.conv1 = BcosConv2d(6, width, 3)
        self.norm1 = UncentredNorm(width)
        self.layer1 = _stage(width, width, blocks, stride=1)
        self.layer2 = _stage(width, 2 * width, blocks, stride=2)
        self.layer3 = _stage(2 * width, 4 * width, blocks, stride=2)
        self.head = BcosConv2d(4 * width, classes)
        self.constant = math.log(1 / (classes - 1))

    def forward(self, x: Tensor) -> Tensor:
        """Pixels in [0, 1], [B, 3, H, W] to logits [B, classes]."""
        x = self.norm1(self.conv1(self.encode(x)))
        x = self.layer3(self.layer2(self.layer1(x)))  # [B, 4 width, H / 4, W / 4]
        logits: Tensor = self.head(x).mean((2, 3)) + self.constant
        return logits

    def explaining(self) -> contextlib.AbstractContextManager[None]:
        """A context in which gradients are the rows of the network's linear map of its input."""
        return explaining(self)


@contextlib.contextmanager
def explaining(net: nn.Module) -> Iterator[None]:
    """A context in which the cosines of all B-cos layers are constants; outputs stay the same."""
    layers = [module for module in net.modules() if isinstance(module, BcosConv2d)]
    before = [layer.cosines_given for layer in layers]
    try:
        for layer in layers:
            layer.cosines_given = True
        yield
    finally:
        for layer, mode in zip(layers, before, strict=True):
            layer.cosines_given = mode


def _stage(channels: int, out_channels: int, blocks: int, stride: int) -> nn.Sequential:
    first = BcosBlock(channels, out_channels, stride)
    return nn.Sequential(
        first, *(BcosBlock(out_channels, out_channels, 1) for _ in range(blocks - 1))
    )


@model("bcos_resnet", title="B-cos ResNet", cite="bohle2022")
def bcos_resnet(
    *,
    weights: str | None = None,
    depth: int = 20,
    width: Annotated[int, Field(ge=1)] = 24,
    classes: Annotated[int, Field(ge=2)] = 10,
    seed: int = 0,
) -> Model:
    """A small B-cos residual network for images of 32 pixels.

    It takes pixels in [0, 1], not normalised, so the fill `zero` is black. Without `weights` it is
    untrained, with random weights drawn by `seed`; `benchmarks/train_small.py` trains it.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = BcosResNet(depth, width, classes)
    if weights:
        load_weights(net, weights)
    return Model(
        net=net.eval(),
        name="bcos_resnet",
        checkpoint=Path(weights).stem if weights else "untrained",
        cam_layer="layer3",
        prepare=Preprocess(size=32, pixels=PIXELS),
        pixels=PIXELS,
        classes=CLASSES if classes == len(CLASSES) else tuple(map(str, range(classes))),
        card={
            "title": f"B-cos ResNet-{depth}",
            "parameters": sum(p.numel() for p in net.parameters()),
            "input": "RGB 32 x 32, pixels in [0, 1]",
            "cite": "bohle2022",
        },
    )
