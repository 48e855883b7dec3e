"""Sets of absent units: pure functions that describe them and create them when needed."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from assay.errors import InputError
from assay.plugins.registry import identity
from assay.types import Batch
from assay.units.features import Features

KEPT = 2**28  # bytes of random sets cached per batch: 64 samples of 224 x 224 pixels, 600 sets


# The number removed to the nearest unit, or the number removed or kept rounded down.
RoundedNumber = Literal["nearest", "removed", "kept"]
MOST_SETS = 100_000  # random sets of one size: drawing more takes hours for every sample


@dataclass(frozen=True)
class Absent:
    """K sets of units, described by short texts and created only when needed.

    `family`, a row's text and the `values` it was made from identify the set of every sample. Sets
    without values are shared by all attributions. `make(samples, rows)` returns the members, bool
    `[n, P]`. Where samples differ in their number of sets, `valid` marks those that exist; the
    others cost no forward pass and get the clean response.
    """

    family: str
    rows: tuple[str, ...]
    make: Callable[[Tensor, Tensor], Tensor]
    values: Tensor | None = None  # [B, P]
    valid: Tensor | None = None  # [B, K]; None = all


def each(features: Features) -> Absent:
    """One set for each single unit."""
    units = torch.arange(features.count, device=features.valid.device)
    rows = tuple(str(p) for p in range(features.count))
    return Absent("each", rows, lambda _, rows: rows[:, None] == units, valid=_some(features.valid))


def everything(features: Features) -> Absent:
    """The one set that holds all units."""
    return Absent("everything", ("all",), lambda samples, _: features.valid[samples])


def _some(valid: Tensor) -> Tensor | None:
    """Which rows exist; None where all do."""
    return None if bool(valid.all()) else valid


def random_subsets(
    batch: Batch, features: Features, sizes: Sequence[int] | Tensor, n: int
) -> Absent:
    """`n` random sets of each size, the same for every method.

    `sizes` hold for all samples, or are `[B, S]`, one row per sample; 0 means no sets.
    """
    if n > MOST_SETS:
        raise InputError(
            f"Expected at most {MOST_SETS:,} random sets of each size, got {n:,}. Set a lower "
            f"`subsets`."
        )
    per_sample = torch.as_tensor(sizes).cpu().expand(len(batch), -1)  # [B, S]
    plan = [(name, i) for name in map(_size_name, per_sample.T.tolist()) for i in range(n)]

    def sets_of(b: int) -> Tensor:  # [K, P]
        drawn = [_drawn(batch, features, b, size, n) for size in per_sample[b].tolist()]
        return torch.from_numpy(
            np.unpackbits(np.concatenate(drawn), axis=1, count=features.count)
        ).bool()

    exist = (per_sample > 0).repeat_interleave(n, 1).to(features.valid.device)
    return listed("subset", tuple(f"{s}:{i}" for s, i in plan), features, sets_of, exist)


def _drawn(
    batch: Batch, features: Features, sample: int, size: int, n: int
) -> np.ndarray[Any, Any]:  # [n, P / 8]
    """`n` sets of one size as bits; cached while there is room, as every method uses them.

    The sets of a size are drawn in order, so a smaller `n` gives the first of a larger one.
    """
    name = (features.key, sample, size)
    cached = batch.drawn_sets.get(name)
    if cached is not None and len(cached) >= n:
        return cached[:n]
    able = features.valid[sample].nonzero().flatten().cpu().numpy()
    sets = np.zeros((n, features.count), dtype=bool)
    stream = batch.stream(sample, f"subset {features.key} {size}")
    sets[:, able] = stream.subsets(n, len(able), size)
    bits = np.packbits(sets, axis=1)
    if sum(cached.nbytes for cached in batch.drawn_sets.values()) + bits.nbytes <= KEPT:
        batch.drawn_sets[name] = bits
    return bits


def listed(
    family: str,
    rows: tuple[str, ...],
    features: Features,
    sets_of: Callable[[int], Tensor],
    valid: Tensor | None = None,
) -> Absent:
    """Sets that every sample lists for itself: `sets_of(sample)` gives all of them, `[K, P]`.

    The sets of a few samples are cached: the rows of a sample are used one after the other.
    """
    cached_samples = max(4, 2**26 // (len(rows) * features.count))  # their sets fit into 64 MB
    cached_sets = functools.lru_cache(maxsize=cached_samples)(sets_of)

    def make(samples: Tensor, rows: Tensor) -> Tensor:
        pairs = zip(samples.tolist(), rows.tolist(), strict=True)
        sets = [
            cached_sets(b)[[row for _, row in part]] for b, part in groupby(pairs, itemgetter(0))
        ]
        return torch.cat(sets).to(features.valid.device)

    return Absent(family, rows, make, valid=None if valid is None else _some(valid))


def _size_name(sizes: list[int]) -> str:
    """A text for one size in every sample: the number itself where all agree."""
    return str(sizes[0]) if len(set(sizes)) == 1 else f"own {identity(sizes)}"


def by_rank(
    batch: Batch,
    features: Features,
    values: Tensor,
    fractions: Sequence[float],
    *,
    descending: bool,
    whole: RoundedNumber = "nearest",
) -> Absent:
    """The first share of units by value `[B, P]`: nested sets of exact size, seeded ties.

    The ascending order is the reversed descending one, including ties and sizes: removing a share
    in ascending order leaves what removing the rest in descending order removes. `whole` says how
    a share becomes a whole number of units, as for `rank_counts`.
    """
    fractions = [float(f"{f:.9g}") for f in fractions]  # as in the names of the rows
    number = features.valid.sum(1, dtype=torch.int32)[:, None]  # [B, 1]
    counts = rank_counts(features, fractions, descending=descending, whole=whole)
    rows = tuple("none" if f == 0 else "all" if f == 1 else f"{f:.9g}" for f in fractions)

    @functools.cache  # sorted only if some row is not in memory yet
    def position() -> Tensor:  # [B, P]
        place = ranks(batch, features, values)
        place = place if descending else number - 1 - place
        return torch.where(features.valid, place, features.count)

    def make(samples: Tensor, rows: Tensor) -> Tensor:
        return position()[samples] < counts[samples, rows][:, None]

    family = f"rank {'descending' if descending else 'ascending'}"
    return Absent(family if whole == "nearest" else f"{family}, {whole}", rows, make, values)


def rank_counts(
    features: Features,
    fractions: Sequence[float],
    *,
    descending: bool,
    whole: RoundedNumber = "nearest",
) -> Tensor:
    """How many of each sample's units `by_rank` takes: int32 `[B, K]`.

    To the nearest number, or such that the number removed or the number kept is rounded down.
    """
    removed = whole == "removed" or (whole == "nearest" and descending)
    counted = [float(f"{f if removed else 1 - f:.9g}") for f in fractions]
    shares = torch.tensor(counted, dtype=torch.float64, device=features.valid.device)
    number = features.valid.sum(1, dtype=torch.int32)[:, None]  # [B, 1]
    counts = (shares * number + (0.5 if whole == "nearest" else 0.0)).floor().int()
    return counts if removed else number - counts


def ranks(batch: Batch, features: Features, values: Tensor) -> Tensor:  # [B, P] int32
    """Each unit's position in descending order of value; ties are in seeded random order."""
    low = torch.where(features.valid, values, -torch.inf)
    units = _falling(low)  # [B, P], best first
    ranked = low.gather(1, units)
    for b in (ranked[:, 1:] == ranked[:, :-1]).any(1).nonzero().flatten().tolist():
        able = features.valid[b].nonzero().flatten()
        drawn = torch.from_numpy(batch.stream(b, "ties").orders(1, len(able))[0])
        shuffle = able[drawn.to(low.device)]
        units[b, : len(able)] = shuffle[low[b, shuffle].argsort(descending=True, stable=True)]
        units[b, len(able) :] = (~features.valid[b]).nonzero().flatten()
    steps = torch.arange(features.count, dtype=torch.int32, device=low.device).expand_as(units)
    return torch.empty_like(steps, memory_format=torch.contiguous_format).scatter_(1, units, steps)


def _falling(values: Tensor) -> Tensor:
    """The descending order of values; ties in any order. NumPy sorts faster on a CPU."""
    if values.device.type != "cpu":
        return values.argsort(dim=1, descending=True)
    return torch.from_numpy(np.argsort(-values.numpy(), axis=1))


def above(features: Features, values: Tensor, levels: Tensor, names: Sequence[str]) -> Absent:
    """The units with a value strictly above a level; levels `[B, K]`, identified by `names`."""
    return _beyond("above", torch.gt, features, values, levels, names)


def below(features: Features, values: Tensor, levels: Tensor, names: Sequence[str]) -> Absent:
    """The units with a value strictly below a level; levels `[B, K]`."""
    return _beyond("below", torch.lt, features, values, levels, names)


def _beyond(
    family: str,
    compare: Callable[[Tensor, Tensor], Tensor],
    features: Features,
    values: Tensor,
    levels: Tensor,
    names: Sequence[str],
) -> Absent:
    def make(samples: Tensor, rows: Tensor) -> Tensor:
        beyond = compare(values[samples], levels[samples, rows][:, None])
        return beyond & features.valid[samples]

    return Absent(family, tuple(names), make, values)
