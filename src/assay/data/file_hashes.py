"""The hashes of files, which are read only where their hash is not known from before."""

import hashlib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from assay.progress import slow_bar
from assay.store.data_facts import data_facts

CHUNK = 1 << 22  # bytes read at a time
RECENT = 60 * 10**9  # nanoseconds: writes to a mapped file change its time only now and then


class FileState(NamedTuple):
    """What changes when the content of a file changes."""

    size: int
    modified: int  # nanoseconds
    changed: int  # likewise, also where only name, owner or times change
    inode: int


def hash_file(path: Path) -> str:
    """The SHA-256 of a file's content."""
    return hash_files([("", path)])


def hash_files(parts: Sequence[tuple[str, Path]], end: str = "") -> str:
    """The SHA-256 of texts, each followed by the content of a file, and of a last text.

    A hash is kept for files that have not changed for a while. It holds as long as no file changes
    its place, size, times or inode.
    """
    facts, now = data_facts(), time.time_ns()
    states = [_state(path) for _, path in parts]
    key = _key(parts, states, end)
    if key in facts.fingerprints:
        return facts.fingerprints[key]
    digest = hashlib.sha256()
    total = sum(state.size for state in states)
    with slow_bar("hashing files", total, facts.progress) as done:
        for (text, path), state in zip(parts, states, strict=True):
            digest.update(text.encode())
            with path.open("rb") as content:
                while chunk := content.read(min(CHUNK, state.size + 1)):
                    digest.update(chunk)
                    done(len(chunk))
    digest.update(end.encode())
    latest = max((max(state.modified, state.changed) for state in states), default=0)
    if latest < now - RECENT and states == [_state(path) for _, path in parts]:
        facts.fingerprints[key] = digest.hexdigest()
    return digest.hexdigest()


def _state(path: Path) -> FileState:
    about = path.stat()
    return FileState(about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino)


def _key(parts: Sequence[tuple[str, Path]], states: Sequence[FileState], end: str) -> str:
    """The hash of everything that a hash of files depends on, without their content."""
    digest = hashlib.sha256()
    for (text, path), state in zip(parts, states, strict=True):
        digest.update(repr((text, os.path.abspath(path), *state)).encode())
    digest.update(repr(end).encode())
    return digest.hexdigest()
