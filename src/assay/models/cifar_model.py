"""What the small networks for CIFAR-10 share: pixels, classes, seeded weights, a card."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from assay.models.cifar_resnet import CLASSES
from assay.models.small_vit import PIXELS
from assay.models.weights import load_weights
from assay.types import Model, Preprocess


def cifar_model(
    build: Callable[[], nn.Module],
    *,
    name: str,
    title: str,
    cite: str,
    weights: str | None,
    seed: int,
    classes: int = 10,
    cam_layer: str | None = None,
) -> Model:
    """A network for images of 32 pixels, with stored weights or with random ones drawn by `seed`.

    Args:
        build: Makes the network; its random weights depend on torch's global generator only.
        name: The registered name.
        title: The title on the model's card.
        cite: A key of `docs/references.yml`.
        weights: A file of weights; None leaves the random ones.
        seed: The seed of the random weights.
        classes: The number of classes.
        cam_layer: The layer of class activation maps.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = build()
    if weights:
        load_weights(net, weights)
    return Model(
        net=net.eval(),
        name=name,
        checkpoint=Path(weights).stem if weights else "untrained",
        cam_layer=cam_layer,
        prepare=Preprocess(size=32, pixels=PIXELS),
        pixels=PIXELS,
        classes=CLASSES if classes == len(CLASSES) else tuple(map(str, range(classes))),
        card={
            "title": title,
            "parameters": sum(p.numel() for p in net.parameters()),
            "input": "RGB 32 x 32",
            "cite": cite,
        },
    )


def he_normal(net: nn.Module) -> None:
    """Draw the weights of all convolutions anew, so that ReLU networks keep their variance."""
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_in", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
