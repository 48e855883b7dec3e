"""A multigrid solver that makes unknown pixels the weighted mean of their neighbours.

A pixel's neighbours inside the image have weights 1/6 (direct) and 1/12 (diagonal). With the pixel
itself at 1/3 that is the binomial kernel, so that on unknown pixels

    A x = d x - S(x) / 12,    S = [1 2 1] x [1 2 1],    d = S(inside) / 12,    diagonal = d - 1/3

and S is four additions of shifted numbers. A is symmetric and positive as soon as one pixel is
known. Conjugate gradients solve it, preconditioned by one V-cycle over coarser and coarser grids: a
coarse cell is unknown if all its pixels are (with half-unknown cells the cycle diverges), and on
each grid two Chebyshev steps smooth the high frequencies before the coarser grid and two after it.

All grids are flat vectors with zeros between rows, so that a shift is an offset: on a CPU that is
ten times as fast as a convolution.
"""

import functools
import importlib.util
import itertools
import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

# The spectrum of A over its diagonal above half the grid's frequency is [2/3, 4/3]: the two
# Chebyshev steps for it.
STEPS = (1 / (1 + 0.5**0.5 / 3), 1 / (1 - 0.5**0.5 / 3))
# A grid of at most this many cells is solved by its inverse.
_DENSE = 64
# Below this share of unknown cells, smoothing is enough without a coarser grid.
_SPARSE = 0.01
_MOST_ITERATIONS = 500


@dataclass(frozen=True)
class Vector:
    """Numbers on a grid: the flat vector and views of it."""

    flat: Tensor  # [N, C, L]
    inner: Tensor
    left: Tensor
    right: Tensor
    grid: Tensor  # [N, C, h, w], without padding
    even_rows: Tensor  # [N, C, h / 2, stride]
    odd_rows: Tensor


class Level:
    """One grid: its buffers, and the coefficients without and with the mask."""

    def __init__(self, inside: Tensor, images: int, channels: int, dtype: torch.dtype) -> None:
        """`inside` `[h, w]` marks the cells that lie in the image."""
        self.inside, self.images, self.channels, self.dtype = inside, images, channels, dtype
        self.height, self.width = inside.shape
        self.coarse = (self.height + 1) // 2, (self.width + 1) // 2
        self.rows, self.stride = 2 * self.coarse[0] + 1, 2 * self.coarse[1] + 1
        self.lead = self.stride + 1
        self.length = self.rows * self.stride + self.lead + 1
        self.r, self.e, self.other = (self.vector() for _ in range(3))
        half = inside.new_zeros(images, channels, self.coarse[0], self.stride, dtype=dtype)
        self.half, self.wide = half, half.clone()
        self.cell = half.new_zeros(images, channels, *self.coarse)
        self.m = self.vector(1)  # 1 where unknown
        within = self.vector(1, 1)
        within.grid.copy_(inside)
        self.pixels = _four(within)  # [1, 1, h / 2, w / 2]: pixels in each coarse cell
        self.d = _binomial(within.flat, self.stride) / 12  # [1, 1, inner]
        self.exact_d = _binomial(within.flat.double(), self.stride) / 12
        self.inside12 = within.inner / 12
        self.diagonal = torch.where(within.inner > 0, self.d - 1 / 3, 1.0)

    @functools.cached_property
    def sums(self) -> tuple[Tensor, Tensor]:
        """Buffers for intermediate sums."""
        return self._buffer(self.channels), self._buffer(self.channels)

    def _buffer(self, channels: int, images: int | None = None) -> Tensor:
        images = self.images if images is None else images
        return self.inside.new_zeros(images, channels, self.length, dtype=self.dtype)

    def vector(self, channels: int | None = None, images: int | None = None) -> Vector:
        """A new vector of zeros."""
        flat = self._buffer(self.channels if channels is None else channels, images)
        end = self.lead + self.rows * self.stride
        grid = flat[..., self.lead : end].view(*flat.shape[:2], self.rows, self.stride)
        return Vector(
            flat,
            flat[..., self.lead : -self.lead],
            flat[..., :-1],
            flat[..., 1:],
            grid[..., : self.height, : self.width],
            grid[..., 0:-1:2, :],
            grid[..., 1::2, :],
        )

    @functools.cached_property
    def _shifts(self) -> tuple[Tensor, ...]:
        """Views of the two buffers that the four additions read and write."""
        a, b = self.sums
        w, length = self.stride, self.length
        across, both = a[..., : length - 1], b[..., : length - 2]
        down, all_ = a[..., : length - 2 - w], b[..., : length - 2 - 2 * w]
        return (
            across, across[..., :-1], across[..., 1:],
            both, both[..., :-w], both[..., w:],
            down, down[..., :-w], down[..., w:], all_,
        )  # fmt: skip

    def binomial(self, x: Vector) -> Tensor:
        """S(x) without padding, in a buffer that the next call overwrites."""
        across, before, after, both, upper, lower, down, above, below, total = self._shifts
        torch.add(x.left, x.right, out=across)
        torch.add(before, after, out=both)
        torch.add(upper, lower, out=down)
        return torch.add(above, below, out=total)

    def mask(self) -> None:
        """Compute the coefficients that depend on the mask `m`."""
        first, second = STEPS
        m = self.m.inner  # [N, 1, inner]
        inverse, ratio = m / self.diagonal, m * (self.d / self.diagonal)
        self.md, self.m12 = m * self.d, m / 12
        self.spread = tuple(inverse * (w / 12) for w in (first, second))
        self.stay = tuple(m - w * ratio for w in (first, second))
        self.start = 12 * self.spread[0]
        self.straight = 12 * (self.stay[1] * self.spread[0] + self.spread[1])

    def apply(self, x: Vector, out: Vector) -> Tensor:  # [N, C, 1]
        """`out = A x`; returns the dot product of `x` and `out`."""
        total = self.binomial(x)
        torch.mul(x.inner, self.md, out=out.inner)
        out.inner.addcmul_(total, self.m12, value=-1)
        return self._dot(x, out)

    def judge(self, z: Vector) -> tuple[Tensor, Tensor]:  # [N, C, 1], [N]
        """The dot product of `r` and `z`, and the largest absolute value of `z`."""
        product = self._dot(self.r, z)
        return product, torch.abs(z.flat, out=self.sums[0]).flatten(1).amax(1)

    def _dot(self, a: Vector, b: Vector) -> Tensor:
        return torch.mul(a.flat, b.flat, out=self.sums[0]).sum(-1, keepdim=True)

    def exact_residual(self, x: Vector) -> Tensor:
        """`-A x` in double precision.

        In single precision, rounding alone would change the solution in the middle of a large hole
        by more than a usual tolerance; the corrections that follow are small enough not to.
        """
        flat = x.flat.double()
        total = _binomial(flat, self.stride).mul_(1 / 12)
        total.addcmul_(flat[..., self.lead : -self.lead], self.exact_d, value=-1)
        return total.mul_(self.m.inner)

    def smooth_first(self) -> None:
        """`e` = two steps towards A e = r from zero."""
        torch.mul(self.r.inner, self.start, out=self.other.inner)
        torch.mul(self.binomial(self.other), self.spread[1], out=self.e.inner)
        self.e.inner.addcmul_(self.r.inner, self.straight)

    def smooth_last(self, coarse: Vector | None = None) -> None:
        """Add the coarse grid's correction, then take two steps of `e` in the opposite order."""
        if coarse is not None:
            self.prolong(coarse)
        self._step(self.e, self.other, 1)
        self._step(self.other, self.e, 0)

    def _step(self, e: Vector, out: Vector, which: int) -> None:
        torch.mul(self.binomial(e), self.spread[which], out=out.inner)
        out.inner.addcmul_(e.inner, self.stay[which])
        out.inner.addcmul_(self.r.inner, self.spread[which], value=12)

    def restrict(self, coarse: "Level") -> None:
        """The coarse grid's `r`: this grid's residual, summed over each cell."""
        left = self.other
        total = self.binomial(self.e)
        torch.addcmul(self.r.inner, self.e.inner, self.d, value=-1, out=left.inner)
        left.inner.addcmul_(total, self.inside12)  # zero outside the image
        torch.mul(_four(left, self.half, self.cell), coarse.m.grid, out=coarse.r.grid)

    def prolong(self, coarse: Vector) -> None:
        """Add each coarse cell's value to its unknown pixels."""
        self.wide[..., 0:-1:2] = coarse.grid
        self.wide[..., 1::2] = coarse.grid
        self.e.even_rows.addcmul_(self.wide, self.m.even_rows)
        self.e.odd_rows.addcmul_(self.wide, self.m.odd_rows)

    def inverse(self) -> Tensor:  # [N, n, n]
        """The inverse of A on the unknown cells, zero on the known ones."""
        cells = self.height * self.width
        units, total = self.vector(cells, 1), self.vector(cells, 1)
        units.grid.copy_(torch.eye(cells).view(1, cells, *self.inside.shape))
        total.inner.copy_(_binomial(units.flat, self.stride))
        s = total.grid.flatten(2)[0]  # [n, n]
        d = s @ self.inside.flatten().to(s) / 12
        m = self.m.grid.flatten(1)  # [N, n]
        both = m[:, :, None] * m[:, None, :]
        matrix = both * (torch.diag(d) - s / 12) + torch.diag_embed(1 - m)
        return both * torch.cholesky_inverse(torch.linalg.cholesky(matrix))


class Multigrid:
    """The solver for one size of images; `solve` may be called many times."""

    def __init__(self, like: Tensor) -> None:
        """Allocate buffers for images like `like`, `[N, C, H, W]`."""
        images, channels = like.shape[:2]
        inside = torch.ones(like.shape[2:], dtype=torch.bool, device=like.device)
        kind = _kind_of_level(like)
        self.levels = [kind(inside, images, channels, like.dtype)]
        while inside.numel() > _DENSE:
            inside = inside[0::2, 0::2]  # a coarse cell lies inside if its first pixel does
            self.levels.append(kind(inside, images, channels, like.dtype))
        fine = self.levels[0]
        self.x, self.p, self.ap = fine.vector(), fine.vector(), fine.vector()

    def solve(self, images: Tensor, keep: Tensor, tol: float) -> Tensor:
        """The images with their unknown pixels filled, to a largest error of about `tol`.

        Each image stops at its own tolerance, so its result does not depend on the other images.
        The second time begins with what is really left: rounding adds up over the steps of the
        first one, unnoticed.
        """
        self._mask(~keep)
        self._guess(images, keep)
        self._deepen()
        for _ in range(2):
            self._improve(tol)
        return torch.where(keep[:, None], images, self.x.grid)

    def _improve(self, tol: float) -> None:
        """Change `x` by conjugate gradients until the estimated error is at most `tol` / 2."""
        fine, x, p, ap = self.levels[0], self.x, self.p, self.ap
        r, running = fine.r, torch.ones(fine.images, dtype=torch.bool, device=x.flat.device)
        r.inner.copy_(fine.exact_residual(x))
        z = self._cycle()
        p.flat.copy_(z.flat)
        rz, error = fine.judge(z)  # z estimates the error, r is only the residual
        for _ in range(_MOST_ITERATIONS):
            done = running & (error <= tol / 2)
            running = running & ~done
            if bool(done.any()):
                x.flat.addcmul_(z.flat, done[:, None, None].to(z.flat))
                if not bool(running.any()):
                    return
            step = rz / fine.apply(p, ap).clamp(min=self._tiny) * running[:, None, None]
            x.flat.addcmul_(p.flat, step)
            r.flat.addcmul_(ap.flat, step, value=-1)
            z = self._cycle()
            again, error = fine.judge(z)
            torch.addcmul(z.flat, p.flat, again / rz.clamp(min=self._tiny), out=p.flat)
            rz = again
        raise RuntimeError(
            f"Expected the imputation to reach a tolerance of {tol} within {_MOST_ITERATIONS} "
            f"iterations; it did not. Raise `tol`."
        )

    def _mask(self, unknown: Tensor) -> None:
        """Set the masks of all grids."""
        self.levels[0].m.grid.copy_(unknown[:, None])
        for level, coarse in itertools.pairwise(self.levels):
            torch.eq(_four(level.m), level.pixels, out=coarse.m.grid)

    def _guess(self, images: Tensor, keep: Tensor) -> None:
        """Start unknown pixels at the mean of the known ones in the smallest cell that has any."""
        torch.mul(images, keep[:, None], out=self.levels[0].e.grid)
        for level, coarse in itertools.pairwise(self.levels):
            known = (level.pixels - _four(level.m)).clamp_(min=1)
            torch.div(_four(level.e, level.half, level.cell), known, out=coarse.e.grid)
        last = self.levels[-1]
        known = (last.inside.sum() - last.m.flat.sum(-1, keepdim=True)).clamp(min=1)
        last.e.inner.addcmul_(last.m.inner, last.e.flat.sum(-1, keepdim=True) / known)
        for coarse, level in itertools.pairwise(reversed(self.levels)):
            level.prolong(coarse.e)
        self.x.flat.copy_(self.levels[0].e.flat)

    def _deepen(self) -> None:
        """Use coarser grids as long as some image has enough unknown cells on them."""
        self.levels[0].mask()
        self.depth, self.dense = 1, None
        for coarse in self.levels[1:]:
            worth = coarse.m.flat.sum(-1, keepdim=True) > _SPARSE * coarse.inside.numel()
            if not bool(worth.any()):
                return
            coarse.m.flat.mul_(worth)
            coarse.mask()
            self.depth += 1
        self.dense = self.levels[-1].inverse()

    def _cycle(self, at: int = 0) -> Vector:
        """An approximate solution of A e = r: one V-cycle from this grid down and up."""
        level = self.levels[at]
        if level is self.levels[-1] and self.dense is not None:
            flat = level.r.grid.flatten(2) @ self.dense
            level.e.grid.copy_(flat.view_as(level.e.grid))
            return level.e
        level.smooth_first()
        if at + 1 < self.depth:
            level.restrict(self.levels[at + 1])
            level.smooth_last(self._cycle(at + 1))
        else:
            level.smooth_last()
        return level.e

    @functools.cached_property
    def _tiny(self) -> float:
        return float(torch.finfo(self.x.flat.dtype).tiny)


def _kind_of_level(like: Tensor) -> type[Level]:
    """`FusedLevel` on a GPU where kernels can be compiled, otherwise `Level`."""
    if like.is_cuda and like.dtype == torch.float32 and _kernels_compile(like.device):
        from assay.removal.triton_kernels import FusedLevel

        return FusedLevel
    return Level


@functools.cache
def _kernels_compile(device: torch.device) -> bool:
    """Whether a first kernel runs; Triton may be missing or lack a C compiler."""
    if not importlib.util.find_spec("triton"):
        return False
    try:
        from assay.removal.triton_kernels import FusedLevel

        alone = torch.ones(1, 1, dtype=torch.bool, device=device)
        level = FusedLevel(alone, 1, 1, torch.float32)
        level.judge(level.e)
    except Exception as error:  # compilers fail in many ways
        warnings.warn(
            f"Triton cannot compile kernels here ({type(error).__name__}: {error}), so "
            f"noisy-linear imputation runs without them: the same numbers, but several times "
            f"slower. Triton needs a C compiler and Python's headers.",
            stacklevel=2,
        )
        return False
    return True


def _binomial(flat: Tensor, stride: int) -> Tensor:
    """S of a flat grid, without its first and last row, by four additions of shifted numbers."""
    total = flat[..., :-1] + flat[..., 1:]
    total = total[..., :-1] + total[..., 1:]
    total = total[..., :-stride] + total[..., stride:]
    return total[..., :-stride] + total[..., stride:]


def _four(x: Vector, half: Tensor | None = None, cell: Tensor | None = None) -> Tensor:
    """Sums over the up to four pixels of each coarse cell; rows first, which are contiguous."""
    rows = torch.add(x.even_rows, x.odd_rows, out=half)
    return torch.add(rows[..., 0:-1:2], rows[..., 1::2], out=cell)
