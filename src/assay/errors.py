"""Errors and warnings that name the thing, what was expected and what to do next."""

import difflib
import sys
import warnings
from collections.abc import Iterable

LONGEST = 2000  # characters of an error
PASSED_OVER = ("assay", "torch", "contextlib")  # modules between the user's code and a warning


def one_line(text: str) -> str:
    """The text in one line that every terminal can print, without the middle where it is long."""
    line = " ".join(text.splitlines()).encode("utf-8", "backslashreplace").decode()
    if len(line) <= LONGEST:
        return line
    return f"{line[: 2 * LONGEST // 3]} ... {line[-LONGEST // 4 :]}"


class InputError(ValueError):
    """Something given to assay is not what was expected; printed without a traceback."""

    def __init__(self, text: str) -> None:
        """Keep the text in one line: it may quote long values of the user."""
        super().__init__(one_line(text))


class HarmError(InputError):
    """A method or protocol changed what is not its own. That is undone, and it fails."""


class PrerequisiteError(RuntimeError):
    """A missing extra, file or capability, with the cure; printed without a traceback."""

    def __init__(self, text: str) -> None:
        """Keep the text in one line: it may quote long values of the user."""
        super().__init__(one_line(text))


class CannotWrite(PrerequisiteError):
    """A file of a run cannot be written."""


class IncompleteRun(PrerequisiteError):
    """A run ended before its tables were whole; what is finished is kept, with what to do next."""


class NotApplicable(Exception):
    """A method or protocol does not apply here; the reason becomes the status of its cells."""


class AssayWarning(RuntimeWarning):
    """Something that may make results useless; the command line prints it in one line."""


class SharedNumbersWarning(AssayWarning):
    """A method or protocol draws random numbers that all code of the process shares."""


def unknown(kind: str, name: str, available: Iterable[str]) -> InputError:
    """The error for a name nobody registered, with the nearest names and all that exist."""
    names = sorted(available)
    near = difflib.get_close_matches(str(name), names, n=3, cutoff=0.5)
    hint = f" Did you mean {' or '.join(f'`{n}`' for n in near)}?" if near else ""
    return InputError(f"Unknown {kind} `{name}`.{hint} Available: {', '.join(names) or 'none'}.")


def warn(text: str, kind: type[AssayWarning] = AssayWarning) -> None:
    """Warn at the line of the user's code that led here."""
    level, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] in PASSED_OVER:
        level, frame = level + 1, frame.f_back
    warnings.warn(text, kind, stacklevel=level)
