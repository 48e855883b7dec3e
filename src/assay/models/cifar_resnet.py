"""The residual networks for 32 x 32 images, 20 to 56 layers deep, with parameter-free shortcuts."""

from pathlib import Path

import torch.nn.functional as F
from torch import Tensor, nn

from assay.models.weights import load_weights
from assay.plugins.registry import model
from assay.types import Model, Pixels, Preprocess

PIXELS = Pixels(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
PUBLISHED = {20: 91.73, 32: 92.63, 44: 93.10, 56: 93.39}  # top-1 on the test set, in percent


class Shortcut(nn.Module):
    """Every second row and column, with equally many zero channels before and after."""

    def __init__(self, channels: int, out_channels: int) -> None:
        """From `channels` to `out_channels`."""
        super().__init__()
        self.zeros = (out_channels - channels) // 2

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, H, W] to [B, C + 2 zeros, H / 2, W / 2]."""
        return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.zeros, self.zeros))


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions added to a shortcut; the last ReLU follows the sum."""

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
            self.shortcut = Shortcut(channels, out_channels)
        self.relu2 = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, H, W] to [B, C', H / stride, W / stride]."""
        y = self.relu1(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        out: Tensor = self.relu2(y + self.shortcut(x))
        return out


class CifarResNet(nn.Module):
    """Three stages of basic blocks at 32, 16 and 8 pixels, then the mean and one linear layer."""

    def __init__(self, depth: int, classes: int = 10, stride: int = 1) -> None:
        """A network of `depth` = 6n + 2 layers, n blocks per stage.

        The `stride` of the first convolution reduces larger images to the size of the stages.
        """
        super().__init__()
        blocks = (depth - 2) // 6
        self.conv1 = nn.Conv2d(3, 16, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.relu1 = nn.ReLU()
        self.layer1 = _stage(16, 16, blocks, stride=1)
        self.layer2 = _stage(16, 32, blocks, stride=2)
        self.layer3 = _stage(32, 64, blocks, stride=2)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.linear = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        """[B, 3, 32, 32] to logits [B, classes]."""
        x = self.relu1(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))  # [B, 64, 8, 8]
        logits: Tensor = self.linear(self.flatten(self.pool(x)))
        return logits


def _stage(channels: int, out_channels: int, blocks: int, stride: int) -> nn.Sequential:
    first = BasicBlock(channels, out_channels, stride)
    return nn.Sequential(
        first, *(BasicBlock(out_channels, out_channels, 1) for _ in range(blocks - 1))
    )


def _build(depth: int, weights: str) -> Model:
    net = CifarResNet(depth)
    load_weights(net, weights)
    return Model(
        net=net.eval(),
        name=f"cifar_resnet{depth}",
        checkpoint=Path(weights).stem,
        cam_layer="layer3",
        prepare=Preprocess(size=32, pixels=PIXELS),
        pixels=PIXELS,
        classes=CLASSES,
        card={
            "title": f"ResNet-{depth} for CIFAR-10",
            "parameters": sum(p.numel() for p in net.parameters()),
            "input": "RGB 32 x 32",
            "published_top1": PUBLISHED[depth],
            "cite": "he2016",
        },
    )


@model("cifar_resnet20", title="ResNet-20 (CIFAR-10)", cite="he2016")
def cifar_resnet20(*, weights: str) -> Model:
    """A residual network of 20 layers for the ten classes of CIFAR-10."""
    return _build(20, weights)


@model("cifar_resnet32", title="ResNet-32 (CIFAR-10)", cite="he2016")
def cifar_resnet32(*, weights: str) -> Model:
    """A residual network of 32 layers for the ten classes of CIFAR-10."""
    return _build(32, weights)


@model("cifar_resnet44", title="ResNet-44 (CIFAR-10)", cite="he2016")
def cifar_resnet44(*, weights: str) -> Model:
    """A residual network of 44 layers for the ten classes of CIFAR-10."""
    return _build(44, weights)


@model("cifar_resnet56", title="ResNet-56 (CIFAR-10)", cite="he2016")
def cifar_resnet56(*, weights: str) -> Model:
    """A residual network of 56 layers for the ten classes of CIFAR-10."""
    return _build(56, weights)
