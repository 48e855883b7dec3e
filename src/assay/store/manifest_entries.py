"""The entries of `manifest.json`: models, data, methods, protocols and shards of a run."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, NamedTuple, Self, TypeVar

from assay.errors import InputError
from assay.store.files import Store
from assay.store.json_records import Json, JsonRecord, StoredObject

Limits = tuple[float, float]  # the lowest and the highest value a score can have
Record = TypeVar("Record", bound=JsonRecord)


class SettingKey(NamedTuple):
    """One setting of a run: what is explained, and on which data."""

    dataset: str
    model: str
    checkpoint: str


@dataclass(frozen=True, kw_only=True)
class ModelEntry(JsonRecord):
    """One model of a run.

    Attributes:
        checkpoint: Which weights of the model, where it has several.
        weights_hash: Identity of the network and its weights.
        micro_batch: Rows per call of the network.
        prepared: What was changed to make the network faster.
        inputs: How an image or a text becomes an input; empty where the data are inputs already.
        parameters: Number of parameters.
        device: Where the model ran.
        card: What else is known about the model, such as the file of its weights.
        reading: Identity of how the network is read: its inputs, layers and output.
        series: Its label in tables, where it is one of several checkpoints of one training.
    """

    optional: ClassVar[frozenset[str]] = frozenset({"card", "reading", "series"})

    checkpoint: str = ""
    weights_hash: str = ""
    micro_batch: int | None = None
    prepared: str = ""
    inputs: str = ""
    parameters: int | None = None
    device: str = ""
    card: Mapping[str, Json] = field(default_factory=dict)
    reading: str = ""
    series: str = ""

    @property
    def weights_file(self) -> str:
        """Where the weights were read from; empty if unknown."""
        return str(self.card.get("weights") or "")


@dataclass(frozen=True, kw_only=True)
class DatasetEntry(JsonRecord):
    """One dataset of a run: identity, number of samples, modality, how it was read.

    `n_train` and `train_fingerprint` describe its training samples, where there are some.
    """

    optional: ClassVar[frozenset[str]] = frozenset({"n_train", "train_fingerprint"})

    fingerprint: str = ""
    n: int = 0
    modality: str = ""
    note: str = ""
    n_train: int = 0
    train_fingerprint: str = ""


@dataclass(frozen=True, kw_only=True)
class CleanAccuracy(JsonRecord):
    """The share of unchanged samples of a dataset that a model predicts correctly."""

    dataset: str
    model: str
    n: int
    accuracy: float
    chance: float = 0.0

    @property
    def hardly_above_chance(self) -> bool:
        """Whether the accuracy is so low that labels or inputs probably do not fit the model.

        That is below twice chance or, for few classes, below a quarter of the way from chance to 1.
        """
        return self.accuracy < min(2 * self.chance, self.chance + (1 - self.chance) / 4)


@dataclass(frozen=True, kw_only=True)
class PluginEntry(JsonRecord):
    """A method or a protocol of a run: the plug-in and its options.

    `key` identifies what it computes, including the code of users' plug-ins. `resolved` has by
    modality the options whose value stands for another plug-in there, with that plug-in; it is
    empty in runs that did not store it.
    """

    optional: ClassVar[frozenset[str]] = frozenset({"key", "resolved"})

    name: str = ""
    title: str = ""
    family: str = ""
    cite: str = ""
    summary: str = ""
    version: int | None = None
    options: Mapping[str, Json] = field(default_factory=dict)
    key: str = ""
    resolved: Mapping[str, Mapping[str, Json]] = field(default_factory=dict)

    def options_on(self, modality: str) -> dict[str, Json]:
        """The options, with what they stand for on data of this modality."""
        return {**self.options, **self.resolved.get(modality, {})}


@dataclass(frozen=True, kw_only=True)
class MethodEntry(PluginEntry):
    """One method of a run.

    Attributes:
        control: Kind of control: `random`, `model_free` or `other`; empty for a method.
        forward: Forward passes per sample; None if it depends on the sample or network.
        backward: Backward passes per sample; None if it depends on the sample or network.
        by: What the number of passes depends on, where it is None.
        once: Forward passes made once for all samples.
        check: The name of the promise its maps are checked against; empty where there is none.
    """

    control: str = ""
    forward: int | None = None
    backward: int | None = None
    by: str = ""
    once: int = 0
    check: str = ""


@dataclass(frozen=True, kw_only=True)
class DoseEntry(JsonRecord):
    """The maps of a method, mixed with its own maps of other samples.

    Attributes:
        method: Label of the method.
        dose: Share of the other maps.
    """

    method: str
    dose: float


@dataclass(frozen=True, kw_only=True)
class ProtocolEntry(PluginEntry):
    """One protocol of a run.

    Attributes:
        metric: The name of its score.
        higher_is_better: Direction of the score.
        range: The lowest and the highest value of the score; None is without limit.
        chance: The score of a map without information, or `measured`.
        uses: What it reads of a map: order, value or support.
        sign_sensitive: Whether the signs of a map matter.
        reduce: How the scores of a set become one number.
        axis: What the x axis of its curves shows.
        judges: `sample`; `set` where only a whole set has a score; `model` where the score does not
            depend on the map.
        properties: What it guarantees, such as `inter_model`; empty in runs that did not store it.
        unranked: Why its scores are shown and not ranked; empty where they are ranked.
        replicates: The metrics of which the score is the mean, one for each replicate.
        question: What it asks, such as necessity; empty in runs that did not store it.
    """

    optional: ClassVar[frozenset[str]] = PluginEntry.optional | {
        "question",
        "properties",
        "unranked",
        "replicates",
    }

    metric: str = ""
    higher_is_better: bool = False
    range: Sequence[float | None] = (None, None)
    chance: float | str | None = None
    uses: str = ""
    sign_sensitive: bool = False
    reduce: str = "mean"
    axis: str = "share"
    judges: str = "sample"
    properties: Mapping[str, Json] = field(default_factory=dict)
    unranked: str = ""
    replicates: Sequence[str] = ()
    question: str = ""

    @property
    def limits(self) -> Limits:
        """The range as two numbers, infinite where there is no limit."""
        low, high = self.range
        return -math.inf if low is None else float(low), math.inf if high is None else float(high)

    @property
    def knows_truth(self) -> bool:
        """Whether the protocol compares maps with a known truth."""
        return self.family == "truth"


@dataclass(frozen=True, kw_only=True)
class ShardEntry(JsonRecord):
    """One shard of a run.

    Attributes:
        id: Its name in file names.
        dataset: Label of the dataset.
        model: Label of the model.
        checkpoint: Which weights of the model.
        seed: Seed of the run's random numbers.
        samples: Ids of the samples.
        target: The class explained: `label`, `predicted` or a number.
        maps: Key of the stored maps by method.
        checks: Key of the stored promise checks by method.
        cells: Key of each cell: for each protocol in order, all methods.
        dosed: Key of each cell of mixed maps: for each protocol in order, all doses; empty for
            protocols that do not score them.
    """

    optional: ClassVar[frozenset[str]] = frozenset({"dosed"})
    shared: ClassVar[tuple[str, ...]] = (  # by equal shards
        "target", "maps", "checks", "cells", "dosed",
    )  # fmt: skip

    id: str
    dataset: str
    model: str
    checkpoint: str = ""
    seed: int = 0
    samples: Sequence[str] = ()
    target: str = ""
    maps: Mapping[str, str] = field(default_factory=dict)
    checks: Mapping[str, str] = field(default_factory=dict)
    cells: Sequence[str] = ()
    dosed: Sequence[str] = ()

    @property
    def setting(self) -> SettingKey:
        """The setting it belongs to."""
        return SettingKey(self.dataset, self.model, self.checkpoint)

    @property
    def place(self) -> tuple[str, str, str, int]:
        """What its keys are of: the setting and the seed."""
        return (*self.setting, self.seed)

    @property
    def pieces(self) -> list[str]:
        """The file name of each cell's part in this shard, in runs of older versions."""
        return [f"{cell}-{self.id}" for cell in self.cells]

    def maps_path(self, method: str) -> str | None:
        """The file of a method's maps inside the folder; None where none are planned."""
        key = self.maps.get(method)
        return None if key is None else f"attributions/{key}/{self.id}.safetensors"


@dataclass(frozen=True, kw_only=True)
class Manifest(JsonRecord):
    """The content of `manifest.json`, with the versions, hardware and hashes to repeat the run."""

    optional: ClassVar[frozenset[str]] = frozenset({"doses"})

    assay: str = ""
    layout: int = 1  # the version of the files; 2: one log per shard
    identity: int = 1  # the version of the keys; the first version did not store it
    draws: int = 1  # the version of the random numbers; the first version did not store it
    created: str = ""
    finished: str | None = None
    seconds: float | None = None
    title: str = ""
    notes: str = ""
    target: int | str = "label"
    seeds: Sequence[int] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    hardware: Mapping[str, Json] = field(default_factory=dict)
    models: Mapping[str, ModelEntry] = field(default_factory=dict)
    datasets: Mapping[str, DatasetEntry] = field(default_factory=dict)
    clean: Sequence[CleanAccuracy] = ()
    forwards: int = 0
    methods: Mapping[str, MethodEntry] = field(default_factory=dict)
    protocols: Mapping[str, ProtocolEntry] = field(default_factory=dict)
    doses: Mapping[str, DoseEntry] = field(default_factory=dict)
    shards: Sequence[ShardEntry] = ()

    @classmethod
    def from_json(cls, stored: StoredObject) -> Self:
        """Read a stored manifest."""
        super().from_json(stored)  # refuses what is no manifest
        whole = stored | {
            "models": _read_each(ModelEntry, stored.get("models")),
            "datasets": _read_each(DatasetEntry, stored.get("datasets")),
            "clean": [CleanAccuracy.from_json(one) for one in stored.get("clean") or ()],
            "methods": _read_each(MethodEntry, stored.get("methods")),
            "protocols": _read_each(ProtocolEntry, stored.get("protocols")),
            "doses": _read_each(DoseEntry, stored.get("doses")),
            "shards": list(_read_shards(stored)),
        }
        return super().from_json(whole)

    def to_json(self) -> StoredObject:
        """The object that is stored: what all shards of a setting and seed share is there once."""
        first = {shard.place: shard.to_json() for shard in reversed(self.shards)}
        alone = {"id", "samples"}
        return super().to_json() | {
            "models": _write_each(self.models),
            "datasets": _write_each(self.datasets),
            "clean": [one.to_json() for one in self.clean],
            "methods": _write_each(self.methods),
            "protocols": _write_each(self.protocols),
            **({"doses": _write_each(self.doses)} if self.doses else {}),
            "shards": [
                {k: v for k, v in one.to_json().items() if k not in ShardEntry.shared}
                for one in self.shards
            ],
            "keys": [
                {k: v for k, v in first[place].items() if k not in alone}
                for place in dict.fromkeys(shard.place for shard in self.shards)
            ],
        }

    @property
    def controls(self) -> dict[str, str]:
        """The kind of each control by its label."""
        return {label: entry.control for label, entry in self.methods.items() if entry.control}

    @property
    def truth_protocols(self) -> list[str]:
        """The labels of the protocols that know the truth."""
        return [label for label, entry in self.protocols.items() if entry.knows_truth]

    @property
    def replicates(self) -> dict[str, Sequence[str]]:
        """The metrics that hold one replicate each, of the protocols whose scores are means."""
        protocols = self.protocols.items()
        return {label: entry.replicates for label, entry in protocols if entry.replicates}

    @property
    def settings(self) -> list[SettingKey]:
        """Its settings, in the order of the shards."""
        return list(dict.fromkeys(shard.setting for shard in self.shards))

    def name_of(self, model: str, checkpoint: str) -> str:
        """The name in `models` of a model of the tables: only with several checkpoints another."""
        place, models = (model, checkpoint), self.models.items()
        return next((n for n, e in models if (e.series, e.checkpoint) == place), model)

    def accuracy(self, dataset: str, model: str, checkpoint: str = "") -> CleanAccuracy | None:
        """The accuracy of a model on a dataset; None where labels or answers are missing."""
        name = self.name_of(model, checkpoint)
        rows = [one for one in self.clean if (one.dataset, one.model) == (dataset, name)]
        return rows[0] if rows else None


def read_manifest(store: Store) -> Manifest | None:
    """The manifest of a run; None if it is missing or incomplete."""
    path = store.path("manifest.json")
    stored = store.read_json(path)
    return None if stored is None else parse_manifest(stored, path)


def parse_manifest(stored: StoredObject, path: Path) -> Manifest:
    """The manifest in a file.

    Raises:
        InputError: It is not what a run wrote.
    """
    try:
        return Manifest.from_json(stored)
    except InputError as error:
        raise InputError(f"`{path}` is damaged. {error}") from None


def _read_shards(stored: StoredObject) -> Iterator[ShardEntry]:
    """The shards; older versions wrote the keys of each shard in its entry."""
    keys = [ShardEntry.from_json({"id": "", **one}) for one in stored.get("keys") or ()]
    by_place = {one.place: {name: getattr(one, name) for name in one.shared} for one in keys}
    for one in stored.get("shards") or ():
        shard = ShardEntry.from_json(one)
        yield replace(shard, **by_place.get(shard.place, {}))


def _read_each(kind: type[Record], stored: Mapping[str, StoredObject] | None) -> dict[str, Record]:
    return {label: kind.from_json(one) for label, one in (stored or {}).items()}


def _write_each(entries: Mapping[str, JsonRecord]) -> dict[str, StoredObject]:
    return {label: entry.to_json() for label, entry in entries.items()}
