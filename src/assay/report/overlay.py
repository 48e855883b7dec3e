"""A map laid over its picture: red is for the class, blue against it, zero is transparent."""

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike
from PIL import Image

from assay.errors import InputError
from assay.store import Array

POSITIVE, NEGATIVE = (200, 16, 30), (20, 70, 190)


@runtime_checkable
class TensorLike(Protocol):
    """A torch tensor; this folder works without torch."""

    def detach(self) -> "TensorLike":
        """The tensor without its graph."""

    def cpu(self) -> "TensorLike":
        """The tensor in main memory."""

    def __array__(self) -> Array:
        """Its numbers."""


def overlay(
    image: Image.Image | ArrayLike | TensorLike,
    values: ArrayLike | TensorLike,
    *,
    strength: float = 0.85,
) -> Image.Image:
    """The picture with a signed map over it, on a diverging scale whose zero is transparent.

    Args:
        image: A PIL image, or an array or tensor `[H, W, 3]` or `[3, H, W]`, in [0, 1] or bytes.
        values: The map `[h, w]`; it is resized to the picture.
        strength: How much of the picture the strongest value covers, from 0 to 1.

    Raises:
        InputError: The picture, the map or the strength is not what was expected.
    """
    if not 0 <= strength <= 1:
        raise InputError(f"Expected `strength` to be from 0 to 1, got {strength}.")
    picture = _picture(image)
    flat = as_array(values).astype(np.float64)
    if flat.ndim != 2 or not np.isfinite(flat).all():
        raise InputError(f"Expected a map [height, width] of finite numbers, got {flat.shape}.")
    height, width = picture.shape[:2]
    if flat.shape != (height, width):
        enlarged = Image.fromarray(flat.astype(np.float32)).resize(
            (width, height), Image.Resampling.BILINEAR
        )
        flat = np.asarray(enlarged, np.float64)
    top = np.quantile(np.abs(flat), 0.995) or np.abs(flat).max() or 1.0
    share = np.clip(flat / top, -1, 1)[..., None]
    colour = np.where(share > 0, POSITIVE, NEGATIVE)
    cover = strength * np.abs(share)
    return Image.fromarray((picture * (1 - cover) + colour * cover).round().astype(np.uint8))


def as_array(values: ArrayLike | TensorLike) -> Array:
    """An array of numbers, also from a tensor on any device."""
    return np.asarray(values.detach().cpu() if isinstance(values, TensorLike) else values)


def _picture(image: Image.Image | ArrayLike | TensorLike) -> Array:  # [H, W, 3], 0 to 255
    if isinstance(image, Image.Image):
        return np.asarray(image.convert("RGB"), np.float64)
    pixels = as_array(image)
    if pixels.ndim == 3 and pixels.shape[0] == 3 and pixels.shape[2] != 3:
        pixels = pixels.transpose(1, 2, 0)
    if pixels.ndim != 3 or pixels.shape[2] != 3:
        raise InputError(f"Expected a picture [H, W, 3] or [3, H, W], got {pixels.shape}.")
    if pixels.dtype == np.uint8:
        return pixels.astype(np.float64)
    if pixels.min() < -1e-6 or pixels.max() > 1 + 1e-6:
        raise InputError(
            "Expected pixels in [0, 1] or bytes; for model inputs use `model.pixels.to_pixels(x)`."
        )
    return pixels.astype(np.float64) * 255
