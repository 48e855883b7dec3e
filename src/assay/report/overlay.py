"""A map laid over its picture: red speaks for the class, blue against it, zero is clear."""

from typing import Any

import numpy as np
from PIL import Image

from assay.errors import InputError

POSITIVE, NEGATIVE = (200, 16, 30), (20, 70, 190)


def overlay(image: Any, values: Any, *, strength: float = 0.85) -> Image.Image:
    """The picture with a signed map over it, on a diverging scale whose zero is clear.

    Args:
        image: A PIL image, or an array or tensor `[H, W, 3]` or `[3, H, W]`, in [0, 1] or bytes.
        values: The map `[h, w]`; another size than the picture's is enlarged to it.
        strength: How much the strongest value covers of the picture, from 0 to 1.

    Raises:
        InputError: Picture or map are not what was expected.
    """
    if not 0 <= strength <= 1:
        raise InputError(f"Expected `strength` to be from 0 to 1, got {strength}.")
    picture = _picture(image)
    flat = np.asarray(values.detach().cpu() if hasattr(values, "detach") else values, np.float64)
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


def _picture(image: Any) -> np.ndarray[Any, Any]:  # [H, W, 3], 0 to 255
    if isinstance(image, Image.Image):
        return np.asarray(image.convert("RGB"), np.float64)
    pixels = np.asarray(image.detach().cpu() if hasattr(image, "detach") else image)
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
