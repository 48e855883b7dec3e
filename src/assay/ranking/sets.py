"""Numbers of whole sets, such as soundness: from stored curves, decided anew in every resample."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from assay.ranking.reductions import Reduction
from assay.ranking.resampling import Codes, Floats, GroupedRows
from assay.store import SHOWN_ONLY, Array
from assay.store.run_arrays import STATUSES, CurvePart, RunArrays, ScoreArrays

Key = tuple[str, ...]  # dataset, model, checkpoint, protocol, method
# From samples and weights of each [b, n] to the number of every weighted set [b].
Numbers = Callable[[Sequence[str], Floats], Floats]
# From samples, their groups and counts of these [b, g] to the number of every weighted set [b].
GroupNumbers = Callable[[Sequence[str], GroupedRows, Floats], Floats]
# The statuses of samples that have curves.
_SCORED = [STATUSES.index(status) for status in ("ok", "degenerate", *SHOWN_ONLY)]
_KEY = ("dataset", "model", "checkpoint", "protocol", "method")
_NARROW = (np.bool_, np.float32)  # kinds of numbers that may hold a curve without loss


@dataclass(frozen=True)
class Outcome:
    """One method's number under a protocol that judges its samples together.

    Attributes:
        samples: The samples, sorted.
        own: By seed, its samples and the part of each in the seed's number.
        values: From some of the samples and weights [b, n] to the number of each weighted set [b].
        varied: The same under other options, by name: what the number is always shown with.
        of_groups: The same as `values`, from counts of groups of the samples [b, g]; None where the
            number needs the weight of each sample.
    """

    samples: Sequence[str]
    own: Mapping[int, tuple[Sequence[str], Floats]]
    values: Numbers
    varied: Mapping[str, Numbers] = field(default_factory=dict)
    of_groups: GroupNumbers | None = None


@dataclass(frozen=True, eq=False)
class SeedCurves:
    """The curves of one seed.

    Attributes:
        samples: The samples, in the order of the run.
        x: Where the curves of each sample were taken [n, K].
        curves: The curves by name [n, K], as small numbers as hold them without loss.
    """

    samples: Sequence[str]
    x: Array
    curves: Mapping[str, Array]

    def at(self, rows: Codes | None = None) -> dict[str, Array]:
        """The curves of these rows, by default of all, as numbers of double precision."""
        chosen = self.curves if rows is None else {n: c[rows] for n, c in self.curves.items()}
        return {name: np.asarray(curve, np.float64) for name, curve in chosen.items()}


@dataclass(frozen=True, eq=False)
class SetCurves:
    """The curves of one method under one protocol that judges whole sets.

    Attributes:
        seeds: The curves by seed.
        options: The protocol's options, as the scores have them.
        cells: What identifies the method under the protocol, one for each seed.
    """

    seeds: Mapping[int, SeedCurves]
    options: Mapping[str, Any]
    cells: Sequence[str]

    @functools.cached_property
    def samples(self) -> Sequence[str]:
        """The samples that every seed has, sorted."""
        return sorted(set.intersection(*(set(one.samples) for one in self.seeds.values())))

    @property
    def x(self) -> Array:  # [K]
        """Where the curves were taken."""
        first: Array = next(iter(self.seeds.values())).x[0]
        return first

    @property
    def key(self) -> str:
        """What identifies the curves: other content, another key."""
        digest = hashlib.sha256(json.dumps(sorted(self.cells)).encode())
        for seed, one in sorted(self.seeds.items()):
            named = sorted({**one.curves, "x": one.x}.items())
            names = [name for name, _ in named]
            for row in sorted(range(len(one.samples)), key=one.samples.__getitem__):
                digest.update(json.dumps([seed, one.samples[row], names]).encode())
                for _, curve in named:
                    digest.update(np.ascontiguousarray(curve[row], np.float64).tobytes())
        return digest.hexdigest()[:16]

    def reduced(self, reduction: Reduction) -> Outcome:
        """Evaluate a reduction that has its options."""
        own = {}
        for seed, one in self.seeds.items():
            own[seed] = one.samples, np.asarray(reduction.parts(one.at(), self.x), np.float64)
        varied = {name: self._numbers(other) for name, other in reduction.varied().items()}
        of_groups = None if reduction.of_sums is None else self._group_numbers(reduction)
        return Outcome(self.samples, own, self._numbers(reduction), varied, of_groups)

    @functools.cached_property
    def _places(self) -> list[dict[str, int]]:
        """The row of each sample, by seed."""
        return [{s: i for i, s in enumerate(one.samples)} for one in self.seeds.values()]

    @functools.cached_property
    def _sorted_rows(self) -> list[Codes]:
        """The rows of the common samples, sorted, by seed."""
        return [_rows_of(self.samples, place) for place in self._places]

    def _by_seed(self, samples: Sequence[str]) -> Iterator[dict[str, Array]]:
        """The curves of some of the samples, seed by seed."""
        everyone = samples == self.samples
        for number, one in enumerate(self.seeds.values()):
            if everyone:
                yield one.at(self._sorted_rows[number])
            else:
                yield one.at(_rows_of(samples, self._places[number]))

    def _numbers(self, reduction: Reduction) -> Numbers:
        def numbers(samples: Sequence[str], weights: Floats) -> Floats:
            by_seed = self._by_seed(samples)
            values = [reduction.numbers(curves, self.x, weights) for curves in by_seed]
            mean: Floats = np.mean(values, axis=0)
            return mean

        return numbers

    def _group_numbers(self, reduction: Reduction) -> GroupNumbers:
        def numbers(samples: Sequence[str], grouped: GroupedRows, counts: Floats) -> Floats:
            by_seed = self._by_seed(samples)
            values = [reduction.numbers_of_groups(c, self.x, counts, grouped) for c in by_seed]
            mean: Floats = np.mean(values, axis=0)
            return mean

        return numbers


def _rows_of(samples: Sequence[str], place: Mapping[str, int]) -> Codes:
    return np.fromiter((place[sample] for sample in samples), np.int64, len(samples))


@dataclass(frozen=True)
class Variation:
    """One protocol's numbers under other options: a row per method, a column per variation."""

    protocol: str
    names: Sequence[str]
    rows: Sequence[tuple[str, Sequence[float]]]


def variations(
    outcomes: Mapping[Key, Outcome], where: tuple[str, ...], methods: Sequence[str]
) -> Iterator[Variation]:
    """Give the numbers of whole sets under the options they are always shown with.

    Args:
        outcomes: The outcomes of a run.
        where: Dataset, model and checkpoint.
        methods: The methods, in the order of their rows.

    Yields:
        One table per protocol.
    """
    here = {key[3:]: outcome for key, outcome in outcomes.items() if key[:3] == where}
    for protocol in dict.fromkeys(name for name, _ in here):
        rows, names = [], []
        for method in methods:
            outcome = here.get((protocol, method))
            if outcome is not None and outcome.samples:
                names = list(outcome.varied)
                ones = np.ones((1, len(outcome.samples)))
                values = [float(v(outcome.samples, ones)[0]) for v in outcome.varied.values()]
                rows.append((method, values))
        if names:
            yield Variation(protocol, names, rows)


def read_curves(arrays: RunArrays, protocols: Collection[str]) -> dict[Key, SetCurves]:
    """Read the curves of all cells whose protocol judges whole sets.

    Args:
        arrays: The scores and curves of a run.
        protocols: The labels of these protocols.

    Returns:
        The curves of every sample that has a score.
    """
    parts: dict[Key, list[CurvePart]] = {}
    for chunk in arrays.curves(protocols):
        for key, some in chunk.items():
            parts.setdefault(key, []).extend(map(_narrowed, some))
    read: dict[Key, SetCurves] = {}
    for block in arrays.scores(protocols):
        for place, method in enumerate(block.methods):
            key = (block.dataset, block.model, block.checkpoint, block.protocol, method)
            if curves := _set_curves(block, place, parts.pop(key, ())):
                read[key] = curves
    return read


def _narrowed(part: CurvePart) -> CurvePart:
    return replace(part, curves={name: _narrow(curve) for name, curve in part.curves.items()})


def _set_curves(block: ScoreArrays, place: int, parts: Sequence[CurvePart]) -> SetCurves | None:
    """The curves of a method in a block, on the samples that have scores."""
    scored = np.isin(block.statuses[:, place], _SCORED)
    by_seed: dict[int, list[CurvePart]] = {}
    cells: dict[str, None] = {}
    for part in parts:
        here = scored[list(block.seeds).index(part.seed), part.rows]
        if here.any():
            chosen = part if here.all() else _some_rows(part, here)
            by_seed.setdefault(part.seed, []).append(chosen)
            cells[part.cell] = None
    if not by_seed:
        return None
    seeds = {seed: _seed_curves(block.samples, some) for seed, some in by_seed.items()}
    return SetCurves(seeds, json.loads(block.protocol_options), tuple(cells))


def _some_rows(part: CurvePart, here: Array) -> CurvePart:
    curves = {name: curve[here] for name, curve in part.curves.items()}
    return replace(part, rows=part.rows[here], curves=curves)


def _seed_curves(samples: Sequence[str], parts: Sequence[CurvePart]) -> SeedCurves:
    """Put the curves of all parts together; shorter ones end in NaN."""
    steps = max(len(part.x) for part in parts)
    rows = np.concatenate([part.rows for part in parts])
    x = np.concatenate([_as_long(np.tile(p.x, (len(p.rows), 1)), steps) for p in parts])
    if (x == x[0]).all():
        x = np.broadcast_to(x[0].copy(), x.shape)
    curves = {
        name: _narrow(np.concatenate([_as_long(part.curves[name], steps) for part in parts]))
        for name in parts[0].curves
    }
    return SeedCurves([samples[row] for row in rows.tolist()], x, curves)


def _as_long(curves: Array, steps: int) -> Array:
    missing = steps - curves.shape[1]
    if not missing:
        return curves
    wide = curves.astype(np.float64)  # bits have no NaN
    return np.pad(wide, ((0, 0), (0, missing)), constant_values=np.nan)


def _narrow(curve: Array) -> Array:
    """The smallest numbers that hold a curve without loss."""
    for kind in _NARROW:
        with np.errstate(over="ignore"):
            narrow = curve.astype(kind)
        if np.array_equal(narrow, curve, equal_nan=kind is not np.bool_):
            return narrow
    return curve


def with_parts(block: ScoreArrays, outcomes: Mapping[Key, Outcome]) -> ScoreArrays:
    """Give a block with every sample's part of its set's number, unknown to a single shard."""
    key = (block.dataset, block.model, block.checkpoint, block.protocol)
    mine = {place: outcomes.get((*key, method)) for place, method in enumerate(block.methods)}
    if not any(mine.values()):
        return block
    values = block.values.copy()
    places: dict[str, int] = {}
    for place, outcome in mine.items():
        for seed, (samples, parts) in (outcome.own if outcome else {}).items():
            if seed not in block.seeds:
                continue
            row = list(block.seeds).index(seed), place
            if samples == block.samples:
                values[row] = parts
                continue
            places = places or {sample: i for i, sample in enumerate(block.samples)}
            there = [i for i, sample in enumerate(samples) if sample in places]
            values[(*row, [places[samples[i]] for i in there])] = parts[there]
    return replace(block, values=values)
