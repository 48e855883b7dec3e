"""Why data with known features is not enough: a network may not use some of them.

AttributionLab's example (App. A): one image per class, each with two objects. Class 0 has a
rectangle in the centre and a smaller one at the upper left edge, class 1 a disc in the centre and a
smaller one at the lower right edge. A network that classifies the two images correctly is then
shown each object by itself. Equally accurate networks classify them differently: the Rashomon
effect.

Differs from the paper: the paper gives neither sizes nor colours nor the network. Here the images
are white on black, the two objects in the centre have about the same area, and the network has
three convolutions and two linear layers. Which objects it uses depends on these choices, on the
length of training and on the seed, which is the point: networks with one linear layer over all
positions, trained for as long, mostly use both objects.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SIZE = 32
STEPS = 500  # at most, each on both images
ENOUGH = 0.1  # the loss at which training stops


@dataclass(frozen=True)
class UsedObjects:
    """The accuracies of one trained network.

    Attributes:
        seed: The seed of its initial weights.
        whole: Accuracy on the two training images.
        centre: Accuracy on the two images with only the object in the centre.
        edge: Accuracy on the two images with only the object at the edge.
    """

    seed: int
    whole: float
    centre: float
    edge: float

    @property
    def ignores_the_centre(self) -> bool:
        """Whether it is always right, and the objects at the edge alone are enough."""
        return (self.whole, self.edge, self.centre) == (1.0, 1.0, 0.5)


def images() -> tuple[Tensor, Tensor]:
    """Images of the objects in the centre and of those at the edge: `[2 classes, 1, H, W]` each."""
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
    """Train a network on the two images, and test it on their objects one by one."""
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
