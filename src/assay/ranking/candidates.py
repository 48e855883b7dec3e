"""One model under one protocol: its scores, what is known about it, or why it has no scores."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from assay.plugins.identity import describe
from assay.ranking.block_reading import read_blocks
from assay.ranking.blocks import Block, MethodScores
from assay.store import (
    CellRecord,
    CleanAccuracy,
    Json,
    Manifest,
    MethodEntry,
    ModelEntry,
    ProtocolEntry,
)
from assay.store.run_arrays import CurvePart, RunArrays, ScoreArrays

Stability = Mapping[str, Mapping[str, float]]  # by name of the ceiling and sample
REMOVAL = ("grid", "units", "fill", "output")  # options that say what a protocol removes and reads
PROTOCOLS_HELD = 2  # whose scores are in memory at a time: one, and that of its ceiling
HALF = 0.5  # the share of images without a cell in training, which in-domain protocols need


class ComparedRun(Protocol):
    """The entries, scores and records of one run."""

    @property
    def folder(self) -> Path:
        """Its folder."""
        ...

    @property
    def entries(self) -> Manifest:
        """The manifest as typed entries."""
        ...

    @property
    def arrays(self) -> RunArrays:
        """The scores and curves as arrays."""
        ...

    @property
    def records(self) -> Sequence[CellRecord]:
        """How each cell came about."""
        ...


@dataclass(frozen=True, eq=False)
class OfOneModel:
    """Scores that are in memory, as `RunArrays`; models are not compared by curves."""

    blocks: Sequence[ScoreArrays]

    def scores(self) -> Iterator[ScoreArrays]:
        """The scores, one block per dataset."""
        return iter(self.blocks)

    def curves(self, block: ScoreArrays, method: str) -> Iterator[CurvePart]:
        """None."""
        return iter(())


@dataclass(frozen=True, eq=False)
class OpenRun:
    """A run whose records are read once, and only if a model has no scores."""

    run: ComparedRun

    @property
    def folder(self) -> Path:
        """Its folder."""
        return self.run.folder

    @functools.cached_property
    def entries(self) -> Manifest:
        """The manifest as typed entries."""
        return self.run.entries

    def scores(self, model: str, protocol: str) -> OfOneModel:
        """The scores of one model under one protocol; all models are read in one pass."""
        if protocol not in self._read:
            while len(self._read) >= PROTOCOLS_HELD:
                del self._read[next(iter(self._read))]
            self._read[protocol] = list(self.run.arrays.scores((protocol,)))
        name_of, blocks = self.entries.name_of, self._read[protocol]
        return OfOneModel([b for b in blocks if name_of(b.model, b.checkpoint) == model])

    @functools.cached_property
    def _read(self) -> dict[str, list[ScoreArrays]]:
        return {}

    @functools.cached_property
    def _records(self) -> dict[tuple[str, str], list[CellRecord]]:
        cells: dict[tuple[str, str], list[CellRecord]] = {}
        for record in self.run.records:
            cells.setdefault((record.model, record.protocol), []).append(record)
        return cells

    def records(self, model: str, protocol: str) -> list[CellRecord]:
        """How the cells of one model under one protocol came about, without controls."""
        controls = self.entries.controls
        cells = self._records.get((model, protocol), [])
        return [record for record in cells if record.method not in controls]


@dataclass(frozen=True)
class NamedModel:
    """A model of one run, by its name in the comparison."""

    name: str
    label: str
    run: OpenRun
    architecture: str = ""

    @property
    def entry(self) -> ModelEntry:
        """What the run stores about it."""
        return self.run.entries.models[self.label]


@dataclass(frozen=True)
class Candidate:
    """One model under the protocol by which models are compared.

    Attributes:
        model: Label of the model in the comparison.
        architecture: What its replicates have in common.
        block: The scores of all methods.
        methods: What the methods of its run are.
        entry: What its run stores about the model.
        folder: The folder of its run.
        data: Identity of the samples.
        accuracy: How often it is right on the samples, where that is known.
        stability: Ceilings by name, one number per sample; empty where they were not measured.
    """

    model: str
    architecture: str
    block: Block
    methods: Mapping[str, MethodEntry]
    entry: ModelEntry
    folder: str
    data: str
    accuracy: CleanAccuracy | None = None
    stability: Stability | None = None

    @property
    def intrinsic(self) -> frozenset[str]:
        """Labels of the methods that only networks that explain themselves have."""
        return frozenset(m for m, entry in self.methods.items() if entry.family == "intrinsic")

    @property
    def controls(self) -> frozenset[str]:
        """Labels of the controls."""
        return frozenset(m for m, entry in self.methods.items() if entry.control)

    @functools.cached_property
    def eligible(self) -> dict[str, MethodScores]:
        """The methods that may be the best one: ranked, neither control nor intrinsic."""
        apart = self.intrinsic | self.controls
        return {s.method: s for s in self.block.ranked if s.method not in apart}

    @functools.cached_property
    def samples(self) -> frozenset[str]:
        """The samples with a score of at least one eligible method."""
        scored = [~np.isnan(scores.column) for scores in self.eligible.values()]
        return frozenset(self.block.names(np.flatnonzero(np.any(scored, axis=0))))

    @property
    def tuning(self) -> str:
        """The card of its fine-tuning in words; empty without one."""
        return tuning(self.entry)

    @property
    def base(self) -> str:
        """The hash of the weights that it was fine-tuned from; empty if unknown."""
        return str(_card(self.entry).get("base_sha256") or "")

    @property
    def weak(self) -> bool:
        """Whether it is hardly right more often than by chance."""
        return self.accuracy is not None and self.accuracy.hardly_above_chance

    def same_network(self, other: Candidate) -> bool:
        """Whether both are one network with the same weights that is read in the same way."""
        one, two = self.entry, other.entry
        if not one.weights_hash or one.weights_hash != two.weights_hash:
            return False
        if one.reading and two.reading:
            return one.reading == two.reading
        return one.inputs == two.inputs  # an earlier version did not store how it is read

    def in_domain(self, options: Mapping[str, Json]) -> bool:
        """Whether it was fine-tuned on inputs such as a protocol with these options makes."""
        card = _card(self.entry)
        return (
            bool(card)
            and not card.get("placebo")
            and card.get("probability") == HALF
            and (card.get("grid"), card.get("fill")) == (options.get("grid"), options.get("fill"))
            and options.get("units") is None
        )


def tuning(entry: ModelEntry) -> str:
    """The card of a model's fine-tuning in words; empty without one."""
    card = _card(entry)
    if not card:
        return ""
    if card.get("placebo"):
        return "placebo, nothing removed"
    text = f"without a cell, grid {card.get('grid')}, fill {describe(card.get('fill'))}"
    share = card.get("probability")
    return text if share == HALF else f"{text}, probability {describe(share)}"


def _card(entry: ModelEntry) -> Mapping[str, Json]:
    card = entry.card.get("in_domain")
    return card if isinstance(card, Mapping) else {}


def read_candidates(one: NamedModel, label: str) -> Iterator[Candidate]:
    """A model under a protocol, on each dataset on which one of its maps has a score."""
    entries = one.run.entries
    if label not in entries.protocols:
        return
    ranges = {label: entries.protocols[label].limits}
    for block in read_blocks(one.run.scores(one.label, label), None, ranges):
        fingerprint = entries.datasets[block.dataset].fingerprint
        candidate = Candidate(
            one.name,
            one.architecture,
            block,
            entries.methods,
            one.entry,
            str(one.run.folder),
            fingerprint or f"{one.run.folder}/{block.dataset}",
            entries.accuracy(block.dataset, one.label),
            _stability(one, block, entries.protocols[label]),
        )
        if candidate.eligible:
            yield candidate


def _stability(one: NamedModel, block: Block, compared: ProtocolEntry) -> Stability:
    """The ceilings of a model by metric and sample, from a protocol that removes the same."""
    removed = [compared.options.get(name) for name in REMOVAL]
    for label, entry in one.run.entries.protocols.items():
        if entry.judges != "model" or [entry.options.get(name) for name in REMOVAL] != removed:
            continue
        stored = one.run.scores(one.label, label).blocks
        ceilings = [arrays for arrays in stored if arrays.dataset == block.dataset]
        return {} if not ceilings else _first_values(ceilings[0])
    return {}


def _first_values(arrays: ScoreArrays) -> Stability:
    """The scores of each metric by sample: those of the first method, all have the same."""
    by_metric = {}
    for metric, values in {arrays.metric: arrays.values, **arrays.replicates}.items():
        every = values.reshape(-1, len(arrays.samples))
        known = np.isfinite(every)
        first = every[known.argmax(axis=0), np.arange(len(arrays.samples))]
        there = np.flatnonzero(known.any(axis=0)).tolist()
        if there:
            by_metric[metric] = {arrays.samples[i]: float(first[i]) for i in there}
    return by_metric


def absence(one: NamedModel, protocol: str) -> str:
    """Why a model has no scores to compare by a protocol, and what can be done."""
    entries = one.run.entries
    if protocol not in entries.protocols:
        return f"The run `{one.run.folder}` does not have this protocol under this label."
    records = one.run.records(one.label, protocol)
    if not records:
        return "Not scored. Run the suite again: it computes what is missing."
    own = {m for m, entry in entries.methods.items() if entry.family == "intrinsic"}
    own_maps = [record for record in records if record.method in own and record.status == "ok"]
    rest = [record for record in records if record.method not in own]
    reasons = []
    if own_maps:
        names = _names(own_maps)
        reasons.append(f"Only maps of the network itself have scores, near-circular ones: {names}.")
    circular = [record for record in rest if record.status == "circular"]
    if circular:
        reasons.append(f"Circular, and so not compared: {_names(circular)}.")
    for status, words in (("failed", "Failed"), ("n/a", "Not applicable")):
        reasons += _most_common(words, [r for r in rest if r.status == status], rest, one.label)
    if card := tuning(one.entry):
        reasons.append(f"Card: {card}.")
    return " ".join(reasons) or "Too few of its samples have a score."


def _most_common(
    words: str, records: Sequence[CellRecord], among: Sequence[CellRecord], label: str
) -> list[str]:
    """The message that most of these cells have; their methods if not all cells are like them."""
    if not records:
        return []
    groups = _by_message(records, label)
    message = max(groups, key=lambda text: len(groups[text]))
    methods = "" if len(records) == len(among) else f": {_names(groups[message])}"
    return [f"{words}{methods}. {message}"]


def _by_message(records: Sequence[CellRecord], label: str) -> dict[str, list[CellRecord]]:
    groups: dict[str, list[CellRecord]] = {}
    for record in records:
        message = record.message.replace(f"model `{label}`", "the model") or "No reason is stored"
        message += "" if message.endswith((".", "!", "?")) else "."
        groups.setdefault(message, []).append(record)
    return groups


def _names(records: Sequence[CellRecord]) -> str:
    return ", ".join(dict.fromkeys(record.method for record in records))
