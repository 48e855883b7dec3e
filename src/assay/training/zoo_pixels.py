"""The pixels that the zoo is trained and tested on: CIFAR-10 without loss, decoded once."""

import hashlib
import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from assay.data.file_hashes import hash_file
from assay.data.parquet import parquet
from assay.errors import InputError, PrerequisiteError
from assay.types import Pixels, Preprocess

SIDE = 32  # pixels
CHUNK = 2500  # images that one process decodes at a time
RAW = Preprocess(size=SIDE, pixels=Pixels(mean=(0.0,) * 3, std=(1.0,) * 3))

Decoded = np.ndarray[tuple[int, ...], np.dtype[np.integer]]
Chunk = tuple[Path, int, int]  # a file, its first row and the row after the last


@dataclass(frozen=True)
class PixelFacts:
    """What tells one set of images from another."""

    train: int  # images
    test: int
    origin: str  # the files and their hashes


@dataclass(frozen=True)
class ZooPixels:
    """Images of 8 bits `[N, 3, 32, 32]` and labels `[N]`, to train and to test."""

    train: Tensor
    train_labels: Tensor
    test: Tensor
    test_labels: Tensor
    origin: str  # the files and their hashes

    @classmethod
    def load(cls, path: Path, device: str = "cpu", limit: int | None = None) -> "ZooPixels":
        """Read what `cache_pixels` wrote; `limit` takes the first images of both sets."""
        with safe_open(path, "pt", device=device) as file:
            parts = {name: file.get_tensor(name)[:limit] for name in file.keys()}  # noqa: SIM118
            return cls(**parts, origin=(file.metadata() or {}).get("origin", ""))

    @property
    def facts(self) -> PixelFacts:
        """How many images there are, and from which files."""
        return PixelFacts(len(self.train), len(self.test), self.origin)


def read_pixel_facts(path: Path, limit: int | None = None) -> PixelFacts:
    """The facts of what `cache_pixels` wrote; `limit` takes the first images of both sets."""
    with safe_open(path, "pt") as file:
        rows: list[int] = [
            file.get_slice(f"{part}_labels").get_shape()[0] for part in ("train", "test")
        ]
        origin = (file.metadata() or {}).get("origin", "")
    train, test = (n if limit is None else min(n, limit) for n in rows)
    return PixelFacts(train, test, origin)


def cache_pixels(data: Path, out: Path) -> Path:
    """The file of decoded pixels in `out`; written from the parquet files where it is missing.

    Args:
        data: A folder with `cifar10/*train*lossless.parquet`, one file or several, and
            `cifar10/*test*lossless.parquet`. No other file is read.
        out: The folder of the decoded pixels.

    Raises:
        PrerequisiteError: A file is missing.
    """
    files = {part: _files(data, part) for part in ("train", "test")}
    hashes = {path: hash_file(path) for part in files.values() for path in part}
    key = hashlib.sha256(" ".join(hashes.values()).encode()).hexdigest()[:12]
    path = out / f"pixels-{key}.safetensors"
    if path.is_file():
        return path
    tensors = {}
    for part, paths in files.items():
        tensors[part], tensors[f"{part}_labels"] = _decode(paths)
    out.mkdir(parents=True, exist_ok=True)
    origin = ", ".join(f"{path.name} sha256 {digest[:16]}" for path, digest in hashes.items())
    partial = path.with_suffix(f".{os.getpid()}.part")
    save_file(tensors, partial, metadata={"origin": origin})
    partial.replace(path)
    return path


def _files(data: Path, part: str) -> list[Path]:
    pattern = f"*{part}*lossless.parquet"
    paths = sorted((data / "cifar10").glob(pattern))
    if not paths:
        raise PrerequisiteError(
            f"Expected `cifar10/{pattern}` in `{data}`, but there is no such file. Pass the folder "
            f"that holds it with `--data`. Files with JPEG pixels are never used: they cost about "
            f"10 points of accuracy."
        )
    return paths


def _decode(paths: Sequence[Path]) -> tuple[Tensor, Tensor]:
    """All images and labels of some files, by several processes where there are many."""
    chunks: list[Chunk] = []
    for path in paths:
        rows = len(parquet(path=str(path)).ids)
        chunks += [(path, start, min(start + CHUNK, rows)) for start in range(0, rows, CHUNK)]
    workers = min(os.cpu_count() or 1, len(chunks))
    if workers < 4:
        parts = [_decode_chunk(chunk) for chunk in chunks]
    else:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(workers, mp_context=context) as pool:
            parts = list(pool.map(_decode_chunk, chunks))
    images = torch.cat([torch.as_tensor(part) for part, _ in parts])
    return images, torch.cat([torch.as_tensor(part) for _, part in parts])


def _decode_chunk(chunk: Chunk) -> tuple[Decoded, Decoded]:
    """Images and labels as arrays, which cross processes without shared memory."""
    path, start, stop = chunk
    torch.set_num_threads(1)
    data = parquet(path=str(path))
    batch = data.batch(data.ids[start:stop], RAW)
    if batch.labels is None or int(batch.labels.max()) > 9:
        raise InputError(f"Expected the ten classes of CIFAR-10 in `{path}`, got others.")
    return (batch.inputs * 255).round().to(torch.uint8).numpy(), batch.labels.numpy()
