"""Which models of some runs can be compared, by which protocols, and why not by the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Unpack

from assay.errors import InputError, unknown
from assay.ranking.architectures import REPLICATE, Grouping, architecture_names
from assay.ranking.candidates import (
    Candidate,
    ComparedRun,
    NamedModel,
    OpenRun,
    absence,
    read_candidates,
)
from assay.ranking.common_ground import some
from assay.ranking.model_comparison import compare_models
from assay.ranking.model_rows import (
    LeftOut,
    ModelComparison,
    ModelComparisons,
    Refusal,
    sentences,
)
from assay.ranking.resampling import BootstrapOptions
from assay.ranking.same_plugins import difference
from assay.store import ModelEntry, ProtocolEntry

UNRECORDED = (
    "The run does not record whether it may: an earlier version made it. Run its suite again; "
    "nothing is computed twice."
)
TOO_FEW = "Fewer than two different models have scores that can be compared."
PREDICTED = (
    "Each network is explained for the class that it predicts. These classes may differ between "
    "the networks."
)


def compare_runs(
    runs: Sequence[ComparedRun],
    protocol: str | None = None,
    replicates: Grouping = REPLICATE,
    **options: Unpack[BootstrapOptions],
) -> ModelComparisons:
    """Compare the models of one or more runs by every protocol that may compare models.

    Args:
        runs: The runs. A network that is in several of them, or has several names, counts once.
        protocol: The label of one protocol; by default all that may compare models.
        replicates: The architecture by model, or a regular expression for the part of a model's
            name that numbers replicates.
        **options: `level`, `resamples`, `seed`.

    Raises:
        InputError: No two models can be compared, or `protocol` is unknown or may not compare
            models.
    """
    result = compare_where_possible(runs, protocol, replicates, **options)
    if not result.comparisons:
        raise InputError(_nothing_left(runs, result.refused))
    return result


def compare_where_possible(
    runs: Sequence[ComparedRun],
    protocol: str | None = None,
    replicates: Grouping = REPLICATE,
    **options: Unpack[BootstrapOptions],
) -> ModelComparisons:
    """The same, where it is no mistake that no two models can be compared."""
    _check_targets(runs)
    models = _named_models([OpenRun(run) for run in runs])
    names = architecture_names(list(dict.fromkeys(one.name for one in models)), replicates)
    models = [replace(one, architecture=names[one.name]) for one in models]
    refused: list[Refusal] = []
    comparisons: list[ModelComparison] = []
    for label in _labels(runs, protocol):
        if reason := _refused(runs, label):
            refused.append(Refusal(label, reason))
            continue
        made, left_out = _compare(models, label, options)
        comparisons += made
        refused += [] if made else [Refusal(label, TOO_FEW, left_out)]
    notes = [PREDICTED] if runs[0].entries.target == "predicted" else []
    return ModelComparisons(tuple(comparisons), tuple(refused), tuple(notes))


def _named_models(runs: Sequence[OpenRun]) -> list[NamedModel]:
    """The models of all runs; equal labels of different networks get the name of their folder."""
    entries = [(run, label, entry) for run in runs for label, entry in run.entries.models.items()]
    networks: dict[str, set[tuple[str, ...]]] = {}
    for run, label, entry in entries:
        networks.setdefault(label, set()).add(_network(run, label, entry))
    names: dict[str, tuple[str, ...]] = {}  # the network of each name
    models = []
    for run, label, entry in entries:
        network = _network(run, label, entry)
        name = label if len(networks[label]) == 1 else f"{run.folder.name}/{label}"
        if names.setdefault(name, network) != network:
            name = f"{run.folder}/{label}"
            names[name] = network
        models.append(NamedModel(name, label, run))
    return models


def _network(run: OpenRun, label: str, entry: ModelEntry) -> tuple[str, ...]:
    """What names of models tell apart; a network without a known hash is like no other."""
    if not entry.weights_hash:
        return str(run.folder), label
    return entry.weights_hash, entry.reading or entry.inputs


def _check_targets(runs: Sequence[ComparedRun]) -> None:
    targets = {str(run.folder): str(run.entries.target) for run in runs}
    if not runs:
        raise InputError("Expected at least one run to compare, got none.")
    if len(set(targets.values())) > 1:
        listed = ", ".join(f"{target} in `{folder}`" for folder, target in targets.items())
        raise InputError(
            f"Expected runs that explain the same `target`, got {listed}. Run one of them again "
            f"with the `target` of the other."
        )


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
    having = [run for run in runs if label in run.entries.protocols]
    entries = {str(run.folder): run.entries.protocols[label] for run in having}
    reasons = [reason for entry in entries.values() if (reason := may_not(entry))]
    if reasons:
        return reasons[0]
    differs = difference(label, list(entries.values()), list(entries))
    return f"{differs} Compare these runs one by one, or run one again." if differs else ""


def may_not(entry: ProtocolEntry) -> str:
    """Why models may not be compared by a protocol; empty if they may."""
    if not entry.properties:
        return UNRECORDED
    if not entry.properties.get("inter_model"):
        return str(entry.properties.get("reason") or "It may not compare models.")
    if entry.reduce != "mean" or entry.judges == "set":
        return "It judges whole sets; models are compared sample by sample."
    return ""


def _compare(
    models: Sequence[NamedModel], label: str, options: BootstrapOptions
) -> tuple[list[ModelComparison], tuple[LeftOut, ...]]:
    """One comparison for each dataset on which models fit together, or why there is none."""
    by_data: dict[str, list[Candidate]] = {}
    by_name: dict[str, list[Candidate]] = {}
    for candidate in (c for one in models for c in read_candidates(one, label)):
        by_data.setdefault(candidate.data, []).append(candidate)
        by_name.setdefault(candidate.model, []).append(candidate)
    entries = [m.run.entries.protocols.get(label) for m in models]
    entry = next(one for one in entries if one is not None)
    made: list[ModelComparison] = []
    lonely: list[LeftOut] = []
    for candidates in by_data.values():
        distinct, doubles, notes = _distinct(candidates)
        one = compare_models(distinct, **options)
        if one.models:
            there = {c.model for c in candidates}
            absent = _absent([m for m in models if m.name not in there], label, by_name)
            notes = [*one.notes, *notes, *_setting_notes(one, distinct, entry)]
            others = (*one.left_out, *doubles, *absent)
            made.append(replace(one, left_out=others, notes=tuple(notes)))
        lonely += [*one.left_out, *doubles]
    if made:
        return made, ()
    return [], (*lonely, *_absent([m for m in models if m.name not in by_name], label, by_name))


def _absent(
    models: Sequence[NamedModel], label: str, by_name: Mapping[str, Sequence[Candidate]]
) -> Iterator[LeftOut]:
    """The models without scores on some data, and why."""
    for name in dict.fromkeys(one.name for one in models):
        if name in by_name:
            places = dict.fromkeys(f"`{c.block.dataset}` in `{c.folder}`" for c in by_name[name])
            yield LeftOut(name, f"Scored on other samples: {some(list(places))}.")
        else:
            reasons = [absence(one, label) for one in models if one.name == name]
            yield LeftOut(name, " ".join(dict.fromkeys(reasons)))


def _distinct(
    candidates: Sequence[Candidate],
) -> tuple[list[Candidate], list[LeftOut], list[str]]:
    """Each network once, those that are the same under other names, and notes on other runs."""
    kept: list[Candidate] = []
    doubles: list[LeftOut] = []
    again: dict[str, list[str]] = {}
    for candidate in candidates:
        same = next((one for one in kept if one.same_network(candidate)), None)
        if same is None:
            kept.append(candidate)
        elif same.model == candidate.model:
            again.setdefault(f"`{same.block.dataset}` in `{same.folder}`", []).append(same.model)
        else:
            reason = f"Has the same weights as {same.model}, and counts once."
            doubles.append(LeftOut(candidate.model, reason))
    notes = [
        f"Scored several times on these samples, and counted once, in {place}: {some(names)}."
        for place, names in again.items()
    ]
    return kept, doubles, notes


def _setting_notes(
    comparison: ModelComparison, candidates: Sequence[Candidate], entry: ProtocolEntry
) -> list[str]:
    """Notes on fine-tuned networks, and on inputs unlike those of the training."""
    shown = {row.model for row in comparison.models}
    here = [c for c in candidates if c.model in shown]
    notes = []
    if cards := [f"{c.model} ({c.tuning})" for c in here if c.tuning]:
        notes.append(f"Fine-tuned, by their cards: {some(cards)}.")
    if entry.properties.get("in_domain"):
        return notes
    inside = [c.model for c in here if c.in_domain(entry.options)]
    inputs = f"inputs such as `{comparison.protocol}` makes"
    if not inside:
        notes.append(
            f"No network is known to be trained on {inputs}. A part of each drop may come from "
            f"unusual inputs."
        )
    elif len(inside) < len(here):
        notes.append(
            f"Only these are known to be trained on {inputs}: {some(inside)}. A part of the other "
            f"networks' drops may come from unusual inputs."
        )
    return notes


def _nothing_left(runs: Sequence[ComparedRun], refused: Sequence[Refusal]) -> str:
    networks = {
        _network(OpenRun(run), label, entry)
        for run in runs
        for label, entry in run.entries.models.items()
    }
    if len(networks) < 2:
        names = list(dict.fromkeys(label for run in runs for label in run.entries.models))
        same = f": {some(names)} have the same weights" if len(names) > 1 else ""
        return f"Expected at least two models to compare, got {len(networks)}{same}."
    first = "Expected a protocol by which models may be compared, such as `single_deletion`."
    if any(one.left_out for one in refused):
        first = "Expected at least two models with scores that can be compared."
    lines = [
        line
        for one in refused
        for line in (f"{one.protocol}: {one.reason}", *sentences(one.left_out))
    ]
    return "\n".join([first, *lines])
