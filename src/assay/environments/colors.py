"""The multi-colour environment: which colour has the most pixels?"""

import functools
import hashlib
from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from assay.environments.designed import Color, ColorCounter
from assay.environments.environment import Environment
from assay.environments.modulo import Size
from assay.environments.patches import Shape, draw_patches
from assay.errors import InputError
from assay.plugins.option_types import Count, Share
from assay.plugins.registry import environment, identity
from assay.types import Dataset, Model, Pixels, Sample

PALETTE: tuple[Color, ...] = (
    (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 127, 0), (255, 255, 255), (255, 255, 0),
    (255, 0, 255), (0, 255, 255), (127, 0, 255), (0, 127, 127), (127, 127, 0), (255, 127, 255),
)  # fmt: skip
RADII = (14.0, 40.0)  # of the patches, at a side of 224
PATCHES = 4  # per image, or as many as there are colours
DRAWS = 100  # tries for an image with a single winner
TEMPERATURES = {"contrast": 1.0, "softmax": 100.0}  # 100 keeps the softmax of counts from 0 and 1

Channel = Annotated[int, Field(ge=0, le=255)]
RGB = "three whole numbers from 0 to 255, (R, G, B)"
Rgb = Annotated[tuple[Channel, Channel, Channel], Field(description=RGB)]
Colors = Annotated[
    Annotated[int, Field(ge=2, le=len(PALETTE))] | tuple[Rgb, ...],
    Field(description=f"a whole number from 2 to {len(PALETTE)}, or a list of colours, each {RGB}"),
]


@environment(
    "multi_color_sum",
    family="designed",
    cite="zhang2023attributionlab",
    title="The colour with most pixels",
)
def multi_color_sum(
    *,
    size: Size = 224,
    colors: Colors = 4,
    background: Rgb = (20, 20, 20),
    unseen: bool = True,
    weights: Literal["uniform", "nonuniform"] = "nonuniform",
    target: Literal["contrast", "softmax"] = "contrast",
    temperature: Annotated[float, Field(gt=0)] | None = None,
    shapes: Annotated[tuple[Shape, ...], Field(min_length=1)] = ("triangle", "square", "circle"),
    density: Share = 0.5,
    redundant: Annotated[int, Field(ge=0)] = 2,
    strength: Annotated[float, Field(ge=0, le=4)] = 0.25,
    reach: Literal[1, 2, 4, 8, 16, 32, 64] = 1,
    samples: Count = 100,
    seed: int = 0,
) -> Environment:
    """A network that counts the pixels of each colour; the class is the colour with the most.

    Images are `[3, size, size]` of integers from 0 to 255, with four patches, each of another
    colour. The truth is +1 at the winner's pixels, -1 / (colours - 1) at those of other colours, 0
    at the background; the baseline is the background everywhere.

    Formula: contrast_c = (n_c - mean of n over the other colours) / temperature, n_c the number of
    pixels of colour c.

    Differs from the paper: it explains the softmax and takes -1 for every rival's pixel, though a
    rival's effect on a probability is proportional to its own. It does not give colours, sizes and
    redundant weights; our weights are normal, rounded to multiples of 1/64. Their standard
    deviation decides what is refuted: from about 1/2 on, integrated gradients is refuted even with
    the true baseline, because its path passes through unseen colours.

    Args:
        size: Pixels a side.
        colors: The number of colours from the palette, or the colours themselves.
        background: The background colour, which counts for no class.
        unseen: Whether colours that the network was not made for, such as black, disturb its
            counts.
        weights: Of the accumulator: the same for all pixels, or three random kernels whose
            weights sum to one at every pixel.
        target: What is explained. `contrast`: the winner's count minus the mean of the others, for
            which the signed truth is exact. `softmax`: the counts as they are, whose probability
            the paper explains (`output: probability` of a method); then the sign and the place of
            the truth are exact, its size is not.
        temperature: The counts are divided by it: 1, for `softmax` 100. The truth is that of
            counts: at another temperature than 1 it is exact up to that factor.
        shapes: The patches are drawn from these.
        density: The share of coloured pixels in a patch; the others are background.
        redundant: The number of channels that respond to unseen colours.
        strength: How much they disturb the counts: the standard deviation of their weights; the
            weight of a counted pixel is 1.
        reach: How many levels of 255 a colour may differ from one that is counted before it does
            not count at all. At 1, the paper's network, every imputed pixel is an unseen colour,
            like black: the noise of imputation alone is 2.5 levels.
        samples: The number of images in the dataset.
        seed: The seed of the weights.
    """
    chosen = colors if isinstance(colors, tuple) else PALETTE[:colors]
    check_colors(chosen, background, reach)
    scale = TEMPERATURES[target] if temperature is None else temperature
    net = ColorCounter(
        chosen, background, size, uniform=weights == "uniform", unseen=unseen, redundant=redundant,
        strength=strength, temperature=scale, reach=reach, seed=seed,
    ).eval()  # fmt: skip
    model = Model(
        net,
        name="multi_color_sum",
        pixels=Pixels((0.0,) * 3, (1 / 255,) * 3),
        classes=[describe(color) for color in chosen],
        output=contrast if target == "contrast" else None,
        cam_layer=_layer(redundant, weights == "uniform"),
    )
    draw = functools.partial(_dataset, size, chosen, background, shapes, density)
    read = functools.partial(read_colors, size, chosen, background, unseen)
    card = {"truth": "+1 at the winner's pixels, -1 / (colours - 1) at the others'"}
    return Environment("multi_color_sum", model, draw, samples, card, read)


def contrast(logits: Tensor) -> Tensor:  # [B, C]
    """Each logit minus the mean of the others."""
    others = logits.shape[1] - 1
    mean: Tensor = (logits.sum(1, keepdim=True) - logits) / others
    return logits - mean


def _layer(redundant: int, uniform: bool) -> str:
    """The layer after the second stage; with redundant channels, the first stage has no block."""
    if uniform:
        return "layers.3"
    return "layers.5" if redundant else "layers.7"


def describe(color: Color) -> str:
    """The name of a colour in tables."""
    return f"colour ({', '.join(map(str, color))})"


def check_colors(colors: Sequence[Color], background: Color, reach: int = 1) -> None:
    """Refuse colours that a detector cannot distinguish."""
    if len(colors) < 2:
        raise InputError(f"Expected at least two `colors`, got {len(colors)}.")
    for i, color in enumerate(colors):
        if color == background:
            raise InputError(f"Expected no colour like the background, got {color} for both.")
        if color in colors[:i]:
            raise InputError(f"Expected each colour once, got {color} twice.")
        for other in (background, *colors[:i]):
            if max(abs(a - b) for a, b in zip(color, other, strict=True)) < reach:
                raise InputError(
                    f"Expected colours that differ by `reach`, {reach}, in at least one channel, "
                    f"got {color} and {other}. Use a smaller `reach` or other colours."
                )


def read_colors(
    size: int, colors: Sequence[Color], background: Color, unseen: bool, images: Tensor
) -> tuple[Tensor, Tensor]:  # [B], [B, H, W]
    """Targets and truth of images made elsewhere.

    Raises:
        InputError: They hold other values than integers from 0 to 255, two colours have the most
            pixels, or there is a colour that the network was not made for.
    """
    if tuple(images.shape[1:]) != (3, size, size):
        raise InputError(
            f"Expected images [n, 3, {size}, {size}] for `multi_color_sum`, got "
            f"{tuple(images.shape)}."
        )
    if not bool(((images >= 0) & (images <= 255) & (images == images.round())).all()):
        raise InputError(
            "Expected images of integers from 0 to 255 for `multi_color_sum`, got other numbers. "
            "Multiply pixels in [0, 1] by 255 and do not normalise them."
        )
    there = torch.stack([_is(images, color) for color in colors], 1)  # [B, C, H, W]
    other = ~(there.any(1) | _is(images, background))
    if bool(other.any()):
        where = tuple(int(i) for i in other.nonzero()[0])
        color = tuple(int(v) for v in images[where[0], :, where[1], where[2]])
        disturbs = "it disturbs the counts" if unseen else "it is in no count"
        raise InputError(
            f"Expected only the environment's colours and its background, got {color} in image "
            f"{where[0]} at row {where[1]}, column {where[2]}: {disturbs}, and its truth is not "
            f"known."
        )
    counts = there.flatten(2).sum(2)  # [B, C]
    first = counts.topk(2, 1).values
    tied = (first[:, 0] == first[:, 1]).nonzero()
    if len(tied):
        raise InputError(
            f"Expected one colour with most pixels in each image, got a tie of "
            f"{int(first[tied[0, 0], 0])} pixels in image {int(tied[0, 0])}."
        )
    targets = counts.argmax(1)
    mine = there[torch.arange(len(images)), targets]
    truth = mine.float() - (there.any(1) & ~mine).float() / (len(colors) - 1)
    return targets, truth


def _is(images: Tensor, color: Color) -> Tensor:  # [B, H, W]
    return (images == images.new_tensor(color)[:, None, None]).all(1)


def _dataset(
    size: int,
    colors: tuple[Color, ...],
    background: Color,
    shapes: tuple[Shape, ...],
    density: float,
    n: int,
    seed: int,
) -> Dataset:
    described = identity([size, colors, background, shapes, density, RADII, PATCHES, seed, n])
    empty = torch.tensor(background).float()[:, None, None].expand(3, size, size)
    ids = tuple(f"{seed}-{i}" for i in range(n))

    def fetch(sample: str) -> Sample:
        random = np.random.default_rng([seed, int(sample.rpartition("-")[2])])
        drawn = _draw(random, size, colors, background, shapes, density)
        image = torch.from_numpy(drawn).permute(2, 0, 1).float()
        (target,), (truth,) = read_colors(size, colors, background, False, image[None])
        return Sample(image, int(target), truth, empty)

    return Dataset(
        name="multi_color_sum",
        modality="image",
        ids=ids,
        fetch=fetch,
        fingerprint=hashlib.sha256(described.encode()).hexdigest()[:16],
        has=frozenset({"labels", "truth"}),
        classes={i: describe(color) for i, color in enumerate(colors)},
    )


def _draw(
    random: np.random.Generator,
    size: int,
    colors: tuple[Color, ...],
    background: Color,
    shapes: tuple[Shape, ...],
    density: float,
) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:  # [H, W, 3]
    """An image in which one colour has the most pixels."""
    for _ in range(DRAWS):
        order = random.permutation(len(colors))[:PATCHES]
        kinds = [shapes[i] for i in random.integers(len(shapes), size=len(order))]
        image = np.full((size, size, 3), background, np.uint8)
        counts = []
        for which, mask in zip(order, draw_patches(random, size, kinds, RADII), strict=True):
            coloured = mask & (random.random(mask.shape) < density)
            image[coloured] = colors[which]
            counts.append(int(coloured.sum()))
        ranked = sorted(counts)
        if ranked[-1] > ranked[-2]:
            return image
    raise InputError(
        f"Expected one patch to have the most pixels, got a tie in each of {DRAWS} draws. Use a "
        f"larger `size` or `density`."
    )
