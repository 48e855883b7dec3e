"""An append-only file of records with checksums: what a run has finished, one file per shard.

A record is a fixed head, a description in JSON and the bytes of arrays:

    8 bytes   MARK, by which reading goes on after damage
    u32 u64   sizes of description and arrays
    u32 u32   CRC-32 of sizes and description, and of the arrays
    ...       description, padded with blanks so that the arrays begin at a multiple of 8
    ...       the arrays, little-endian, each padded to a multiple of 8

Of records with the same kind and key the last one counts. Damaged records count as missing.
"""

import functools
import json
import math
import os
import re
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from assay.store.json_records import StoredObject
from assay.store.tables import Array

MARK = b"\x89assay\r\n"
_HEAD = struct.Struct("<8sIQII")
_SIZES = struct.Struct("<IQ")
_ALIGN = 8
_STRING = rb'("(?:[^"\\]|\\.)*")'
_NAMES = re.compile(rb'{"kind":' + _STRING + rb',"key":' + _STRING)  # how a description begins
_OWN = ("kind", "key", "arrays")  # parts of a description that records themselves use
Buffer = bytes | memoryview


@dataclass(frozen=True, eq=False)
class LogRecord:
    """One record.

    Attributes:
        kind: What it holds.
        key: Identifies it among the records of its kind.
        text: Its description, as JSON; it is parsed when it is asked for.
        body: The bytes of the arrays.
        place: Where it begins in its file, and how many bytes it has there.
    """

    kind: str
    key: str
    text: bytes
    body: Buffer = field(default=b"", repr=False)
    place: tuple[int, int] = (0, 0)

    @classmethod
    def make(
        cls, kind: str, key: str, facts: StoredObject, arrays: Mapping[str, Array] | None = None
    ) -> "LogRecord":
        """A record of these arrays."""
        whole = {name: _little(values) for name, values in (arrays or {}).items()}
        described = {"kind": kind, "key": key, **facts}
        if whole:
            described["arrays"] = [(n, a.dtype.str, list(a.shape)) for n, a in whole.items()]
        text = json.dumps(described, separators=(",", ":")).encode()
        return cls(kind, key, text, b"".join(_padded(a) for a in whole.values()))

    @functools.cached_property
    def facts(self) -> StoredObject:
        """Its description, without the arrays."""
        return {name: v for name, v in self._described.items() if name not in _OWN}

    def arrays(self) -> dict[str, Array]:
        """Its arrays, as views of its bytes that cannot be written to."""
        return {name: self.array(name) for name in self._places}

    def array(self, name: str) -> Array:
        """One of its arrays, likewise."""
        dtype, shape, start = self._places[name]
        return np.frombuffer(self.body, dtype, math.prod(shape), start).reshape(shape)

    @functools.cached_property
    def _described(self) -> StoredObject:
        described: StoredObject = json.loads(self.text)
        return described

    @functools.cached_property
    def _places(self) -> dict[str, tuple[np.dtype[np.generic], tuple[int, ...], int]]:
        """The type and shape of each array, and where it begins."""
        places, start = {}, 0
        for name, kind, shape in self._described.get("arrays", ()):
            dtype = np.dtype(kind)
            places[name] = dtype, tuple(shape), start
            start += -(-math.prod(shape) * dtype.itemsize // _ALIGN) * _ALIGN
        return places

    def packed(self) -> bytes:
        """The bytes of the record in the file."""
        text = self.text.rstrip(b" ")
        text += b" " * (-(_HEAD.size + len(text)) % _ALIGN)
        sizes = _SIZES.pack(len(text), len(self.body))
        checks = zlib.crc32(text, zlib.crc32(sizes)), zlib.crc32(self.body)
        return b"".join(
            (_HEAD.pack(MARK, len(text), len(self.body), *checks), text, bytes(self.body))
        )


@dataclass(frozen=True, eq=False)
class LogContent:
    """The content of a log.

    Attributes:
        records: The whole records by kind and key; of several the last.
        damaged: How many bytes belong to no whole record.
        outdated: How many bytes belong to records that a later one replaces.
    """

    records: Mapping[tuple[str, str], LogRecord] = field(default_factory=dict)
    damaged: int = 0
    outdated: int = 0

    def get(self, kind: str, key: str = "") -> LogRecord | None:
        """One record; None if it is missing or damaged."""
        return self.records.get((kind, key))

    def of_kind(self, kind: str) -> Iterator[LogRecord]:
        """All records of a kind, in the order in which they were written."""
        return (record for (one, _), record in self.records.items() if one == kind)


class ShardLog:
    """One log file. Only one process at a time appends to it."""

    def __init__(self, path: Path) -> None:
        """Set the file, which need not exist."""
        self.path = path

    def append(self, record: LogRecord) -> None:
        """Write a record at the end, in one piece."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        content = memoryview(record.packed())
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            while content:  # a single write, unless the record has gigabytes
                content = content[os.write(file, content) :]
        finally:
            os.close(file)

    def read(self, start: int = 0) -> LogContent:
        """All whole records from a byte on. Checksums of all bytes that are read are compared."""
        try:
            with self.path.open("rb") as file:
                file.seek(start)
                return parse_log(memoryview(file.read()))
        except OSError:
            return LogContent()

    def read_at(self, place: tuple[int, int]) -> LogRecord | None:
        """One record, whose place an earlier reading gave; None if it is not there any more."""
        start, size = place
        try:
            with self.path.open("rb") as file:
                file.seek(start)
                return _record_at(memoryview(file.read(size)), 0)[1]
        except OSError:
            return None

    def mend(self) -> None:
        """Remove damage, and outdated records where they take more than half of the file."""
        content = self.read()
        size = sum(len(record.packed()) for record in content.records.values())
        if not content.damaged and content.outdated <= size:
            return
        mended = self.path.with_name(f".{self.path.name}.{os.getpid()}.part")
        try:
            with mended.open("wb") as file:
                for record in content.records.values():
                    file.write(record.packed())
            os.replace(mended, self.path)
        finally:
            mended.unlink(missing_ok=True)


def parse_log(content: memoryview) -> LogContent:
    """The records in the bytes of a log."""
    records: dict[tuple[str, str], LogRecord] = {}
    sizes: dict[tuple[str, str], int] = {}
    place, damaged, outdated = 0, 0, 0
    while place < len(content):
        size, record = _record_at(content, place)
        if record is None:
            following = _next_mark(content, place + 1)
            damaged += following - place
            place = following
            continue
        key = record.kind, record.key
        outdated += sizes.get(key, 0)
        records.pop(key, None)  # the order is that of the last writing
        records[key], sizes[key] = record, size
        place += size
    return LogContent(records, damaged, outdated)


def _record_at(content: memoryview, place: int) -> tuple[int, LogRecord | None]:
    """The size of the record at a place, and the record; None if it is not whole."""
    if len(content) - place < _HEAD.size:
        return 0, None
    mark, text_size, body_size, text_check, body_check = _HEAD.unpack_from(content, place)
    start = place + _HEAD.size
    end = start + text_size + body_size
    if mark != MARK or end > len(content):
        return 0, None
    text = bytes(content[start : start + text_size])
    if zlib.crc32(text, zlib.crc32(_SIZES.pack(text_size, body_size))) != text_check:
        return 0, None
    body = content[start + text_size : end]
    if zlib.crc32(body) != body_check:
        return 0, None
    named = _NAMES.match(text)
    kind, key = (json.loads(part) for part in named.groups()) if named else _named(text)
    return end - place, LogRecord(kind, key, text, body, (place, end - place))


def _named(text: bytes) -> tuple[str, str]:
    """The kind and the key of a description that does not begin with them."""
    described = json.loads(text)
    return described["kind"], described["key"]


def _next_mark(content: memoryview, place: int) -> int:
    """The place of the next mark, or the end."""
    step = 1 << 20
    while place < len(content):
        at = bytes(content[place : place + step + len(MARK) - 1]).find(MARK)
        if at >= 0:
            return place + at
        place += step
    return len(content)


def _little(values: Array) -> Array:
    whole = np.ascontiguousarray(values).reshape(values.shape)
    return whole.astype(whole.dtype.newbyteorder("<"), copy=False)


def _padded(values: Array) -> bytes:
    content = values.tobytes()
    return content + bytes(-len(content) % _ALIGN)
