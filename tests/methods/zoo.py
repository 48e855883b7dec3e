"""One small network written in many ways: what a method says of it must not depend on the way."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

STYLES = ("functional", "method", "shared", "in_place", "written", "augmented", "aliased")


class Zoo(nn.Module):
    """Batch-norm, pools, a residual sum, a squeeze-and-excitation gate, a concatenation.

    The plain style has a module of its own for every rectifier and writes nothing in place.
    """

    def __init__(self, style: str = "plain", bias: bool = True) -> None:
        super().__init__()
        self.style = style
        self.conv1 = nn.Conv2d(3, 6, 3, padding=1, bias=bias)
        self.bn1 = nn.BatchNorm2d(6)
        self.conv2 = nn.Conv2d(6, 6, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(6)
        self.conv3 = nn.Conv2d(6, 6, 3, padding=1, bias=bias)
        self.down = nn.Linear(6, 3, bias=bias)
        self.up = nn.Linear(3, 6, bias=bias)
        self.squeeze = nn.Conv2d(6, 4, 1, bias=bias)
        self.left = nn.Conv2d(4, 5, 1, bias=bias)
        self.right = nn.Conv2d(4, 5, 3, padding=1, bias=bias)
        self.head = nn.Linear(10 * 4, 4, bias=bias)
        self.relus = nn.ModuleList(nn.ReLU() for _ in range(8))
        self.relu = nn.ReLU(inplace=style in ("in_place", "aliased"))

    def rectify(self, x: Tensor, place: int) -> Tensor:
        match self.style:
            case "functional":
                return F.relu(x) if place % 2 else torch.relu(x)
            case "method":
                return x.relu() if place % 2 else x.clamp(min=0)
            case "written":
                return x.relu_() if place % 2 else F.relu(x, inplace=True)
            case "aliased":  # the tensor is used on, not what the module gave
                self.relu(x)
                return x
            case "shared" | "in_place":
                return self.relu(x)
        return self.relus[place](x)

    def join(self, x: Tensor, y: Tensor) -> Tensor:
        if self.style in ("augmented", "aliased"):
            x += y
            return x
        return x.add_(y) if self.style == "written" else x + y

    def gate(self, x: Tensor, by: Tensor) -> Tensor:
        by = by[:, :, None, None]
        if self.style in ("augmented", "aliased"):
            x *= by.sigmoid_()
            return x
        if self.style == "method":
            return torch.mul(torch.sigmoid(by).expand_as(x), x)
        return x * torch.sigmoid(by)

    def forward(self, x: Tensor) -> Tensor:
        x = self.rectify(self.bn1(self.conv1(x)), 0)
        x = F.max_pool2d(x, 2)
        y = self.rectify(self.bn2(self.conv2(x)), 1)
        x = self.rectify(self.join(self.conv3(y), x), 2)
        seen = F.adaptive_avg_pool2d(x, 1).flatten(1) if self.style == "plain" else x.mean((2, 3))
        x = self.gate(x, self.up(self.rectify(self.down(seen), 3)))
        x = self.rectify(self.squeeze(x), 4)
        x = torch.cat([self.rectify(self.left(x), 5), self.rectify(self.right(x), 6)], 1)
        x = F.avg_pool2d(x, 2)
        return self.head(x.flatten(1))


def make_zoo(style: str = "plain") -> Zoo:
    """The same weights in every style; batch-norms with statistics of their own."""
    torch.manual_seed(0)
    net = Zoo("plain").double()
    net.train()
    with torch.no_grad():
        for norm in (net.bn1, net.bn2):
            norm.weight.uniform_(0.5, 1.5)
            norm.bias.uniform_(-0.5, 0.5)
        for _ in range(3):
            net(torch.randn(16, 3, 8, 8).double())
    styled = Zoo(style).double()
    styled.load_state_dict(net.state_dict())
    return styled.eval()


def zoo_images(n: int = 3) -> tuple[Tensor, Tensor]:
    x = torch.randn(n, 3, 8, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return x, torch.arange(n) % 4


class Homogeneous(nn.Module):
    """A rectifier network without biases, with a residual sum: f(kx) = k f(x)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(6, 6, 3, padding=1, bias=False)
        self.head = nn.Linear(6 * 16, 4, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.relu(self.conv2(x) + x)
        return self.head(x.flatten(1))


def make_homogeneous() -> Homogeneous:
    torch.manual_seed(2)
    return Homogeneous().double().eval()
