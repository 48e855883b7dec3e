"""Settings of several runs, each once: which may be combined, and why others may not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from assay.errors import InputError
from assay.ranking.architectures import REPLICATE, Grouping, architecture_names
from assay.ranking.block_reading import read_blocks
from assay.ranking.blocks import Block
from assay.ranking.declared import fills_of, noise_controls, questions_of
from assay.ranking.overall import Asked
from assay.ranking.ranked_run import RankedRun, of_models, ranges_of
from assay.ranking.same_plugins import difference
from assay.ranking.silence import silent_protocols
from assay.store import Manifest, PluginEntry, SettingKey


class RankableRun(RankedRun, Protocol):
    """The entries, scores and folder of one run."""

    @property
    def folder(self) -> Path:
        """Its folder."""
        ...


@dataclass(frozen=True, eq=False)
class SettingOfRun:
    """All protocols of one setting.

    Attributes:
        setting: Dataset, model and checkpoint, by names that are unique among the runs.
        family: The architecture of the model.
        blocks: The scores, one block per protocol.
        asked: What the protocols ask.
        controls: Kind of each control by label.
        passes: Passes for one map by method, a backward pass counted twice.
    """

    setting: SettingKey
    family: str
    blocks: tuple[Block, ...]
    asked: Asked
    controls: Mapping[str, str]
    passes: Mapping[str, float]


def settings_of(
    runs: Sequence[RankableRun], families: Grouping | None = None
) -> tuple[list[SettingOfRun], list[str]]:
    """The settings of all runs, and notes on what was left out.

    Raises:
        InputError: There is no run, or the runs mean different things by one name.
    """
    if not runs:
        raise InputError("Expected at least one run to rank, got none.")
    _check_same(runs)
    labels = list(
        dict.fromkeys(
            entry.series or name for run in runs for name, entry in run.entries.models.items()
        )
    )
    names = architecture_names(labels, REPLICATE if families is None else families)
    notes: list[str] = []
    identities = _Identities(runs)
    places: dict[tuple[str, ...], SettingOfRun] = {}
    for run in runs:
        for place in _of_run(run, names, identities):
            key = identities.key(run, place.blocks[0].setting)
            if key not in places:
                places[key] = place
                continue
            joined, lost = _joined(places[key], place)
            places[key] = joined
            notes += [f"{run.folder.name}: {text}" for text in lost]
    return list(places.values()), notes


def _check_same(runs: Sequence[RankableRun]) -> None:
    """Refuse runs that mean different things by one name, or explain different classes."""
    targets = {str(run.folder): str(run.entries.target) for run in runs}
    if len(set(targets.values())) > 1:
        listed = ", ".join(f"{target} in `{folder}`" for folder, target in targets.items())
        raise InputError(
            f"Expected runs that explain the same `target`, got {listed}. Rank them one by one, or "
            f"run one of them again with the `target` of the other."
        )
    for kind in ("methods", "protocols"):
        entries: dict[str, dict[str, PluginEntry]] = {}
        for run in runs:
            for label, entry in getattr(run.entries, kind).items():
                entries.setdefault(label, {})[str(run.folder)] = entry
        for label, by_run in entries.items():
            differs = difference(label, list(by_run.values()), list(by_run))
            if differs:
                raise InputError(f"{differs} Rank these runs one by one, or run one of them again.")


class _Identities:
    """What datasets and models are, whatever their names, and names that tell them apart."""

    def __init__(self, runs: Sequence[RankableRun]) -> None:
        datasets: dict[str, set[str]] = {}
        models: dict[tuple[str, str], set[str]] = {}
        for run in runs:
            for label in run.entries.datasets:
                datasets.setdefault(label, set()).add(self._dataset(run, label))
            for name, entry in run.entries.models.items():
                place = (entry.series, entry.checkpoint) if entry.series else (name, "")
                models.setdefault(place, set()).add(self._model(run, name))
        self._folders = short_names([run.folder for run in runs])
        self._datasets = {label for label, found in datasets.items() if len(found) > 1}
        self._models = {place for place, found in models.items() if len(found) > 1}

    @staticmethod
    def _dataset(run: RankableRun, label: str) -> str:
        entry = run.entries.datasets.get(label)
        return entry.fingerprint if entry and entry.fingerprint else f"{run.folder}/{label}"

    @staticmethod
    def _model(run: RankableRun, label: str) -> str:
        entry = run.entries.models.get(label)
        if entry is None or not entry.weights_hash:
            return f"{run.folder}/{label}"
        return f"{entry.weights_hash} {entry.reading or entry.inputs}"

    def key(self, run: RankableRun, setting: SettingKey) -> tuple[str, ...]:
        """What a setting is: equal for the same samples, network and checkpoint."""
        return (
            self._dataset(run, setting.dataset),
            self._model(run, run.entries.name_of(setting.model, setting.checkpoint)),
            setting.checkpoint,
        )

    def named(self, run: RankableRun, setting: SettingKey) -> SettingKey:
        """The setting, with the folder in a name that means two things."""
        dataset, model, checkpoint = setting
        folder = self._folders[str(run.folder)]
        same = dataset == model  # an environment is both
        if dataset in self._datasets:
            dataset = f"{folder}/{dataset}"
        places = {(model, ""), (model, checkpoint)}
        if places & self._models or (same and dataset != model):
            model = f"{folder}/{model}"
        return SettingKey(dataset, model, checkpoint)


def short_names(folders: Sequence[Path]) -> dict[str, str]:
    """The shortest end of each path that no other one has."""
    parts = {str(folder): folder.resolve().parts for folder in folders}
    for depth in range(1, max(map(len, parts.values())) + 1):
        names = {folder: "/".join(path[-depth:]) for folder, path in parts.items()}
        if len(set(names.values())) == len(set(parts.values())):
            return names
    return {folder: folder for folder in parts}


def _of_run(
    run: RankableRun, names: Mapping[str, str], identities: _Identities
) -> Iterator[SettingOfRun]:
    entries: Manifest = run.entries
    silent = silent_protocols(run.files)
    blocks = read_blocks(
        run.arrays, run.outcomes, ranges_of(entries), entries.replicates, of_models(entries)
    )
    passes = {
        label: float(entry.forward + 2 * entry.backward)
        for label, entry in entries.methods.items()
        if entry.forward is not None and entry.backward is not None and not entry.control
    }
    for setting in dict.fromkeys(block.setting for block in blocks):
        mine = tuple(block for block in blocks if block.setting == setting)
        asked = Asked(
            questions_of(entries),
            fills_of(entries, entries.datasets[setting.dataset].modality),
            frozenset(entries.truth_protocols),
            silent,
            frozenset(noise_controls(entries)),
        )
        place = SettingOfRun(
            identities.named(run, setting), names[setting.model], mine, asked, entries.controls,
            passes,
        )  # fmt: skip
        yield place


def _joined(one: SettingOfRun, other: SettingOfRun) -> tuple[SettingOfRun, list[str]]:
    """One setting that two runs have: the protocols of both, and methods on the same samples."""
    blocks = {block.protocol: block for block in one.blocks}
    lost = []
    for block in other.blocks:
        known = blocks.get(block.protocol)
        if known is None:
            blocks[block.protocol] = block
            continue
        there = {scores.method for scores in known.methods}
        new = [scores for scores in block.methods if scores.method not in there]
        if list(known.samples) == list(block.samples):
            methods = sorted([*known.methods, *new], key=lambda scores: scores.method)
            blocks[block.protocol] = replace(known, methods=methods)
        else:
            larger, smaller = known, block
            if len(block.samples) > len(known.samples):
                larger, smaller = block, known
            blocks[block.protocol] = larger
            kept = {scores.method for scores in larger.methods}
            gone = [s.method for s in smaller.methods if s.method not in kept]
            without = f", without {', '.join(gone)}" if gone else ""
            lost.append(
                f"{block.protocol} counts once, on {len(larger.samples)} and not on "
                f"{len(smaller.samples)} samples{without}."
            )
    asked = Asked(
        {**other.asked.questions, **one.asked.questions},
        {**other.asked.fills, **one.asked.fills},
        one.asked.apart | other.asked.apart,
        {**other.asked.silent, **one.asked.silent},
        one.asked.noise | other.asked.noise,
    )
    joined = replace(
        one, blocks=tuple(blocks.values()), asked=asked,
        controls={**other.controls, **one.controls}, passes={**other.passes, **one.passes},
    )  # fmt: skip
    return joined, lost
