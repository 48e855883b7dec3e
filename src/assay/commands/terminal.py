"""The terminal: where commands print, and the exit codes they end with."""

import json
from collections.abc import Sequence

from rich.console import Console

MISTAKE = 2  # the call is wrong, or something it needs is missing
FAILED = 3  # some cell, method or rule failed, or the run is not complete
INTERRUPTED = 130  # by Ctrl-C; 143 by SIGTERM

console = Console()


def say(line: str, style: str | None = None) -> None:
    """Print one line as it is: no markup, no highlighting, no forced line breaks."""
    console.print(line, style=style, markup=False, highlight=False, soft_wrap=True)


def say_error(line: str) -> None:
    """Print one line as it is to the standard error."""
    Console(stderr=True).print(line, markup=False, highlight=False, soft_wrap=True)


def print_json(rows: Sequence[object]) -> None:
    """Print rows for programs."""
    print(json.dumps(rows, indent=1))
