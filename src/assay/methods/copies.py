"""Noisy copies: a method runs on copies of each input, and the moments of its maps are kept."""

import math
from collections.abc import Callable, Sequence
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
    drawn = _drawn(batch, noise.samples, x.shape[1:])  # [B, S, ...]
    sigma = x.new_full((len(batch),), noise.sigma)
    if noise.relative:
        sigma = sigma * _range(batch, x)
    drawn = drawn * sigma.reshape(-1, *[1] * (drawn.ndim - 1))
    repeated = batch.select([b for b in range(len(batch)) for _ in range(noise.samples)])
    return replace(repeated, noise=drawn.flatten(0, 1))


def _drawn(batch: Batch, samples: int, shape: Sequence[int]) -> Tensor:  # [B, S, ...]
    """Normal numbers; those of a text come word by word, so that padding changes none of them."""
    if batch.tokens is None:
        return batch.draw("noise", (samples, *shape), normal=True)
    length, *width = shape
    return batch.draw("noise", (length, samples, *width), normal=True).transpose(1, 2)


def _range(batch: Batch, x: Tensor) -> Tensor:  # [B]
    """From the smallest to the largest number of each sample, without the padding of a text."""
    if batch.tokens is None:
        flat = x.flatten(1)
        return flat.amax(1) - flat.amin(1)
    padding = (batch.inputs == batch.tokens.pad)[..., None]
    largest = x.masked_fill(padding, -math.inf).flatten(1).amax(1)
    return largest - x.masked_fill(padding, math.inf).flatten(1).amin(1)
