"""BagNets: networks whose logits are the mean of the logits of every small patch alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from assay.errors import InputError
from assay.models.cifar_resnet import CLASSES, PIXELS
from assay.models.small_vit import PIXELS as CIFAR_PIXELS
from assay.models.weights import load_weights
from assay.plugins.registry import model
from assay.types import Model, Preprocess

EXPANSION = 4  # how many times more channels leave a block than its middle has


@dataclass(frozen=True)
class Layout:
    """The stages: kernel and stride of each one's first block, and how many blocks it has."""

    kernels: tuple[int, ...]
    strides: tuple[int, ...]
    blocks: tuple[int, ...]
    width: int  # channels of the stem
    size: int  # pixels a side of the images it is meant for


# By the patch size in pixels. 33 is the published BagNet-33, with its width and depth.
LAYOUTS = {
    5: Layout((3, 1, 1), (2, 1, 1), (2, 2, 2), width=32, size=32),
    9: Layout((3, 3, 1), (2, 1, 1), (2, 2, 2), width=32, size=32),
    17: Layout((3, 3, 3, 3), (2, 1, 1, 1), (2, 2, 2, 1), width=32, size=32),
    33: Layout((3, 3, 3, 3), (2, 2, 2, 1), (3, 4, 6, 3), width=64, size=224),
}


class Bottleneck(nn.Module):
    """1 x 1, then 1 x 1 or 3 x 3 without padding, then 1 x 1, added to a shortcut."""

    def __init__(self, channels: int, middle: int, kernel: int, stride: int) -> None:
        """A block with EXPANSION times as many output channels as its middle has."""
        super().__init__()
        out = EXPANSION * middle
        self.conv1 = nn.Conv2d(channels, middle, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(middle)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(middle, middle, kernel, stride, bias=False)
        self.bn2 = nn.BatchNorm2d(middle)
        self.relu2 = nn.ReLU()
        self.conv3 = nn.Conv2d(middle, out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out)
        self.downsample: nn.Module = nn.Identity()
        if stride > 1 or channels != out:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out)
            )
        self.relu3 = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, H, W] to [B, C', (H - kernel) // stride + 1, ...]."""
        y = self.relu1(self.bn1(self.conv1(x)))
        y = self.bn3(self.conv3(self.relu2(self.bn2(self.conv2(y)))))
        # Nothing is padded, so y is smaller: the shortcut takes the first pixel of each patch.
        shortcut = self.downsample(x)[:, :, : y.shape[2], : y.shape[3]]
        out: Tensor = self.relu3(y + shortcut)
        return out


class BagNet(nn.Module):
    """Features of patches, their mean, one linear layer: so the logit is the mean over patches.

    No convolution pads. Patch (i, j) depends only on the `receptive_field` pixels from `stride` i
    and `stride` j on.
    """

    def __init__(
        self,
        classes: int = 10,
        width: int = 32,
        kernels: Sequence[int] = LAYOUTS[9].kernels,
        strides: Sequence[int] = LAYOUTS[9].strides,
        blocks: Sequence[int] = LAYOUTS[9].blocks,
    ) -> None:
        """One stage per kernel; only its first block is larger than 1 x 1 and may stride."""
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 1, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU()
        self.receptive_field, self.stride, channels = 3, 1, width
        stages = []
        for n, (kernel, stride, repeats) in enumerate(zip(kernels, strides, blocks, strict=True)):
            middle = width * 2**n
            first = Bottleneck(channels, middle, kernel, stride)
            channels = EXPANSION * middle
            rest = (Bottleneck(channels, middle, 1, 1) for _ in range(repeats - 1))
            stages.append(nn.Sequential(first, *rest))
            self.receptive_field += (kernel - 1) * self.stride
            self.stride *= stride
        for n, stage in enumerate(stages, 1):
            self.add_module(f"layer{n}", stage)
        self.stages = len(stages)
        self.fc = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        """[B, 3, H, W] to logits [B, classes]."""
        logits: Tensor = self.fc(self.features(x).mean((2, 3)))
        return logits

    def features(self, x: Tensor) -> Tensor:
        """[B, 3, H, W] to [B, C, h, w], each position from its own patch."""
        if min(x.shape[2:]) < self.receptive_field:
            raise InputError(
                f"Expected images of at least {self.receptive_field} pixels a side, the size of "
                f"a patch, got {tuple(x.shape[2:])}."
            )
        x = self.relu(self.bn1(self.conv2(self.conv1(x))))
        for n in range(1, self.stages + 1):
            x = self.get_submodule(f"layer{n}")(x)
        return x

    def patch_logits(self, x: Tensor) -> Tensor:
        """[B, 3, H, W] to [B, classes, h, w]: the logits of every patch alone."""
        logits: Tensor = self.fc(self.features(x).movedim(1, -1))
        return logits.movedim(-1, 1)


@model("bagnet", title="BagNet", cite="brendel2019")
def bagnet(
    *,
    weights: str | None = None,
    field: Literal[5, 9, 17, 33] = 9,
    width: Annotated[int, Field(ge=1)] | None = None,
    normalise: Literal["imagenet", "cifar10"] = "imagenet",
    classes: Annotated[int, Field(ge=2)] = 10,
    seed: int = 0,
) -> Model:
    """A bag of local features: the mean of the logits of every patch of `field` pixels alone.

    Patches of 5, 9 and 17 pixels, one every 2, are for images of 32 pixels; 33, one every 8, is the
    published BagNet-33 for 224 pixels. `normalise` says by which dataset's mean and deviation the
    pixels are normalised. Without `weights` it is untrained, with random weights drawn by `seed`;
    `assay zoo train` trains it.
    """
    layout = LAYOUTS[field]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = BagNet(classes, width or layout.width, layout.kernels, layout.strides, layout.blocks)
    if weights:
        load_weights(net, weights)
    pixels = PIXELS if normalise == "imagenet" else CIFAR_PIXELS
    margin = 32 if layout.size > 32 else 0  # pixels the resized image is larger than the crop
    return Model(
        net=net.eval(),
        name="bagnet",
        checkpoint=Path(weights).stem if weights else "untrained",
        cam_layer=f"layer{len(layout.blocks)}",
        prepare=Preprocess(size=layout.size, pixels=pixels, resize=layout.size + margin),
        pixels=pixels,
        classes=CLASSES if classes == len(CLASSES) else tuple(map(str, range(classes))),
        card={
            "title": f"BagNet-{field}",
            "parameters": sum(p.numel() for p in net.parameters()),
            "input": f"RGB {layout.size} x {layout.size}",
            "cite": "brendel2019",
        },
    )
