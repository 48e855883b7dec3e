"""In-domain fine-tuning of networks of the zoo, and their placebos."""

import json
import time
from dataclasses import replace
from pathlib import Path

from assay.models.carded import read_card
from assay.training.fine_tuning import FineTuning, beside_placebo
from assay.training.fitting import Recipe
from assay.training.zoo import Job, ZooNetwork, card_file, zoo_file, zoo_network
from assay.training.zoo_arms import Arm, parse_arm
from assay.training.zoo_pixels import ZooPixels
from assay.training.zoo_training import (
    Workshop,
    job_facts,
    load_trained,
    share_of,
    store_measured,
    write_facts,
)
from assay.types import Card, Model

EPOCHS = 3
SLOWER = 0.1  # the rate of the fine-tuning, as a share of the base training's
PROBABILITY = 0.5
MEASURED = 1000  # test images that a card is measured on, 17 forward passes each


def tuning_recipe(network: ZooNetwork, epochs: int | None = None) -> Recipe:
    """How a network of the zoo is fine-tuned: its own recipe, a tenth of the rate, 3 epochs."""
    recipe = network.recipe
    epochs = EPOCHS if epochs is None else epochs
    return replace(recipe, epochs=epochs, rate=SLOWER * recipe.rate, rise=0.05)


def train_tuned(job: Job, text: str, pixels: ZooPixels, shop: Workshop) -> float:
    """Fine-tune a stored base network and store it with its card; gives the accuracy."""
    started, arm = time.monotonic(), parse_arm(text)
    network = zoo_network(job.name)
    recipe = tuning_recipe(network, shop.tuning_epochs)
    images = share_of(pixels, arm.share, job.seed)
    base = _base(shop.out, job, arm, shop.device)
    task = FineTuning.of(
        base, images,
        measure=(pixels.test[:MEASURED], pixels.test_labels[:MEASURED]),
        grid=arm.grid, fill=arm.fill, progress=False,
    )  # fmt: skip
    placebo = arm.kind == "placebo"
    model, card = task.fit(
        recipe, probability=PROBABILITY, seed=job.seed, placebo=placebo, half=True
    )
    # All networks are trained on the same images: their hashes are not stored with each.
    card = replace(card, origin=_origin(task, pixels), training_sha256=None)
    other = _other_seed(shop.out, job, arm)
    if other is not None:
        network_of_other = load_trained(other, job.name)
        network_of_other.net.to(shop.device)
        card = task.beside_another_seed(card, network_of_other)
    path = zoo_file(shop.out, job.name, job.seed, text)
    facts = job_facts(job, text, recipe, pixels, shop)
    _write_card(path, card)
    accuracy = store_measured(model, path, {**facts, "card": card.to_json()}, pixels, started)
    _join(shop.out, job, arm)
    return accuracy


def _base(out: Path, job: Job, arm: Arm, device: str) -> Model:
    model = load_trained(zoo_file(out, job.name, job.seed, arm.base), job.name)
    model.net.to(device)
    return model


def _origin(task: FineTuning, pixels: ZooPixels) -> str:
    return (
        f"trained on {len(task.training)} training images, measured on the first "
        f"{len(task.measured)} test images of CIFAR-10, lossless ({pixels.origin})"
    )


def _other_seed(out: Path, job: Job, arm: Arm) -> Path | None:
    """The stored base network of the next seed, or of any other."""
    for seed in [job.seed + 1, *range(10)]:
        path = zoo_file(out, job.name, seed, arm.base)
        if seed != job.seed and path.with_suffix(".json").is_file():
            return path
    return None


def _join(out: Path, job: Job, arm: Arm) -> None:
    """Write the placebo's values into the card of the tuned network, once both are there."""
    for tuned in sorted(out.glob(f"{job.name}-s{job.seed}-tuned*.card.json")):
        name = tuned.name.removesuffix(".card.json")
        path = out / f"{name}.safetensors"
        placebo = card_file(out / f"{name.replace('-tuned', '-placebo')}.safetensors")
        if not (placebo.is_file() and path.with_suffix(".json").is_file()):
            continue
        card = read_card(tuned)
        known, control = card.placebo_mad_softmax is not None, read_card(placebo)
        if known or control.base_sha256 != card.base_sha256:
            continue
        card = beside_placebo(card, control)
        facts = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        write_facts(path, {**facts, "card": card.to_json()})
        _write_card(path, card)


def _write_card(path: Path, card: Card) -> None:
    partial = card_file(path).with_suffix(".part")
    partial.write_text(json.dumps(card.to_json(), indent=1) + "\n", encoding="utf-8")
    partial.replace(card_file(path))
