"""Training one network of the zoo by its recipe: its files and what is measured of it."""

import copy
import json
import os
import time
from collections.abc import Mapping
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
from assay.training.zoo_pixels import PixelFacts, ZooPixels
from assay.types import Model

EVALUATED = 1000  # images per forward pass of the test


@dataclass(frozen=True)
class Workshop:
    """Where networks are trained and stored."""

    out: Path
    device: str = "cpu"
    epochs: int | None = None  # of the base training, instead of the recipe's
    tuning_epochs: int | None = None
    limit: int | None = None  # images of each set, instead of all


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
def accuracy_on(model: Model, images: Tensor, labels: Tensor) -> float:
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


def train_base(job: Job, text: str, pixels: ZooPixels, shop: Workshop) -> float:
    """Train a network by its recipe and store it with its checkpoints; gives the accuracy."""
    arm = parse_arm(text)
    network, started = zoo_network(job.name), time.monotonic()
    recipe = base_recipe(network, arm, shop)
    model = zoo_model(job.name, job.seed)
    model.net.to(shop.device)
    images, labels = share_of(pixels, arm.share, job.seed)
    errors: list[float] = []
    if network.pretraining:
        masked = replace(recipe, epochs=pretraining_epochs(network, shop))
        errors = pretrain_masked(model, images, masked, seed=job.seed)
    path = zoo_file(shop.out, job.name, job.seed, text)
    keep = kept_epochs(network, arm, shop)
    facts = job_facts(job, text, recipe, pixels, shop)

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
    accuracy = accuracy_on(model, pixels.test, pixels.test_labels)
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


def job_facts(
    job: Job, arm: str, recipe: Recipe, pixels: ZooPixels, shop: Workshop
) -> dict[str, object]:
    """What is known about a network before it is trained."""
    return {
        "name": job.name,
        "seed": job.seed,
        "arm": arm,
        **settings(job.name, arm, recipe, pixels.facts, shop),
        "command": _command(job, arm, shop),
        "device": _device_name(torch.device(shop.device)),
        "torch": torch.__version__,
    }


def settings(
    name: str, arm: str, recipe: Recipe, pixels: PixelFacts, shop: Workshop
) -> dict[str, object]:
    """What a stored network must agree in to count as the one that is asked for."""
    network = zoo_network(name)
    return {
        "model": network.item,
        "recipe": asdict(recipe),
        "pretraining": pretraining_epochs(network, shop),
        "images": images_of(pixels.train, parse_arm(arm).share),
        "pixels": pixels.origin,
    }


def base_recipe(network: ZooNetwork, arm: Arm, shop: Workshop) -> Recipe:
    """The recipe with the epochs of the arm, or of a quick try."""
    chosen = (arm.epochs, shop.epochs, network.recipe.epochs)
    return replace(network.recipe, epochs=next(e for e in chosen if e is not None))


def pretraining_epochs(network: ZooNetwork, shop: Workshop) -> int:
    """Epochs of masked pre-training, of the network or of a quick try; 0 where it has none."""
    if not network.pretraining or shop.epochs is None:
        return network.pretraining
    return shop.epochs


def kept_epochs(network: ZooNetwork, arm: Arm, shop: Workshop) -> tuple[int, ...]:
    """The epochs after which the weights are stored; only of the whole, unshortened training."""
    if arm.kind != "base" or arm.base != "base":
        return ()
    return tuple(e for e in network.checkpoints if e < base_recipe(network, arm, shop).epochs)


def share_of(pixels: ZooPixels, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """A share of the training images, drawn by the seed."""
    if share == 1.0:
        return pixels.train, pixels.train_labels
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randperm(len(pixels.train), generator=generator)
    rows = rows[: images_of(len(rows), share)].to(pixels.train.device)
    return pixels.train[rows], pixels.train_labels[rows]


def images_of(images: int, share: float) -> int:
    """The number of training images in a share of them."""
    return images if share == 1.0 else max(2, round(share * images))


def _command(job: Job, arm: str, shop: Workshop) -> str:
    quick = {"limit": shop.limit, "epochs": shop.epochs, "tuning-epochs": shop.tuning_epochs}
    given = "".join(f" --{name} {value}" for name, value in quick.items() if value is not None)
    return (
        f"assay zoo train {job.name} --seeds {job.seed} --arms {arm} --data DATA --out OUT "
        f"--device {shop.device}{given}"
    )


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
