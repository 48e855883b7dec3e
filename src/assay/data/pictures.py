"""Image files and encoded images: opened only where their size can be decoded."""

import contextlib
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from PIL import Image

from assay.errors import InputError

MEGAPIXELS = 100.0  # the most that are decoded: 300 MB in memory
VARIABLE = "ASSAY_MAX_MEGAPIXELS"  # the environment variable that sets another limit


def open_picture(source: Path | IO[bytes], what: str) -> Image.Image:
    """Open an image without decoding it; `what` names it in errors.

    A few bytes can declare an image that fills all memory, so its size is read first.

    Raises:
        InputError: It has more pixels than the limit.
    """
    most = _limit()
    with _no_limit_of_pillow():
        picture = Image.open(source)
    width, height = picture.size
    if width * height > most * 1e6:
        picture.close()
        raise InputError(
            f"Expected at most {most:g} megapixels in {what}, got {width * height / 1e6:.0f} "
            f"({width} x {height}). Make the image smaller, or set the environment variable "
            f"`{VARIABLE}={math.ceil(width * height / 1e6)}`."
        )
    return picture


def _limit() -> float:
    text = os.environ.get(VARIABLE, "")
    try:
        megapixels = float(text) if text else MEGAPIXELS
    except ValueError:
        megapixels = 0.0
    if not megapixels > 0:
        raise InputError(f"Expected `{VARIABLE}` to be a number above 0, got {text!r}.")
    return megapixels


@contextlib.contextmanager
def _no_limit_of_pillow() -> Iterator[None]:
    """Switch off Pillow's own limit, whose warning and error begin at other sizes."""
    before = Image.MAX_IMAGE_PIXELS
    Image.MAX_IMAGE_PIXELS = None
    try:
        yield
    finally:
        Image.MAX_IMAGE_PIXELS = before
