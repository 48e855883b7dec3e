"""Noisy linear imputation: absent pixels become the weighted mean of their neighbours plus noise.

To a classifier such pixels look much less unusual than a constant, and they carry little of the
original content. The linear system is ROAD's (`rong2022`); `multigrid` solves it for many images at
once.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from assay.errors import InputError, NotApplicable
from assay.plugins.option_types import NonNegative, Positive
from assay.plugins.registry import fill
from assay.removal.multigrid import Multigrid
from assay.types import Batch
from assay.types.random_numbers import Stream, drawn
from assay.units.features import Features

# The smallest tolerance that each precision reliably reaches, as a share of the largest pixel.
_REACH = {torch.float32: 1e-5, torch.float64: 1e-12}

# Small enough that another solver of this accuracy moves no pixel by more than 2e-4.
TOLERANCE = 1e-4
# Numbers solved at once: what fits into a CPU's cache, and what fills a GPU.
_AT_ONCE = {"cpu": 200_000, "cuda": 50_000_000}

_MOST_PLANES = 65_535  # of images and channels, in one GPU kernel

Workspaces = dict[tuple[object, ...], Multigrid]


def noisy_linear(
    images: Tensor,
    keep: Tensor,
    *,
    noise: float = 0.01,
    tol: float = TOLERANCE,
    seeds: int | Sequence[int] = 0,
) -> Tensor:
    """Fill the unknown pixels of images by noisy linear imputation, as ROAD does.

    Every unknown pixel becomes the weighted mean of its neighbours inside the image, with weight
    1/6 for the four direct and 1/12 for the four diagonal ones; then normal noise is added.

    Args:
        images: `[N, C, H, W]`; values at unknown pixels are ignored, but must be finite.
        keep: bool `[N, H, W]`, true where the pixel is known.
        noise: Standard deviation of the noise on unknown pixels, in the units of the images.
        tol: Largest error of the solution, in the units of the images. Where single precision does
            not reach it (below 1e-5 of the largest pixel) the image is solved in double precision.
        seeds: One for each image, or one number: image i then takes `seeds + i`. Images of equal
            seed get the same noise field, so that many masks of one image can share it.

    Returns:
        The images with known pixels unchanged. Images without a known pixel are 0 (the dataset's
        mean, for normalised images) plus noise.
    """
    _check(images, keep, noise, tol)
    of_image = range(seeds, seeds + len(images)) if isinstance(seeds, int) else list(seeds)
    if len(of_image) != len(images):
        raise InputError(
            f"Expected one seed for each of {len(images)} images, got {len(of_image)}."
        )
    filled = linear(images, keep, tol)
    if noise == 0:
        return filled
    fields = {s: _field(s, images.shape[1:], images.device) for s in dict.fromkeys(of_image)}
    field_of = torch.stack([fields[s] for s in of_image]).to(images)
    return filled.addcmul_(field_of, (~keep)[:, None].to(images.dtype), value=noise)


def linear(
    images: Tensor, keep: Tensor, tol: float, workspaces: Workspaces | None = None
) -> Tensor:
    """The images with unknown pixels filled, without noise; `workspaces` serve later calls too."""
    workspaces = {} if workspaces is None else workspaces
    filled = images.clone(memory_format=torch.contiguous_format)
    share = keep.flatten(1).float().mean(1)
    filled[share == 0] = 0  # without a known pixel the system has no solution
    mixed = (share > 0) & (share < 1)
    hard = tol < _REACH[torch.float32] * images.abs().amax((1, 2, 3))
    number = torch.float64 if images.dtype == torch.float64 else torch.float32
    for chosen, precision in ((mixed & ~hard, number), (mixed & hard, torch.float64)):
        rows = chosen.nonzero().flatten()
        rows = rows[share[rows].argsort(descending=True)]  # similarly hard images together
        for index in _parts(rows, images):
            part = images[index].to(precision)
            key = (*part.shape, part.dtype, part.device)
            if key not in workspaces:
                for other in [k for k in workspaces if k[4:] == key[4:]]:
                    del workspaces[other]  # of another size: the batch size was halved
                workspaces[key] = Multigrid(part)
            filled[index] = workspaces[key].solve(part, keep[index], tol).to(images.dtype)
    return filled


def _parts(rows: Tensor, images: Tensor) -> Iterator[Tensor]:
    """The rows in parts of one size, the last one padded, so that one workspace serves them all."""
    most = _AT_ONCE.get(images.device.type, _AT_ONCE["cuda"]) // images[0].numel()
    size = max(1, min(most, len(images), _MOST_PLANES // images.shape[1]))
    for start in range(0, len(rows), size):
        places = torch.arange(start, start + size, device=rows.device)
        yield rows[places.clamp(max=len(rows) - 1)]


@dataclass(frozen=True)
class NoisyLinear:
    """Absent pixels become the noisy mean of their neighbours."""

    inputs: Tensor  # [B, C, H, W]
    noise: Tensor  # [B, C, H, W], one field for all masks of a sample
    tol: float
    workspaces: Workspaces = field(default_factory=dict, repr=False, compare=False)

    def __call__(self, features: Features, absent: Tensor, samples: Tensor) -> Tensor:
        """The inputs of these samples without their absent units."""
        gone = features.spread(absent, samples)  # [n, H, W]
        filled = linear(self.inputs[samples], ~gone, self.tol, self.workspaces)
        return filled.addcmul_(self.noise[samples], gone[:, None].to(filled.dtype))


@fill("noisy_linear", version=2, title="Noisy linear imputation", cite="rong2022", imputes=True)
def noisy_linear_fill(
    batch: Batch,
    *,
    noise: NonNegative = 0.01,
    tol: Positive = TOLERANCE,
    variant: Literal["road", "soco"] = "road",
) -> NoisyLinear:
    """The weighted mean of the neighbours plus noise (ROAD); with everything absent, noise alone.

    `noise` is in pixel units, [0, 1], as in ROAD: it is scaled by the model's `std`, where known.
    `variant: soco` takes it in the units of the model's inputs. One noise field per sample is used
    for all its masks.
    """
    if batch.inputs.ndim != 4:
        raise NotApplicable(
            "The fill `noisy_linear` is for images; these inputs have no height and width."
        )
    scale = batch.inputs.new_ones(1)
    if variant == "road" and batch.pixels is not None:
        scale = 1 / batch.inputs.new_tensor(batch.pixels.std)
    normal = batch.draw("noisy linear fill", batch.inputs.shape[1:], normal=True)
    return NoisyLinear(batch.inputs, normal * (noise * scale[:, None, None]), tol)


def _field(seed: int, shape: Sequence[int], device: torch.device) -> Tensor:
    stream = Stream.of(seed, "noisy linear field")
    return drawn([stream], math.prod(shape), device, normal=True).reshape(*shape)


def _check(images: Tensor, keep: Tensor, noise: float, tol: float) -> None:
    if images.ndim != 4 or not images.is_floating_point():
        raise InputError(
            f"Expected `images` to be floating-point numbers [N, C, H, W], got {images.dtype} of "
            f"shape {tuple(images.shape)}."
        )
    if keep.dtype != torch.bool:
        raise InputError(
            f"Expected `keep` to be a bool mask, true where a pixel is known, got {keep.dtype}. "
            f"Compare first, as in `mask > 0.5`."
        )
    expected = (len(images), *images.shape[2:])
    if tuple(keep.shape) != expected:
        raise InputError(
            f"Expected `keep` to have shape {expected}, one mask for each image, got "
            f"{tuple(keep.shape)}."
        )
    if not bool(torch.isfinite(images).all()):
        number = int((~torch.isfinite(images)).flatten(1).any(1).nonzero()[0])
        raise InputError(
            f"Expected finite pixels, got NaN or inf in image {number}. Mark unknown pixels by "
            f"`keep` and give them any finite value."
        )
    if noise < 0:
        raise InputError(f"Expected `noise` to be at least 0, got {noise}.")
    reach = _REACH[torch.float64] * float(images.abs().max()) if images.numel() else 0.0
    if not tol > reach:
        raise InputError(
            f"Expected `tol` to be above {reach:.2g}, the limit of double precision for these "
            f"images, got {tol}."
        )
