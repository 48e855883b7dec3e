"""Which models of some runs can be compared, by which protocols, and why not by the others."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, Unpack

import pyarrow as pa
import pyarrow.compute as pc

from assay.errors import InputError, unknown
from assay.ranking.architectures import REPLICATE, Grouping, architecture_names
from assay.ranking.blocks import Block, read_blocks
from assay.ranking.model_comparison import Candidate, compare_models
from assay.ranking.model_rows import ModelComparison, ModelComparisons, Refusal
from assay.ranking.resampling import BootstrapOptions
from assay.store import Manifest, ProtocolEntry

UNRECORDED = (
    "The run does not record whether it may: an earlier version made it. Run its suite again; "
    "nothing is computed twice."
)

OUT_OF_DOMAIN = (
    "The networks were not trained on inputs like those it makes: a part of each drop may come "
    "from that."
)


class ComparedRun(Protocol):
    """The entries and scores of one run."""

    @property
    def folder(self) -> Path:
        """Its folder."""
        ...

    @property
    def entries(self) -> Manifest:
        """The manifest as typed entries."""
        ...

    @property
    def scores(self) -> pa.Table:
        """One row per sample and metric of every cell."""
        ...


def compare_runs(
    runs: Sequence[ComparedRun],
    protocol: str | None = None,
    replicates: Grouping = REPLICATE,
    **options: Unpack[BootstrapOptions],
) -> ModelComparisons:
    """Compare the models of one or more runs by every protocol that may compare models.

    Args:
        runs: The runs; a model that is in several of them counts once, as in the first.
        protocol: The label of one protocol; by default all that may compare models.
        replicates: The architecture by model, or a regular expression for the part of a model's
            name that numbers replicates.
        **options: `level`, `resamples`, `seed`.

    Raises:
        InputError: No protocol is left, no two models share data, or `protocol` is unknown or may
            not compare models.
    """
    _check_targets(runs)
    models, notes = _named_models(runs)
    names = architecture_names([one.name for one in models], replicates)
    refusals: dict[str, str] = {}
    comparisons: list[ModelComparison] = []
    for label in _labels(runs, protocol):
        reason = _refused(runs, label)
        if not reason:
            made = list(_compare(models, label, names, options))
            comparisons += made
            reason = "" if made else "Fewer than two models share data and a method under it."
        if reason:
            refusals[label] = reason
    if not comparisons:
        raise InputError(_nothing_left(runs, refusals))
    refused = tuple(Refusal(label, reason) for label, reason in refusals.items())
    return ModelComparisons(tuple(comparisons), refused, tuple(notes))


def refusals_of(manifest: Manifest) -> list[Refusal]:
    """The protocols of a run by which models may not be compared, with the reasons."""
    entries = manifest.protocols
    reasons = {label: _may_not(entry) for label, entry in entries.items()}
    return [
        Refusal(label, reason)
        for label, reason in reasons.items()
        if reason and entries[label].judges != "model"
    ]


@dataclass(frozen=True)
class _NamedModel:
    """A model of one run, by its name in the comparison."""

    name: str
    label: str
    run: ComparedRun


def _named_models(runs: Sequence[ComparedRun]) -> tuple[list[_NamedModel], list[str]]:
    """The models of all runs; equal labels of different networks get the name of their folder."""
    models: list[_NamedModel] = []
    notes: list[str] = []
    hashes: dict[tuple[str, str], Path] = {}
    labels = [label for run in runs for label in run.entries.models]
    for run in runs:
        for label, entry in run.entries.models.items():
            before = hashes.setdefault((label, entry.weights_hash), run.folder)
            if before != run.folder:
                notes.append(f"`{label}` is in several runs and counts once, from `{before}`.")
                continue
            others = labels.count(label) > 1
            clash = others and any(
                other.entries.models[label].weights_hash != entry.weights_hash
                for other in runs
                if label in other.entries.models
            )
            name = f"{run.folder.name}/{label}" if clash else label
            if any(one.name == name for one in models):
                name = f"{run.folder}/{label}"
            models.append(_NamedModel(name, label, run))
    return models, notes


def _check_targets(runs: Sequence[ComparedRun]) -> None:
    targets = {str(run.folder): str(run.entries.target) for run in runs}
    if not runs:
        raise InputError("Expected at least one run to compare, got none.")
    if len(set(targets.values())) > 1:
        listed = ", ".join(f"{target} in `{folder}`" for folder, target in targets.items())
        raise InputError(f"Expected runs that explain the same `target`, got {listed}.")


def _labels(runs: Sequence[ComparedRun], protocol: str | None) -> list[str]:
    """The protocols that judge maps, or the one that is chosen."""
    every = {
        label: entry
        for run in runs
        for label, entry in run.entries.protocols.items()
        if entry.judges != "model"
    }
    if protocol is None:
        return list(every)
    if protocol not in every:
        raise unknown("protocol of these runs", protocol, every)
    return [protocol]


def _refused(runs: Sequence[ComparedRun], label: str) -> str:
    """Why a protocol may not compare the models of these runs; empty if it may."""
    entries = [run.entries.protocols[label] for run in runs if label in run.entries.protocols]
    reasons = [reason for entry in entries if (reason := _may_not(entry))]
    if reasons:
        return reasons[0]
    kinds = {(e.name, e.version, json.dumps(dict(e.options), sort_keys=True)) for e in entries}
    return "" if len(kinds) == 1 else "Its version or options differ between the runs."


def _may_not(entry: ProtocolEntry) -> str:
    if not entry.properties:
        return UNRECORDED
    if not entry.properties.get("inter_model"):
        return str(entry.properties.get("reason") or "It may not compare models.")
    if entry.reduce != "mean" or entry.judges == "set":
        return "It judges whole sets; models are compared sample by sample."
    return ""


def _compare(
    models: Sequence[_NamedModel],
    label: str,
    names: Mapping[str, str],
    options: BootstrapOptions,
) -> Iterator[ModelComparison]:
    """One comparison for each dataset on which at least two models were scored."""
    by_data: dict[str, list[Candidate]] = {}
    for one in models:
        for candidate, data in _candidates(one, label, names[one.name]):
            by_data.setdefault(data, []).append(candidate)
    for candidates in by_data.values():
        if len(candidates) > 1:
            made = compare_models(candidates, **options)
            if made is not None and made.models:
                yield replace(made, notes=(*made.notes, *_domain_note(models, label)))


def _domain_note(models: Sequence[_NamedModel], label: str) -> list[str]:
    """A note where the networks were not trained on inputs like those they are asked about."""
    entries = [one.run.entries.protocols.get(label) for one in models]
    known = [bool(e.properties.get("in_domain")) for e in entries if e is not None]
    return [] if all(known) else [OUT_OF_DOMAIN]


def _candidates(one: _NamedModel, label: str, architecture: str) -> Iterator[tuple[Candidate, str]]:
    """A model under a protocol, on each dataset, and the identity of that dataset."""
    entries = one.run.entries
    if label not in entries.protocols:
        return
    ranges = {label: entries.protocols[label].limits}
    for block in read_blocks(_rows(one.run.scores, one.label, label), None, ranges):
        if not block.ranked:
            continue
        data = entries.datasets[block.dataset].fingerprint or block.dataset
        intrinsic = {m for m, entry in entries.methods.items() if entry.family == "intrinsic"}
        yield (
            Candidate(
                one.name,
                architecture,
                block,
                frozenset(intrinsic),
                frozenset(entries.controls),
                entries.accuracy(block.dataset, one.label),
                _stability(one, block, entries.protocols[label]),
            ),
            data,
        )


def _rows(scores: pa.Table, model: str, protocol: str) -> pa.Table:
    mine = pc.and_(pc.equal(scores["model"], model), pc.equal(scores["protocol"], protocol))
    return scores.filter(mine)


def _stability(
    one: _NamedModel, block: Block, compared: ProtocolEntry
) -> dict[str, dict[str, float]]:
    """The ceilings of a model by metric and sample, from a protocol that removes the same."""
    entries = one.run.entries.protocols
    for label, entry in entries.items():
        if entry.judges != "model" or any(
            entry.options[name] != value
            for name, value in compared.options.items()
            if name in entry.options
        ):
            continue
        rows = _rows(one.run.scores, one.label, label)
        rows = rows.filter(pc.equal(rows["dataset"], block.dataset))
        rows = rows.filter(pc.is_finite(rows["value"]))
        found: dict[str, dict[str, float]] = {}
        columns = ("metric", "sample", "value")
        for metric, sample, value in zip(*(rows[c].to_pylist() for c in columns), strict=True):
            found.setdefault(metric, {}).setdefault(sample, value)  # the same for every method
        return found
    return {}


def _nothing_left(runs: Sequence[ComparedRun], refusals: Mapping[str, str]) -> str:
    count = len({label for run in runs for label in run.entries.models})
    if count < 2:
        return f"Expected at least two models to compare, got {count}."
    listed = " ".join(f"{label}: {reason}" for label, reason in refusals.items())
    return (
        f"Expected a protocol by which models may be compared, such as `single_deletion`. {listed}"
    ).strip()
