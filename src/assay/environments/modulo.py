"""The single-colour environment: the number of white pixels modulo N."""

import functools
import hashlib
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from assay.environments.designed import ModuloCounter
from assay.environments.environment import Environment
from assay.environments.patches import BLOB_REACH, Shape, draw_patches
from assay.errors import InputError
from assay.plugins.option_types import Count, Share
from assay.plugins.registry import environment, identity
from assay.types import Dataset, Model, Pixels, Sample

REACH = (15.0, 25.0)  # mean distance of a blob's outline from its centre, at a side of 224
DRAWS = 100  # tries for an image with white pixels, but not too many
MULTIPLES = 2000  # of the modulus: with so many the network has a hundred million weights

Size = Annotated[int, Field(ge=16, le=224)]


@environment(
    "single_color_modulo",
    family="designed",
    cite="zhang2023attributionlab",
    title="White pixels modulo N",
)
def single_color_modulo(
    *,
    size: Size = 224,
    modulus: Annotated[int, Field(ge=2)] = 30,
    most: Count = 4920,
    weights: Literal["uniform", "nonuniform"] = "nonuniform",
    shapes: Annotated[tuple[Shape, ...], Field(min_length=1)] = ("blob", "blob", "blob", "blob"),
    density: Share = 0.5,
    samples: Count = 100,
    seed: int = 0,
) -> Environment:
    """A network that gives the number of white pixels modulo N: all of them are equally relevant.

    Images are `[1, size, size]` of zeros and ones; the truth is 1 at white pixels. Adding or
    removing one changes the answer by 1, or by N - 1 where it crosses a multiple of N, so the truth
    has no sign.

    Differs from the paper: it gives neither the generator nor the number of images; the size of the
    patches is chosen so that the optimum of its adapted deletion, .0246, is met.

    Args:
        size: Pixels a side.
        modulus: The N of the remainder.
        most: The largest count that the network gives correctly, rounded up to a multiple of N; at
            most the number of pixels.
        weights: Of the accumulator: the same for all pixels, or three random kernels whose
            weights sum to one at every pixel.
        shapes: The patches of each image, one entry per patch.
        density: The share of white pixels in a patch.
        samples: The number of images in the dataset.
        seed: The seed of the weights.
    """
    multiples = -(-min(most, size**2) // modulus)
    if multiples > MULTIPLES:
        raise InputError(
            f"Expected `most` to be at most {MULTIPLES} times `modulus`, {modulus}, got "
            f"{min(most, size**2)}: the number of weights grows with the square of their ratio. "
            f"Use a larger `modulus` or a smaller `most`."
        )
    most = multiples * modulus
    net = ModuloCounter(size, modulus, most, uniform=weights == "uniform", seed=seed).eval()
    model = Model(
        net,
        name="single_color_modulo",
        has=frozenset({"gradients", "regression"}),
        pixels=Pixels((0.0,), (1.0,)),
        cam_layer=layer_after(2, weights == "uniform"),
    )
    draw = functools.partial(_dataset, size, most, shapes, density)
    read = functools.partial(read_white, size, most)
    card = {"counts": f"exact from 0 to {most}", "truth": "1 at every white pixel"}
    return Environment("single_color_modulo", model, draw, samples, card, read)


def layer_after(stage: int, uniform: bool) -> str:
    """The layer that the paper explains: the ReLU inside the second block, or after its stage."""
    return f"layers.{2 * stage - 1 if uniform else 4 * stage - 3}"


def read_white(size: int, most: int, images: Tensor) -> tuple[Tensor, Tensor]:  # [B], [B, H, W]
    """Targets and truth of images made elsewhere.

    Raises:
        InputError: They hold other values than 0 and 1, or too many white pixels to be counted.
    """
    if tuple(images.shape[1:]) != (1, size, size):
        raise InputError(
            f"Expected images [n, 1, {size}, {size}] for `single_color_modulo`, got "
            f"{tuple(images.shape)}."
        )
    if not bool(((images == 0) | (images == 1)).all()):
        raise InputError(
            "Expected images of zeros and ones for `single_color_modulo`, got other numbers. "
            "Divide bytes by 255."
        )
    counts = images.sum((1, 2, 3))
    if bool((counts > most).any()):
        raise InputError(
            f"Expected at most {most} white pixels, the most this modulo network can count, got "
            f"{int(counts.max())}. Make the environment with a larger `most`."
        )
    return torch.zeros(len(images), dtype=torch.long), images[:, 0].float()


def _dataset(
    size: int, most: int, shapes: tuple[Shape, ...], density: float, n: int, seed: int
) -> Dataset:
    described = identity([size, most, shapes, density, REACH, seed, n])

    def fetch(sample: str) -> Sample:
        random = np.random.default_rng([seed, int(sample.rpartition("-")[2])])
        for _ in range(DRAWS):
            radii = (REACH[0] * BLOB_REACH, REACH[1] * BLOB_REACH)
            inside = np.logical_or.reduce(draw_patches(random, size, shapes, radii))
            white = inside & (random.random(inside.shape) < density)
            if 0 < white.sum() <= most:
                image = torch.from_numpy(white).float()
                return Sample(image[None], truth=image, baseline=torch.zeros(1, size, size))
        if not white.any():
            raise InputError(
                f"Expected patches with white pixels; {DRAWS} draws had none. Raise `density`."
            )
        raise InputError(
            f"Expected patches with at most {most} white pixels, the most the network can count; "
            f"{DRAWS} draws had more. Raise `most`, or use fewer patches."
        )

    return Dataset(
        name="single_color_modulo",
        modality="image",
        ids=tuple(f"{seed}-{i}" for i in range(n)),
        fetch=fetch,
        fingerprint=hashlib.sha256(described.encode()).hexdigest()[:16],
        has=frozenset({"truth", "counted"}),
    )
