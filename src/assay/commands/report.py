"""`assay report`: the page of a run, written again."""

from pathlib import Path
from typing import Annotated

import typer

from assay.commands.terminal import say


def report(
    folder: Annotated[Path, typer.Argument(help="The run's folder.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The HTML file to write.")
    ] = None,
) -> None:
    """Write the HTML report of a stored run."""
    from assay.results import load

    say(f"The page: {load(folder).report(output)}")
