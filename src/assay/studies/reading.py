"""The scores and curves of a run as matrices, one row per sample."""

from __future__ import annotations

import functools

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assay.errors import PrerequisiteError
from assay.ranking.resampling import Floats
from assay.results import Results
from assay.store.lazy_table import in_memory


class Reading:
    """A run on one dataset and one network, read by protocol and method."""

    def __init__(self, results: Results) -> None:
        """Read a finished run.

        Raises:
            PrerequisiteError: Some of its cells failed, so no claim can be decided.
        """
        if results.failures:
            first = results.failures[0]
            raise PrerequisiteError(
                f"Expected a run without failures, got {len(results.failures)} failed cells in "
                f"`{results.folder}`. The first is {first['method']} x {first['protocol']}: "
                f"{first['message']}"
            )
        self.results = results
        self.protocols = list(results.manifest["protocols"])
        self.methods = list(results.manifest["methods"])
        # A bootstrap reads the same matrices many times.
        self._read = functools.cache(self._matrices)
        self.values = functools.cache(self._values)
        self.falls = functools.cache(self._falls)

    @functools.cached_property
    def samples(self) -> list[str]:
        """The samples, sorted: the rows of every matrix."""
        return sorted(set(in_memory(self.results.scores)["sample"].to_pylist()))

    def curves(self, protocol: str, method: str) -> dict[str, Floats]:
        """The curves `[n, K]` of a method under a protocol, by name."""
        return self._read(protocol, method)[0]

    def x(self, protocol: str, method: str) -> Floats:
        """The x values of the curves `[K]`."""
        return self._read(protocol, method)[1]

    def _values(self, protocol: str, method: str, metric: str | None = None) -> Floats:  # [n]
        """The scores of the samples: the protocol's own, or another of its metrics."""
        rows = self._scores(protocol, method)
        chosen = rows["headline"] if metric is None else pc.equal(rows["metric"], metric)
        scores = rows.filter(chosen).sort_by("sample")
        return self._whole(scores["value"].to_numpy(), protocol, method)

    def _falls(self, protocol: str, method: str) -> Floats:  # [n, K]
        """Each sample's drop of correctness at each threshold of `completeness`."""
        after = self.curves(protocol, method)["correct"]
        before = self.values(protocol, method, "raw") + after.mean(1)
        falls: Floats = np.rint(before)[:, None] - after
        return falls

    def _matrices(self, protocol: str, method: str) -> tuple[dict[str, Floats], Floats]:
        cells = pc.unique(self._scores(protocol, method)["cell"])
        everything = in_memory(self.results.curves)
        mine = everything.filter(pc.is_in(everything["cell"], value_set=cells))
        curves, x = {}, np.empty(0)
        for name in pc.unique(mine["name"]).to_pylist():
            rows = mine.filter(pc.equal(mine["name"], name))
            rows = rows.sort_by([("sample", "ascending"), ("step", "ascending")])
            steps = len(rows) // len(self.samples)
            x = rows["x"].to_numpy()[:steps]
            curves[name] = self._whole(rows["value"].to_numpy(), protocol, method, steps)
        return curves, x

    def _scores(self, protocol: str, method: str) -> pa.Table:
        rows = in_memory(self.results.scores)
        chosen = pc.and_(pc.equal(rows["protocol"], protocol), pc.equal(rows["method"], method))
        return rows.filter(chosen)

    def _whole(self, values: Floats, protocol: str, method: str, steps: int = 0) -> Floats:
        """One row for every sample, or an error, because claims compare paired samples."""
        expected = len(self.samples) * (steps or 1)
        if len(values) != expected or not len(values):
            raise PrerequisiteError(
                f"Expected {expected} numbers of {method} x {protocol} in "
                f"`{self.results.folder}`, got {len(values)}. Run it again to add the missing ones."
            )
        return values.reshape(-1, steps) if steps else values
