"""The jobs of the zoo: one network and seed, its arms one after another."""

import json
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from assay.errors import InputError
from assay.training.fitting import Recipe
from assay.training.zoo import LEAST, Job, zoo_file, zoo_network
from assay.training.zoo_arms import parse_arm
from assay.training.zoo_pixels import PixelFacts, ZooPixels
from assay.training.zoo_training import (
    Workshop,
    base_recipe,
    kept_epochs,
    load_trained,
    settings,
    train_base,
)
from assay.training.zoo_tuning import train_tuned, tuning_recipe

ADVICE = "delete it or give another --out"


@dataclass(frozen=True)
class Trained:
    """What became of one arm of a job."""

    file: str
    accuracy: float | None = None
    seconds: float = 0.0
    error: str = ""
    skipped: bool = False  # it was stored before
    error_file: str = ""  # the file with the whole error, where one was written

    @property
    def under_trained(self) -> bool:
        """Whether the accuracy is below the least that the zoo expects."""
        return self.accuracy is not None and self.accuracy < LEAST


def train_job(job: Job, pixels: ZooPixels, shop: Workshop) -> Iterator[Trained]:
    """Train the arms of a job one after another; an arm that fails does not stop the others."""
    for arm in job.arms:
        path = zoo_file(shop.out, job.name, job.seed, arm)
        already = stored_arm(job, arm, shop, pixels.facts) or _wrong_base(job, arm, pixels, shop)
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
            place = _error_file(path)
            place.write_text(traceback.format_exc(), encoding="utf-8")
            text = f"{type(error).__name__}: {error}"
            yield Trained(path.stem, error=text, error_file=place.name)


def stored_job(job: Job, shop: Workshop, pixels: PixelFacts) -> list[Trained] | None:
    """What is stored, if all arms of a job are; else None."""
    arms = [stored_arm(job, arm, shop, pixels) for arm in job.arms]
    stored = [arm for arm in arms if arm is not None]
    return stored if len(stored) == len(arms) else None


def stored_arm(job: Job, text: str, shop: Workshop, pixels: PixelFacts) -> Trained | None:
    """What is stored of an arm; None where anything is missing, or its base has changed.

    Args:
        job: The network and seed.
        text: The arm.
        shop: Where it is stored. Other settings than asked for, and weights that are not those of
            the facts, become the outcome's error.
        pixels: The images that are asked for.
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
    asked = settings(job.name, text, _recipe(job, text, shop), pixels, shop)
    asked["tested"] = pixels.test
    wrong = _first(_difference(one, asked) for one in facts) or _first(
        _altered(place, job.name, one) for place, one in zip(paths, facts, strict=True)
    )
    return Trained(path.stem, _number(facts[0].get("accuracy")), error=wrong, skipped=True)


def _wrong_base(job: Job, text: str, pixels: ZooPixels, shop: Workshop) -> Trained | None:
    """The failure of an arm whose stored base network is not the one that is asked for."""
    arm = parse_arm(text)
    base = None if arm.kind == "base" else stored_arm(job, arm.base, shop, pixels.facts)
    if base is None or not base.error:
        return None
    stem = zoo_file(shop.out, job.name, job.seed, text).stem
    return Trained(stem, error=f"its base network `{base.file}` cannot be used: {base.error}")


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


def _difference(facts: Mapping[str, object], asked: Mapping[str, object]) -> str:
    """In words, how a stored network was trained if not as asked; empty where it was."""
    stored, wanted = _flat(facts), _flat(json.loads(json.dumps(asked)))
    wrong = [
        "images of other files"
        if name == "pixels"
        else f"{name} {stored.get(name)} instead of {value}"
        for name, value in wanted.items()
        if stored.get(name) != value
    ]
    if not wrong:
        return ""
    return f"stored with other settings ({', '.join(wrong)}); {ADVICE}"


def _flat(facts: Mapping[str, object]) -> dict[str, object]:
    """The facts with those of the recipe beside the others."""
    recipe = facts.get("recipe")
    return {**facts, "recipe": None, **(recipe if isinstance(recipe, dict) else {})}


def _altered(path: Path, name: str, facts: Mapping[str, object]) -> str:
    """In words, why the weights in a file are not those of its facts; empty where they are."""
    try:
        found = load_trained(path, name).weights_hash
    except InputError as error:
        return f"the weights in `{path.name}` cannot be used: {error}"
    if found == facts.get("weights_hash"):
        return ""
    return (
        f"the weights in `{path.name}` are not those that were stored (hash {found} instead of "
        f"{facts.get('weights_hash')}); {ADVICE}"
    )


def _first(texts: Iterable[str]) -> str:
    """The first text that is not empty."""
    return next((text for text in texts if text), "")


def _error_file(path: Path) -> Path:
    return path.with_suffix(".error.txt")


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
