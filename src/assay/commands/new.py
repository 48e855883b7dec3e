"""`assay new`: the file of a plug-in and its test."""

from pathlib import Path
from typing import Annotated

import typer

from assay.commands.terminal import say


def new(
    kind: Annotated[str, typer.Argument(help="method, protocol, model or environment.")],
    name: Annotated[str, typer.Argument(help="The name of the file, function and plug-in.")],
    out: Annotated[Path, typer.Option("--out", help="The folder to write to.")] = Path(),
) -> None:
    """Create a template for a plug-in and a test for it. Both run without changes."""
    from assay.plugins.scaffold import next_steps, write_plugin

    file, test = write_plugin(kind, name, out)
    say(f"Written: {file} and {test}. Next:")
    for command in next_steps(kind, file, test):
        say(command)
