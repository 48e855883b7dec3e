"""A run read back from its folder: tables, order, page."""

import functools
import html
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import pyarrow as pa

from assay.errors import InputError, PrerequisiteError, unknown, warn
from assay.paths import user_path
from assay.store import (
    CHECKS,
    CURVES,
    SCORES,
    Array,
    CellRecord,
    Limits,
    Manifest,
    RunFiles,
    Store,
    StoredObject,
    parse_manifest,
    query,
    require_run,
)
from assay.store.lazy_table import LazyTable, whole_or_lazy
from assay.store.log_arrays import LogArrays
from assay.store.run_tables import check_tables, curve_tables, score_tables
from assay.suite.spec import Spec, read_suite

if TYPE_CHECKING:
    from assay.ranking.answer import Answer
    from assay.ranking.architectures import Grouping
    from assay.ranking.dose_response import DoseResponse
    from assay.ranking.leaderboard import Leaderboard
    from assay.ranking.model_rows import ModelComparisons
    from assay.ranking.resampling import BootstrapOptions
    from assay.ranking.rows import PublicRow
    from assay.ranking.sets import Key, Outcome
    from assay.ranking.signal import Signal, SignalKey
    from assay.ranking.stored import Recording
    from assay.ranking.trust import TrustRow
    from assay.store.run_arrays import RunArrays


class Results:
    """The results of a run. `scores` and `curves` are tidy tables in the order of the suite."""

    def __init__(
        self, folder: str | Path, keep: object = None, recording: "Recording | None" = None
    ) -> None:
        """Open the run in `folder`.

        Args:
            folder: The run's folder.
            keep: An object that must live as long as the results.
            recording: Evaluates users' own reductions in the run that has their code; without it
                the stored numbers are read.
        """
        self.store = require_run(folder)
        self.folder = self.store.folder
        self.manifest: StoredObject = Store.read_json(self.store.path("manifest.json")) or {}
        self._keep = keep
        self._recording = recording
        self._leaderboards: dict[str, Leaderboard] = {}  # by their options

    @functools.cached_property
    def entries(self) -> Manifest:
        """The manifest as typed entries."""
        return parse_manifest(self.manifest, self.store.path("manifest.json"))

    @functools.cached_property
    def files(self) -> RunFiles:
        """The stored files of the run."""
        return RunFiles(self.store, self.entries)

    @functools.cached_property
    def spec(self) -> Spec:
        """The resolved suite."""
        return read_suite(self.store.path("spec.yaml"))

    @functools.cached_property
    def scores(self) -> "pa.Table | LazyTable":
        """One row per sample and metric of every cell; a `LazyTable` above 5 million rows."""
        self._require_cells()
        return whole_or_lazy(SCORES, self._rows, self._score_parts)

    def _score_parts(self) -> Iterator[pa.Table]:
        """The scores of one shard after the other, with every sample's part of its set's number."""
        if not self.outcomes:
            return score_tables(self.files)
        from assay.ranking.set_parts import SetParts

        parts = SetParts(self.outcomes)
        return (parts.put_into(table) for table in score_tables(self.files))

    @property
    def _rows(self) -> int:
        """The number of headline scores that the run plans."""
        return sum(len(shard.samples) * len(shard.cells) for shard in self.entries.shards)

    def _require_cells(self) -> None:
        if not self.files.any_cells:
            raise PrerequisiteError(f"The run in `{self.folder}` has no scores yet; run it again.")

    @functools.cached_property
    def arrays(self) -> "RunArrays":
        """The scores, as they are stored, and curves as arrays, which ranking and the page read."""
        self._require_cells()
        return LogArrays(self.files)

    @functools.cached_property
    def outcomes(self) -> "dict[Key, Outcome]":
        """The numbers of the protocols that judge whole sets: see `assay.ranking.sets`."""
        from assay.ranking.stored import read_outcomes

        names = {label: entry.reduce for label, entry in self.entries.protocols.items()}
        return read_outcomes(self.arrays, names, self.store, self._recording)

    @functools.cached_property
    def curves(self) -> "pa.Table | LazyTable":
        """The curves behind the scores; a `LazyTable` where the scores are one."""
        return whole_or_lazy(CURVES, self._rows, lambda: curve_tables(self.files))

    @functools.cached_property
    def checks(self) -> pa.Table:
        """How far each map deviates from what its method promises; 0 is perfect.

        One row per sample of every method that promises something, such as completeness.
        """
        tables = list(check_tables(self.files))
        return pa.concat_tables(tables) if tables else CHECKS.empty_table()

    @property
    def cells(self) -> list[StoredObject]:
        """How every finished cell was computed on every shard: seconds, status, message.

        Its labels are those of this suite.
        """
        return [record.to_json() for record in self.records]

    @functools.cached_property
    def records(self) -> list[CellRecord]:
        """The same as `cells`, typed."""
        return list(self.files.records())

    @property
    def failures(self) -> list[StoredObject]:
        """The records of the cells that failed, with their messages."""
        records = self.files.with_doses.records()
        return [r.to_json() for r in records if r.status == "failed"]

    @property
    def not_applicable(self) -> list[dict[str, str]]:
        """The methods and protocols that do not apply to a model and data, and the `reason`.

        Each reason appears once; a cell whose shards have different reasons has a row for each.
        """
        refused = (record for record in self.files.records() if record.status == "n/a")
        rows = [(r.dataset, r.model, r.method, r.protocol, r.message) for r in refused]
        names = ("dataset", "model", "method", "protocol", "reason")
        return [dict(zip(names, row, strict=True)) for row in dict.fromkeys(rows)]

    @property
    def complete(self) -> bool:
        """Whether the scores of every planned cell and shard are stored."""
        done, planned = self.progress
        return done == planned

    @property
    def progress(self) -> tuple[int, int]:
        """How many cells, counted per shard, have scores, and how many are planned."""
        return self.files.progress

    def leaderboard(
        self,
        *,
        ranges: Mapping[str, Limits] | None = None,
        apart: Collection[str] | None = None,
        **options: "Unpack[BootstrapOptions]",
    ) -> "Leaderboard":
        """The methods in order, per protocol, with intervals and ties.

        Args:
            ranges: The lowest and highest score by protocol; by default those of the run.
            apart: Labels of protocols kept apart from the overall list; by default those that
                know the truth.
            **options: `level`, `resamples`, `seed`.
        """
        from assay.ranking.ranked_run import rank_run

        key = repr((ranges and sorted(ranges.items()), apart and sorted(apart), options))
        if key not in self._leaderboards:
            self._leaderboards[key] = rank_run(self, ranges, apart, **options)
        return self._leaderboards[key]

    @functools.cached_property
    def answers(self) -> "Sequence[Answer]":
        """Per setting the methods that no other one beats, and whether that is sure."""
        place = self.entries.settings.index
        return sorted(self.leaderboard().answers, key=lambda one: place(one.setting))

    @property
    def answer(self) -> str:
        """The answer over all settings in words, as the page begins with it."""
        from assay.ranking.answer_words import headline

        return headline(self.answers)

    def against(self, control: str, **options: "Unpack[BootstrapOptions]") -> "list[PublicRow]":
        """Every method minus one control, paired by sample, with intervals; positive is better.

        Args:
            control: Label of the method that the others are compared with.
            **options: `level`, `resamples`, `seed`.
        """
        from assay.ranking.ranked_run import compare_with

        return [row.as_dict() for row in compare_with(self, control, **options)]

    def signals(self) -> "list[PublicRow]":
        """Whether there is anything to rank: one row per setting and protocol.

        How far the answers move when everything is removed, whether the network is near chance, and
        whether a method is told apart from the controls `random` and `shuffled`.
        """
        return [row.as_dict() for row in self.signal_rows.values()]

    @functools.cached_property
    def signal_rows(self) -> "dict[SignalKey, Signal]":
        """The same as `signals`, typed, by setting and label of the protocol."""
        from assay.ranking.moved_answers import read_moves
        from assay.ranking.signal import signals

        moves, rows = read_moves(self.files, self.entries), self.leaderboard().by_protocol
        return signals(self.entries, moves, rows, {})

    def validation(self) -> "list[PublicRow]":
        """Whether scores fall when maps are mixed with maps of other samples: `validate`.

        One row per setting and protocol; empty where the run was made without `validate`.
        """
        return [row.as_dict() for row in self.validation_rows]

    @functools.cached_property
    def validation_rows(self) -> "list[DoseResponse]":
        """The same as `validation`, typed."""
        from assay.ranking.dose_response import validation_of

        return validation_of(self.files)

    def trust(
        self,
        truth: str | None = None,
        *,
        quiet: bool = False,
        **options: "Unpack[BootstrapOptions]",
    ) -> "list[PublicRow]":
        """How far each protocol's order of the methods agrees with the order by truth.

        Intervals are over samples and methods, and over replicates where a protocol has them. Near-
        clones count as one method; fewer than six distinct methods have no interval. Where several
        settings share the truth, a further row has the mean of each protocol over them.

        Args:
            truth: The label of the protocol that knows the truth; by default the first of this run
                that ranks the methods of a dataset.
            quiet: Whether to omit the warning if nothing can be compared.
            **options: `level`, `resamples`, `seed`.
        """
        from assay.ranking.trust import NO_ORDER

        rows = self.trust_rows(truth, **options)
        if not rows and not quiet:
            warn(f"Nothing to compare in `{self.folder}`. {NO_ORDER}")
        return [row.as_dict() for row in rows]

    def trust_rows(
        self, truth: str | None = None, **options: "Unpack[BootstrapOptions]"
    ) -> "list[TrustRow]":
        """The same as `trust`, typed and without a warning."""
        from assay.ranking.ranked_run import trust_run

        return trust_run(self, truth, **options)

    def compare(
        self,
        *others: "Results",
        protocol: str | None = None,
        replicates: "Grouping | None" = None,
        **options: "Unpack[BootstrapOptions]",
    ) -> "ModelComparisons":
        """Compare the models of this run, and of others, by protocols that may compare models.

        A model's score is that of the best method common to all models. The method is chosen on one
        half of the samples and scored on the other.

        Args:
            *others: More runs on the same data.
            protocol: The label of one protocol; by default all that may compare models.
            replicates: The architecture by model, or a regular expression for the part of a name
                that numbers replicates; by default `-s0`, `-s1`, ...
            **options: `level`, `resamples`, `seed`.
        """
        from assay.ranking.architectures import REPLICATE
        from assay.ranking.compared_runs import compare_runs

        rule = REPLICATE if replicates is None else replicates
        return compare_runs([self, *others], protocol, rule, **options)

    def maps(
        self,
        method: str,
        dataset: str | None = None,
        model: str | None = None,
        checkpoint: str | None = None,
    ) -> dict[str, Array]:
        """The stored maps of a method by sample id."""
        entries = self.entries
        if method not in entries.methods:
            raise unknown("method of this run", method, entries.methods)
        maps: dict[str, Array] = {}
        for shard in entries.shards:
            wanted = zip((dataset, model, checkpoint), shard.setting, strict=True)
            if all(one in (None, mine) for one, mine in wanted):
                maps |= self.files.maps(shard, method)
        return maps

    def report(self, path: str | Path | None = None) -> Path:
        """Write the page, one self-contained HTML file; by default into the run's folder."""
        from assay.report.page import render

        target = user_path(path, "the page") if path else self.store.path("report.html")
        target = target / "report.html" if target.is_dir() else target
        self.store.write_text(target, render(self), "<!-- {} -->")
        return target

    def query(self, sql: str) -> pa.Table:
        """Run SQL over the tables `scores`, `curves` and `checks`."""
        return query(sql, scores=self.scores, curves=self.curves, checks=self.checks)

    def __repr__(self) -> str:
        """A summary in one line."""
        run = self.entries
        samples = sum(dataset.n for dataset in run.datasets.values())
        what = f"{len(run.methods)} methods x {len(run.protocols)} protocols, {samples} samples"
        return f"Results({str(self.folder)!r}: {what})"

    def __str__(self) -> str:
        """The answer in words, then the list of the methods of each setting."""
        if not self.files.any_cells:
            return f"{self!r}: no scores yet"
        from assay.ranking.listing_table import whole_text

        return whole_text(self.answer, self.answers, self.leaderboard().over_protocols)

    def _repr_html_(self) -> str:
        if not self.files.any_cells:
            return html.escape(str(self))
        from assay.ranking.listing_table import whole_html

        return whole_html(self.answer, self.answers, self.leaderboard().over_protocols)


def load(folder: str | Path) -> Results:
    """The results of a run from its folder."""
    return Results(folder)


def compare(
    *runs: str | Path | Results,
    protocol: str | None = None,
    replicates: "Grouping | None" = None,
    **options: "Unpack[BootstrapOptions]",
) -> "ModelComparisons":
    """Compare the models of runs, given as folders or results: see `Results.compare`."""
    if not runs:
        raise InputError("Expected at least one run to compare, got none.")
    first, *others = (run if isinstance(run, Results) else Results(run) for run in runs)
    return first.compare(*others, protocol=protocol, replicates=replicates, **options)
