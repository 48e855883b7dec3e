"""What a run will do: the parts of a suite, samples split into shards, and the keys of cells."""

import functools
import hashlib
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from assay.data.classes import class_number
from assay.errors import InputError
from assay.models.prepare import Prepared
from assay.plan.content_keys import data_content, model_content, split_contents
from assay.plan.dosed import DosedChoice, validated
from assay.plan.prepared_networks import Networks
from assay.plan.text_lengths import longest_text
from assay.plugins import registry
from assay.plugins.needs import say_missing
from assay.store.data_facts import DataFacts
from assay.suite.spec import Choice, Spec
from assay.training.trained_weights import TrainedWeights
from assay.types import Batch, Card, Dataset, Model, Prepare, Tokenize
from assay.types.card import IN_DOMAIN
from assay.types.random_numbers import DRAWS

# Number of samples that one process explains and scores together. The first shards are small, so
# that a few samples already keep several workers busy. Shard borders do not depend on the number
# of samples.
SHARDS = (8, 8, 16, 16, 32, 32)
LATER_SHARDS = 64

# The version of the keys that identify finished work. 1: networks and users' code by their source
# text, dataclasses by their `repr`. 2: code by its syntax tree, dataclasses by their fields.
IDENTITY = 2

ShardPlace = tuple[str, str, int, str]  # dataset, model, seed and split


@dataclass(frozen=True)
class Shard:
    """One chunk of one dataset, for one model and seed: the unit of work."""

    id: str
    dataset: str
    model: str
    seed: int
    samples: tuple[str, ...]
    split: str = ""  # of the dataset; empty: the scored samples

    @property
    def place(self) -> ShardPlace:
        """Dataset, model, seed and split: what it shares with other shards."""
        return self.dataset, self.model, self.seed, self.split


@dataclass(frozen=True, eq=False)
class Plan:
    """Everything a run needs, resolved."""

    spec: Spec
    datasets: Mapping[str, Dataset]
    models: Mapping[str, Model]
    methods: tuple[Choice, ...]
    protocols: tuple[Choice, ...]
    pairs: tuple[tuple[str, str], ...]  # (dataset, model)
    live: tuple[str, ...] = field(default=())  # labels of objects that exist only in this process
    identity: int = IDENTITY  # the version of the keys
    trained: TrainedWeights = field(default_factory=TrainedWeights, repr=False)
    facts: DataFacts = field(default_factory=DataFacts, repr=False)
    networks: Networks = field(default_factory=Networks, repr=False)
    _keys: dict[tuple[object, ...], str] = field(default_factory=dict, init=False, repr=False)

    @functools.cached_property
    def shards(self) -> list[Shard]:
        """The shards in the order of the suite."""
        return [
            Shard(_shard_id(dataset, model, seed, chunk), dataset, model, seed, chunk)
            for dataset, model in self.pairs
            for seed in self.spec.seeds
            for chunk in self._chunks(dataset)
        ]

    @functools.cached_property
    def train_shards(self) -> list[Shard]:
        """The chunks of the training samples, whose maps set protocols read."""
        return [
            Shard(_shard_id(dataset, model, seed, chunk), dataset, model, seed, chunk, "train")
            for dataset, model in self.pairs
            for seed in self.spec.seeds
            for chunk in self._train_chunks(dataset)
        ]

    @functools.cached_property
    def _places(self) -> Mapping[ShardPlace, list[Shard]]:
        places: dict[ShardPlace, list[Shard]] = {}
        for shard in (*self.shards, *self.train_shards):
            places.setdefault(shard.place, []).append(shard)
        return places

    def shards_of(self, dataset: str, model: str, seed: int, split: str = "") -> list[Shard]:
        """The shards of one dataset, model and seed, in the order of their samples."""
        return self._places.get((dataset, model, seed, split), [])

    def _train_chunks(self, dataset: str) -> list[tuple[str, ...]]:
        train = self.datasets[dataset].splits.get("train")
        if train is None or not self.set_protocols:
            return []
        return [train.ids[i : i + LATER_SHARDS] for i in range(0, len(train.ids), LATER_SHARDS)]

    @property
    def batch_protocols(self) -> list[Choice]:
        """The protocols that score each shard by itself."""
        return [p for p in self.protocols if p.plugin.scope == "batch"]

    @property
    def set_protocols(self) -> list[Choice]:
        """The protocols that score all samples at once, after the shards."""
        return [p for p in self.protocols if p.plugin.scope == "set"]

    @functools.cached_property
    def doses(self) -> Mapping[str, tuple[DosedChoice, ...]]:
        """The mixed maps of each method by its label; empty without `validate`."""
        return validated(self.methods) if self.spec.dose_response else {}

    @property
    def dosed_protocols(self) -> list[Choice]:
        """The protocols that score mixed maps: those that give every sample a score of its own."""
        return [p for p in self.batch_protocols if p.plugin.judges == "sample"]

    @functools.cached_property
    def cells(self) -> list[tuple[Choice, Choice]]:
        """The method and the protocol of every cell of a shard, also of mixed maps."""
        dosed = [dose for several in self.doses.values() for dose in several]
        cells = [(m, p) for m in self.methods for p in self.protocols]
        return cells + [(dose, p) for dose in dosed for p in self.dosed_protocols]

    def dataset_of(self, shard: Shard) -> Dataset:
        """The dataset, or its split, that holds the samples of a shard."""
        dataset = self.datasets[shard.dataset]
        return dataset.split(shard.split) if shard.split else dataset

    def samples(self, dataset: str) -> tuple[str, ...]:
        """The ids that are used: all, or a fixed draw of `limit` of them."""
        return self.datasets[dataset].drawn(self.spec.limit)

    def _chunks(self, dataset: str) -> list[tuple[str, ...]]:
        ids = self.samples(dataset)
        sizes = itertools.chain(SHARDS, itertools.repeat(LATER_SHARDS))
        starts = itertools.takewhile(lambda s: s < len(ids), itertools.accumulate(sizes, initial=0))
        cuts = [*starts, len(ids)]
        return [ids[a:b] for a, b in itertools.pairwise(cuts)]

    def target(self, dataset: str, model: str) -> int | str:
        """The class explained: `label`, `predicted` or a number."""
        target = self.spec.target
        if isinstance(target, int) or target in ("label", "predicted"):
            return target
        return class_number(target, self.datasets[dataset], self.models[model])

    def batch(self, shard: Shard, samples: tuple[str, ...] | None = None) -> Batch:
        """The samples of a shard as the model expects them, with the targets of the suite."""
        dataset, model = self.dataset_of(shard), self.models[shard.model]
        if dataset.modality != model.modality:
            raise InputError(
                f"Expected dataset `{shard.dataset}` to hold {model.modality}s for model "
                f"`{shard.model}`, got {dataset.modality}s."
            )
        target, chosen = self.target(shard.dataset, shard.model), None
        if isinstance(target, int):
            chosen = torch.full((len(samples or shard.samples),), target)
        elif target == "predicted" or "labels" not in dataset.has:
            chosen = torch.full((len(samples or shard.samples),), -1)
        batch = dataset.batch(
            samples or shard.samples,
            self._prepare(shard),
            seed=shard.seed,
            pixels=model.pixels,
            tokens=model.tokens,
            targets=chosen,
        )
        if model.tokens is not None:
            model.tokens.check(model.net, batch.inputs, batch.ids)
        channels = len(model.pixels.mean) if model.pixels else 0
        if channels and batch.inputs.ndim == 4 and channels not in (1, batch.inputs.shape[1]):
            raise InputError(
                f"Expected inputs with {channels} channels, as many as `mean` and `std` of model "
                f"`{shard.model}` have, got {batch.inputs.shape[1]} from `{shard.dataset}`."
            )
        return _cast(batch, model)

    def ready(self, shard: Shard, batch: Batch) -> Prepared:
        """The prepared network of a shard. It is prepared once, with the first sample."""
        model = self.models[shard.model]
        return self.networks.ready(shard.model, model, batch.inputs, shard.dataset)

    def _prepare(self, shard: Shard) -> Prepare | None:
        """The model's own preprocessing; texts are padded to the longest of their dataset."""
        prepare = self.models[shard.model].prepare
        if not isinstance(prepare, Tokenize):
            return prepare
        return replace(prepare, length=longest_text(self.dataset_of(shard), prepare, self.facts))

    def find_text_lengths(self, shards: Iterable[Shard]) -> None:
        """Find the lengths that the texts of these shards are padded to, for use by workers."""
        for shard in {(s.dataset, s.split, s.model): s for s in shards}.values():
            if self.dataset_of(shard).modality == self.models[shard.model].modality == "text":
                self._prepare(shard)

    def missing(self, shard: Shard, choice: Choice) -> list[str]:
        """The needs of a plug-in that neither the dataset nor the model meets."""
        dataset, model = self.dataset_of(shard), self.models[shard.model]
        available = dataset.has | model.capabilities | {dataset.modality}
        return sorted(choice.plugin.required(choice.options) - available)

    def say_missing(self, model: str, missing: list[str]) -> str:
        """Describe the needs that a model does not meet, to follow the word `needs`."""
        return say_missing(model, missing, self.models[model].card_use)

    @functools.cached_property
    def _contents(self) -> dict[str, Any]:
        """The content that identifies each dataset and model, independent of their names."""
        data = {name: data_content(d) for name, d in self.datasets.items()}
        models = {name: model_content(m, self.identity) for name, m in self.models.items()}
        return {"data": data, "models": models, "splits": split_contents(self.datasets)}

    def _base(self, shard: Shard) -> dict[str, Any]:
        base = {
            "data": self._contents["data"][shard.dataset],
            "model": self._contents["models"][shard.model],
            "target": self.target(shard.dataset, shard.model),
            "seed": shard.seed,
            **({"draws": DRAWS} if DRAWS > 1 else {}),  # version 1 was not part of the keys
        }
        splits = self._contents["splits"]
        return {**base, "split": splits[shard.dataset, shard.split]} if shard.split else base

    def _whole_set(self, shard: Shard, protocol: Choice) -> dict[str, Any]:
        """What a set protocol depends on besides a shard: all samples, training data, the pool."""
        pool = self.pool(shard.dataset, shard.model, protocol)
        return {
            "samples": registry.identity(list(self.samples(shard.dataset))),
            "train": self._contents["splits"].get((shard.dataset, "train")),
            "pool": [self._contents["models"][name] for name in pool],
        }

    def pool(self, dataset: str, model: str, protocol: Choice) -> list[str]:
        """The models that a set protocol reads: the scored one, or all that run on the dataset."""
        if protocol.plugin.models == "one":
            return [model]
        return [name for data, name in self.pairs if data == dataset]

    def responses_key(self, shard: Shard, group: str) -> str:
        """The key of answers that do not depend on an attribution map."""
        return registry.identity({**self._base(shard), "group": group})

    def maps_key(self, shard: Shard, method: Choice) -> str:
        """The key of a method's maps."""
        return self._key(shard, method, "method", method.key)

    def checks_key(self, shard: Shard, method: Choice) -> str:
        """The key of the check of a method's formula. All reductions of the formula share it."""
        return self._key(shard, method, "formula", method.formula_key)

    def _key(self, shard: Shard, method: Choice, what: str, value: object) -> str:
        """The key of something that a method has in common at all shards of one place."""
        place = (shard.place, what, method.label)
        if place not in self._keys:
            self._keys[place] = registry.identity({**self._base(shard), what: value})
        return self._keys[place]

    def cell(self, shard: Shard, method: Choice, protocol: Choice) -> str:
        """The key of a method under a protocol."""
        place = (shard.dataset, shard.model, shard.seed, method.label, protocol.label)
        if place not in self._keys:
            what = {**self._base(shard), "method": method.key, "protocol": protocol.key}
            if protocol.plugin.scope == "set":
                what["set"] = self._whole_set(shard, protocol)
            if card := self._card_needs(shard, protocol):
                what["card"] = card  # a card that comes later makes a cell that is scored
            self._keys[place] = registry.identity(what)
        return self._keys[place]

    def _card_needs(self, shard: Shard, choice: Choice) -> list[str]:
        """The needs of a plug-in that the card of the model's fine-tuning meets."""
        card = self.models[shard.model].card.get(IN_DOMAIN)
        tuned = card.capabilities if isinstance(card, Card) else frozenset()
        return sorted(choice.plugin.required(choice.options) & tuned)


def _cast(batch: Batch, model: Model) -> Batch:
    batch = batch.to(model.device)
    if batch.inputs.is_floating_point() and batch.inputs.dtype != model.dtype:
        batch = replace(batch, inputs=batch.inputs.to(model.dtype))
    return batch


def _shard_id(dataset: str, model: str, seed: int, samples: tuple[str, ...]) -> str:
    text = "\0".join((dataset, model, str(seed), *samples))
    return hashlib.sha256(text.encode()).hexdigest()[:12]
