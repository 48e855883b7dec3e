"""The multigrid's steps as single GPU kernels (Triton): what `multigrid.Level` does in many passes.

A grid is read once for each step instead of once for each addition, and what depends on the mask is
computed where it is needed instead of being stored. The plain steps are the reference.
"""

import functools
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from assay.removal.multigrid import STEPS, Level, Vector

_BLOCK = 1024


@triton.jit
def _around(grid, at, there, width, dtype: tl.constexpr, BLOCK: tl.constexpr):
    """S of a grid at some places: their pixels and the eight around them, weights 4, 2 and 1."""
    total = tl.zeros([BLOCK], dtype)
    for dy in tl.static_range(-1, 2):
        for dx in tl.static_range(-1, 2):
            value = tl.load(grid + at + dy * width + dx, there, 0.0).to(dtype)
            total += (2 - dy * dy) * (2 - dx * dx) * value
    return total


@triton.jit
def _smooth_from_zero(r, m, d, inverse, e, channels, length, lead, width, inner, w1, w2,
                      BLOCK: tl.constexpr):  # fmt: skip
    """E = two steps towards A e = r from zero."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = place < inner
    at = place + lead
    plane = tl.program_id(1).to(tl.int64) * length
    image = (tl.program_id(1) // channels).to(tl.int64) * length
    total = tl.zeros([BLOCK], tl.float32)
    middle = tl.zeros([BLOCK], tl.float32)
    for dy in tl.static_range(-1, 2):
        for dx in tl.static_range(-1, 2):
            p = at + dy * width + dx
            value = tl.load(r + plane + p, there, 0.0) * tl.load(inverse + p, there, 0.0)
            value = w1 * value * tl.load(m + image + p, there, 0.0)
            total += (2 - dy * dy) * (2 - dx * dx) * value
            if dy == 0 and dx == 0:
                middle = value
    left = tl.load(r + plane + at, there, 0.0) - tl.load(d + at, there, 0.0) * middle + total / 12
    scale = tl.load(m + image + at, there, 0.0) * tl.load(inverse + at, there, 0.0)
    tl.store(e + plane + at, middle + w2 * scale * left, there)


@triton.jit
def _step(e, r, m, d, inverse, out, channels, length, lead, width, inner, weight,
          BLOCK: tl.constexpr):  # fmt: skip
    """Out = e and one step more towards A e = r."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = place < inner
    at = place + lead
    plane = tl.program_id(1).to(tl.int64) * length
    image = (tl.program_id(1) // channels).to(tl.int64) * length
    total = _around(e + plane, at, there, width, tl.float32, BLOCK)
    middle = tl.load(e + plane + at, there, 0.0)
    left = tl.load(r + plane + at, there, 0.0) - tl.load(d + at, there, 0.0) * middle + total / 12
    scale = tl.load(m + image + at, there, 0.0) * tl.load(inverse + at, there, 0.0)
    tl.store(out + plane + at, middle + weight * scale * left, there)


@triton.jit
def _prolong(coarse, m, e, channels, length, lead, width, inner,
             coarse_length, coarse_lead, coarse_width, BLOCK: tl.constexpr):  # fmt: skip
    """E += the coarse grid's numbers, on the unknown pixels of each cell."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = place + lead
    plane = tl.program_id(1).to(tl.int64) * length
    image = (tl.program_id(1) // channels).to(tl.int64) * length
    below = tl.program_id(1).to(tl.int64) * coarse_length + coarse_lead
    unknown = tl.load(m + image + at, place < inner, 0.0) > 0
    cell = (place // width // 2) * coarse_width + (place % width) // 2
    value = tl.load(e + plane + at, unknown, 0.0) + tl.load(coarse + below + cell, unknown, 0.0)
    tl.store(e + plane + at, value, unknown)


@triton.jit
def _apply(x, m, d, out, product, channels, length, lead, width, inner, BLOCK: tl.constexpr):
    """Out = A x, and each block's part of their product."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = place < inner
    at = place + lead
    plane = tl.program_id(1).to(tl.int64) * length
    image = (tl.program_id(1) // channels).to(tl.int64) * length
    total = _around(x + plane, at, there, width, tl.float32, BLOCK)
    middle = tl.load(x + plane + at, there, 0.0)
    found = middle * tl.load(d + at, there, 0.0) - total / 12
    found *= tl.load(m + image + at, there, 0.0)
    tl.store(out + plane + at, found, there)
    part = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    tl.store(product + part, tl.sum(found * middle, 0))


@triton.jit
def _exact_residual(x, m, d, out, channels, length, lead, width, inner, BLOCK: tl.constexpr):
    """Out = -A x, computed in double precision."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = place < inner
    at = place + lead
    plane = tl.program_id(1).to(tl.int64) * length
    image = (tl.program_id(1) // channels).to(tl.int64) * length
    total = _around(x + plane, at, there, width, tl.float64, BLOCK)
    middle = tl.load(x + plane + at, there, 0.0).to(tl.float64)
    found = total - middle * tl.load(d + at, there, 0.0)
    found = found.to(tl.float32) / 12 * tl.load(m + image + at, there, 0.0)
    tl.store(out + plane + at, found, there)


@triton.jit
def _judge(r, z, product, largest, length, lead, inner, BLOCK: tl.constexpr):
    """Each block's part of the product of r and z, and its largest number of z."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = place < inner
    at = tl.program_id(1).to(tl.int64) * length + lead + place
    value = tl.load(z + at, there, 0.0)
    part = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    tl.store(product + part, tl.sum(value * tl.load(r + at, there, 0.0), 0))
    tl.store(largest + part, tl.max(tl.abs(value), 0))


@triton.jit
def _restrict(e, r, d, inverse, coarse_m, coarse_r, channels, length, lead, width,
              coarse_length, coarse_lead, coarse_width, cells, cell_columns,
              BLOCK: tl.constexpr):  # fmt: skip
    """coarse_r = what is left of r, summed over the pixels of each coarse cell."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = place < cells
    y, x = place // cell_columns, place % cell_columns
    at = lead + 2 * y * width + 2 * x
    plane = tl.program_id(1).to(tl.int64) * length
    found = tl.zeros([BLOCK], tl.float32)
    for py in tl.static_range(2):
        for px in tl.static_range(2):
            p = at + py * width + px
            total = _around(e + plane, p, there, width, tl.float32, BLOCK)
            middle = tl.load(e + plane + p, there, 0.0) * tl.load(d + p, there, 0.0)
            left = tl.load(r + plane + p, there, 0.0) - middle + total / 12
            inside = tl.load(inverse + p, there, 0.0) > 0
            found += tl.where(inside, left, 0.0)
    to = coarse_lead + y * coarse_width + x
    image = (tl.program_id(1) // channels).to(tl.int64) * coarse_length
    found *= tl.load(coarse_m + image + to, there, 0.0)
    tl.store(coarse_r + tl.program_id(1).to(tl.int64) * coarse_length + to, found, there)


class FusedLevel(Level):
    """One grid whose steps are kernels."""

    def mask(self) -> None:
        """Nothing to prepare: the kernels read the mask."""

    @functools.cached_property
    def _static(self) -> tuple[Tensor, Tensor]:
        """D and the inverse of the diagonal with padding, 0 outside the image: each `[L]`."""
        d, inverse = self.vector(1, 1), self.vector(1, 1)
        d.inner.copy_(self.d)
        inverse.inner.copy_(torch.where(self.inside12 > 0, 1 / self.diagonal, 0.0))
        return d.flat, inverse.flat

    @functools.cached_property
    def _parts(self) -> tuple[Tensor, Tensor]:
        """What each block of a kernel found, `[N, C, blocks]`: a sum and a largest number."""
        blocks = triton.cdiv(self._shape[-1], _BLOCK)
        found = self.d.new_zeros(self.images, self.channels, blocks)
        return found, found.clone()

    @functools.cached_property
    def _shape(self) -> tuple[int, ...]:
        inner = self.length - 2 * self.lead
        return self.channels, self.length, self.lead, self.stride, inner

    def _run(self, kernel: Any, size: int, *arguments: Any) -> None:
        with torch.cuda.device(self.d.device):
            kernel[triton.cdiv(size, _BLOCK), self.images * self.channels](*arguments, BLOCK=_BLOCK)

    def apply(self, x: Vector, out: Vector) -> Tensor:
        """`out = A x`; gives their product."""
        d, _ = self._static
        product, _ = self._parts
        given = (x.flat, self.m.flat, d, out.flat, product)
        self._run(_apply, self._shape[-1], *given, *self._shape)
        return product.sum(-1, keepdim=True)

    def exact_residual(self, x: Vector) -> Tensor:
        """`-A x`, in double precision until it is rounded."""
        given = (x.flat, self.m.flat, self._twelve_d, self.other.flat)
        self._run(_exact_residual, self._shape[-1], *given, *self._shape)
        return self.other.inner

    @functools.cached_property
    def _twelve_d(self) -> Tensor:  # [L], double: whole numbers
        d = torch.zeros(self.length, dtype=torch.float64, device=self.d.device)
        d[self.lead : -self.lead] = (12 * self.exact_d).round().flatten()
        return d

    def judge(self, z: Vector) -> tuple[Tensor, Tensor]:
        """The product of r and z, and the largest number of z."""
        product, largest = self._parts
        _, length, lead, _, inner = self._shape
        self._run(_judge, inner, self.r.flat, z.flat, product, largest, length, lead, inner)
        return product.sum(-1, keepdim=True), largest.flatten(1).amax(1)

    def smooth_first(self) -> None:
        """`e` = two steps towards A e = r from zero."""
        given = (self.r.flat, self.m.flat, *self._static, self.e.flat)
        self._run(_smooth_from_zero, self._shape[-1], *given, *self._shape, *STEPS)

    def _step(self, e: Vector, out: Vector, which: int) -> None:
        given = (e.flat, self.r.flat, self.m.flat, *self._static, out.flat)
        self._run(_step, self._shape[-1], *given, *self._shape, STEPS[which])

    def prolong(self, coarse: Vector) -> None:
        """Add the coarse grid's numbers to all the unknown pixels of each cell."""
        row = coarse.grid.stride(-2)
        below = (coarse.flat.shape[-1], row + 1, row)  # length, first pixel, row
        given = (coarse.flat, self.m.flat, self.e.flat)
        self._run(_prolong, self._shape[-1], *given, *self._shape, *below)

    def restrict(self, coarse: Level) -> None:
        """The coarse grid's `r`: what is left of this one's, summed over each cell."""
        cells = coarse.height * coarse.width
        given = (self.e.flat, self.r.flat, *self._static, coarse.m.flat, coarse.r.flat)
        shape = (*self._shape[:-1], coarse.length, coarse.lead, coarse.stride)
        self._run(_restrict, cells, *given, *shape, cells, coarse.width)
