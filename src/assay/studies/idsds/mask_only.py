"""What a mask alone tells about the class: a small network sees masks and no pixels.

Three kinds of masks, one removed region each: `cell`, a random cell of a grid, as IDSDS deletes;
`segment`, a random segment of the image (k-means over colour and position, as SLIC); `bright`, the
quarter of the pixels that is brightest.

The protocol `mask_leakage` asks the same of any model and data. Here masks are drawn anew for each
seed, and no scikit-image is needed.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.training.supervised import train
from assay.types import Model

KINDS = ("cell", "segment", "bright")
GRID, SEGMENTS, ROUNDS = 4, 8, 8
POSITION = 0.5  # weight of a pixel's position against its colour, both on a scale of one
STEPS, BATCH, RATE = 600, 128, 3e-3


def masks(kind: str, pixels: Tensor, generator: torch.Generator) -> Tensor:  # [N, 1, H, W]
    """One mask for every image `[N, 3, H, W]` in [0, 1]: 1 where the image would be deleted."""
    n, _, height, width = pixels.shape
    if kind == "cell":
        chosen = torch.randint(GRID * GRID, (n,), generator=generator)
        cells = functional.one_hot(chosen, GRID * GRID).reshape(n, 1, GRID, GRID).float()
        return functional.interpolate(cells, (height, width), mode="nearest").to(pixels)
    if kind == "bright":
        grey = pixels.mean(1, keepdim=True)
        level = grey.flatten(1).quantile(0.75, dim=1).reshape(-1, 1, 1, 1)
        return (grey > level).to(pixels)
    labels = segments(pixels)  # [N, H, W]
    numbers = torch.rand(n, SEGMENTS, generator=generator).to(pixels)
    present = functional.one_hot(labels.flatten(1), SEGMENTS).any(1)  # [N, SEGMENTS]
    chosen = torch.where(present, numbers, -1.0).argmax(1)
    return (labels == chosen.reshape(-1, 1, 1))[:, None].to(pixels)


def segments(pixels: Tensor) -> Tensor:  # [N, H, W]
    """Segments by k-means over colour and position, from a fixed layout of centres."""
    n, _, height, width = pixels.shape
    rows, columns = torch.meshgrid(
        torch.linspace(0, 1, height), torch.linspace(0, 1, width), indexing="ij"
    )
    place = POSITION * torch.stack([rows, columns]).to(pixels).expand(n, -1, -1, -1)
    points = torch.cat([pixels, place], 1).flatten(2).transpose(1, 2)  # [N, H W, 5]
    across = SEGMENTS // 2
    starts = [
        ((2 * i + 1) * height // 4) * width + (2 * j + 1) * width // (2 * across)
        for i in range(2)
        for j in range(across)
    ]
    centres = points[:, starts]  # [N, SEGMENTS, 5]
    for _ in range(ROUNDS):
        member = functional.one_hot(torch.cdist(points, centres).argmin(2), SEGMENTS).to(pixels)
        size = member.sum(1)[..., None]  # [N, SEGMENTS, 1]
        mean = member.transpose(1, 2) @ points / size.clamp(min=1)
        centres = torch.where(size > 0, mean, centres)
    nearest: Tensor = torch.cdist(points, centres).argmin(2)
    return nearest.reshape(n, height, width)


def mask_accuracy(
    kind: str, pixels: Tensor, labels: Tensor, *, seed: int = 0, steps: int = STEPS
) -> float:
    """The held-out accuracy of a network that sees only masks; half of the images are held out."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(pixels), generator=generator)
    seen = masks(kind, pixels[order], generator) - 0.5
    labels = labels[order].to(seen.device)
    half = len(order) // 2
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Model(_network(int(labels.max()) + 1).to(seen.device), name="mask_only")

    def draw(number: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        rows = torch.randint(half, (number,), generator=generator).to(seen.device)
        return seen[rows], labels[rows]

    train(model, draw, steps=steps, batch=BATCH, rate=RATE, seed=seed, progress=False)
    with torch.no_grad():
        parts = [model.logits(part).argmax(1) for part in torch.split(seen[half:], 1000)]
    return float((torch.cat(parts) == labels[half:]).float().mean())


def _network(classes: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, 2, 1), nn.ReLU(),
        nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(),
        nn.Conv2d(64, 64, 3, 2, 1), nn.ReLU(),
        nn.Flatten(), nn.LazyLinear(classes),
    )  # fmt: skip
