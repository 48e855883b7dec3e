"""The network of a planted feature: built or copied, trained on the plant, used as a classifier."""

import copy
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from assay.environments.bases import Base
from assay.environments.plants import Plant, show
from assay.errors import InputError
from assay.models.cifar_resnet import CifarResNet
from assay.models.wrap import model as as_model
from assay.plugins import registry
from assay.plugins.addresses import load_object
from assay.training.supervised import train
from assay.training.trained_weights import TrainedWeights
from assay.types import Model, Pixels, Preprocess
from assay.types.model import usable_device

PIXELS = Pixels((0.5,) * 3, (0.25,) * 3)  # of a network that says nothing else
BATCH = 64
SEEN = 32  # pixels a side that the small network sees at once


@dataclass(frozen=True)
class Planting:
    """The options that all plants share.

    Attributes:
        base: The images that are planted on, as `read_base` takes them.
        epochs: How often the network sees `train` images.
        train: Images to train with, and images per epoch.
        samples: Images to evaluate with.
        seed: The seed of everything random.
        net: The network; None takes a small one.
        rate: The highest learning rate.
        device: Where the network is trained.
        cache: A folder for its weights.
    """

    base: object
    epochs: int
    train: int
    samples: int
    seed: int
    net: object
    rate: float
    device: str | None
    cache: str | None


def untrained_network(planting: Planting, plant: Plant) -> Model:
    """The network before training, new or a copy; its random numbers come from the seed.

    Raises:
        InputError: It is no network, or does not fit the images or the classes.
    """
    model = _chosen(planting.net, plant, planting.seed)
    if planting.device is not None:
        model.net.to(usable_device(planting.device))
    pixels = pixels_of(model)
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
            f"Expected `net` to give {plant.classes} logits, one per class, got "
            f"{outputs.shape[1]}. Give a function of the number of classes, or other `classes`."
        )
    return model


def _chosen(choice: object, plant: Plant, seed: int) -> Model:
    """The network that the option `net` names or holds."""
    net = load_object(choice)[0] if isinstance(choice, str) else choice
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if net is None:
            net = _small(plant)
        elif not isinstance(net, nn.Module | Model) and callable(net):
            net = net(plant.classes)
    if isinstance(net, Model):
        return replace(net, net=copy.deepcopy(net.net))
    if isinstance(net, nn.Module):
        return as_model(copy.deepcopy(net))
    raise InputError(
        f"Expected `net` to be a torch.nn.Module, a `Model`, or a function of the number of "
        f"classes that gives one, got {type(net).__name__}."
    )


def _small(plant: Plant) -> Model:
    """A residual network of 8 layers for 32 pixels; larger images are averaged down to that.

    Where the label depends on the height, the head keeps the rows apart.
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


def pixels_of(model: Model) -> Pixels:
    """How the network takes pixels."""
    return model.pixels or PIXELS


def normalised(pixels: Pixels, images: Tensor) -> Tensor:  # [B, 3, H, W]
    """Images with pixels in [0, 1] as the network takes them."""
    mean, std = (torch.tensor(v).reshape(-1, 1, 1) for v in (pixels.mean, pixels.std))
    return (images - mean) / std


def train_on_plant(
    model: Model, plant: Plant, base: Base, planting: Planting, trained: TrainedWeights
) -> None:
    """Train the network on random labels that only the plant shows, unless its weights are known.

    Weights are known by the model's name and by all that decides about them.
    """

    def draw(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        rows = torch.randint(0, len(base.training), (n,), generator=generator)
        labels = torch.randint(0, plant.classes, (n,), generator=generator)
        colours, region = plant.paint(labels, plant.random_places(n, generator))
        return normalised(pixels_of(model), show(base.training[rows], colours, region)), labels

    what = {
        "plant": [plant.classes, plant.size, plant.side],
        "base": [base.fingerprint, len(base.training), len(base.held_out)],
        "net": [model.weights_hash, *(list(v) for v in asdict(pixels_of(model)).values())],
        "training": [planting.epochs, planting.train, planting.rate, planting.seed, BATCH],
    }
    trained.train_once(
        f"{model.name}-{registry.identity(what)}",
        model.net,
        lambda: train(
            model,
            draw,
            steps=planting.epochs * math.ceil(planting.train / BATCH),
            batch=BATCH,
            rate=planting.rate,
            seed=planting.seed,
            what=f"training for {model.name}",
        ),
        None if planting.cache is None else Path(planting.cache).expanduser(),
    )


def classifier(model: Model) -> Callable[[Tensor], Tensor]:
    """A function from pixels to the classes that the network predicts."""

    def answer(images: Tensor) -> Tensor:
        with model.evaluating(), torch.no_grad():
            predicted = [
                model.logits(normalised(pixels_of(model), part).to(model.device)).argmax(1).cpu()
                for part in torch.split(images, 4 * BATCH)
            ]
        return torch.cat(predicted)

    return answer
