"""The jobs of the zoo: one network and seed, its arms one after another."""

import json
import time
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from assay.training.fitting import Recipe
from assay.training.zoo import LEAST, Job, zoo_file, zoo_network
from assay.training.zoo_arms import parse_arm
from assay.training.zoo_pixels import ZooPixels
from assay.training.zoo_training import Workshop, base_recipe, kept_epochs, train_base
from assay.training.zoo_tuning import train_tuned, tuning_recipe


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
        already = stored_arm(job, arm, shop, len(pixels.test))
        if already is not None:
            yield already
            continue
        try:
            started = time.monotonic()
            train = train_base if parse_arm(arm).kind == "base" else train_tuned
            accuracy = train(job, arm, pixels, shop)
            yield Trained(path.stem, accuracy, time.monotonic() - started)
            _error_file(path).unlink(missing_ok=True)
        except Exception as error:  # whatever goes wrong is written down, the others go on
            _error_file(path).write_text(traceback.format_exc(), encoding="utf-8")
            yield Trained(path.stem, error=f"{type(error).__name__}: {error}")


def stored_job(job: Job, shop: Workshop, tested: int) -> list[Trained] | None:
    """What is stored, if all arms of a job are; else None."""
    arms = [stored_arm(job, arm, shop, tested) for arm in job.arms]
    stored = [arm for arm in arms if arm is not None]
    return stored if len(stored) == len(arms) else None


def stored_arm(job: Job, text: str, shop: Workshop, tested: int) -> Trained | None:
    """What is stored of an arm; None where anything is missing, or its base has changed.

    Args:
        job: The network and seed.
        text: The arm.
        shop: Where it is stored. Other settings than asked for become the outcome's error.
        tested: The number of test images.
    """
    arm, path = parse_arm(text), zoo_file(shop.out, job.name, job.seed, text)
    kept = kept_epochs(zoo_network(job.name), arm, shop)
    paths = [path, *(path.with_stem(f"{path.stem}-e{epoch}") for epoch in kept)]
    facts = [_facts(p) for p in paths]
    if not all(facts):
        return None
    card = facts[0].get("card")
    if arm.kind != "base" and isinstance(card, dict):
        base = _facts(zoo_file(shop.out, job.name, job.seed, arm.base))
        if base.get("weights_hash") != card.get("base_sha256"):
            return None
    other = _difference(facts[0], _recipe(job, text, shop), tested)
    return Trained(path.stem, _number(facts[0].get("accuracy")), error=other, skipped=True)


def _facts(path: Path) -> dict[str, object]:
    """The facts of a stored network; empty where one of the two files is missing."""
    sidecar = path.with_suffix(".json")
    if not (path.is_file() and sidecar.is_file()):
        return {}
    facts: dict[str, object] = json.loads(sidecar.read_text(encoding="utf-8"))
    return facts


def _recipe(job: Job, text: str, shop: Workshop) -> Recipe:
    network, arm = zoo_network(job.name), parse_arm(text)
    if arm.kind == "base":
        return base_recipe(network, arm, shop)
    return tuning_recipe(network, shop.tuning_epochs)


def _difference(facts: Mapping[str, object], recipe: Recipe, tested: int) -> str:
    """How a stored network was trained, if not by this recipe and on these images; in words."""
    stored = facts.get("recipe")
    stored = stored if isinstance(stored, dict) else {}
    wrong = [
        f"{name} {stored[name]} instead of {value}"
        for name, value in asdict(recipe).items()
        if name in stored and stored[name] != value
    ]
    if facts.get("tested") != tested:
        wrong.append(f"tested on {facts.get('tested')} images instead of {tested}")
    if not wrong:
        return ""
    return f"stored with other settings ({', '.join(wrong)}); delete it or give another --out"


def _error_file(path: Path) -> Path:
    return path.with_suffix(".error.txt")


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
