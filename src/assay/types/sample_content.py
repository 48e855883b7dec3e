"""Hashes of samples by content, which their random numbers belong to.

A sample has the same hash whatever its id, its batch, its dataset or the padding of its text. Two
equal samples have equal hashes, and so equal random numbers.
"""

import hashlib

import torch
from PIL import Image
from torch import Tensor

SHOWN_EXACTLY = ("1", "L", "LA", "P", "PA", "RGB", "RGBA")  # modes whose colours have eight bits


def contents_of(inputs: Tensor, pad: int | None = None) -> tuple[str, ...]:
    """A hash of each row of inputs; `pad` is the token that only fills a text up.

    Floating-point numbers are hashed in single precision, so the number type does not matter.
    """
    return tuple(_hash_row(row, pad) for row in inputs.detach().cpu())


def content_of(sample: Image.Image | Tensor | str, pad: int | None = None) -> str:
    """A hash of a sample as a dataset holds it: an image, a text or a model's input."""
    if isinstance(sample, Tensor):
        return _hash_row(sample.detach().cpu(), pad)
    if isinstance(sample, str):
        return _hash("text", sample.encode(errors="surrogatepass"))
    return _hash_image(sample)


def _hash_image(image: Image.Image) -> str:
    """A hash of what an image shows: its colours, and its alpha where it is not opaque.

    The bytes of an image with a palette are places in it, so they alone do not say its colours.
    """
    image.load()
    if image.mode in SHOWN_EXACTLY and (image.mode != "RGB" or "transparency" in image.info):
        image = image.convert("RGBA")
        opaque = image.getchannel("A").getextrema() == (255, 255)
        image = image.convert("RGB") if opaque else image
        return _hash(f"{image.mode}{image.size}", image.tobytes())
    transparent = image.info.get("transparency", "")
    return _hash(f"{image.mode}{image.size}{transparent}", image.tobytes())


def _hash_row(row: Tensor, pad: int | None) -> str:
    if pad is not None:
        row = row[row != pad]
    number = torch.float32 if row.is_floating_point() else torch.int64
    row = row.to(number) + 0  # 0 and -0 are equal
    raw: memoryview = row.contiguous().flatten().view(torch.uint8).numpy().data
    return _hash(f"{row.dtype}{tuple(row.shape)}", raw)


def _hash(kind: str, content: bytes | memoryview) -> str:
    digest = hashlib.blake2b(kind.encode(), digest_size=16)
    digest.update(content)
    return digest.hexdigest()
