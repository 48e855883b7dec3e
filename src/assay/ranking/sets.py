"""Numbers of whole sets, such as soundness: from stored outcomes, decided anew in resamples."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assay.ranking.resampling import Floats
from assay.reduce import REDUCTIONS, Array, Reduction
from assay.store import SHOWN_ONLY

Key = tuple[str, ...]  # dataset, model, checkpoint, protocol, method
Curves = dict[str, Array]  # by name, and x: each [K]


@dataclass(frozen=True)
class Outcome:
    """What one method's samples came to under a protocol that judges them together.

    Attributes:
        samples: The samples, sorted.
        parts: Their curves [n, K] by name, one mapping per seed.
        x: Where the curves were taken [K].
        reduction: From curves to the number.
        options: Its options.
        own: The part of each seed and sample in its seed's number.
    """

    samples: Sequence[str]
    parts: Sequence[Mapping[str, Array]]
    x: Array
    reduction: Reduction
    options: Mapping[str, Any]
    own: Mapping[tuple[int, str], float] = field(default_factory=dict)

    def values(self, samples: Sequence[str], weights: Floats) -> Floats:
        """Give the number of these samples under each row of weights [b, n]."""
        place = {sample: row for row, sample in enumerate(self.samples)}
        rows = [place[sample] for sample in samples]
        found = [
            self.reduction.value(
                {name: curve[rows] for name, curve in part.items()}, self.x, weights, **self.options
            )
            for part in self.parts
        ]
        value: Floats = np.mean(found, axis=0)
        return value


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
                varied = outcome.reduction.variations(outcome.options)
                names = list(varied)
                ones = np.ones((1, len(outcome.samples)))
                changed = [replace(outcome, options=other) for other in varied.values()]
                values = [float(c.values(c.samples, ones)[0]) for c in changed]
                rows.append((method, values))
        if names:
            yield Variation(protocol, names, rows)


def read_outcomes(
    scores: pa.Table, curves: pa.Table, reductions: Mapping[str, str]
) -> dict[Key, Outcome]:
    """Read the outcomes of all cells whose protocol judges whole sets.

    Args:
        scores: The `scores` of a run.
        curves: The `curves` of a run.
        reductions: The name of each protocol's reduction, where it is not the mean.

    Returns:
        The outcomes; samples that failed under any seed are left out.
    """
    protocols = pa.array(list(reductions), pa.string())
    scored = pa.array(["ok", "degenerate", *SHOWN_ONLY])
    wanted = scores.filter(
        pc.and_(
            pc.and_(scores["headline"], pc.is_in(scores["protocol"], value_set=protocols)),
            pc.is_in(scores["status"], value_set=scored),
        )
    ).to_pylist()
    found = _curves_by_sample(curves, {row["cell"] for row in wanted})
    parts: dict[Key, dict[int, dict[str, Curves]]] = defaultdict(lambda: defaultdict(dict))
    options: dict[Key, str] = {}
    for row in wanted:
        key = tuple(row[c] for c in ("dataset", "model", "checkpoint", "protocol", "method"))
        options[key] = row["protocol_options"]
        place = (row["cell"], row["seed"], row["sample"])
        if place in found:
            parts[key][row["seed"]][row["sample"]] = found[place]
    return {
        key: _outcome(seeds, reductions[key[3]], json.loads(options[key]))
        for key, seeds in parts.items()
    }


def _outcome(
    seeds: Mapping[int, Mapping[str, Curves]], name: str, options: Mapping[str, Any]
) -> Outcome:
    reduction = REDUCTIONS[name]
    chosen = {option: options[option] for option in reduction.options}
    x = next(iter(next(iter(seeds.values())).values()))["x"]
    own: dict[tuple[int, str], float] = {}
    for seed, found in seeds.items():
        each = reduction.each(_stacked(found, list(found)), x, **chosen)
        own |= {(seed, s): float(value) for s, value in zip(found, each, strict=True)}
    samples = sorted(set.intersection(*(set(found) for found in seeds.values())))
    parts = [_stacked(found, samples) for found in seeds.values()] if samples else []
    return Outcome(samples, parts, x, reduction, chosen, own)


def _stacked(found: Mapping[str, Curves], samples: Sequence[str]) -> dict[str, Array]:
    """Give the curves of these samples by name [n, K]."""
    names = [name for name in next(iter(found.values())) if name != "x"]
    return {name: np.stack([found[s][name] for s in samples]) for name in names}


def _curves_by_sample(curves: pa.Table, cells: set[str]) -> dict[tuple[str, int, str], Curves]:
    """Give each sample's curves, and their x, by cell, seed and sample."""
    chosen = curves.filter(pc.is_in(curves["cell"], value_set=pa.array(sorted(cells), pa.string())))
    if len(chosen) == 0:
        return {}
    starts = np.flatnonzero(chosen["step"].to_numpy() == 0)  # a curve's steps lie together
    values, x = chosen["value"].to_numpy(), chosen["x"].to_numpy()
    heads = chosen.select(["cell", "seed", "sample", "name"]).take(pa.array(starts)).to_pylist()
    found: dict[tuple[str, int, str], Curves] = defaultdict(dict)
    for head, start, end in zip(heads, starts, [*starts[1:], len(values)], strict=True):
        entry = found[head["cell"], head["seed"], head["sample"]]
        entry[head["name"]], entry["x"] = values[start:end], x[start:end]
    return found


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
