"""VGG-like networks for 32 x 32 images: 3 x 3 convolutions, max-pooling, two linear layers."""

from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor, nn

from assay.errors import InputError
from assay.models.cifar_model import cifar_model, he_normal
from assay.plugins.registry import model
from assay.types import Model

# Convolutions at 32, 16 and 8 pixels, by the number of layers with weights, as in VGG-11 and -16.
CONVOLUTIONS = {11: (2, 2, 4), 16: (3, 4, 6)}
CHANNELS = (48, 96, 192)
HIDDEN = 256  # numbers between the two linear layers


class CifarVGG(nn.Module):
    """Three stages, each ended by max-pooling, then two linear layers on the 4 x 4 positions.

    It has one linear layer less than its name says: at 32 pixels a third one adds nothing.
    """

    def __init__(
        self, depth: int = 11, norm: bool = False, bias: bool = True, classes: int = 10
    ) -> None:
        """With or without batch-norm after each convolution; `bias=False` has none anywhere."""
        super().__init__()
        if norm and not bias:
            raise InputError(
                "Expected a VGG with batch-norm to have a bias: batch-norm adds one. Give "
                "`norm: none` with `bias: false`."
            )
        layers: list[nn.Module] = []
        before = 3
        for channels, count in zip(CHANNELS, CONVOLUTIONS[depth], strict=True):
            for _ in range(count):
                layers.append(nn.Conv2d(before, channels, 3, padding=1, bias=bias and not norm))
                if norm:
                    layers.append(nn.BatchNorm2d(channels))
                layers.append(nn.ReLU())
                before = channels
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers[:-1])  # [B, 192, 8, 8]
        self.pool = layers[-1]
        self.flatten = nn.Flatten()
        self.fc1 = nn.Linear(before * 16, HIDDEN, bias=bias)
        self.relu = nn.ReLU()
        self.fc2 = nn.Linear(HIDDEN, classes, bias=bias)
        he_normal(self)

    def forward(self, x: Tensor) -> Tensor:
        """[B, 3, 32, 32] to logits [B, classes]."""
        x = self.flatten(self.pool(self.features(x)))
        logits: Tensor = self.fc2(self.relu(self.fc1(x)))
        return logits


@model("vgg", title="VGG-like network (CIFAR-10)", cite="simonyan2015")
def vgg(
    *,
    weights: str | None = None,
    depth: Literal[11, 16] = 11,
    norm: Literal["batch", "none"] = "none",
    bias: bool = True,
    classes: Annotated[int, Field(ge=2)] = 10,
    seed: int = 0,
) -> Model:
    """A VGG-like network of 8 or 13 convolutions and two linear layers, for images of 32 pixels.

    With `norm: none` and `bias: false` it is homogeneous: f(kx) = k f(x). Without `weights` it is
    untrained, with random weights drawn by `seed`; `assay zoo train` trains it.
    """
    return cifar_model(
        lambda: CifarVGG(depth, norm == "batch", bias, classes),
        name="vgg",
        title=f"VGG-{depth}, {'batch-norm' if norm == 'batch' else 'no norm'}"
        + ("" if bias else ", no bias"),
        cite="simonyan2015",
        weights=weights,
        seed=seed,
        classes=classes,
        cam_layer="features",
    )
