"""Training one network of the zoo: its arms, their files and what is measured of them."""

import copy
import json
import os
import time
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from assay.errors import InputError, PrerequisiteError
from assay.models.weights import load_weights
from assay.plugins.registry import get
from assay.training.fitting import Recipe, fit_network, normalised
from assay.training.masked_patches import pretrain_masked
from assay.training.zoo import LEAST, Job, ZooNetwork, zoo_file, zoo_model, zoo_network
from assay.training.zoo_arms import Arm, parse_arm
from assay.training.zoo_pixels import ZooPixels
from assay.types import Model

EVALUATED = 1000  # images per forward pass of the test


@dataclass(frozen=True)
class Workshop:
    """Where networks are trained and stored."""

    out: Path
    device: str = "cpu"
    epochs: int | None = None  # of the base training, instead of the recipe's
    tuning_epochs: int | None = None


@dataclass(frozen=True)
class Trained:
    """What became of one arm of a job."""

    file: str
    accuracy: float | None = None
    seconds: float = 0.0
    error: str = ""
    skipped: bool = False  # it was there

    @property
    def under_trained(self) -> bool:
        """Whether the accuracy is below the least that the zoo expects."""
        return self.accuracy is not None and self.accuracy < LEAST


def train_job(job: Job, pixels: ZooPixels, shop: Workshop) -> Iterator[Trained]:
    """Train the arms of a job one after another; an arm that fails does not stop the others."""
    for arm in job.arms:
        path = zoo_file(shop.out, job.name, job.seed, arm)
        facts = finished(path, _checkpoints(zoo_network(job.name), parse_arm(arm), shop))
        if facts is not None:
            yield Trained(path.stem, _number(facts["accuracy"]), skipped=True)
            continue
        try:
            started = time.monotonic()
            accuracy = _train_arm(job, arm, pixels, shop)
            yield Trained(path.stem, accuracy, time.monotonic() - started)
            _error_file(path).unlink(missing_ok=True)
        except Exception as error:  # whatever goes wrong is written down, the others go on
            _error_file(path).write_text(traceback.format_exc(), encoding="utf-8")
            yield Trained(path.stem, error=f"{type(error).__name__}: {error}")


def finished(path: Path, checkpoints: tuple[int, ...] = ()) -> dict[str, object] | None:
    """The facts of a network that is trained and stored, with its checkpoints; else None."""
    paths = [path, *(path.with_stem(f"{path.stem}-e{epoch}") for epoch in checkpoints)]
    if not all(p.is_file() and p.with_suffix(".json").is_file() for p in paths):
        return None
    facts: dict[str, object] = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    return facts


def load_trained(path: Path, name: str) -> Model:
    """A network of the zoo with the weights of a file."""
    if not path.is_file():
        raise PrerequisiteError(
            f"Expected the trained network `{path.name}`, but it is missing. Train it first: "
            f"assay zoo train {name} --arms base"
        )
    network = zoo_network(name)
    plugin = get("model", network.model)
    options = {**network.options, "weights": str(path)}
    made: Model = plugin.function(**plugin.configure(options))
    return replace(made, name=name)


@torch.no_grad()
def test_accuracy(model: Model, images: Tensor, labels: Tensor) -> float:
    """The share of images of 8 bits that are classified correctly, in full precision."""
    right = torch.zeros((), dtype=torch.long, device=model.device)
    with model.evaluating():
        for x, y in zip(*(torch.split(t, EVALUATED) for t in (images, labels)), strict=True):
            logits = model.logits(normalised(model, x.to(model.device)))
            right += (logits.argmax(1) == y.to(model.device)).sum()
    return right.item() / len(labels)


def store_rounded(model: Model, path: Path) -> None:
    """Write the weights in half precision and load them back: what is measured is what is stored.

    Raises:
        InputError: A weight does not fit into half precision.
    """
    state: dict[str, Tensor] = model.net.state_dict()
    halved = {
        name: (w.half() if w.is_floating_point() else w).cpu().contiguous()
        for name, w in state.items()
    }
    wrong = [name for name, w in halved.items() if not bool(torch.isfinite(w).all())]
    if wrong:
        raise InputError(
            f"Expected finite weights in half precision, got others in `{wrong[0]}` of "
            f"`{path.stem}`. Train with a smaller rate."
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}.safetensors")
    save_file(halved, partial)
    load_weights(model.net, partial)
    partial.replace(path)


def write_facts(path: Path, facts: Mapping[str, object]) -> None:
    """Write the facts beside the weights; a network counts as finished once they are there."""
    partial = path.with_suffix(f".{os.getpid()}.part")
    partial.write_text(json.dumps(facts, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    partial.replace(path.with_suffix(".json"))


def _train_arm(job: Job, text: str, pixels: ZooPixels, shop: Workshop) -> float:
    arm = parse_arm(text)
    if arm.kind == "base":
        return _train_base(job, text, arm, pixels, shop)
    raise PrerequisiteError(f"The arm `{text}` cannot be trained yet.")


def _train_base(job: Job, text: str, arm: Arm, pixels: ZooPixels, shop: Workshop) -> float:
    network, started = zoo_network(job.name), time.monotonic()
    recipe = _recipe(network, arm, shop)
    model = zoo_model(job.name, job.seed)
    model.net.to(shop.device)
    images, labels = _share(pixels, arm.share, job.seed)
    errors: list[float] = []
    if network.pretraining:
        epochs = network.pretraining if shop.epochs is None else shop.epochs
        errors = pretrain_masked(model, images, replace(recipe, epochs=epochs), seed=job.seed)
    path = zoo_file(shop.out, job.name, job.seed, text)
    keep = _checkpoints(network, arm, shop)
    facts: dict[str, object] = {
        "name": job.name, "seed": job.seed, "arm": text, "model": network.item,
        "recipe": asdict(recipe), "pretraining": network.pretraining, "images": len(images),
        "pixels": pixels.origin, "command": _command(job, text),
        "device": _device_name(model.device), "torch": torch.__version__,
    }  # fmt: skip

    def each_epoch(epoch: int) -> None:
        if epoch in keep:
            rounded = replace(model, net=copy.deepcopy(model.net))
            place = path.with_stem(f"{path.stem}-e{epoch}")
            store_measured(rounded, place, {**facts, "epoch": epoch}, pixels, started)

    losses = fit_network(
        model, images, labels, recipe, seed=job.seed, each_epoch=each_epoch, progress=False
    )
    facts |= {"losses": losses, "painting_errors": errors}
    return store_measured(model, path, facts, pixels, started)


def store_measured(
    model: Model, path: Path, facts: Mapping[str, object], pixels: ZooPixels, started: float
) -> float:
    """Store a network, measure what is stored, write the facts; gives the accuracy."""
    store_rounded(model, path)
    accuracy = test_accuracy(model, pixels.test, pixels.test_labels)
    write_facts(
        path,
        {
            **facts,
            "accuracy": accuracy,
            "under_trained": accuracy < LEAST,
            "tested": len(pixels.test),
            "weights_hash": model.weights_hash,
            "parameters": sum(p.numel() for p in model.net.parameters()),
            "bytes": path.stat().st_size,
            "seconds": round(time.monotonic() - started, 1),
        },
    )
    return accuracy


def _recipe(network: ZooNetwork, arm: Arm, shop: Workshop) -> Recipe:
    return replace(network.recipe, epochs=arm.epochs or shop.epochs or network.recipe.epochs)


def _checkpoints(network: ZooNetwork, arm: Arm, shop: Workshop) -> tuple[int, ...]:
    """The epochs after which the weights are stored; only of the whole, unshortened training."""
    if arm.kind != "base" or arm.base != "base":
        return ()
    return tuple(e for e in network.checkpoints if e < _recipe(network, arm, shop).epochs)


def _share(pixels: ZooPixels, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """A share of the training images, drawn by the seed."""
    if share == 1.0:
        return pixels.train, pixels.train_labels
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randperm(len(pixels.train), generator=generator)
    rows = rows[: max(2, round(share * len(rows)))].to(pixels.train.device)
    return pixels.train[rows], pixels.train_labels[rows]


def _command(job: Job, arm: str) -> str:
    return (
        f"assay zoo train {job.name} --seeds {job.seed} --arms {arm} --data DATA --out OUT "
        f"--device cuda"
    )


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def _error_file(path: Path) -> Path:
    return path.with_suffix(".error.txt")


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
