"""A run's folder: tables, maps, responses and provenance, each file written atomically."""

import contextlib
import errno
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from assay.errors import CannotWrite, InputError
from assay.paths import user_path
from assay.store.tables import Array

ATTEMPTS = 3  # to write a file, while its folder is being deleted


class Store:
    """The files of one run. An incomplete file is treated as missing."""

    def __init__(self, folder: str | Path) -> None:
        """Set the folder; nothing is read or written yet."""
        self.folder = user_path(folder, "the folder of a run, `out`,")

    def create(self) -> None:
        """Make the folders.

        Raises:
            CannotWrite: The folder cannot be written to.
        """
        with self._writing(self.folder):
            for name in (
                "scores", "curves", "checks", "responses", "attributions", "cells", "previews",
            ):  # fmt: skip
                (self.folder / name).mkdir(parents=True, exist_ok=True)
            probe = self.folder / f".writable-{os.getpid()}"
            probe.write_text("")
            probe.unlink()

    def path(self, *parts: str) -> Path:
        """A path inside the folder."""
        return self.folder.joinpath(*parts)

    def write(self, path: Path, save: Callable[[Path], object]) -> None:
        """Let `save` write a temporary file, then rename it, so that no partial file is left."""
        temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
        with self._writing(path):
            for attempt in range(ATTEMPTS):
                path.parent.mkdir(parents=True, exist_ok=True)
                try:
                    save(temporary)
                    os.replace(temporary, path)
                    return
                except FileNotFoundError:  # the folder was deleted just now
                    if attempt == ATTEMPTS - 1:
                        raise
                finally:
                    temporary.unlink(missing_ok=True)

    def write_bytes(self, path: Path, value: bytes) -> None:
        """Write raw bytes."""
        self.write(path, lambda p: p.write_bytes(value))

    def write_json(self, path: Path, value: object) -> None:
        """Write JSON."""
        self.write(path, lambda p: p.write_text(json.dumps(value, indent=1, default=str)))

    def write_table(self, path: Path, table: pa.Table) -> None:
        """Write a parquet table."""
        self.write(path, lambda p: pq.write_table(table, p))

    def write_arrays(
        self, path: Path, arrays: Mapping[str, Array], about: Mapping[str, str]
    ) -> None:
        """Write named arrays with a description, as safetensors."""
        whole = {name: np.ascontiguousarray(a) for name, a in arrays.items()}
        self.write_bytes(path, save(whole, dict(about)))

    @staticmethod
    def read_json(path: Path, *required: str, kind: type[dict[str, Any] | list[Any]] = dict) -> Any:
        """Read a JSON object or list; None if missing, incomplete or without a required key."""
        try:
            stored = json.loads(path.read_text())
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(stored, kind):
            return None
        return stored if all(key in stored for key in required) else None

    @staticmethod
    def read_table(path: Path, schema: pa.Schema) -> pa.Table | None:
        """Read a parquet table; None if it is missing, incomplete or has another schema."""
        try:
            table = pq.read_table(path)
        except (FileNotFoundError, pa.ArrowInvalid, OSError):
            return None
        return table if table.schema.equals(schema) else None

    @staticmethod
    def has_table(path: Path, schema: pa.Schema) -> bool:
        """Whether a complete table of this schema exists: a parquet file ends with its schema."""
        try:
            return bool(pq.read_schema(path).equals(schema))
        except (pa.ArrowInvalid, OSError):
            return False

    @staticmethod
    def read_arrays(path: Path) -> tuple[dict[str, Array], dict[str, str]] | None:
        """Read arrays and their description; None if they are missing or incomplete."""
        try:
            with safe_open(path, framework="numpy") as file:
                return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
        except (FileNotFoundError, SafetensorError, OSError):
            return None

    @staticmethod
    def read_about(path: Path) -> dict[str, str] | None:
        """Read the description of stored arrays; None if they are missing or incomplete."""
        try:
            with safe_open(path, framework="numpy") as file:
                return file.metadata() or {}
        except (FileNotFoundError, SafetensorError, OSError):
            return None

    @contextlib.contextmanager
    def _writing(self, path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            cure = (
                "Free some space and run again: finished cells are not computed again."
                if full
                else "Choose another folder (`--out`, or `out=` in Python)."
            )
            raise CannotWrite(
                f"Cannot write `{path}`: {error.strerror or error}. {cure}"
            ) from error


def file_name(text: str) -> str:
    """A label or id as a file name: no slashes or blanks, unique for each text."""
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", text)
    if plain == text and text and not text.startswith("."):
        return text
    return f"{plain.lstrip('.')}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


NOWHERE = Store(os.devnull)  # always empty: no path below a file exists


def require_run(folder: str | Path) -> Store:
    """The store of a folder that holds a run.

    Raises:
        InputError: There is no run there.
    """
    store = Store(folder)
    if store.read_json(store.path("manifest.json")) is None:
        raise InputError(f"Expected a run in `{folder}`, found no complete `manifest.json` there.")
    return store
