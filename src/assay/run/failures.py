"""What an error in the code of a method or protocol becomes: a status and a reason, or an end."""

import traceback

from assay import processes
from assay.errors import HarmError, NotApplicable, PrerequisiteError
from assay.plan.cells import CellOutcome
from assay.processes import Stopped

EXITS = (processes.__file__, "<frozen _sitebuiltins>")  # where `os._exit` and `exit` raise


def outcome_of(error: BaseException) -> CellOutcome:
    """The outcome of a cell whose code raised this error.

    SystemExit and KeyboardInterrupt are failures like others: a signal raises `Stopped`.

    Raises:
        BaseException: The error itself, if it ends the run: it was stopped, or something is
            missing that all cells need.
    """
    if isinstance(error, Stopped | PrerequisiteError):
        raise error
    if isinstance(error, NotApplicable):
        return CellOutcome("n/a", _message(error))
    return CellOutcome("failed", error_text(error))


def error_text(error: BaseException) -> str:
    """The message of an error, and the line that raised it."""
    if isinstance(error, HarmError):
        return str(error)
    lines = list(traceback.extract_tb(error.__traceback__))
    if isinstance(error, SystemExit):  # the line that calls `exit`, not the one inside of it
        lines = [line for line in lines if line.filename not in EXITS] or lines
    where = f"({lines[-1].filename.rsplit('/', 1)[-1]}:{lines[-1].lineno})"
    return f"{type(error).__name__}: {_message(error)} {where}"


def _message(error: BaseException) -> str:
    """The text of an error, which may itself fail, in characters that every file can hold."""
    try:
        text = str(error)
    except BaseException as second:
        if isinstance(second, Stopped):
            raise
        text = f"its text cannot be read, {type(second).__name__}"
    if isinstance(error, SystemExit):
        text = f"it tried to end the program with {text}"
    return text.encode("utf-8", "backslashreplace").decode()
