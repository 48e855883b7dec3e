"""Maps computed elsewhere and stored in a file: a method that looks them up."""

import functools
import hashlib
import json
import zipfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from assay.errors import InputError, PrerequisiteError
from assay.methods.attribution import MAPS_HASH, rows_of
from assay.paths import user_path
from assay.plugins.option_types import Options
from assay.plugins.registry import method
from assay.types import Batch, Model

ENDINGS = (".safetensors", ".npz", ".npy")
WHOLE = "maps"  # the array with the maps of all samples; other arrays are named by sample


@dataclass(frozen=True)
class Held:
    """The maps of a file, read one by one."""

    count: int
    row: Callable[[int], object]
    ids: Sequence[str] | None = None  # their samples; None: those of the dataset, in its order


def _known_by_content(options: Options) -> dict[str, Any]:
    """The options with the hash of the file, which identifies the maps."""
    path = user_path(options["path"], "`path`")
    if path.suffix.lower() not in ENDINGS:
        raise InputError(f"Expected maps in a file ({', '.join(ENDINGS)}), got `{path}`.")
    if not path.is_file():
        raise PrerequisiteError(f"Expected maps in the file `{path}`, but there is no such file.")
    about = path.stat()
    content = _hash(str(path), about.st_mtime_ns, about.st_size)
    if options[MAPS_HASH] not in ("", content):
        raise InputError(
            f"Expected maps with the hash {options[MAPS_HASH]} in `{path}`, got {content}: the "
            f"file changed. Leave out `{MAPS_HASH}` to use its current content."
        )
    return {**options, MAPS_HASH: content}


@functools.lru_cache(maxsize=64)
def _hash(path: str, changed: int, size: int) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


@method(
    "maps",
    reads=lambda path: path.suffix.lower() in ENDINGS,
    only_looks_up=True,
    settle=_known_by_content,
    family="elsewhere",
    title="Maps of a file",
)
def maps(model: Model, batch: Batch, *, path: str, maps_hash: str = "") -> Tensor:
    """Maps computed elsewhere: by another library, in another language, by a paper's own code.

    Formula: unknown; the maps are looked up by sample and cost no forward pass.

    `path` is a `.safetensors`, `.npz` or `.npy` file. It holds one array per sample, named by its
    id; or one array `maps` [samples, ...] with `ids` (an entry of `.npz`, JSON in the metadata of
    `.safetensors`), or without `ids` in the order of the dataset. `maps_hash`, the hash of its
    content, is filled in; if it is set, other content is refused.

    Differs from the paper: how the maps were made is unknown. Protocols that explain changed inputs
    do not apply.
    """
    held = _open(str(user_path(path)), maps_hash)
    rows = rows_of(batch, held.count, path, held.ids)
    parts = [_numbers(held.row(row), path, i) for row, i in zip(rows, batch.ids, strict=True)]
    for one, sample in zip(parts, batch.ids, strict=True):
        if one.shape != parts[0].shape:
            raise InputError(
                f"Expected all maps in `{path}` to have one shape, got {tuple(parts[0].shape)} for "
                f"`{batch.ids[0]}` and {tuple(one.shape)} for `{sample}`."
            )
    return torch.stack(parts).to(batch.inputs.device, batch.dtype)


@functools.lru_cache(maxsize=8)
def _open(path: str, maps_hash: str) -> Held:
    """The maps of a file.

    Raises:
        InputError: It is damaged, or does not hold maps.
    """
    read = {".npy": _npy, ".npz": _npz, ".safetensors": _safetensors}[Path(path).suffix.lower()]
    try:
        held = read(path)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, SafetensorError) as error:
        raise InputError(f"Expected a complete file of maps in `{path}`: {error}") from error
    twice = [i for i, times in Counter(held.ids or ()).items() if times > 1]
    if twice:
        raise InputError(f"Expected each id once in `{path}`, got `{min(twice)}` twice.")
    return held


def _npy(path: str) -> Held:
    whole = np.load(path, mmap_mode="r", allow_pickle=False)
    return Held(len(whole) if whole.ndim else 0, whole.__getitem__)


def _npz(path: str) -> Held:
    file = np.load(path, allow_pickle=False)
    if WHOLE not in file.files:
        return Held(len(file.files), lambda row: file[file.files[row]], list(file.files))
    whole = file[WHOLE]
    ids = [str(i) for i in file["ids"].tolist()] if "ids" in file.files else None
    return Held(len(whole), whole.__getitem__, ids)


def _safetensors(path: str) -> Held:
    file: Any = safe_open(path, framework="pt")
    names = list(file.keys())
    if WHOLE not in names:
        return Held(len(names), lambda row: file.get_tensor(names[row]), names)
    whole, about = file.get_slice(WHOLE), file.metadata() or {}
    written = about.get("ids", about.get("samples"))  # runs of this package write `samples`
    ids = None if written is None else [str(i) for i in json.loads(written)]
    return Held(whole.get_shape()[0], lambda row: whole[row : row + 1][0], ids)


def _numbers(value: object, path: str, sample: str) -> Tensor:
    if isinstance(value, Tensor) and not value.is_complex():
        return value
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise InputError(f"Expected numbers in `{path}`, got {array.dtype} for sample `{sample}`.")
    return torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=True))
