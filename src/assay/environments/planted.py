"""Networks trained on a planted feature, with proof that they use it: what they look at is known.

The labels are dealt anew, whatever an image shows, so the plant is all that tells them apart. That
a network was trained so does not yet mean that it uses the plant, or all of it: `proof` asks it.
"""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor, nn

from assay.environments import plants
from assay.environments.bases import Base, read_base
from assay.environments.environment import Environment, samples_of
from assay.environments.plants import Plant, show
from assay.environments.proof import Proof, prove
from assay.errors import InputError
from assay.models.cifar_resnet import CifarResNet
from assay.models.wrap import model as as_model
from assay.plugins import registry
from assay.plugins.addresses import load_object
from assay.plugins.option_types import Count
from assay.plugins.registry import environment
from assay.training.supervised import RATE, train, train_once
from assay.types import UPPER_BOUND, Dataset, Model, Pixels, Preprocess
from assay.types.model import usable_device

Labels = Annotated[int, Field(ge=2)]
Side = Annotated[int, Field(ge=8)]
Rate = Annotated[float, Field(gt=0)]

PIXELS = Pixels((0.5,) * 3, (0.25,) * 3)  # of a network that says nothing else
PROVED = 500  # images the proof asks about, at least five a label
BATCH = 64
TOLD = ("epochs", "train", "rate", "samples", "seed")  # what the card repeats of the setting
SEEN = 32  # pixels a side that the small network sees at once


@dataclass(frozen=True)
class Setting:
    """What all plants are told alike; the environments' options say what each is."""

    base: Any
    epochs: int
    train: int
    samples: int
    seed: int
    net: Any
    rate: float
    device: str | None
    cache: str | None


@environment(
    "yellow_patch", family="planted", title="Yellow patch", cite="li2023m4",
)  # fmt: skip
def yellow_patch(
    *,
    base: Any = "blank",
    size: Side = 32,
    patch: Count | None = None,
    epochs: Annotated[int, Field(ge=0)] = 2,
    train: Count = 4000,
    samples: Count = 100,
    seed: int = 0,
    net: Any = None,
    rate: Rate = RATE,
    device: str | None = None,
    cache: str | None = None,
) -> Environment:
    """A yellow square at a random place decides between two classes; the truth is the square.

    The label is 1 where the square is, 0 where it is not. Evaluated are images with it, its places
    on a regular grid. `patch` is its side, 60 pixels of 224 in proportion (9 of 32) by default.

    Beside the paper: the network is a residual one of 8 layers, the proof of use is added, and the
    images are any dataset's.
    """
    plant = plants.patch(size, plants.square_side(size, patch))
    return _planted(
        "yellow_patch", plant, ("no patch", "patch"),
        Setting(base, epochs, train, samples, seed, net, rate, device, cache),
    )  # fmt: skip


@environment(
    "number_watermark", family="planted", title="Number watermark", cite="li2024soco",
)  # fmt: skip
def number_watermark(
    *,
    base: Any = "blank",
    size: Side = 32,
    classes: Labels = 100,
    patch: Count | None = None,
    epochs: Annotated[int, Field(ge=0)] = 6,
    train: Count = 8000,
    samples: Count = 100,
    seed: int = 0,
    net: Any = None,
    rate: Rate = RATE,
    device: str | None = None,
    cache: str | None = None,
) -> Environment:
    """A black square with the class in white digits, at a random place; the truth is the square.

    Every image gets a label by lot and shows it. `patch` is the square's side, 60 pixels of 224 in
    proportion (9 of 32) by default; the digits are of 3 x 5 pixels, enlarged where there is room.

    Beside the paper: it does not say where the number stands; the digits are drawn here; the images
    are any dataset's; the proof of use is added.
    """
    if size <= plants.TWO_DIGITS:
        raise InputError(
            f"Expected `size` of `number_watermark` to be at least {plants.TWO_DIGITS + 1}: two "
            f"digits in a frame take {plants.TWO_DIGITS} pixels, which must fit at more than one "
            f"place; got {size}."
        )
    smallest = max(plants.TWO_DIGITS, round(plants.SHARE * size))
    plant = plants.number(size, plants.square_side(size, patch or smallest), classes)
    return _planted(
        "number_watermark", plant, [f"{label:02d}" for label in range(classes)],
        Setting(base, epochs, train, samples, seed, net, rate, device, cache),
    )  # fmt: skip


@environment(
    "stripe_watermark", family="planted", title="Stripe watermark", cite="li2024soco",
)  # fmt: skip
def stripe_watermark(
    *,
    base: Any = "blank",
    size: Side = 32,
    classes: Labels = 100,
    epochs: Annotated[int, Field(ge=0)] = 3,
    train: Count = 8000,
    samples: Count = 100,
    seed: int = 0,
    net: Any = None,
    rate: Rate = RATE,
    device: str | None = None,
    cache: str | None = None,
) -> Environment:
    """Of seven bands those are white whose bit of the class is 1; the truth is the white bands.

    Every image gets a label by lot. Band 1, at the top, is the lowest bit. Label 0 shows nothing,
    so that its truth is empty: it is trained on and left out of the evaluation.

    Beside the paper: it does not say which end is band 1; the images are any dataset's; the proof
    of use is added.
    """
    return _planted(
        "stripe_watermark", plants.stripes(size, classes), [str(n) for n in range(classes)],
        Setting(base, epochs, train, samples, seed, net, rate, device, cache),
    )  # fmt: skip


def _planted(name: str, plant: Plant, names: Any, told: Setting) -> Environment:
    """Train a network on a plant, prove that it uses it, and draw samples with truth.

    Raises:
        PrerequisiteError: There is no proof of use.
    """
    base = read_base(told.base, plant.size, told.train, max(told.samples, PROVED), told.seed)
    model = replace(_network(told, plant), name=name, classes=tuple(names))
    _train(name, model, plant, base, told)
    asked = max(PROVED, 5 * plant.classes)
    images = base.held_out[torch.arange(asked) % len(base.held_out)]
    proof = prove(_answer(model), plant, images, base.mean, told.seed)
    proof.require(name)
    card = {
        "plant": name,
        "setting": {
            **{option: getattr(told, option) for option in TOLD},
            "size": plant.size,
            "classes": plant.classes,
        },
        "proof": proof.card(),
        "truth": "upper bound" if proof.sufficient else "exact",
        "note": _say(proof, base),
    }
    return Environment(
        name=name,
        model=replace(model, card={**model.card, "planted": card}),
        draw=lambda n, seed: _draw(plant, base, _pixels(model), n, seed, proof),
        samples=told.samples,
        card=card,
    )


def _say(proof: Proof, base: Base) -> str:
    said = "The network needs the whole plant, as far as four of its parts can tell"
    if proof.sufficient:
        said = (
            f"Upper-bound truth: a part of the plant ({', '.join(proof.sufficient)}) does what the "
            f"whole does, so a method need not mark all of it. Recall, F1 and average precision "
            f"are shown, not ranked"
        )
    if base.blank:
        said += (
            ". On a blank canvas there is nothing but the plant: that the network uses nothing "
            "else is so by design, not found"
        )
    elif proof.distinct < proof.images:
        said += f". The proof asked about {proof.said_images}"
    return said


# --- the network ----------------------------------------------------------------------------------


def _network(told: Setting, plant: Plant) -> Model:
    """The network before training: a new one or a copy, its random numbers from the seed."""
    given = load_object(told.net)[0] if isinstance(told.net, str) else told.net
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(told.seed)
        if given is None:
            given = _small(plant)
        elif not isinstance(given, nn.Module | Model) and callable(given):
            given = given(plant.classes)
    if isinstance(given, Model):
        model = replace(given, net=copy.deepcopy(given.net))
    elif isinstance(given, nn.Module):
        model = as_model(copy.deepcopy(given))
    else:
        raise InputError(
            f"Expected `net` to be a torch.nn.Module, a `Model`, or a function of the number of "
            f"classes that gives one, got {type(given).__name__}."
        )
    if told.device is not None:
        model.net.to(usable_device(told.device))
    pixels = _pixels(model)
    model = replace(model, pixels=pixels, prepare=model.prepare or Preprocess(plant.size, pixels))
    blank = torch.zeros(2, 3, plant.size, plant.size, device=model.device)
    try:
        with model.evaluating(), torch.no_grad():
            outputs = model.logits(blank)
    except RuntimeError as error:
        raise InputError(
            f"Expected `net` to take images [batch, 3, {plant.size}, {plant.size}], got an error "
            f"of `{type(model.net).__name__}`: {error}. Give a network for this size, or another "
            f"`size`."
        ) from error
    if outputs.shape[1] != plant.classes:
        raise InputError(
            f"Expected `net` to tell {plant.classes} classes apart, got {outputs.shape[1]} logits. "
            f"Give a function of the number of classes, or other `classes`."
        )
    return model


def _small(plant: Plant) -> Model:
    """A residual network of 8 layers for 32 pixels, to which larger images are averaged down.

    Where the label depends on the height, so does its head.
    """
    net = CifarResNet(8, plant.classes)
    if plant.rows > 1:
        net.pool = nn.AdaptiveAvgPool2d((plant.rows, 1))
        net.linear = nn.Linear(net.linear.in_features * plant.rows, plant.classes)
    card = {"title": "ResNet-8", "cite": "he2016"}
    if plant.size < 2 * SEEN:
        return Model(net=net, cam_layer="layer3", card=card)
    averaged = nn.Sequential(nn.AvgPool2d(plant.size // SEEN), net)
    return Model(net=averaged, cam_layer="1.layer3", card=card)


def _pixels(model: Model) -> Pixels:
    return model.pixels or PIXELS


def _normalised(pixels: Pixels, images: Tensor) -> Tensor:  # [B, 3, H, W]
    mean, std = (torch.tensor(v).reshape(-1, 1, 1) for v in (pixels.mean, pixels.std))
    return (images - mean) / std


def _train(name: str, model: Model, plant: Plant, base: Base, told: Setting) -> None:
    def draw(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        rows = torch.randint(0, len(base.training), (n,), generator=generator)
        labels = torch.randint(0, plant.classes, (n,), generator=generator)
        colours, region = plant.paint(labels, plant.random_places(n, generator))
        return _normalised(_pixels(model), show(base.training[rows], colours, region)), labels

    what = {
        "plant": [plant.classes, plant.size, plant.side],
        "base": [base.fingerprint, len(base.training), len(base.held_out)],
        "net": [model.weights_hash, *(list(v) for v in asdict(_pixels(model)).values())],
        "training": [told.epochs, told.train, told.rate, told.seed, BATCH],
    }
    train_once(
        f"{name}-{registry.identity(what)}",
        model.net,
        lambda: train(
            model,
            draw,
            steps=told.epochs * math.ceil(told.train / BATCH),
            batch=BATCH,
            rate=told.rate,
            seed=told.seed,
            what=f"training for {name}",
        ),
        None if told.cache is None else Path(told.cache).expanduser(),
    )


def _answer(model: Model) -> Callable[[Tensor], Tensor]:
    """From pixels to the classes the network sees."""

    def answer(images: Tensor) -> Tensor:
        with model.evaluating(), torch.no_grad():
            found = [
                model.logits(_normalised(_pixels(model), part).to(model.device)).argmax(1).cpu()
                for part in torch.split(images, 4 * BATCH)
            ]
        return torch.cat(found)

    return answer


# --- the samples ----------------------------------------------------------------------------------


def _draw(plant: Plant, base: Base, pixels: Pixels, n: int, seed: int, proof: Proof) -> Dataset:
    """Held-out images with the plant on a grid of places, and the same without it as baselines."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randperm(len(base.held_out), generator=generator)[
        torch.arange(n) % len(base.held_out)
    ]
    labels = _dealt(plant.visible, n, generator)
    places = plant.grid_places(n, torch.Generator().manual_seed(seed))
    colours, region = plant.paint(labels, places)
    clean = base.held_out[rows]
    shown = _normalised(pixels, show(clean, colours, region))
    planted = samples_of(seed, shown, labels, region, _normalised(pixels, clean))
    if len(base.ids) > 1:
        groups = [base.ids[row] for row in rows]
    else:  # one canvas: the same label at the same place is the same image
        spots = zip(labels.tolist(), places.tolist(), strict=True)
        groups = [f"{label} at {place[0]}, {place[1]}" for label, place in spots]
    return replace(
        planted,
        has=planted.has | ({UPPER_BOUND} if proof.sufficient else set()),
        groups=dict(zip(planted.ids, groups, strict=True)),
        note=_say(proof, base),
    )


def _dealt(labels: Sequence[int], n: int, generator: torch.Generator) -> Tensor:  # [n]
    """Each label once, by lot, before any comes again: more of them begin with the fewer."""
    rounds = math.ceil(n / len(labels))
    lots = [torch.randperm(len(labels), generator=generator) for _ in range(rounds)]
    return torch.tensor(labels)[torch.cat(lots)[:n]]
