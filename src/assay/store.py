"""A run's folder: tables, maps, answers and provenance, each written whole or not at all."""

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

from assay.errors import InputError, PrerequisiteError

Array = np.ndarray[Any, Any]
SHOWN_ONLY = ("circular", "upper_bound")  # statuses of what is scored and left out of ranks

SCORES = pa.schema(
    [
        *((n, pa.string()) for n in ("cell", "dataset", "model", "checkpoint", "method")),
        ("method_version", pa.int64()),
        ("method_options", pa.string()),
        ("protocol", pa.string()),
        ("protocol_version", pa.int64()),
        *((n, pa.string()) for n in ("protocol_options", "metric", "target", "sample", "group")),
        ("seed", pa.int64()),
        ("value", pa.float64()),
        ("higher_is_better", pa.bool_()),
        ("status", pa.string()),
        ("headline", pa.bool_()),
    ]
)
CURVES = pa.schema(
    [
        ("cell", pa.string()),
        ("sample", pa.string()),
        ("seed", pa.int64()),
        ("name", pa.string()),
        ("step", pa.int64()),
        ("x", pa.float64()),
        ("value", pa.float64()),
    ]
)

CHECKS = pa.schema(
    [
        *((n, pa.string()) for n in ("dataset", "model", "checkpoint", "method")),
        ("sample", pa.string()),
        ("seed", pa.int64()),
        ("check", pa.string()),
        ("value", pa.float64()),
    ]
)

# What a user's own set-level reduction gave: a sample's part of the number (`draw` is null), or the
# number of a weighted set, whose samples and weights `draw` identifies.
REDUCED = pa.schema(
    [
        ("seed", pa.int64()),
        ("sample", pa.string()),
        ("draw", pa.uint64()),
        ("value", pa.float64()),
    ]
)


class Store:
    """The files of one run. Reading a file that is not whole is the same as finding none."""

    def __init__(self, folder: str | Path) -> None:
        """Name the folder; nothing is touched yet."""
        self.folder = Path(folder)

    def create(self) -> None:
        """Make the folders.

        Raises:
            PrerequisiteError: The place cannot be written to.
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

    def write(self, path: Path, save: Callable[[Path], Any]) -> None:
        """Let `save` write a temporary file, then rename it: whole or not there."""
        temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
        with self._writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                save(temporary)
                os.replace(temporary, path)
            finally:
                temporary.unlink(missing_ok=True)

    def write_bytes(self, path: Path, value: bytes) -> None:
        """Write bytes as they are."""
        self.write(path, lambda p: p.write_bytes(value))

    def write_json(self, path: Path, value: Any) -> None:
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
    def read_json(path: Path) -> Any:
        """Read JSON; None where it is missing or not whole."""
        try:
            return json.loads(path.read_text())
        except (OSError, ValueError):
            return None

    @staticmethod
    def read_table(path: Path, schema: pa.Schema) -> pa.Table | None:
        """Read a parquet table; None where it is missing, not whole or of another shape."""
        try:
            table = pq.read_table(path)
        except (FileNotFoundError, pa.ArrowInvalid, OSError):
            return None
        return table if table.schema.equals(schema) else None

    @staticmethod
    def has_table(path: Path, schema: pa.Schema) -> bool:
        """Whether a whole table of this shape is there: a parquet file ends with its schema."""
        try:
            return bool(pq.read_schema(path).equals(schema))
        except (pa.ArrowInvalid, OSError):
            return False

    @staticmethod
    def read_arrays(path: Path) -> tuple[dict[str, Array], dict[str, str]] | None:
        """Read arrays and their description; None where they are missing or not whole."""
        try:
            with safe_open(path, framework="numpy") as file:
                return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
        except (FileNotFoundError, SafetensorError, OSError):
            return None

    @contextlib.contextmanager
    def _writing(self, path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            cure = (
                "Free some space and run again: what is finished is kept."
                if full
                else "Choose another folder (`--out`, or `out=` in Python)."
            )
            raise PrerequisiteError(
                f"Cannot write `{path}`: {error.strerror or error}. {cure}"
            ) from error


def file_name(text: str) -> str:
    """A label or id as the name of a file: no slashes or blanks, different for different texts."""
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", text)
    if plain == text and not text.startswith("."):
        return text
    return f"{plain.lstrip('.')}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


NOWHERE = Store(os.devnull)  # holds nothing: no file lies below a file


def require_run(folder: str | Path) -> Store:
    """The store of a folder that holds a run.

    Raises:
        InputError: There is no run there.
    """
    store = Store(folder)
    if store.read_json(store.path("manifest.json")) is None:
        raise InputError(f"Expected a run in `{folder}`, found no whole `manifest.json` there.")
    return store


def query(sql: str, **tables: pa.Table) -> pa.Table:
    """Run SQL over these tables; the one place where DuckDB is used."""
    import duckdb

    connection = duckdb.connect()
    try:
        for name, table in tables.items():
            connection.register(name, table)
        return connection.sql(sql).to_arrow_table()
    finally:
        connection.close()
