"""Extremal perturbations: the smooth mask of a fixed area that keeps the output highest."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from assay.engine.respondent import micro_batches
from assay.methods.call_types import Context
from assay.methods.gradients import Output, explained
from assay.plugins.option_types import Options
from assay.plugins.registry import Passes, method
from assay.removal.fills import gaussian
from assay.types import Batch, Model

# As published. Sizes are in pixels for images of 224 per side, and scale with the image.
SIDE, STEP, SIGMA, BLUR = 224, 7, 21, 20
LEVELS, COLDNESS = 8, 20.0
FEW = 64  # the least number of masks that are optimised together
RATE, MOMENTUM, PENALTY, GROWTH = 0.01, 0.9, 300.0, 1.0035

Area = Annotated[float, Field(gt=0, lt=1)]
MaskVariant = Literal["preserve", "delete"]


def _areas(area: float | tuple[float, ...]) -> tuple[float, ...]:
    return area if isinstance(area, tuple) else (area,)


def _every_step(options: Options) -> Passes:
    count = options["steps"] * len(_areas(options["area"]))
    return Passes(forward=count, backward=count)


@method(
    "extremal_perturbation",
    needs=["gradients", "image"],
    passes=_every_step,
    family="perturbation",
    cite="fong2019",
    title="Extremal perturbation",
)
def extremal_perturbation(
    model: Model,
    batch: Batch,
    *,
    area: Area | Annotated[tuple[Area, ...], Field(min_length=1)] = 0.1,
    steps: Annotated[int, Field(ge=1)] = 800,
    variant: MaskVariant = "preserve",
    output: Output = "logit",
) -> Tensor:
    """The smooth mask of a fixed area that keeps the output highest when the rest is blurred.

    Formula: the m that maximises f(m x + (1 - m) blurred x) - L mean((m - r)^2), with r = 1 at the
    largest values of m, as many as `area` allows, and 0 elsewhere.

    The mask is the smooth maximum of kernels on a grid, the blur a pyramid of eight levels. It
    takes `steps` steps of gradient descent with momentum; L grows from 300 by 0.35 % per step, and
    every other step is on the mirrored image. For several areas the map is the mean of their masks.
    `delete` finds the mask whose blur lowers the output most.

    Differs from the paper: this follows the authors' TorchRay. Grid, kernel and blur are 7, 21 and
    20 pixels at 224 and scale with the shorter side. As in TorchRay, the area is counted on the
    mask with its margin around the image. In TorchRay rounding decides which of equal values belong
    to the area, at the start all of them; here they share it.
    """
    areas = torch.tensor(_areas(area), dtype=torch.float64, device=batch.inputs.device)
    masks = SmoothMasks.on(batch.map_shape)
    parts = []
    # Padding is optimised as well, so pad at most to the next power of two.
    size = min(model.micro_batch, max(FEW, 2 ** math.ceil(math.log2(len(batch) * len(areas)))))
    for samples, rows, asked in micro_batches(len(batch), len(areas), size, batch.inputs.device):
        search = _Search(model, batch, samples, masks, areas[rows])
        parts.append(search.run(steps, variant, output)[:asked])
    return torch.cat(parts).reshape(len(batch), len(areas), *batch.map_shape).mean(1)


@dataclass(frozen=True)
class _Search:
    """The search for one mask per sample of a micro-batch; the samples are independent."""

    model: Model
    batch: Batch
    samples: Tensor  # [n]
    masks: "SmoothMasks"
    areas: Tensor  # [n]

    def run(self, steps: int, variant: MaskVariant, output: Output) -> Tensor:  # [n, H, W]
        """The masks of the last step, as shown to the network."""
        pyramid = self._pyramid()
        keep = variant == "preserve"
        precise = torch.promote_types(self.batch.dtype, torch.float32)  # e^20 exceeds half
        grid = torch.ones(
            len(self.samples), *self.masks.grid, dtype=precise, device=self.areas.device
        )
        speed, penalty, mask = torch.zeros_like(grid), PENALTY, grid
        for step in range(steps):
            grid.requires_grad_(True)
            with torch.enable_grad():
                whole = self.masks.smooth(grid)
                mask = self.masks.crop(whole)
                shown = _blend(pyramid, mask if keep else 1 - mask)
                answer = self._answer(shown.flip(-1) if step % 2 == 0 else shown, output)
                off = (whole - self.masks.nearest(whole.detach(), self.areas)).square().mean((1, 2))
                loss = (penalty * off - (answer if keep else -answer)).sum()
                (slope,) = torch.autograd.grad(loss, grid)
            # The first step is not damped, so the momentum starts at full speed.
            speed = MOMENTUM * speed + (1 - MOMENTUM if step else 1) * slope
            grid = (grid.detach() - RATE * speed).clamp(0, 1)
            penalty *= GROWTH
        return mask.detach().to(self.batch.dtype)

    def _answer(self, shown: Tensor, output: Output) -> Tensor:  # [n]
        shown = self.model.laid_out(shown)
        logits = self.model.logits(self.batch.inputs[self.samples], at=shown)
        return explained(self.model, logits, self.batch.targets[self.samples], output)

    def _pyramid(self) -> Tensor:  # [n, LEVELS, C, H, W]
        """From the most blurred image to the image itself, with zeros outside the border."""
        images, most = self.batch.inputs[self.samples], self.masks.share(BLUR)
        sigmas = [most * (1 - level / (LEVELS - 1)) for level in range(LEVELS - 1)]
        blurred = [gaussian(images, sigma, cut=4.0, border="constant") for sigma in sigmas]
        return torch.stack([*blurred, images], 1)


def _blend(pyramid: Tensor, mask: Tensor) -> Tensor:  # [n, C, H, W]
    """Take every pixel from its level of the pyramid: 1 is the image, 0 the most blurred."""
    height = mask[:, None, None] * (LEVELS - 1)  # [n, 1, 1, H, W]
    below = height.detach().floor()
    level = below.long().expand(-1, -1, *pyramid.shape[2:])
    low = pyramid.gather(1, level)[:, 0]
    high = pyramid.gather(1, (level + 1).clamp(max=LEVELS - 1))[:, 0]
    return torch.lerp(low, high, (height - below)[:, 0].to(low.dtype))


@dataclass(frozen=True)
class SmoothMasks:
    """Masks over an image and a margin: the smooth maximum of kernels on a grid of points.

    The image is cut into cells of `step` pixels with one point of the grid in each; a cell depends
    on the points around it, `radius` to each side.
    """

    shape: tuple[int, int]
    step: int
    sigma: float

    @classmethod
    def on(cls, shape: tuple[int, ...]) -> "SmoothMasks":
        """Masks for images of this height and width; sizes scale with the shorter side."""
        height, width = shape
        side = min(shape)
        return cls((height, width), max(1, round(STEP * side / SIDE)), SIGMA * side / SIDE)

    def share(self, pixels: float) -> float:
        """A size in pixels at 224, scaled to these images."""
        return pixels * min(self.shape) / SIDE

    @property
    def margin(self) -> int:
        """Pixels of the mask around the image, which the network does not see."""
        return round(self.sigma)

    @property
    def radius(self) -> int:
        """How many points of the grid a cell depends on, to each side."""
        return 1 + math.ceil(self.sigma / self.step)

    @property
    def padding(self) -> int:
        """How many points of value 0 surround the grid, to each side."""
        return 1 + math.ceil((self.margin + self.sigma) / self.step)

    @property
    def grid(self) -> tuple[int, int]:
        """The number of points, down and across."""
        height, width = self.shape
        return math.ceil(height / self.step), math.ceil(width / self.step)

    @property
    def size(self) -> tuple[int, int]:
        """The mask's height and width with its margin."""
        extra = 2 * (self.padding - self.radius)
        height, width = ((cells + extra) * self.step - self.step + 1 for cells in self.grid)
        return height, width

    def smooth(self, grid: Tensor) -> Tensor:  # [n, *grid] -> [n, *size]
        """The masks for these values of the points."""
        padded = functional.pad(grid, [self.padding] * 4)
        cells: Tensor = _SmoothMaximum.apply(padded, self._kernel(grid))  # type: ignore[no-untyped-call]
        pixels = cells.permute(2, 3, 0, 4, 1).flatten(3, 4).flatten(1, 2)
        height, width = self.size
        return pixels[:, :height, :width].clamp(0, 1)

    def _kernel(self, like: Tensor) -> Tensor:  # [neighbours down, across, step, step]
        """A point's weight by its distance in sigmas: 1 up to a half, then like a Gaussian."""
        neighbour = torch.arange(2 * self.radius + 1, dtype=torch.float64)[:, None]
        pixel = torch.arange(self.step, dtype=torch.float64)
        away = pixel - self.margin - self.step * (neighbour - self.padding)  # [neighbours, step]
        distance = torch.hypot(away[:, None, :, None], away[None, :, None, :]) / self.sigma
        return torch.exp(-2 * (distance - 0.5).clamp(min=0) ** 2).to(like)

    def crop(self, mask: Tensor) -> Tensor:  # [n, *size] -> [n, *shape]
        """The part of the mask that covers the image."""
        height, width = self.shape
        start = self.margin
        return mask[:, start : start + height, start : start + width]

    def nearest(self, mask: Tensor, areas: Tensor) -> Tensor:  # [n, *size]
        """The nearest mask of 0 and 1 with each area.

        It is 1 at the largest values. Equal values that compete for the rest of the area get equal
        shares, because rounding must not decide between them.
        """
        values = (mask.flatten(1) * 1e5).round()  # [n, entries]
        entries = values.shape[1]
        zeros = ((1 - areas) * entries).long()[:, None]  # [n, 1]
        level = values.sort(dim=1).values.gather(1, zeros)
        above, equal = values > level, values == level
        left = entries - zeros - above.sum(1, keepdim=True)
        even = left / equal.sum(1, keepdim=True)
        return torch.where(equal, even.to(mask.dtype), above.to(mask.dtype)).reshape(mask.shape)


class _SmoothMaximum(torch.autograd.Function):
    """sum v e^(20 v) / sum e^(20 v) over the weighted points around each pixel.

    Neighbours are handled one at a time, in both passes: all together take about eighty times the
    memory of the mask, too much for a cache and, in a large batch, for a GPU.
    """

    @staticmethod
    def forward(
        ctx: Context, grid: Tensor, kernel: Tensor
    ) -> Tensor:  # [step, step, n, rows, columns]
        reach, step = kernel.shape[0], kernel.shape[2]
        cells = [len(grid), *(length - reach + 1 for length in grid.shape[1:])]
        top, bottom = grid.new_zeros(2, step**2, math.prod(cells))
        for _, _, value in _neighbours(grid, kernel):
            weight = value.exp()
            bottom += weight
            top.addcmul_(weight, value)
        top /= bottom
        ctx.save_for_backward(grid, kernel, top, bottom)
        maximum: Tensor = top / COLDNESS
        return maximum.reshape(step, step, *cells)

    @staticmethod
    def backward(ctx: Context, *slopes: Tensor) -> tuple[Tensor, None]:
        grid, kernel, top, bottom = ctx.saved_tensors
        share = slopes[0].reshape_as(bottom) / bottom
        least, result = share * (1 - top), torch.zeros_like(grid)
        for place, weights, value in _neighbours(grid, kernel):
            pull = torch.addcmul(least, share, value).mul_(value.exp_()).mul_(weights)
            cells = result[place]
            cells += pull.sum(0).reshape(cells.shape)
        return result, None


def _neighbours(grid: Tensor, kernel: Tensor) -> Iterator[tuple[tuple[slice, ...], Tensor, Tensor]]:
    """For each neighbour: its slice of the grid, its weights, and 20 times its weighted values.

    Weights are `[step * step, 1]`, by the pixel of a cell, values `[step * step, cells]`.
    """
    reach = kernel.shape[0]
    rows, columns = (length - reach + 1 for length in grid.shape[1:])
    for down in range(reach):
        for across in range(reach):
            place = (slice(None), slice(down, down + rows), slice(across, across + columns))
            weights = kernel[down, across].reshape(-1, 1)
            yield place, weights, (COLDNESS * weights) * grid[place].reshape(1, -1)
