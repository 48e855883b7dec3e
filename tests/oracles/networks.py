"""Real networks written out for libraries that need a module of its own for every step."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Sum(nn.Module):
    """A sum as a module."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y


class PlainBlock(nn.Module):
    """A basic block of a CIFAR ResNet without batch-norms, which are folded."""

    def __init__(self, block: nn.Module, join: nn.Module) -> None:
        super().__init__()
        self.conv1 = nn.utils.fuse_conv_bn_eval(block.conv1, block.bn1)
        self.conv2 = nn.utils.fuse_conv_bn_eval(block.conv2, block.bn2)
        self.relu1, self.relu2 = nn.ReLU(), nn.ReLU()
        self.shortcut, self.join = block.shortcut, join

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv2(self.relu1(self.conv1(x)))
        return self.relu2(self.join(y, self.shortcut(x)))


def plain_resnet(net: nn.Module, join=Sum) -> nn.Sequential:
    """A CIFAR ResNet with folded batch-norms; `join` makes the module that adds."""
    blocks = [b for stage in (net.layer1, net.layer2, net.layer3) for b in stage]
    first = nn.utils.fuse_conv_bn_eval(net.conv1, net.bn1)
    return nn.Sequential(
        first, nn.ReLU(), *(PlainBlock(b, join()) for b in blocks),
        nn.AvgPool2d(8), nn.Flatten(), net.linear,
    ).eval()  # fmt: skip


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


class WindowedPool(nn.Module):
    """Max-pooling of 3 x 3 windows with stride 2, each window's values laid out on their own."""

    def __init__(self, backwards: bool = False) -> None:
        super().__init__()
        self.pool, self.backwards = nn.MaxPool1d(9), backwards

    def forward(self, x: Tensor) -> Tensor:
        windows = x.unfold(2, 3, 2).unfold(3, 3, 2)  # [B, C, h, w, 3, 3]
        laid_out = windows.flatten(4).flatten(1, 3)
        laid_out = laid_out.flip(-1) if self.backwards else laid_out
        return self.pool(laid_out).reshape(windows.shape[:4])


def squeezenet(fire: type[Fire] = Fire, pool=lambda: nn.MaxPool2d(3, 2)) -> nn.Sequential:
    """SqueezeNet 1.0 without its last rectifier: class scores may be negative."""
    sizes = [(96, 16, 64), (128, 16, 64), (128, 32, 128), (256, 32, 128), (256, 48, 192),
             (384, 48, 192), (384, 64, 256), (512, 64, 256)]  # fmt: skip
    fires = [fire(*s) for s in sizes]
    features = nn.Sequential(
        nn.Conv2d(3, 96, 7, 2), nn.ReLU(inplace=fire is LooseFire), pool(), *fires[:3], pool(),
        *fires[3:7], pool(), fires[7],
    )  # fmt: skip
    classifier = nn.Sequential(nn.Dropout(), nn.Conv2d(512, 1000, 1))
    return nn.Sequential(features, classifier, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def load_squeezenet(net: nn.Sequential, path) -> nn.Sequential:
    """Trained weights, in double precision."""
    from safetensors.torch import load_file

    state = load_file(path)
    named = {k.replace("features", "0").replace("classifier", "1"): v for k, v in state.items()}
    net.load_state_dict(named)
    return net.double().eval()
