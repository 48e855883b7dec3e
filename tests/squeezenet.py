"""SqueezeNet 1.0, trained on ImageNet: as people write it, or with a module for every step."""

from collections import OrderedDict
from collections.abc import Callable

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

from beside import beside

SEEN = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}  # what it was trained with


class Fire(nn.Module):
    """A squeeze to few channels, then two widths side by side."""

    def __init__(self, channels: int, squeeze: int, expand: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(channels, squeeze, 1)
        self.expand1x1 = nn.Conv2d(squeeze, expand, 1)
        self.expand3x3 = nn.Conv2d(squeeze, expand, 3, padding=1)
        self.relus = nn.ModuleList(nn.ReLU() for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        x = self.relus[0](self.squeeze(x))
        return torch.cat([self.relus[1](self.expand1x1(x)), self.relus[2](self.expand3x3(x))], 1)


class LooseFire(Fire):
    """The same with functions, in place."""

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.squeeze(x), inplace=True)
        return torch.cat([F.relu_(self.expand1x1(x)), self.expand3x3(x).relu_()], 1)


def overhanging_pool() -> nn.Module:
    """Windows that hang over the edge count."""
    return nn.MaxPool2d(3, 2, ceil_mode=True)


def trained_squeezenet(
    fire: type[Fire] = Fire,
    pool: Callable[[], nn.Module] = overhanging_pool,
    rectified: bool = False,
) -> nn.Sequential:
    """The network with its weights; its last rectifier, if wanted, makes most class scores 0."""
    sizes = [(96, 16, 64), (128, 16, 64), (128, 32, 128), (256, 32, 128), (256, 48, 192),
             (384, 48, 192), (384, 64, 256), (512, 64, 256)]  # fmt: skip
    fires = [fire(*s) for s in sizes]
    features = nn.Sequential(
        nn.Conv2d(3, 96, 7, 2), nn.ReLU(inplace=fire is LooseFire), pool(), *fires[:3], pool(),
        *fires[3:7], pool(), fires[7],
    )  # fmt: skip
    classifier = nn.Sequential(
        nn.Dropout(), nn.Conv2d(512, 1000, 1), *([nn.ReLU()] if rectified else []),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    )  # fmt: skip
    net = nn.Sequential(OrderedDict(features=features, classifier=classifier))
    weights = "weights/imagenet-squeezenet/squeezenet1_0_deepcompressed.safetensors"
    net.load_state_dict(load_file(beside(weights)))
    return net.eval()
