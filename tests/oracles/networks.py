"""Real networks written out for libraries that need a module of its own for every step."""

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


def inner_pool() -> nn.Module:
    """SqueezeNet's pool without the windows that hang over the edge."""
    return nn.MaxPool2d(3, 2)


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
