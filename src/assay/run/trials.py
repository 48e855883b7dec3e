"""The trial of a set protocol: reads samples and maps of a run, and trains networks once."""

import copy
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from assay.errors import InputError, NotApplicable
from assay.models.wrap import model as as_model
from assay.plan.finished import Finished
from assay.plan.plan import Plan, Shard
from assay.plan.set_cells import SetCell
from assay.plugins import registry
from assay.run.shard import ShardTask, ShardWork, finite, make_engine
from assay.suite.spec import MAPS_HASH
from assay.training.fitting import Recipe, fit_network
from assay.training.fresh import fresh_copy
from assay.training.trained_weights import TrainedWeights
from assay.types import Batch, Model, Split, Trial

FOLDER = ("trained", "set")  # of the weights that set protocols train, inside a run's folder
NAMES = {"scored": "", "train": "train"}  # the splits as shards name them


@dataclass(frozen=True)
class TrialMaker:
    """Makes the trials of one run."""

    finished: Finished
    task: ShardTask  # of any shard: says where pieces go and who watches
    batches: "BatchCache"
    fitted: Callable[[], None] = lambda: None  # called after each training

    def trial(self, cell: SetCell) -> Trial:
        """What a set protocol sees of one method."""
        plan = self.finished.plan
        dataset = plan.datasets[cell.dataset]
        pool = plan.pool(cell.dataset, cell.model, cell.protocol)
        return Trial(
            dataset=dataset,
            train=dataset.splits.get("train"),
            model=plan.models[cell.model],
            models={name: plan.models[name] for name in pool},
            batch=_BatchReader(self, cell),
            maps=_MapReader(self, cell),
            fit=_Trainer(
                plan.models[cell.model],
                self.finished.store.path(*FOLDER),
                cell.seed,
                self.fitted,
            ),
            seed=cell.seed,
        )

    def shards(self, cell: SetCell, split: Split, model: str | None = None) -> list[Shard]:
        """The shards of a split, in the order of its samples."""
        plan = self.finished.plan
        if split not in NAMES:
            raise InputError(f"Expected a split, `scored` or `train`, got {split!r}.")
        if NAMES[split]:
            plan.datasets[cell.dataset].split(NAMES[split])  # an error where there is none
        return plan.shards_of(cell.dataset, model or cell.model, cell.seed, NAMES[split])

    def batch(self, cell: SetCell, split: Split) -> Batch:
        """All samples of a split, read once for all methods of a place."""
        shards = self.shards(cell, split)
        return self.batches.read(self.finished.plan, shards)

    def maps(self, cell: SetCell, split: Split, model: str | None) -> Tensor:
        """The raw maps of a split, as stored, or explained now where they are missing."""
        parts = [self._shard_maps(cell, shard) for shard in self.shards(cell, split, model)]
        return torch.cat([part.cpu() for part in parts])

    def _shard_maps(self, cell: SetCell, shard: Shard) -> Tensor:
        stored = self.finished.maps(shard, cell.method)
        if stored is not None:
            return torch.from_numpy(stored[0])
        if shard.split and MAPS_HASH in cell.method.options:
            raise NotApplicable(
                f"The maps of `{cell.method.label}` were computed elsewhere, and only for the "
                f"scored samples. Give a function `(model, batch) -> maps` instead."
            )
        task, plan = replace(self.task, shard=shard), self.finished.plan
        missing = plan.missing(shard, cell.method)
        if missing:
            where = "the training samples" if shard.split else "the scored samples"
            raise NotApplicable(
                f"For maps of {where}, `{cell.method.label}` needs "
                f"{plan.say_missing(shard.model, missing)}"
            )
        with plan.models[shard.model].evaluating(), torch.no_grad():
            return ShardWork(task, make_engine(plan, shard)).maps(cell.method)[0]


class BatchCache:
    """The samples of the last dataset, model and seed, which all methods share."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._place: tuple[str, str, int] | None = None
        self._batches: dict[str, Batch] = {}  # by split

    def read(self, plan: Plan, shards: Sequence[Shard]) -> Batch:
        """All samples of these shards of one split."""
        first = shards[0]
        place = (first.dataset, first.model, first.seed)
        if place != self._place:
            self._place, self._batches = place, {}
        if first.split not in self._batches:
            ids = tuple(sample for shard in shards for sample in shard.samples)
            self._batches[first.split] = plan.batch(first, ids)
        return self._batches[first.split]


@dataclass(frozen=True)
class _BatchReader:
    maker: TrialMaker
    cell: SetCell

    def __call__(self, split: Split = "scored") -> Batch:
        batch = self.maker.batch(self.cell, split)  # all methods read it
        return batch.cloned() if self.cell.protocol.own else batch


@dataclass(frozen=True)
class _MapReader:
    maker: TrialMaker
    cell: SetCell

    def __call__(self, split: Split = "scored", model: str | None = None) -> Tensor:
        if model is not None and model not in self.pool:
            raise InputError(
                f"Expected a model of the pool, {', '.join(f'`{name}`' for name in self.pool)}, "
                f"got `{model}`."
            )
        maps, broken = finite(self.maker.maps(self.cell, split, model))
        if (split != "scored" or model is not None) and bool(broken.any()):
            whose = "training samples" if split == "train" else f"scored samples of `{model}`"
            raise InputError(
                f"Expected finite maps of the {whose}, got NaN or inf in {int(broken.sum())} of "
                f"{len(broken)}."
            )
        return maps.to(self.maker.batch(self.cell, split).inputs.device)

    @property
    def pool(self) -> list[str]:
        plan, cell = self.maker.finished.plan, self.cell
        return plan.pool(cell.dataset, cell.model, cell.protocol)


@dataclass(frozen=True)
class _Trainer:
    """Trains networks; each result is a file, named by all that determines it."""

    model: Model
    folder: Path
    seed: int
    fitted: Callable[[], None]

    def __call__(
        self,
        inputs: Tensor,
        labels: Tensor,
        *,
        epochs: int,
        seed: int = 0,
        network: nn.Module | None = None,
        **recipe: int | float | str | bool,
    ) -> Model:
        settings = _recipe(epochs, recipe)
        number = _seed(self.seed, seed)
        if network is None:
            model = fresh_copy(self.model, number)
        else:
            net = copy.deepcopy(network).requires_grad_(True).to(self.model.device)
            model = replace(as_model(net), modality=self.model.modality)
        labels = labels.cpu()
        key = _key(model, [inputs, labels], settings, number)
        partial = self.folder / f"{key}.unfinished"
        self.folder.mkdir(parents=True, exist_ok=True)

        def train() -> None:
            fit_network(
                model, inputs, labels, settings, seed=number, checkpoint=partial, progress=False
            )

        # The file serves all later calls; weights are not kept in memory.
        TrainedWeights().train_once(key, model.net, train, self.folder)
        partial.unlink(missing_ok=True)
        self.fitted()
        return model


def _recipe(epochs: int, settings: dict[str, int | float | str | bool]) -> Recipe:
    try:
        return Recipe(epochs=epochs, **settings)  # type: ignore[arg-type]
    except TypeError:
        known = ", ".join(Recipe.__dataclass_fields__)
        raise InputError(
            f"Expected settings of `fit` among {known}, got {', '.join(settings)}."
        ) from None


def _seed(run: int, training: int) -> int:
    """The seed of one training in a run with this seed."""
    digest = hashlib.sha256(f"fit\0{run}\0{training}".encode()).digest()
    return int.from_bytes(digest[:4], "big")


def _key(model: Model, tensors: Sequence[Tensor], recipe: Recipe, seed: int) -> str:
    """Identifies a training: first weights and code of the network, data, settings, seed."""
    digest = hashlib.sha256(f"{model.weights_hash} {seed} {registry.identity(recipe)}".encode())
    for tensor in tensors:
        digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        for part in torch.split(tensor, 4096):
            whole = part.detach().cpu().contiguous().flatten().view(torch.uint8)
            digest.update(whole.numpy().data)
    return digest.hexdigest()[:16]
