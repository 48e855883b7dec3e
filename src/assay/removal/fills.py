"""Fills: the values that replace absent units, broadcast to the inputs."""

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from assay.errors import NotApplicable, PrerequisiteError
from assay.plugins.option_types import Count, Positive
from assay.plugins.registry import fill
from assay.types import Batch, Pixels, Tokens

BlurVariant = Literal["clean", "code"]


@fill("zero", title="Zero after normalisation", constant=0.0, stands_for={"text": "pad"})
def zero(batch: Batch) -> Tensor:
    """Zero in the model's input space; for normalised images that is the mean colour.

    Tokens become padding, as with `pad`.
    """
    if batch.tokens is not None:
        return pad(batch)
    return batch.inputs.new_zeros([1] * batch.inputs.ndim)


@fill("pad", title="Padding")
def pad(batch: Batch) -> Tensor:
    """The padding token: attention ignores it, and the other tokens keep their positions."""
    return batch.inputs.new_full([1, 1], _tokens(batch, "pad").pad)


@fill("mask", title="Mask token")
def mask(batch: Batch) -> Tensor:
    """The tokenizer's mask token: it marks a position and hides the word."""
    token = _tokens(batch, "mask").mask
    if token is None:
        raise NotApplicable(
            "The fill `mask` needs a tokenizer with a mask token; this one has none."
        )
    return batch.inputs.new_full([1, 1], token)


@fill("black", title="Black")
def black(batch: Batch) -> Tensor:
    """Pixel value 0."""
    return _pixels(batch, "black").to_input(0.0)[None]


@fill("given", title="The data's own baseline")
def given(batch: Batch) -> Tensor:
    """Each sample's own baseline, where the data have one: an environment's true baseline."""
    if batch.baseline is None:
        raise NotApplicable(
            "The fill `given` uses the baseline that the data hold for each sample; these data "
            "hold none. Choose another fill, or pass a tensor in Python."
        )
    return batch.baseline


@fill("grey", title="Grey 127")
def grey(batch: Batch) -> Tensor:
    """Pixel value 127 of 255."""
    return _pixels(batch, "grey").to_input(127 / 255)[None]


@fill("mean", title="Dataset mean")
def mean(batch: Batch, *, samples: Count = 64) -> Tensor:
    """The mean of each channel over fixed samples of the dataset (of each entry, for vectors)."""
    _numbers(batch, "mean")
    reference = batch.reference(samples)  # [n, C, ...]
    spatial = list(range(2, reference.ndim))
    return reference.mean([0, *spatial], keepdim=True)


@fill("uniform", title="Uniform noise")
def uniform(batch: Batch, *, low: float = -1.0, high: float = 1.0) -> Tensor:
    """Uniform noise in the model's input space, one fixed field per sample."""
    _numbers(batch, "uniform")
    return low + (high - low) * batch.draw("uniform fill", batch.inputs.shape[1:])


@fill("uniform_shared", title="Uniform noise, one field")
def uniform_shared(batch: Batch, *, low: float = -1.0, high: float = 1.0) -> Tensor:
    """Uniform noise in the model's input space, one field for all samples, as in IDSDS."""
    _numbers(batch, "uniform_shared")
    return low + (high - low) * batch.draw_shared("uniform fill", batch.inputs.shape[1:])


@fill("normal", title="Normal noise")
def normal(batch: Batch) -> Tensor:
    """Standard normal noise in the model's input space, one fixed field per sample."""
    _numbers(batch, "normal")
    return batch.draw("normal fill", batch.inputs.shape[1:], normal=True)


@fill("blur", title="Gaussian blur")
def blur(batch: Batch, *, sigma: Positive = 10.0) -> Tensor:
    """The image itself, blurred; sigma in pixels, borders repeated."""
    if batch.inputs.ndim != 4:
        raise NotApplicable(
            "The fill `blur` is for images only; these inputs have no height and width."
        )
    return gaussian(batch.inputs, sigma)


@fill("blur_idsds", title="Blur of IDSDS")
def blur_idsds(batch: Batch, *, variant: BlurVariant = "clean") -> Tensor:
    """The image itself under IDSDS's short and wide blur, scaled to the image's side.

    At 224 pixels 51 taps and sigma 41, at 32 pixels 7 taps and sigma 5.9: nearly the mean of a
    square. `clean` reflects the borders. `code` is what the authors ran: sigma is a factor of the
    square root of two larger, and zeros surround the image.
    """
    if batch.inputs.ndim != 4:
        raise NotApplicable(
            "The fill `blur_idsds` is for images only; these inputs have no height and width."
        )
    side = min(batch.inputs.shape[2:])
    sigma, radius = 41 / 224 * side, max(1, round((51 / 224 * side - 1) / 2))
    if variant == "code":
        return gaussian(batch.inputs, sigma * math.sqrt(2), radius=radius, border=None)
    return gaussian(batch.inputs, sigma, radius=radius, border="reflect")


def gaussian(
    images: Tensor,
    sigma: float,
    *,
    cut: float = 3.0,
    border: str | None = "replicate",
    radius: int | None = None,
) -> Tensor:  # [B, C, H, W]
    """Gaussian blur, one axis after the other, cut off at `cut` sigma or at `radius` pixels.

    Without a `border` zeros surround the image.
    """
    radius = math.ceil(cut * sigma) if radius is None else radius
    taps = torch.arange(-radius, radius + 1, device=images.device, dtype=images.dtype)
    kernel = torch.exp(-0.5 * (taps / sigma) ** 2)
    kernel = kernel / kernel.sum()
    channels = images.shape[1]
    for shape, pad in (((-1, 1), (0, 0, radius, radius)), ((1, -1), (radius, radius, 0, 0))):
        weight = kernel.reshape(shape).expand(channels, 1, *kernel.reshape(shape).shape)
        padded = functional.pad(images, pad, mode=border) if border else functional.pad(images, pad)
        images = functional.conv2d(padded, weight, groups=channels)
    return images


def _tokens(batch: Batch, name: str) -> Tokens:
    if batch.tokens is None:
        raise NotApplicable(f"The fill `{name}` is for tokens; these inputs are not tokens.")
    return batch.tokens


def _numbers(batch: Batch, name: str) -> None:
    if batch.tokens is not None:
        raise NotApplicable(
            f"The fill `{name}` is for numeric inputs; for tokens use `pad` or `mask`."
        )


def _pixels(batch: Batch, name: str) -> Pixels:
    _numbers(batch, name)
    if batch.pixels is None:
        raise PrerequisiteError(
            f"The fill `{name}` is defined in pixels, but the normalisation of this model's inputs "
            f"is unknown. Pass `mean=` and `std=` to `assay.model`, or use the fill `zero`."
        )
    return batch.pixels
