"""Samples that are nearly the same: intervals must resample them together."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

FARTHEST = 0.03  # 1 - correlation of two images that may be copies of one
NEARER = 0.1  # copies are so much nearer to each other than typical neighbours
SIDE, COARSE = 32, 8  # pixels along images that are compared, and along those that are hashed
TABLES, BITS = 24, 16  # two copies at the farthest share a bucket of some table in 99.9 %
NEXT = 8  # images of a bucket are sorted, and each is compared with fewer than so many that follow
AT_ONCE = 1 << 15  # pairs of coarse images that are compared at once
QUERIES, AMONG = 256, 4096  # images whose nearest neighbour is searched among so many others
WORDS, SHINGLE = 8, 3  # texts of fewer words must be equal; words that are compared together
ALIKE = 0.7  # share of the shingles of two texts that both have
PERMUTATIONS, BAND = 48, 3  # of shingles; hashes that two texts must share to be compared
WORD = re.compile(r"\w+")

ImagePairs = NDArray[np.int64]
Hashes = NDArray[np.uint64]


def alike_images(coarse: Sequence[Tensor], image: Callable[[int], Tensor]) -> list[int]:
    """Number the images so that those which are nearly the same have the number of their first.

    Two images are copies of one where they correlate almost fully, and are ten times nearer to
    each other than images usually are to their nearest neighbour. The second condition matters for
    data such as digits, which all look alike. Only images in one bucket of a hash table are
    compared, so the time is linear in their number.

    Args:
        coarse: Every image as `coarse_image` gives it.
        image: One of them by its number [C, H, W].
    """
    number = len(coarse)
    pairs = _near_pairs(torch.stack(list(coarse)), image) if number > 1 else []
    if not pairs:
        return list(range(number))
    apart = sorted(set(merged(number, [(a, b) for a, b, _ in pairs])))
    farthest = min(FARTHEST, NEARER * _usual_distance(apart, image))
    return merged(number, [(a, b) for a, b, distance in pairs if distance <= farthest])


def coarse_image(image: Tensor) -> Tensor:  # [C, H, W] -> [d]
    """What is kept of an image to find those that may be alike."""
    return _shrunk(image, COARSE)


def alike_texts(texts: Sequence[str]) -> list[int]:
    """The same for texts, which are compared by the words that follow each other.

    Texts of fewer than `WORDS` words are the same only if their words are equal.
    """
    words = [WORD.findall(text.lower()) for text in texts]
    first: dict[tuple[str, ...], int] = {}
    same = [(first.setdefault(tuple(one), i), i) for i, one in enumerate(words)]
    long = [i for i in sorted(set(first.values())) if len(words[i]) >= WORDS]
    shingles = [_shingles(words[i]) for i in long]
    close = [
        (long[a], long[b])
        for a, b in _sharing_a_band(shingles)
        if _overlap(shingles[a], shingles[b]) >= ALIKE
    ]
    return merged(len(texts), [*same, *close])


def merged(number: int, pairs: Iterable[tuple[int, int]]) -> list[int]:
    """Number samples so that those joined by pairs have the number of their first."""
    joined = _Joined(number)
    for a, b in pairs:
        joined.join(a, b)
    return [joined.first(one) for one in range(number)]


class _Joined:
    """Samples that are joined one pair after the other."""

    def __init__(self, number: int) -> None:
        self._before = list(range(number))

    def first(self, one: int) -> int:
        """The first of the samples that one is joined with."""
        before = self._before
        while before[one] != one:
            before[one] = before[before[one]]
            one = before[one]
        return one

    def join(self, a: int, b: int) -> None:
        """Join two samples and all that each is joined with."""
        low, high = sorted((self.first(a), self.first(b)))
        self._before[high] = low


# --- images ---------------------------------------------------------------------------------------


def _shrunk(image: Tensor, side: int) -> Tensor:  # [d]
    """An image of at most so many pixels along its sides, centred and of length 1."""
    height, width = (min(size, side) for size in image.shape[-2:])
    small = F.adaptive_avg_pool2d(image.detach().cpu().float(), (height, width)).flatten()
    small = small - small.mean()
    length_one: Tensor = small / small.norm().clamp(min=1e-12)
    return length_one


def _near_pairs(
    coarse: Tensor, image: Callable[[int], Tensor]
) -> list[tuple[int, int, float]]:  # fmt: skip
    """Pairs within `FARTHEST` with their distance: a tree for each set of images near each other.

    The nearest pairs come first, so that images joined by a tree are joined by its shortest steps.
    """
    pairs, joined = [], _Joined(len(coarse))
    for a, b in _candidates(coarse):
        if joined.first(a) != joined.first(b):
            distance = 1 - float(_shrunk(image(a), SIDE) @ _shrunk(image(b), SIDE))
            if distance <= FARTHEST:
                joined.join(a, b)
                pairs.append((a, b, distance))
    return pairs


def _candidates(coarse: Tensor) -> Iterator[tuple[int, int]]:
    """The pairs of a bucket that are near each other as coarse images, nearest first."""
    pairs = np.unique(np.concatenate([*_sharing_a_bucket(coarse)]), axis=0)
    near = [np.empty(0)]
    for some in np.array_split(pairs, len(pairs) // AT_ONCE + 1):
        first, second = (coarse[torch.from_numpy(column)] for column in some.T)
        near.append(1 - (first * second).sum(1).double().numpy())
    distances = np.concatenate(near)
    order = np.argsort(distances, kind="stable")
    for a, b in pairs[order[distances[order] <= FARTHEST]]:
        yield int(a), int(b)


def _sharing_a_bucket(coarse: Tensor) -> Iterator[ImagePairs]:
    """Pairs of images [p, 2] on the same side of all random planes of one table."""
    generator = torch.Generator().manual_seed(0)
    centred = coarse - coarse.mean(0)
    places = 2 ** torch.arange(BITS)
    for _ in range(TABLES):
        along = centred @ torch.randn(coarse.shape[1], BITS + 1, generator=generator)
        codes = ((along[:, :BITS] > 0).long() * places).sum(1).numpy()
        order = np.lexsort((along[:, BITS].numpy(), codes))
        for step in range(1, min(NEXT, len(order))):
            same = np.flatnonzero(codes[order[step:]] == codes[order[:-step]])
            yield np.sort(np.stack([order[same], order[same + step]], axis=1), axis=1)


def _usual_distance(numbers: Sequence[int], image: Callable[[int], Tensor]) -> float:
    """The median distance to the nearest neighbour, among images that are no copies."""
    if len(numbers) < 2:
        return 1.0
    draw = np.random.default_rng(0)
    numbers = [numbers[i] for i in draw.permutation(len(numbers))[:AMONG]]
    chosen = np.arange(min(QUERIES, len(numbers)))
    asked = torch.stack([_shrunk(image(numbers[i]), SIDE) for i in chosen])
    nearest = torch.full((len(chosen),), -1.0)
    places = torch.from_numpy(chosen)
    for start in range(0, len(numbers), QUERIES):
        part = torch.stack([_shrunk(image(i), SIDE) for i in numbers[start : start + QUERIES]])
        alike = asked @ part.T
        itself = places[:, None] == torch.arange(start, start + len(part))
        nearest = torch.maximum(nearest, alike.masked_fill(itself, -1.0).amax(1))
    return 1 - float(nearest.median())


# --- texts ----------------------------------------------------------------------------------------


def _shingles(words: Sequence[str]) -> Hashes:
    """The hashes of all runs of words, sorted."""
    runs = (" ".join(words[i : i + SHINGLE]) for i in range(len(words) - SHINGLE + 1))
    return np.unique(np.array([zlib.crc32(run.encode()) for run in runs], np.uint64))


def _sharing_a_band(shingles: Sequence[Hashes]) -> set[tuple[int, int]]:
    """The pairs of texts whose smallest hashes agree in some band of permutations."""
    draw = np.random.default_rng(0)
    prime = np.uint64(4294967311)
    factors = draw.integers(1, 2**31, PERMUTATIONS).astype(np.uint64)[:, None]
    shifts = draw.integers(0, 2**31, PERMUTATIONS).astype(np.uint64)[:, None]
    buckets: dict[tuple[int, bytes], list[int]] = {}
    for text, hashes in enumerate(shingles):
        smallest = ((factors * hashes + shifts) % prime).min(axis=1)
        for band in range(0, PERMUTATIONS, BAND):
            key = (band, smallest[band : band + BAND].tobytes())
            buckets.setdefault(key, []).append(text)
    return {
        pair
        for texts in buckets.values()
        for pair in pairwise(texts)
    }  # fmt: skip


def _overlap(one: Hashes, other: Hashes) -> float:
    """The share of the shingles of both that both have."""
    both = len(np.intersect1d(one, other, assume_unique=True))
    return both / (len(one) + len(other) - both)
