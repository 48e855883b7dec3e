"""A run read back from its folder: tables, order, page."""

import functools
import itertools
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from assay.errors import InputError, PrerequisiteError, unknown, warn
from assay.plugins.addresses import is_address
from assay.store import CHECKS, CURVES, SCORES, Array, Store, query, require_run
from assay.suite.spec import Spec, parse_suite

if TYPE_CHECKING:
    from assay.ranking.leaderboard import Leaderboard
    from assay.ranking.sets import Key, Outcome, SetCurves
    from assay.ranking.stored import Recording


class Results:
    """What a run found. `scores` and `curves` are tidy tables; order is that of the suite."""

    def __init__(
        self, folder: str | Path, keep: Any = None, recording: "Recording | None" = None
    ) -> None:
        """Open the run in `folder`.

        Args:
            folder: The run's folder.
            keep: Held as long as the results are.
            recording: Evaluates users' own reductions, in the run that has their code; everywhere
                else the stored numbers are read.
        """
        self.store = require_run(folder)
        self.folder = self.store.folder
        self.manifest: dict[str, Any] = Store.read_json(self.store.path("manifest.json"))
        self._keep = keep
        self._recording = recording

    @functools.cached_property
    def spec(self) -> Spec:
        """The resolved suite."""
        return parse_suite(self.store.path("spec.yaml").read_text(), "`spec.yaml`")

    @functools.cached_property
    def scores(self) -> pa.Table:
        """One row per sample and metric of every cell."""
        return self._whole[0]

    @property
    def outcomes(self) -> "dict[Key, Outcome]":
        """The numbers of the protocols that judge whole sets: see `assay.ranking.sets`."""
        return self._whole[1]

    @functools.cached_property
    def _whole(self) -> "tuple[pa.Table, dict[Key, Outcome]]":
        scores = self._gather("scores", SCORES, required=True)
        protocols = self.manifest["protocols"]
        names = {label: about.get("reduce", "mean") for label, about in protocols.items()}
        sets = [label for label, name in names.items() if name != "mean"]
        if not sets:
            return scores, {}
        from assay.ranking.sets import read_curves, with_values

        curves = read_curves(scores, self.curves, sets)
        outcomes = {key: self._outcome(key[3], names[key[3]], c) for key, c in curves.items()}
        return with_values(scores, outcomes), outcomes

    def _outcome(self, protocol: str, name: str, curves: "SetCurves") -> "Outcome":
        """The numbers of one method under one protocol: reduced here, or read where stored."""
        from assay.ranking.reductions import named_reduction
        from assay.ranking.stored import read_stored

        if not is_address(name):
            return curves.reduced(named_reduction(name).with_options(curves.options))
        if self._recording is not None:
            return self._recording.outcome(protocol, curves)
        return read_stored(self.store, protocol, curves)

    @property
    def _ranges(self) -> dict[str, tuple[float, float]]:
        """Where each protocol's score can lie; null in the manifest is without end."""
        said = {label: p.get("range") for label, p in self.manifest["protocols"].items()}
        return {
            label: (
                -math.inf if ends[0] is None else float(ends[0]),
                math.inf if ends[1] is None else float(ends[1]),
            )
            for label, ends in said.items()
            if ends
        }

    @functools.cached_property
    def curves(self) -> pa.Table:
        """The curves behind the scores."""
        return self._gather("curves", CURVES, required=False)

    @functools.cached_property
    def checks(self) -> pa.Table:
        """By how much each map misses what its method's formula promises; 0 is perfect.

        One row per sample of every method that promises something, such as completeness.
        """
        tables = []
        for shard in self.manifest["shards"]:
            for method, key in shard.get("checks", {}).items():
                path = self.store.path("checks", f"{key}-{shard['id']}.parquet")
                table = Store.read_table(path, CHECKS)
                if table is not None:
                    words = {"dataset": shard["dataset"], "model": shard["model"]}
                    tables.append(_relabel(table, {**words, "method": method}))
        return pa.concat_tables(tables) if tables else CHECKS.empty_table()

    @functools.cached_property
    def cells(self) -> list[dict[str, Any]]:
        """Provenance of every finished piece: seconds, forwards, status, message."""
        found = (
            (Store.read_json(self.store.path("cells", f"{p}.json")), w) for p, w in self._pieces()
        )
        return [{**cell, **words} for cell, words in found if cell is not None]

    @property
    def failures(self) -> list[dict[str, Any]]:
        """The pieces that failed, with their messages."""
        return [c for c in self.cells if c["status"] == "failed"]

    @property
    def not_applicable(self) -> list[dict[str, str]]:
        """Which methods and protocols do not go together on which model and data, and the `reason`.

        Each reason once; where parts of a cell have different ones, there is a row for each.
        """
        words = ("dataset", "model", "method", "protocol", "message")
        refused = [cell for cell in self.cells if cell["status"] == "n/a"]
        names = (*words[:-1], "reason")
        return [
            dict(zip(names, row, strict=True))
            for row in dict.fromkeys(tuple(cell[word] for word in words) for cell in refused)
        ]

    @property
    def complete(self) -> bool:
        """Whether every planned piece is there."""
        return all(self.store.path("scores", f"{p}.parquet").exists() for p, _ in self._pieces())

    def leaderboard(self, **options: Any) -> "Leaderboard":
        """The methods in order, per protocol, with intervals and ties.

        Protocols that know the truth are kept apart from the overall order.
        """
        from assay.ranking.leaderboard import leaderboard

        methods = self.manifest["methods"]
        controls = {label: m["control"] for label, m in methods.items() if m["control"]}
        told: dict[str, Any] = {"ranges": self._ranges, "apart": self.knowing, **options}
        return leaderboard(self.scores, controls=controls, outcomes=self.outcomes, **told)

    @property
    def knowing(self) -> list[str]:
        """The labels of the protocols that know the truth."""
        protocols = self.manifest["protocols"]
        return [label for label, p in protocols.items() if p["family"] == "truth"]

    def against(self, control: str, **options: Any) -> list[dict[str, Any]]:
        """Every method minus one control, paired by sample, with intervals; positive is better."""
        from assay.ranking.against import against

        return against(self.scores, control, self.outcomes, self._ranges, **options)

    def trust(
        self, truth: str | None = None, *, quiet: bool = False, **options: Any
    ) -> list[dict[str, Any]]:
        """How far each protocol's order of the methods agrees with the order by truth.

        Intervals are over the samples only: an order of fewer than six methods tells little.

        Args:
            truth: The label of the protocol that knows the truth; else the first of this run that
                ranks the methods of a dataset.
            quiet: Whether no warning says why nothing can be compared.
            **options: `level`, `resamples`, `seed`.
        """
        from assay.ranking.trust import NO_ORDER, trust

        knowing = self.knowing
        if truth is None and not knowing:
            raise InputError(
                "Expected a run with a protocol that knows the truth, such as `truth_f1`: without "
                "one, nothing tells whether the others are right."
            )
        if truth is not None and truth not in knowing:
            raise unknown("protocol that knows the truth", truth, knowing)
        rows = trust(
            self.scores,
            truth or knowing,
            [label for label in self.manifest["protocols"] if label not in knowing],
            controls=[label for label, m in self.manifest["methods"].items() if m["control"]],
            outcomes=self.outcomes,
            **options,
        )
        if not rows and not quiet:
            warn(f"Nothing to compare in `{self.folder}`. {NO_ORDER}")
        return rows

    def maps(
        self, method: str, dataset: str | None = None, model: str | None = None
    ) -> dict[str, Array]:
        """The stored maps of a method by sample id."""
        if method not in self.manifest["methods"]:
            raise unknown("method of this run", method, self.manifest["methods"])
        found: dict[str, Array] = {}
        for shard in self.manifest["shards"]:
            if dataset in (None, shard["dataset"]) and model in (None, shard["model"]):
                path = self.store.path(
                    "attributions", shard["maps"][method], f"{shard['id']}.safetensors"
                )
                read = Store.read_arrays(path)
                if read is not None:
                    found.update(zip(shard["samples"], read[0]["maps"], strict=True))
        return found

    def report(self, path: str | Path | None = None) -> Path:
        """Write the page, one self-contained HTML file; by default into the run's folder."""
        from assay.report.page import render

        target = Path(path) if path else self.store.path("report.html")
        target = target / "report.html" if target.is_dir() else target
        self.store.write(target, lambda p: p.write_text(render(self), encoding="utf-8"))
        return target

    def query(self, sql: str) -> pa.Table:
        """SQL over the tables `scores`, `curves` and `checks`."""
        return query(sql, scores=self.scores, curves=self.curves, checks=self.checks)

    def __repr__(self) -> str:
        """What this is, in one line."""
        m = self.manifest
        samples = sum(d["n"] for d in m["datasets"].values())
        what = f"{len(m['methods'])} methods x {len(m['protocols'])} protocols, {samples} samples"
        return f"Results({str(self.folder)!r}: {what})"

    def _repr_html_(self) -> str:
        html: str = self.leaderboard()._repr_html_()
        return html

    def _pieces(self) -> list[tuple[str, dict[str, str]]]:
        """The planned files in the suite's order, each with the labels it has in this suite."""
        methods, protocols = self.manifest["methods"], self.manifest["protocols"]
        return [
            (
                f"{cell}-{shard['id']}",
                {"dataset": shard["dataset"], "model": shard["model"], "method": m, "protocol": p},
            )
            for shard in self.manifest["shards"]
            for cell, (p, m) in zip(
                shard["cells"], itertools.product(protocols, methods), strict=True
            )
        ]

    def _gather(self, kind: str, schema: pa.Schema, *, required: bool) -> pa.Table:
        tables = []
        for piece, words in self._pieces():
            path = self.store.path(kind, f"{piece}.parquet")
            table = Store.read_table(path, schema)
            if table is not None:
                tables.append(_relabel(table, words) if kind == "scores" else table)
            elif path.exists():
                raise PrerequisiteError(
                    f"`{path}` is not whole. Run `assay run {self.folder}/spec.yaml --out "
                    f"{self.folder}` again: it computes what is missing and keeps the rest."
                )
        if not tables and required:
            raise PrerequisiteError(f"The run in `{self.folder}` has no scores yet; run it again.")
        return pa.concat_tables(tables) if tables else schema.empty_table()


def _relabel(table: pa.Table, words: dict[str, str]) -> pa.Table:
    """Labels are not part of a cell's identity: a suite may have renamed what is already there."""
    for name, word in words.items():
        place = table.schema.get_field_index(name)
        table = table.set_column(place, table.schema.field(name), pa.repeat(word, len(table)))
    return table


def load(folder: str | Path) -> Results:
    """The results of a run from its folder."""
    return Results(folder)
