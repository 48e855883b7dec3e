"""Every sample's part in the number of its set, put into tables of scores."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assay.ranking.resampling import Floats
from assay.ranking.sets import Key, Outcome
from assay.store import Array

_COLUMNS = ("dataset", "model", "checkpoint", "protocol", "method", "seed")


class SetParts:
    """The parts of all samples: a single shard does not know them."""

    def __init__(self, outcomes: Mapping[Key, Outcome]) -> None:
        """Sort the samples of each outcome, so that those of a shard are found at once."""
        self._protocols = pa.array(sorted({key[3] for key in outcomes}), pa.string())
        self._parts: dict[tuple[object, ...], tuple[Array, Floats]] = {}
        for key, outcome in outcomes.items():
            for seed, (samples, parts) in outcome.own.items():
                names = np.asarray(samples, np.str_)
                order = np.argsort(names, kind="stable")
                self._parts[(*key, seed)] = names[order], parts[order]

    def put_into(self, scores: pa.Table) -> pa.Table:
        """The scores of a table with these parts as values."""
        judged = pc.and_(
            scores["headline"], pc.is_in(scores["protocol"], value_set=self._protocols)
        )
        rows = np.flatnonzero(judged.to_numpy())
        if not len(rows):
            return scores
        values = scores["value"].to_numpy().copy()
        some = scores.select([*_COLUMNS, "sample"]).take(pa.array(rows))
        samples = np.asarray(some["sample"].to_pylist(), np.str_)
        keys = some.select(list(_COLUMNS)).to_pylist()
        by_key: dict[tuple[object, ...], list[int]] = {}
        for row, key in enumerate(keys):
            by_key.setdefault(tuple(key.values()), []).append(row)
        for place, here in by_key.items():
            if place in self._parts:
                names, parts = self._parts[place]
                at = np.minimum(np.searchsorted(names, samples[here]), len(names) - 1)
                known = names[at] == samples[here]
                values[rows[here][known]] = parts[at[known]]
        index = scores.schema.get_field_index("value")
        return scores.set_column(index, scores.schema.field("value"), pa.array(values))
