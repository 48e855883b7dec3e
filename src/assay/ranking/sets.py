"""Numbers of whole sets, such as soundness: from stored curves, decided anew in every resample."""

from __future__ import annotations

import functools
import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assay.ranking.reductions import Reduction
from assay.ranking.resampling import Floats
from assay.store import SHOWN_ONLY, Array

Key = tuple[str, ...]  # dataset, model, checkpoint, protocol, method
Curves = dict[str, Array]  # by name, and x: each [K]
# From samples and weights of each [b, n] to the number of every weighted set [b].
Numbers = Callable[[Sequence[str], Floats], Floats]


@dataclass(frozen=True)
class Outcome:
    """One method's number under a protocol that judges its samples together.

    Attributes:
        samples: The samples, sorted.
        own: The part of each seed and sample in its seed's number.
        values: From some of the samples and weights [b, n] to the number of each weighted set [b].
        varied: The same under other options, by name: what the number is always shown with.
    """

    samples: Sequence[str]
    own: Mapping[tuple[int, str], float]
    values: Numbers
    varied: Mapping[str, Numbers] = field(default_factory=dict)


@dataclass(frozen=True)
class SetCurves:
    """The curves of one method under one protocol that judges whole sets.

    Attributes:
        seeds: Each sample's curves, by seed and sample.
        options: The protocol's options, as the scores have them.
        cells: What identifies the method under the protocol, one for each seed.
    """

    seeds: Mapping[int, Mapping[str, Curves]]
    options: Mapping[str, Any]
    cells: Sequence[str]

    @property
    def samples(self) -> list[str]:
        """The samples that every seed has, sorted."""
        return sorted(set.intersection(*(set(by_sample) for by_sample in self.seeds.values())))

    @property
    def x(self) -> Array:  # [K]
        """Where the curves were taken."""
        return next(iter(next(iter(self.seeds.values())).values()))["x"]

    @property
    def key(self) -> str:
        """What identifies the curves: other content, another key."""
        digest = hashlib.sha256(json.dumps(sorted(self.cells)).encode())
        for seed, by_sample in sorted(self.seeds.items()):
            for sample, curves in sorted(by_sample.items()):
                digest.update(json.dumps([seed, sample, sorted(curves)]).encode())
                for _, curve in sorted(curves.items()):
                    digest.update(np.ascontiguousarray(curve, np.float64).tobytes())
        return digest.hexdigest()[:16]

    def reduced(self, reduction: Reduction) -> Outcome:
        """Evaluate a reduction that has its options."""
        own: dict[tuple[int, str], float] = {}
        for seed, by_sample in self.seeds.items():
            parts = reduction.parts(_stacked(by_sample, list(by_sample)), self.x)
            own |= {(seed, s): float(part) for s, part in zip(by_sample, parts, strict=True)}
        varied = {name: self._numbers(other) for name, other in reduction.varied().items()}
        return Outcome(self.samples, own, self._numbers(reduction), varied)

    @functools.cached_property
    def _whole(self) -> tuple[dict[str, int], list[dict[str, Array]]]:
        """The row of each sample, and by seed the curves of all rows by name [n, K]."""
        samples = self.samples
        rows = {sample: row for row, sample in enumerate(samples)}
        return rows, [_stacked(by_sample, samples) for by_sample in self.seeds.values()]

    def _numbers(self, reduction: Reduction) -> Numbers:
        def numbers(samples: Sequence[str], weights: Floats) -> Floats:
            place, by_seed = self._whole
            rows = [place[sample] for sample in samples]
            values = [
                reduction.numbers({n: curve[rows] for n, curve in curves.items()}, self.x, weights)
                for curves in by_seed
            ]
            mean: Floats = np.mean(values, axis=0)
            return mean

        return numbers


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


def read_curves(
    scores: pa.Table, curves: pa.Table, protocols: Sequence[str]
) -> dict[Key, SetCurves]:
    """Read the curves of all cells whose protocol judges whole sets.

    Args:
        scores: The `scores` of a run.
        curves: The `curves` of a run.
        protocols: The labels of these protocols.

    Returns:
        The curves of every sample that has a score.
    """
    labels = pa.array(list(protocols), pa.string())
    scored = pa.array(["ok", "degenerate", *SHOWN_ONLY])
    rows = scores.filter(
        pc.and_(
            pc.and_(scores["headline"], pc.is_in(scores["protocol"], value_set=labels)),
            pc.is_in(scores["status"], value_set=scored),
        )
    ).to_pylist()
    by_place = _curves_by_sample(curves, {row["cell"] for row in rows})
    seeds: dict[Key, dict[int, dict[str, Curves]]] = defaultdict(lambda: defaultdict(dict))
    cells: dict[Key, dict[str, None]] = defaultdict(dict)
    options: dict[Key, str] = {}
    for row in rows:
        key = tuple(row[c] for c in ("dataset", "model", "checkpoint", "protocol", "method"))
        place = (row["cell"], row["seed"], row["sample"])
        if place in by_place:
            seeds[key][row["seed"]][row["sample"]] = by_place[place]
            cells[key][row["cell"]], options[key] = None, row["protocol_options"]
    return {
        key: SetCurves(by_seed, json.loads(options[key]), tuple(cells[key]))
        for key, by_seed in seeds.items()
    }


def _stacked(by_sample: Mapping[str, Curves], samples: Sequence[str]) -> dict[str, Array]:
    """Give the curves of these samples by name [n, K]."""
    names = [name for name in next(iter(by_sample.values())) if name != "x"]
    return {name: np.stack([by_sample[s][name] for s in samples]) for name in names}


def _curves_by_sample(curves: pa.Table, cells: set[str]) -> dict[tuple[str, int, str], Curves]:
    """Give each sample's curves, and their x, by cell, seed and sample."""
    chosen = curves.filter(pc.is_in(curves["cell"], value_set=pa.array(sorted(cells), pa.string())))
    if len(chosen) == 0:
        return {}
    starts = np.flatnonzero(chosen["step"].to_numpy() == 0)  # a curve's steps lie together
    values, x = chosen["value"].to_numpy(), chosen["x"].to_numpy()
    heads = chosen.select(["cell", "seed", "sample", "name"]).take(pa.array(starts)).to_pylist()
    by_place: dict[tuple[str, int, str], Curves] = defaultdict(dict)
    for head, start, end in zip(heads, starts, [*starts[1:], len(values)], strict=True):
        entry = by_place[head["cell"], head["seed"], head["sample"]]
        entry[head["name"]], entry["x"] = values[start:end], x[start:end]
    return by_place


def with_values(scores: pa.Table, outcomes: Mapping[Key, Outcome]) -> pa.Table:
    """Give the scores with every sample's part of its set's number, unknown to a single shard."""
    columns = ("dataset", "model", "checkpoint", "protocol", "method", "headline", "seed", "sample")
    values = scores["value"].to_numpy().copy()
    rows = zip(*(scores[c].to_pylist() for c in columns), strict=True)
    for place, (*where, headline, seed, sample) in enumerate(rows):
        outcome = outcomes.get(tuple(where)) if headline else None
        if outcome is not None and (seed, sample) in outcome.own:
            values[place] = outcome.own[seed, sample]
    index = scores.schema.get_field_index("value")
    return scores.set_column(index, scores.schema.field("value"), pa.array(values))
