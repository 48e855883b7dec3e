"""Networks and images in miniature, with known or knowable answers."""

from dataclasses import replace

import torch
from torch import nn

from assay.features import Features, make_units
from assay.types import Batch


class SmallNet(nn.Module):
    """Two convolutions with batch-norm, a pool and a head: an image network in miniature."""

    def __init__(self, classes: int = 4, width: int = 8) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu1 = nn.ReLU()
        self.pool = nn.MaxPool2d(2)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu2 = nn.ReLU()
        self.head = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(self.relu1(self.bn1(self.conv1(x))))
        return self.head(self.relu2(self.bn2(self.conv2(x))).mean((2, 3)))


def make_net(seed: int = 0, classes: int = 4) -> SmallNet:
    torch.manual_seed(seed)
    net = SmallNet(classes)
    net.train()
    with torch.no_grad():
        for _ in range(3):
            net(torch.randn(16, 3, 16, 16))  # batch-norm statistics that are not the initial ones
    return net.eval()


def make_images(n: int, seed: int = 1, size: int = 16) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(n, 3, size, size, generator=generator),
        torch.randint(0, 4, (n,), generator=generator),
    )


class LinearImages(nn.Module):
    """f(x) = <w, x> on images."""

    def __init__(self, seed: int = 0, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.weight = nn.Parameter(torch.randn(3, 3, 8, 8, dtype=dtype) / 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.einsum("bchw,kchw->bk", x, self.weight)


def some_entries(batch: Batch) -> Features:
    """Single entries as units, of which each sample has another number: `length_of` its id."""
    units = make_units(batch, "elements")
    lengths = torch.tensor([length_of(i, units.count) for i in batch.ids])
    return replace(units, key="some entries", valid=torch.arange(units.count) < lengths[:, None])


def length_of(sample: str, most: int) -> int:
    """How many units a sample has: half of them to all."""
    return most // 2 + sum(sample.encode()) % (most - most // 2 + 1)
