"""The steps of `multigrid.Level` as single GPU kernels (Triton).

A grid is read once per step instead of once per addition, and what depends on the mask is computed
where it is needed instead of being stored. The plain steps are the reference.
"""

import functools

import torch
import triton
import triton.language as tl
from torch import Tensor

from assay.removal.multigrid import STEPS, Level, Vector

_BLOCK = 1024


@triton.jit
def _around(grid, at, there, width, dtype: tl.constexpr, BLOCK: tl.constexpr):
    """S of a grid at some places: each pixel and its eight neighbours, weights 4, 2 and 1."""
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
    """Out = e after one more step towards A e = r."""
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
    """E += each coarse cell's value, on its unknown pixels."""
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
    """Out = A x, and each block's part of the dot product of x and out."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = place < inner
    at = place + lead
    plane = tl.program_id(1).to(tl.int64) * length
    image = (tl.program_id(1) // channels).to(tl.int64) * length
    total = _around(x + plane, at, there, width, tl.float32, BLOCK)
    middle = tl.load(x + plane + at, there, 0.0)
    result = middle * tl.load(d + at, there, 0.0) - total / 12
    result *= tl.load(m + image + at, there, 0.0)
    tl.store(out + plane + at, result, there)
    part = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    tl.store(product + part, tl.sum(result * middle, 0))


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
    result = total - middle * tl.load(d + at, there, 0.0)
    result = result.to(tl.float32) / 12 * tl.load(m + image + at, there, 0.0)
    tl.store(out + plane + at, result, there)


@triton.jit
def _judge(r, z, product, largest, length, lead, inner, BLOCK: tl.constexpr):
    """Each block's part of the dot product of r and z, and its largest absolute value of z."""
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
    """coarse_r = the residual of r, summed over the pixels of each coarse cell."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = place < cells
    y, x = place // cell_columns, place % cell_columns
    at = lead + 2 * y * width + 2 * x
    plane = tl.program_id(1).to(tl.int64) * length
    result = tl.zeros([BLOCK], tl.float32)
    for py in tl.static_range(2):
        for px in tl.static_range(2):
            p = at + py * width + px
            total = _around(e + plane, p, there, width, tl.float32, BLOCK)
            middle = tl.load(e + plane + p, there, 0.0) * tl.load(d + p, there, 0.0)
            left = tl.load(r + plane + p, there, 0.0) - middle + total / 12
            inside = tl.load(inverse + p, there, 0.0) > 0
            result += tl.where(inside, left, 0.0)
    to = coarse_lead + y * coarse_width + x
    image = (tl.program_id(1) // channels).to(tl.int64) * coarse_length
    result *= tl.load(coarse_m + image + to, there, 0.0)
    tl.store(coarse_r + tl.program_id(1).to(tl.int64) * coarse_length + to, result, there)


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
        """The results of a kernel's blocks, `[N, C, blocks]`: a sum and a largest value."""
        blocks = triton.cdiv(self._shape[-1], _BLOCK)
        zeros = self.d.new_zeros(self.images, self.channels, blocks)
        return zeros, zeros.clone()

    @functools.cached_property
    def _shape(self) -> tuple[int, ...]:
        inner = self.length - 2 * self.lead
        return self.channels, self.length, self.lead, self.stride, inner

    def _run(
        self, kernel: "triton.JITFunction", size: int, *arguments: Tensor | int | float
    ) -> None:
        with torch.cuda.device(self.d.device):
            kernel[triton.cdiv(size, _BLOCK), self.images * self.channels](*arguments, BLOCK=_BLOCK)

    def apply(self, x: Vector, out: Vector) -> Tensor:
        """`out = A x`; returns the dot product of `x` and `out`."""
        d, _ = self._static
        product, _ = self._parts
        tensors = (x.flat, self.m.flat, d, out.flat, product)
        self._run(_apply, self._shape[-1], *tensors, *self._shape)
        return product.sum(-1, keepdim=True)

    def exact_residual(self, x: Vector) -> Tensor:
        """`-A x`, in double precision until it is rounded."""
        tensors = (x.flat, self.m.flat, self._twelve_d, self.other.flat)
        self._run(_exact_residual, self._shape[-1], *tensors, *self._shape)
        return self.other.inner

    @functools.cached_property
    def _twelve_d(self) -> Tensor:  # [L], double: whole numbers
        d = torch.zeros(self.length, dtype=torch.float64, device=self.d.device)
        d[self.lead : -self.lead] = (12 * self.exact_d).round().flatten()
        return d

    def judge(self, z: Vector) -> tuple[Tensor, Tensor]:
        """The dot product of `r` and `z`, and the largest absolute value of `z`."""
        product, largest = self._parts
        _, length, lead, _, inner = self._shape
        self._run(_judge, inner, self.r.flat, z.flat, product, largest, length, lead, inner)
        return product.sum(-1, keepdim=True), largest.flatten(1).amax(1)

    def smooth_first(self) -> None:
        """`e` = two steps towards A e = r from zero."""
        tensors = (self.r.flat, self.m.flat, *self._static, self.e.flat)
        self._run(_smooth_from_zero, self._shape[-1], *tensors, *self._shape, *STEPS)

    def _step(self, e: Vector, out: Vector, which: int) -> None:
        tensors = (e.flat, self.r.flat, self.m.flat, *self._static, out.flat)
        self._run(_step, self._shape[-1], *tensors, *self._shape, STEPS[which])

    def prolong(self, coarse: Vector) -> None:
        """Add each coarse cell's value to its unknown pixels."""
        row = coarse.grid.stride(-2)
        below = (coarse.flat.shape[-1], row + 1, row)  # length, first pixel, row
        tensors = (coarse.flat, self.m.flat, self.e.flat)
        self._run(_prolong, self._shape[-1], *tensors, *self._shape, *below)

    def restrict(self, coarse: Level) -> None:
        """The coarse grid's `r`: this grid's residual, summed over each cell."""
        cells = coarse.height * coarse.width
        tensors = (self.e.flat, self.r.flat, *self._static, coarse.m.flat, coarse.r.flat)
        shape = (*self._shape[:-1], coarse.length, coarse.lead, coarse.stride)
        self._run(_restrict, cells, *tensors, *shape, cells, coarse.width)
