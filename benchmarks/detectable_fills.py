"""Can a small network tell filled pixels from the image's own? The control of ROAD, per candidate.

For each units and fill a network of two convolutions (3 x 3 and 1 x 1, summed), a sigmoid and two
further 1 x 1 convolutions predicts for every pixel whether it was filled. It is trained on one half
of the images and tested on the other, with 5 to 50 % of the units absent at random. The area under
its ROC curve is .5 where filled pixels look like the others.
"""

from typing import Any

import numpy as np
import scipy
import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.removal import FillChoice, make_removal
from assay.store import Array
from assay.types import Batch
from assay.units.features import UnitsChoice, make_units

WIDTH, STEPS, ROWS, RATE = 32, 60, 16, 5e-3
SHARES = (0.05, 0.5)  # of the units that are absent, drawn between


class Detector(nn.Module):
    """The network that predicts which pixels were filled."""

    def __init__(self, channels: int) -> None:
        """Random weights."""
        super().__init__()
        self.wide = nn.Conv2d(channels, WIDTH, 3, padding=1, padding_mode="replicate")
        self.narrow = nn.Conv2d(channels, WIDTH, 1)
        self.middle, self.last = nn.Conv2d(WIDTH, WIDTH, 1), nn.Conv2d(WIDTH, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        """The evidence that each pixel was filled, `[B, H, W]`."""
        x = torch.sigmoid(self.wide(x) + self.narrow(x))
        evidence: Tensor = self.last(torch.relu(self.middle(x)))[:, 0]
        return evidence


def detectability(batch: Batch, units: UnitsChoice, fill: FillChoice) -> float:
    """The area under the ROC curve over the pixels of the second half of the images."""
    features, removal = make_units(batch, units), make_removal(batch, fill)
    random = torch.Generator().manual_seed(0)

    def filled(samples: Tensor) -> tuple[Tensor, Tensor]:
        low, high = SHARES
        share = low + (high - low) * torch.rand(len(samples), 1, generator=random)
        absent = torch.rand(len(samples), features.count, generator=random) < share
        absent &= features.valid[samples]
        return removal(features, absent, samples), features.spread(absent, samples)

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = Detector(batch.inputs.shape[1])
    optimizer = torch.optim.Adam(net.parameters(), lr=RATE)
    middle = len(batch) // 2
    with torch.enable_grad():
        for _ in range(STEPS):
            images, gone = filled(torch.randint(0, middle, (ROWS,), generator=random))
            loss = functional.binary_cross_entropy_with_logits(net(images), gone.float())
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    with torch.no_grad():
        images, gone = filled(torch.arange(middle, len(batch)))
        return roc_area(net(images).flatten().numpy(), gone.flatten().numpy())


def roc_area(scores: Array, true: Array) -> float:
    """The probability that a filled pixel scores higher than another one; ties count half."""
    positive = int(true.sum())
    negative = len(true) - positive
    ranks = scipy.stats.rankdata(scores)
    wins: Any = ranks[np.asarray(true, bool)].sum() - positive * (positive + 1) / 2
    return float(wins / (positive * negative))
