"""Random numbers that depend on their key alone: not on device, order, batch or earlier draws.

Philox4x64-10 (Salmon et al., 2011) makes 8 words of 32 bits from a key and a counter. On a CPU
NumPy's implementation is used, elsewhere the same arithmetic in torch. Word i of a stream has the
same bits on all devices. All else follows from words by exact steps: integers, comparisons, and
single-precision steps that IEEE 754 rounds in one way only.
"""

import functools
import hashlib
import itertools
import math
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from assay.plugins.identity import DRAWS as DRAWS
from assay.types.inverse_normal import inverse_normal

WORDS = 8  # of 32 bits, made from one counter
AT_ONCE = 2**17  # numbers made together by one thread: they stay in a CPU's cache
BY_EACH = 2**15  # and by each of several threads: torch then starts no threads of its own
BLOCKS_AT_ONCE = 2**20  # counters of one step elsewhere: 8 MB per buffer
WORTH = 2**17  # from this many numbers on, a GPU draws them; its kernels take a while to start
MANY = 2**20  # from this many numbers on, several threads are faster
BITS = 24  # of a uniform number: exact in single precision


@dataclass(frozen=True)
class Stream:
    """An endless sequence of random words, given by a key of 128 bits."""

    key: tuple[int, int]

    @classmethod
    def of(cls, *parts: object) -> "Stream":
        """The stream that belongs to these texts and numbers."""
        text = "\0".join(map(str, parts)).encode()
        digest = hashlib.sha256(text).digest()
        return cls((int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:16], "little")))

    @property
    def seed(self) -> int:
        """A seed for other generators, signed, of 64 bits."""
        return int.from_bytes(self.key[0].to_bytes(8, "little"), "little", signed=True)

    def words(self, n: int, start: int = 0) -> npt.NDArray[np.uint32]:  # [n]
        """The words from `start` on, which is a multiple of 8."""
        # NumPy adds one to its counter before each use.
        source = np.random.Philox(key=np.array(self.key, np.uint64), counter=start // WORDS)
        return source.random_raw(-(-n // 2)).astype("<u8", copy=False).view(np.uint32)[:n]

    def uniform(self, *shape: int) -> Tensor:
        """Numbers uniform in [0, 1), in single precision on the CPU."""
        return drawn([self], math.prod(shape), torch.device("cpu")).reshape(shape)

    def orders(self, n: int, units: int) -> npt.NDArray[np.int64]:  # [n, units]
        """Random orders of some units; the first ones are the same for a larger `n`."""
        parts = [np.sort(keys, axis=1) & 0xFFFFFFFF for keys in self._keys(n, units)]
        return np.concatenate(parts or [np.zeros((0, units), np.int64)])

    def subsets(self, n: int, units: int, size: int) -> npt.NDArray[np.bool]:  # [n, units]
        """Random sets of one size, as members; the first ones are the same for a larger `n`."""
        if size == 0 or size >= units:
            return np.full((n, units), size > 0)
        parts = [
            keys <= np.partition(keys, size - 1, axis=1)[:, size - 1 : size]
            for keys in self._keys(n, units)
        ]
        return np.concatenate(parts or [np.zeros((0, units), bool)])

    def _keys(self, n: int, units: int) -> Iterable[npt.NDArray[np.int64]]:  # [some, units]
        """Random numbers that end in the unit's own number, so no two of a row are equal."""
        width = max(1, -(-units // WORDS)) * WORDS
        together = max(1, AT_ONCE // width)
        for row in range(0, n, together):
            rows = min(together, n - row)
            words = self.words(rows * width, row * width).reshape(rows, width)[:, :units]
            yield (words.astype(np.int64) >> 1 << 32) | np.arange(units)


def drawn(
    streams: Sequence[Stream],
    count: int,
    device: torch.device,
    *,
    normal: bool = False,
    threads: int = 1,
) -> Tensor:  # [streams, count] float32
    """The first `count` numbers of each stream: uniform in [0, 1), or standard normal."""
    if device.type != "cpu" and len(streams) * count >= WORTH:
        return drawn_elsewhere(streams, count, device, normal=normal)
    numbers = torch.empty(len(streams), count)
    several = threads > 1 and numbers.numel() >= MANY
    size = BY_EACH if several else AT_ONCE
    pieces = list(itertools.product(range(len(streams)), range(0, count, size)))

    def fill(piece: tuple[int, int]) -> None:
        row, start = piece
        part = numbers[row, start : start + size]
        words = streams[row].words(len(part), start)
        part.copy_(_numbers(torch.from_numpy((words >> (32 - BITS)).view(np.int32)), normal))

    if several:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(fill, pieces))
    else:
        for piece in pieces:
            fill(piece)
    return numbers.to(device)


def drawn_elsewhere(
    streams: Sequence[Stream], count: int, device: torch.device, *, normal: bool = False
) -> Tensor:  # [streams, count] float32
    """The same numbers as `drawn`, bit for bit, computed on any device by torch alone."""
    keys = torch.tensor([[_signed(k) for k in s.key] for s in streams], device=device)
    numbers = torch.empty(len(streams), count, device=device)
    together = WORDS * max(1, BLOCKS_AT_ONCE // max(1, len(streams)))
    for start in range(0, count, together):
        part = numbers[:, start : start + together]
        first = start // WORDS + 1
        blocks = torch.arange(first, first + -(-part.shape[1] // WORDS), device=device)
        none = torch.zeros_like(blocks[None])
        counter = blocks[None], none, none, none
        made = torch.stack(philox(counter, (keys[:, :1], keys[:, 1:])), -1)  # [S, blocks, 4]
        halves = torch.stack([made & _LOW, _shifted(made, 32)], -1).flatten(1)
        part.copy_(_numbers((halves[:, : part.shape[1]] >> (32 - BITS)).int(), normal))
    return numbers


def _numbers(bits: Tensor, normal: bool) -> Tensor:  # int32 of 24 bits -> float32
    return inverse_normal(bits) if normal else bits.float() * 2**-BITS


# --- Philox4x64-10 in torch, whose integers are signed: products wrap, shifts are masked ----------

_LOW = 0xFFFFFFFF
_MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
_WEYL = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
_ROUNDS = 10

FourWords = tuple[Tensor, Tensor, Tensor, Tensor]


def philox(counter: FourWords, key: tuple[Tensor, Tensor]) -> FourWords:
    """Four words of 64 bits from a counter and a key, as int64 with the bits of uint64."""
    a, b, c, d = counter
    first, second = key
    for number in range(_ROUNDS):
        if number:
            first, second = first + _signed(_WEYL[0]), second + _signed(_WEYL[1])
        high_a, low_a = _product(a, _MULTIPLIERS[0])
        high_c, low_c = _product(c, _MULTIPLIERS[1])
        a, b, c, d = high_c ^ b ^ first, low_c, high_a ^ d ^ second, low_a
    return a, b, c, d


def _product(x: Tensor, by: int) -> tuple[Tensor, Tensor]:
    """The upper and the lower 64 bits of the product, from products of 32 by 32 bits."""
    x_low, x_high, by_low, by_high = x & _LOW, _shifted(x, 32), by & _LOW, by >> 32
    carried = _shifted(x_low * by_low, 32)
    middle = x_high * by_low + carried
    other = x_low * by_high + (middle & _LOW)
    high = x_high * by_high + _shifted(middle, 32) + _shifted(other, 32)
    return high, x * _signed(by)


def _shifted(x: Tensor, by: int) -> Tensor:
    """Shift to the right by 32 bits or more, with zeros moving in."""
    return (x >> by) & ((1 << (64 - by)) - 1)


@functools.cache
def _signed(number: int) -> int:
    """The signed integer with the same 64 bits."""
    return number - 2**64 if number >= 2**63 else number
