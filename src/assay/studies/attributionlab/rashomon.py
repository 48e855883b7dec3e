"""Why data with known features is not enough: a network may leave some of them unused.

AttributionLab's example (App. A): one image a class, each with two objects. Class 0 has a rectangle
in the centre and a smaller one at the upper left edge, class 1 a disc in the centre and a smaller
one at the lower right edge. A network that tells the two images apart is then shown each object by
itself. What it makes of them differs between networks that are equally right: the Rashomon effect.

Beside the paper: it gives neither sizes nor colours nor the network. Here the images are white on
black, the objects in the centre cover about as many pixels, and the network has three convolutions
and two linear layers. What it leaves unused depends on these, on how long it is trained and on the
seed, which is the point: networks that end at a linear layer on all places, trained as long, mostly
use both objects.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SIZE = 32
STEPS = 500  # of training at most, on both images at once
ENOUGH = 0.1  # the loss at which it ends


@dataclass(frozen=True)
class UsedObjects:
    """What one trained network is right on, as shares.

    Attributes:
        seed: Of its weights.
        whole: Of the two images it was trained on.
        centre: Of the two with only the object in the centre.
        edge: Of the two with only the object at the edge.
    """

    seed: int
    whole: float
    centre: float
    edge: float

    @property
    def ignores_the_centre(self) -> bool:
        """Whether it is always right, by the objects at the edge alone."""
        return (self.whole, self.edge, self.centre) == (1.0, 1.0, 0.5)


def images() -> tuple[Tensor, Tensor]:
    """The objects in the centre and those at the edge, class by class: `[2, 1, H, W]` each."""
    rows, columns = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")

    def rectangle(top: int, left: int, height: int, width: int) -> Tensor:
        down, right = rows - top, columns - left
        return (down >= 0) & (down < height) & (right >= 0) & (right < width)

    def disc(row: float, column: float, radius: float) -> Tensor:
        return (rows - row) ** 2 + (columns - column) ** 2 <= radius**2

    middle = (SIZE - 1) / 2
    centre = torch.stack([rectangle(11, 11, 10, 10), disc(middle, middle, 5.6)])
    edge = torch.stack([rectangle(1, 1, 5, 5), disc(SIZE - 4, SIZE - 4, 2.8)])
    return centre[:, None].float(), edge[:, None].float()


def small_network() -> nn.Module:
    """Three convolutions, each at half the resolution, and two linear layers."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(),
        nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(),
        nn.Conv2d(16, 16, 3, 2, 1), nn.ReLU(),
        nn.Flatten(), nn.Linear(16 * (SIZE // 8) ** 2, 32), nn.ReLU(), nn.Linear(32, 2),
    )  # fmt: skip


def rashomon(seed: int) -> UsedObjects:
    """Train a network of this seed on the two images, and show it their objects one by one."""
    centre, edge = images()
    labels = torch.arange(2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = small_network()
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3)
    with torch.enable_grad():
        for _ in range(STEPS):
            loss = F.cross_entropy(net(centre + edge), labels)
            if float(loss.detach()) < ENOUGH:
                break
            optimiser.zero_grad()
            torch.autograd.backward(loss)
            optimiser.step()
    with torch.no_grad():
        right = [
            float((net(shown).argmax(1) == labels).double().mean())
            for shown in (centre + edge, centre, edge)
        ]
    return UsedObjects(seed, *right)
