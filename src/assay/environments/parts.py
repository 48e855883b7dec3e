"""Animals painted from parts, and a network trained to classify fifty of them.

Removing a part means painting the same scene without it. Half of the training images were painted
without some parts, so that such images are not out of distribution.
"""

import functools
import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field
from safetensors import safe_open
from torch import Tensor, nn

from assay.environments import painter
from assay.environments.environment import Environment
from assay.errors import InputError
from assay.models.cifar_resnet import CifarResNet
from assay.models.weights import load_weights
from assay.plugins.registry import environment, identity
from assay.training.several_targets import fit, fitting
from assay.training.trained_weights import TrainedWeights
from assay.types import UPPER_BOUND, Dataset, Model, Parts, Pixels, Sample
from assay.types.hashing import hash_network

PACKAGED = Path(__file__).parent / "parts.safetensors"
TRAINED = {"size": 64, "images": 12_000, "epochs": 8, "seed": 0}  # of the packaged weights
CLASSES = 50
EVERY_PART = frozenset(range(len(painter.NAMES)))
TRAINING, TESTING = 1, 2  # separate streams of scenes: no training scene is tested


@environment(
    "parts", family="painted", title="Animals painted of parts", cite="hesse2023funnybirds"
)
def parts(
    trained: TrainedWeights,
    *,
    weights: Literal["packaged", "train"] = "packaged",
    size: Annotated[int, Field(ge=32, le=256)] = TRAINED["size"],
    images: Annotated[int, Field(ge=64)] = TRAINED["images"],
    epochs: Annotated[int, Field(ge=1)] = TRAINED["epochs"],
    seed: Annotated[int, Field(ge=0)] = TRAINED["seed"],
    samples: Annotated[int, Field(ge=1)] = 100,
) -> Environment:
    """Animals of five parts, painted so that each part can truly be left out.

    Fifty classes are fifty different combinations of 4 beaks, 3 eyes, 4 feet, 9 tails and 6 wings.
    A scene has its own pose, light and up to eight things around or in front of the animal. The
    fill `rerender` paints it without some parts; units `parts` are the parts.

    Truth: 1 on the pixels of parts, 0 elsewhere. Nothing else tells classes apart; how much each
    part matters to the network is not designed but measured, by painting without it
    (`part_deletion`). So the truth is an upper bound: a network need not use all of a part. The
    baseline is the scene with the bare body.

    Differs from the paper: painted in two dimensions, at 64 pixels instead of 256; a small residual
    network trained from scratch, on the paper's loss with several targets (half of the images lack
    0 to 5 parts), instead of a fine-tuned ResNet-50; up to 8 things around it instead of 34. Parts
    are about equally large, so that size says little about how much a part matters.

    Args:
        trained: Where trained weights are looked up and stored.
        weights: `packaged`, the weights that training with the defaults gives, or `train`, minutes.
        size: Pixels a side.
        images: Number of images painted for training.
        epochs: How often each of them is seen.
        seed: The seed of training: the scenes, the initial weights, their order.
        samples: Number of samples in a run.
    """
    table = class_table()
    setting = {"size": size, "images": images, "epochs": epochs, "seed": seed}
    net = packaged(setting) if weights == "packaged" else train(table, trained, **setting)
    pixels = Pixels(mean=(0.0,) * 3, std=(1.0,) * 3)
    model = Model(
        net,
        name="parts",
        checkpoint=weights,
        cam_layer="layer3",
        pixels=pixels,
        classes=class_names(table),
        card={"title": "ResNet-8 for painted parts", "cite": "he2016"},
    )
    scenes = functools.partial(draw, table, size)
    measured = read_card() if weights == "packaged" else card(net, scenes)
    about = {"weights": weights, "truth": "upper bound", **setting, **measured}
    return Environment("parts", model, scenes, samples, about)


def class_table() -> Tensor:  # [classes, parts]
    """The variant of each part for every class."""
    return torch.from_numpy(painter.classes(CLASSES))


def class_names(table: Tensor) -> list[str]:
    """The name of every class: its variants, `beak 1, eye 0, foot 3, tail 8, wing 2`."""
    return [
        ", ".join(f"{name} {variant}" for name, variant in zip(painter.NAMES, row, strict=True))
        for row in table.tolist()
    ]


def packaged(setting: Mapping[str, int]) -> nn.Module:
    """The trained network that comes with the package.

    Raises:
        InputError: The setting is not the one that it was trained with.
    """
    for name, value in setting.items():
        if value != TRAINED[name]:
            raise InputError(
                f"Expected `{name}` to be {TRAINED[name]}, as the packaged network was trained, "
                f"got {value}. Give `weights: train` to train one with it, which takes minutes."
            )
    net = network(TRAINED["size"])
    load_weights(net, PACKAGED)
    return net.eval()


def read_card() -> dict[str, float]:
    """Accuracies of the packaged network, stored with its weights; a test measures them again."""
    with safe_open(PACKAGED, "pt") as file:
        return {name: float(value) for name, value in file.metadata().items() if name != "format"}


def network(size: int = 64) -> CifarResNet:
    """A residual network of eight layers; its first layer halves images of 64 pixels or more."""
    return CifarResNet(8, CLASSES, stride=2 if size >= 64 else 1)


def train(
    table: Tensor, trained: TrainedWeights, *, size: int, images: int, epochs: int, seed: int
) -> nn.Module:
    """The network, trained on scenes of which half lack some parts; the same for the same seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = network(size)

    def run() -> None:
        pictures, labels, absent = training_images(table, size, images, seed)
        fit(net, pictures, fitting(table, labels, absent), epochs=epochs, seed=seed)

    key = identity([hash_network(net), table, size, images, epochs, seed])
    trained.train_once(f"parts-{key}", net, run)
    return net


def training_images(
    table: Tensor, size: int, number: int, seed: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Pictures `[N, 3, H, W]`, 8 bits per channel, labels `[N]`, and which parts are absent."""
    absent = np.zeros((number, len(painter.NAMES)), bool)
    pictures, labels = [], []
    for i in range(number):
        label, scene, generator = _scene(table, TRAINING, seed, i)
        if generator.random() < 0.5:
            absent[i, generator.permutation(len(painter.NAMES))[: generator.integers(6)]] = True
        left_out = frozenset(np.flatnonzero(absent[i]).tolist())
        pictures.append(painter.paint(scene, size, left_out))
        labels.append(label)
    stacked = torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).contiguous()
    return stacked, torch.tensor(labels), torch.from_numpy(absent)


def _scene(
    table: Tensor, use: int, seed: int, number: int
) -> tuple[int, painter.Scene, np.random.Generator]:
    """One scene of a stream: its class, the scene, and the generator after drawing it."""
    generator = np.random.default_rng([use, seed, number])
    label = int(generator.integers(len(table)))
    return label, painter.draw_scene(table[label].tolist(), generator), generator


def draw(table: Tensor, size: int, n: int, seed: int) -> Dataset:
    """`n` scenes as samples that can be painted again without some parts."""
    ids = tuple(f"{seed}-{i:04d}" for i in range(n))
    scenes: Mapping[str, tuple[int, painter.Scene]] = {
        name: _scene(table, TESTING, seed, i)[:2] for i, name in enumerate(ids)
    }

    @functools.lru_cache(maxsize=4096)  # all 32 sets of parts of a hundred scenes, 8 bits each
    def painted(sample: str, absent: frozenset[int]) -> Tensor:
        picture = painter.paint(scenes[sample][1], size, absent)
        return torch.from_numpy(picture.copy()).permute(2, 0, 1)

    def without(sample: str, absent: frozenset[int]) -> Tensor:  # [3, H, W]
        return painted(sample, absent) / 255

    @functools.lru_cache(maxsize=1024)
    def places(sample: str) -> Tensor:  # [H, W]
        return torch.from_numpy(painter.part_map(scenes[sample][1], size).copy())

    def fetch(sample: str) -> Sample:
        seen = places(sample)
        return Sample(
            input=without(sample, frozenset()),
            label=scenes[sample][0],
            truth=((seen >= 0) & (seen < len(painter.PIECES))).float(),
            baseline=without(sample, EVERY_PART),
        )

    digest = hashlib.sha256(table.numpy().tobytes())
    for name, (label, _) in scenes.items():
        digest.update(f"{name} {label}".encode())
        digest.update(painted(name, frozenset()).numpy().tobytes())
    return Dataset(
        name="parts",
        modality="image",
        ids=ids,
        fetch=fetch,
        fingerprint=digest.hexdigest(),
        has=frozenset({"labels", "truth", UPPER_BOUND, "parts"}),
        classes=dict(enumerate(class_names(table))),
        labels={name: label for name, (label, _) in scenes.items()},
        parts=Parts(
            names=painter.NAMES,
            pieces=painter.PART_OF_PIECE,
            classes=table,
            places=places,
            things=lambda sample: len(scenes[sample][1].things),
            without=without,
        ),
    )


@torch.no_grad()
def card(
    net: nn.Module, scenes: Callable[[int, int], Dataset], n: int = 500, seed: int = 2**31
) -> dict[str, float]:
    """How reliable the network is, measured on scenes of their own.

    `accuracy` is the share of whole animals that it classifies correctly; `accuracy_without_one`
    the share of animals without one part, each part in turn, for which it predicts one of the
    classes that fit what is left; `background_independence` the share of surrounding things whose
    removal lowers the target's centred logit by less than 5 %.
    """
    drawn = scenes(n, seed)
    parts, ids = drawn.parts, drawn.ids
    if parts is None:
        raise InputError("Expected scenes made of parts.")
    labels = torch.tensor([drawn.labels[i] for i in ids])
    around = [len(parts.names) + k for k in range(max(map(parts.things, ids)))]

    def answers(absent: list[int], of: list[str]) -> Tensor:  # [n, classes]
        chunks = [of[k : k + 64] for k in range(0, len(of), 64)]
        left_out = frozenset(absent)
        images = (torch.stack([parts.without(i, left_out) for i in chunk]) for chunk in chunks)
        logits = torch.cat([net(batch) for batch in images])
        return logits - logits.mean(1, keepdim=True)

    clean = answers([], list(ids))
    fits, steady = [], []
    for part in range(len(parts.names)):
        predicted = answers([part], list(ids)).argmax(1)
        absent = torch.zeros(n, len(parts.names), dtype=torch.bool)
        absent[:, part] = True
        fits.append(fitting(parts.classes, labels, absent)[torch.arange(n), predicted])
    for thing in around:
        have = [k for k, i in enumerate(ids) if len(parts.names) + parts.things(i) > thing]
        rows = (torch.tensor(have), labels[have])
        before = clean[rows]
        after = answers([thing], [ids[k] for k in have])[torch.arange(len(have)), labels[have]]
        steady.append(before - after < 0.05 * before.abs())
    return {
        "scenes": n,
        "accuracy": (clean.argmax(1) == labels).double().mean().item(),
        "accuracy_without_one": torch.cat(fits).double().mean().item(),
        "background_independence": torch.cat(steady).double().mean().item(),
    }
