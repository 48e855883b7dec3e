"""`assay verify`: are the files of a run whole?"""

from pathlib import Path
from typing import Annotated

import typer

from assay.commands.terminal import FAILED, say


def verify(folder: Annotated[Path, typer.Argument(help="The run's folder.")]) -> None:
    """Compare the checksums of all files of a run, and say what a next run would compute."""
    from assay.store.files import Store
    from assay.store.verification import verify as verify_files

    state = verify_files(Store(folder))
    for path, why in state.damaged.items():
        say(f"{path}: {why}")
    say(
        f"{state.files} files read, {len(state.damaged)} of them damaged or missing. "
        f"{state.cells} of {state.planned} cells are finished, counted per shard."
    )
    if state.whole:
        say("The run is whole: a next run computes nothing.")
        return
    missing, failed = state.planned - state.cells, state.failed
    say(
        f"A next run computes {missing} missing and {failed} failed cells in {state.shards} "
        f"shards, and makes damaged files again: `assay run {folder}/spec.yaml --out {folder}`."
    )
    raise typer.Exit(FAILED)
