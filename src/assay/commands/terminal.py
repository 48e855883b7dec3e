"""The terminal: where commands print, and the exit codes they end with."""

import functools
import json
from collections.abc import Callable, Sequence
from typing import ParamSpec

import typer
from rich.console import Console

from assay.errors import InputError
from assay.processes import Stopped, stoppable, without_exit

CommandArguments = ParamSpec("CommandArguments")

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


def ending_itself(command: Callable[CommandArguments, None]) -> Callable[CommandArguments, None]:
    """The command, which only itself and signals can end.

    If code that it loads or calls could end it, that would pass for a success. A command ends early
    by `typer.Exit`.
    """

    @functools.wraps(command)
    def run(*arguments: CommandArguments.args, **options: CommandArguments.kwargs) -> None:
        try:
            with stoppable(), without_exit():
                command(*arguments, **options)
        except Stopped as stop:
            say_error("Stopped.")
            raise typer.Exit(stop.code) from None
        except SystemExit as error:
            if isinstance(error.__context__, BrokenPipeError):  # the reader of the output ended
                raise typer.Exit(1) from None
            raise InputError(
                f"Code that the command loaded or called tried to end the program ({error}). "
                f"Remove its `exit()`."
            ) from error

    return run
