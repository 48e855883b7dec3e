"""Maps computed elsewhere, in a file: a method that only looks them up."""

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
from assay.plugins.registry import method
from assay.types import Batch, Model

ENDINGS = (".safetensors", ".npz", ".npy")
WHOLE = "maps"  # the array that holds the maps of all samples; others are named by their sample


@dataclass(frozen=True)
class Held:
    """The maps of a file, read one by one."""

    count: int
    row: Callable[[int], Any]
    ids: Sequence[str] | None = None  # whose they are; None: the dataset's, in its order


def _known_by_content(options: dict[str, Any]) -> dict[str, Any]:
    """The options with the hash of the file, which tells one set of maps from another."""
    path = Path(options["path"]).expanduser()
    if path.suffix.lower() not in ENDINGS:
        raise InputError(f"Expected maps in a file ({', '.join(ENDINGS)}), got `{path}`.")
    if not path.is_file():
        raise PrerequisiteError(f"There is no file of maps `{path}`.")
    about = path.stat()
    found = _hash(str(path), about.st_mtime_ns, about.st_size)
    if options[MAPS_HASH] not in ("", found):
        raise InputError(
            f"Expected the maps {options[MAPS_HASH]} in `{path}`, got {found}: the file changed. "
            f"Leave out `{MAPS_HASH}` to take it as it is."
        )
    return {**options, MAPS_HASH: found}


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

    Formula: whatever made them; they are looked up by sample, and cost no network pass.

    `path` is a `.safetensors`, `.npz` or `.npy` file. It holds an array for each sample by its id;
    or one array `maps` [samples, ...] with `ids` (an entry of `.npz`, JSON in the metadata of
    `.safetensors`), or without them in the order of the dataset. `maps_hash`, the hash of its
    content, is filled in; where it is said, another content is refused.

    Beside the paper: nothing is known of how they were made. A protocol that explains changed
    inputs does not apply.
    """
    held = _open(str(Path(path).expanduser()), maps_hash)
    rows = rows_of(batch, held.count, path, held.ids)
    found = [_numbers(held.row(row), path, i) for row, i in zip(rows, batch.ids, strict=True)]
    for one, sample in zip(found, batch.ids, strict=True):
        if one.shape != found[0].shape:
            raise InputError(
                f"Expected all maps in `{path}` to have one shape, got {tuple(found[0].shape)} for "
                f"`{batch.ids[0]}` and {tuple(one.shape)} for `{sample}`."
            )
    return torch.stack(found).to(batch.inputs.device, batch.dtype)


@functools.lru_cache(maxsize=8)
def _open(path: str, maps_hash: str) -> Held:
    """The maps of a file.

    Raises:
        InputError: It is not whole, or holds something else.
    """
    read = {".npy": _npy, ".npz": _npz, ".safetensors": _safetensors}[Path(path).suffix.lower()]
    try:
        held = read(path)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, SafetensorError) as error:
        raise InputError(f"Expected a whole file of maps in `{path}`: {error}") from error
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
    said = about.get("ids", about.get("samples"))  # runs of this package write `samples`
    ids = None if said is None else [str(i) for i in json.loads(said)]
    return Held(whole.get_shape()[0], lambda row: whole[row : row + 1][0], ids)


def _numbers(value: Any, path: str, sample: str) -> Tensor:
    if isinstance(value, Tensor) and not value.is_complex():
        return value
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise InputError(f"Expected numbers in `{path}`, got {array.dtype} for sample `{sample}`.")
    return torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=True))
