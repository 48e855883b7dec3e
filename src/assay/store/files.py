"""A run's folder: logs, maps, pictures and descriptions, every file with a checksum."""

import contextlib
import errno
import hashlib
import json
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors import SafetensorError
from safetensors.numpy import load, save

from assay.errors import CannotWrite, InputError
from assay.paths import user_path
from assay.store.json_records import StoredObject
from assay.store.shard_log import LogRecord, ShardLog
from assay.store.tables import Array

ATTEMPTS = 3  # to write a file, while its folder is being deleted
CHECKSUM = "checksum"  # the last key of every JSON file
CHUNK = 1 << 22  # bytes read at a time for a checksum
StoredPath = tuple[str, ...]  # the path of a file inside the folder


class FileCheck(NamedTuple):
    """What a file must have to count as whole."""

    size: int
    crc32: int


class Store:
    """The files of one run. An incomplete or damaged file is treated as missing."""

    def __init__(self, folder: str | Path) -> None:
        """Set the folder; nothing is read or written yet."""
        path = user_path(folder, "the folder of a run, `out`,")
        # Arrow would read a relative path with a colon as the address of a file system.
        self.folder = path.absolute() if ":" in str(path) else path

    def create(self) -> None:
        """Make the folders.

        Raises:
            CannotWrite: The folder cannot be written to.
        """
        with self._writing(self.folder):
            for name in ("shards", "attributions", "answers", "previews"):
                (self.folder / name).mkdir(parents=True, exist_ok=True)
            probe = self.folder / f".writable-{os.getpid()}"
            probe.write_text("")
            probe.unlink()

    def path(self, *parts: str) -> Path:
        """A path inside the folder."""
        return self.folder.joinpath(*parts)

    def log(self, shard: str) -> ShardLog:
        """The log of a shard."""
        return ShardLog(self.path("shards", f"{shard}.log"))

    def answer_log(self, shard: str) -> ShardLog:
        """The log of a shard's answers that do not depend on a method."""
        return ShardLog(self.path("answers", f"{shard}.log"))

    # --- writing ---------------------------------------------------------------------------------

    def append(self, log: ShardLog, record: LogRecord) -> None:
        """Add a record to a log, also where its folder was deleted."""
        with self._writing(log.path):
            for attempt in range(ATTEMPTS):
                try:
                    return log.append(record)
                except FileNotFoundError:  # the folder was deleted just now
                    if attempt == ATTEMPTS - 1:
                        raise

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

    def write_bytes(self, path: Path, value: bytes) -> FileCheck:
        """Write raw bytes; the result is what the file must have to count as whole."""
        self.write(path, lambda p: p.write_bytes(value))
        return FileCheck(len(value), zlib.crc32(value))

    def write_json(self, path: Path, value: Mapping[str, object]) -> None:
        """Write a JSON object with a checksum."""
        text = _json_text(value)
        whole = _json_text({**json.loads(text), CHECKSUM: _crc(text)})
        self.write(path, lambda p: p.write_text(whole, encoding="utf-8"))

    def write_text(self, path: Path, text: str, comment: str) -> None:
        """Write a text with its checksum in a comment, whose form has `{}` in its place."""
        whole = f"{text.rstrip()}\n"
        signed = f"{whole}{comment.format(f'{CHECKSUM} {_crc(whole)}')}\n"
        self.write(path, lambda p: p.write_text(signed, encoding="utf-8"))

    # --- reading ---------------------------------------------------------------------------------

    @staticmethod
    def read_json(path: Path, *required: str) -> StoredObject | None:
        """Read a JSON object; None if missing, damaged or without a required key.

        Older versions wrote no checksum.
        """
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(stored, dict):
            return None
        checksum = stored.pop(CHECKSUM, None)
        if checksum is not None and checksum != _crc(_json_text(stored)):
            return None
        return stored if all(key in stored for key in required) else None

    @staticmethod
    def damaged_text(path: Path, signed: bool = False) -> bool:
        """Whether a text has a checksum that is not its own, or none although it was signed."""
        try:
            content = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return signed
        text, _, last = content.rstrip("\n").rpartition("\n")
        stated = re.search(rf"{CHECKSUM} ([0-9a-f]{{8}})", last)
        return signed if stated is None else stated[1] != _crc(f"{text}\n")

    @staticmethod
    def has_checksum(path: Path) -> bool:
        """Whether a JSON file was written with a checksum."""
        try:
            return CHECKSUM in json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, TypeError):
            return False

    @staticmethod
    def read_checked(path: Path, check: FileCheck | None) -> bytes | None:
        """The bytes of a file; None if it is missing or not as it was written."""
        try:
            content = path.read_bytes()
        except OSError:
            return None
        whole = check is None or (len(content), zlib.crc32(content)) == check
        return content if whole else None

    @staticmethod
    def is_whole(path: Path, check: FileCheck) -> bool:
        """Whether a file is as it was written; reads all of it."""
        crc = 0
        try:
            if path.stat().st_size != check.size:
                return False
            with path.open("rb") as file:
                while chunk := file.read(CHUNK):
                    crc = zlib.crc32(chunk, crc)
        except OSError:
            return False
        return crc == check.crc32

    @staticmethod
    def read_table(path: Path, schema: pa.Schema) -> pa.Table | None:
        """Read a parquet table; None if it is missing, incomplete or has another schema."""
        try:
            table = pq.read_table(path)
        except (FileNotFoundError, pa.ArrowInvalid, OSError):
            return None
        return table if table.schema.equals(schema) else None

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


def packed_arrays(arrays: Mapping[str, Array], about: Mapping[str, str]) -> bytes:
    """Named arrays with a description, as the bytes of a safetensors file."""
    content: bytes = save({n: np.ascontiguousarray(a) for n, a in arrays.items()}, dict(about))
    return content


def unpacked_arrays(content: bytes) -> tuple[dict[str, Array], dict[str, str]] | None:
    """The arrays of a safetensors file and their description; None if it is damaged."""
    try:
        size = int.from_bytes(content[:8], "little")
        about = json.loads(content[8 : 8 + size]).get("__metadata__") or {}
        return load(content), about
    except (SafetensorError, ValueError, KeyError, AttributeError):
        return None


def array_checksum(content: bytes) -> tuple[str | None, str]:
    """The checksum that a safetensors file states, if any, and that of its arrays.

    Raises:
        ValueError: It is no such file.
    """
    start = 8 + int.from_bytes(content[:8], "little")
    described = json.loads(content[8:start])
    stated = (described.pop("__metadata__", None) or {}).get(CHECKSUM)
    crc = 0
    for name, one in sorted(described.items()):
        first, last = one["data_offsets"]
        crc = zlib.crc32(f"{name} {one['dtype']} {one['shape']}".encode(), crc)
        crc = zlib.crc32(memoryview(content)[start + first : start + last], crc)
    return stated, f"{crc:08x}"


LONGEST_NAME = 200  # characters of a file's name, to which endings are added; most systems hold 255


def file_name(text: str) -> str:
    """A label or id as a file name: short, no slashes or blanks, unique for each text."""
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", text)
    if plain == text and text and not text.startswith(".") and len(text) <= LONGEST_NAME:
        return text
    return (
        f"{plain.lstrip('.')[: LONGEST_NAME // 2]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    )


NOWHERE = Store(os.devnull)  # always empty: no path below a file exists


def require_run(folder: str | Path) -> Store:
    """The store of a folder that holds a run.

    Raises:
        InputError: There is no run there.
    """
    store = Store(folder)
    path = store.path("manifest.json")
    if store.read_json(path) is None:
        what = "a damaged" if path.exists() else "no complete"
        raise InputError(
            f"Expected a run in `{folder}`, found {what} `manifest.json` there. "
            f"The same `assay run` with `--out {folder}` writes it anew."
        )
    return store


def _json_text(value: Mapping[str, object]) -> str:
    return json.dumps(value, indent=1, default=str)


def _crc(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"
