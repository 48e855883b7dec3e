"""Random crops and mirrors of training images."""

import torch
from torch import Tensor

MARGIN = 8  # a crop is off by at most the side over this


def augment(x: Tensor, generator: torch.Generator) -> Tensor:  # [n, C, H, W], any number type
    """Move each image by up to an eighth of its side, with reflected borders, and mirror half.

    Args:
        x: Images.
        generator: The random numbers, on the device of the images or on the CPU.
    """
    n, height, width = len(x), x.shape[-2], x.shape[-1]
    rows, columns = (_shifted(side, n, generator) for side in (height, width))  # [n, side]
    flip = torch.rand(n, 1, generator=generator, device=generator.device) < 0.5
    columns = torch.where(flip, columns.flip(1), columns)
    images = torch.arange(n, device=generator.device)[:, None, None]
    picked = [index.to(x.device) for index in (images, rows[:, :, None], columns[:, None, :])]
    moved = x.permute(0, 2, 3, 1)[picked[0], picked[1], picked[2]]
    # In the usual layout: torch's gradients of 1 x 1 filters with a stride crash in channels-last.
    return moved.permute(0, 3, 1, 2).contiguous()


def _shifted(side: int, n: int, generator: torch.Generator) -> Tensor:  # [n, side]
    """The positions along one side after a random shift; beyond the border they run back."""
    margin = min(max(1, side // MARGIN), side - 1)
    device = generator.device
    shift = torch.randint(-margin, margin + 1, (n, 1), generator=generator, device=device)
    places = (torch.arange(side, device=device)[None] + shift).abs()
    return torch.where(places < side, places, 2 * (side - 1) - places)
