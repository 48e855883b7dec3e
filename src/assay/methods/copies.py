"""Noisy copies: a method runs on copies of each input, and the moments of its maps are kept."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from assay.suite.fields import Noise
from assay.types import Batch, Model

ROWS = 1024  # copies explained at once: enough to fill micro-batches, few enough for memory


@dataclass(frozen=True)
class Moments:
    """The mean of noisy maps and of their squares, from which all kinds of noise are computed."""

    mean: Tensor
    square: Tensor
    dtype: torch.dtype

    def read(self, kind: str) -> Tensor:
        """SmoothGrad is the mean, SmoothGrad squared the mean square, VarGrad the variance."""
        variance = (self.square - self.mean.square()).clamp(min=0)
        by_kind = {"smoothgrad": self.mean, "smoothgrad_sq": self.square, "vargrad": variance}
        return by_kind[kind].to(self.dtype)


def points(model: Model, batch: Batch) -> Tensor:
    """Where gradients are taken: the input or its embedding, with noise for noisy copies."""
    clean = model.continuous(batch.inputs)
    return clean if batch.noise is None else clean + batch.noise


def noisy_moments(
    model: Model, batch: Batch, noise: Noise, explain: Callable[[Batch], Tensor]
) -> Moments:
    """Explain `samples` noisy copies of every input; the noise of a sample is fixed by the seed."""
    together = max(1, min(32 * model.micro_batch, ROWS) // noise.samples)
    parts: list[tuple[Tensor, Tensor]] = []
    dtype = torch.float32
    for start in range(0, len(batch), together):
        some = range(start, min(start + together, len(batch)))
        maps = explain(_copies(model, batch.select(some), noise))
        dtype = maps.dtype
        by_sample = maps.double().reshape(len(some), noise.samples, *maps.shape[1:])
        parts.append((by_sample.mean(1), by_sample.square().mean(1)))
    mean, square = (torch.cat(part) for part in zip(*parts, strict=True))
    return Moments(mean, square, dtype)


def _copies(model: Model, batch: Batch, noise: Noise) -> Batch:
    """`samples` copies of every sample, each with its own noise."""
    x = model.continuous(batch.inputs)
    drawn = batch.draw("noise", (noise.samples, *x.shape[1:]), normal=True)  # [B, S, ...]
    sigma = x.new_full((len(batch),), noise.sigma)
    if noise.relative:
        flat = x.flatten(1)
        sigma = sigma * (flat.amax(1) - flat.amin(1))
    drawn = drawn * sigma.reshape(-1, *[1] * (drawn.ndim - 1))
    repeated = batch.select([b for b in range(len(batch)) for _ in range(noise.samples)])
    return replace(repeated, noise=drawn.flatten(0, 1))
