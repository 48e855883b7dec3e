"""Paths as users write them, refused where no file system can hold them."""

import os
from pathlib import Path

from assay.errors import InputError

LONGEST, LONGEST_PART = 4095, 255  # bytes, on Linux; elsewhere paths may be shorter
SHOWN = 60  # characters of a long path in an error


def user_path(value: object, what: str = "a path") -> Path:
    """The path that a user gave, with `~` as the home folder.

    Raises:
        InputError: It is no text, empty, or too long for any file.
    """
    if not isinstance(value, str | os.PathLike) or not isinstance(os.fspath(value), str):
        raise InputError(f"Expected {what} to be a path as text, got {type(value).__name__}.")
    text = os.fspath(value)
    if not text:
        raise InputError(f"Expected {what} to be a path, got an empty text.")
    if "\0" in text:
        raise InputError(f"Expected {what} to be a path, got {_short(text)!r} with a NUL byte.")
    try:
        path = Path(text).expanduser()
    except RuntimeError as error:  # `~nobody`
        raise InputError(f"Expected {what} to be a path, got {_short(text)!r}: {error}.") from None
    raw = os.fsencode(path) if _encodes(text) else None
    if raw is None:
        raise InputError(
            f"Expected {what} to be a path, got {_short(text)!a}: no file is called so."
        )
    longest = max(map(len, raw.split(os.fsencode(os.sep))))
    if len(raw) > LONGEST or longest > LONGEST_PART:
        raise InputError(
            f"Expected {what} to be a path, got {_short(text)!r}, which is too long: a path has at "
            f"most {LONGEST} bytes, a name in it at most {LONGEST_PART}."
        )
    return path


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def _encodes(text: str) -> bool:
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True
