"""`assay consistency`: do the settings of some runs order the methods alike?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table

from assay.commands.arguments import JsonOption
from assay.commands.rank import FoldersArgument, ReplicatesOption, SourceOption, pairs_of
from assay.commands.terminal import console, say
from assay.errors import InputError

if TYPE_CHECKING:
    from assay.aggregation.measured import Consistency

SHOWN = 10  # settings of the matrix that fit on a terminal


def consistency(
    folders: FoldersArgument,
    replicates: ReplicatesOption = None,
    source: SourceOption = None,
    diagram: Annotated[
        Path | None, typer.Option(help="Write the critical-difference diagram to this SVG file.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show how far datasets, models and protocols agree about the order of the methods."""
    from assay.aggregation.of_runs import consistency as measure

    found = measure(folders, families=replicates, sources=pairs_of(source))
    if as_json:
        print(json.dumps(found.as_dict(), indent=1))
    else:
        for line in found.sentences:
            say(line)
        _print_matrix(found)
        for note in found.notes:
            say(note, "dim")
    if diagram is not None:
        _write_diagram(found, diagram)


def _write_diagram(found: Consistency, path: Path) -> None:
    from assay.aggregation.rank_diagram import rank_diagram

    text = rank_diagram(found)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"Cannot write the diagram to `{path}`: {error.strerror}. Give another `--diagram`."
        ) from None


def _print_matrix(found: Consistency) -> None:
    """Kendall's tau between settings, similar ones beside each other."""
    places = found.leaves.tolist()[:SHOWN]
    say("Kendall's tau between settings:")
    for number, place in enumerate(places, 1):
        name = setting_name(found, place)
        say(f"{number:3} {name}")
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("", *map(str, range(1, len(places)))):
        table.add_column(heading, justify="right", no_wrap=True)
    for number, place in enumerate(places, 1):
        cells = [f"{found.tau[place, other]:.2f}" for other in places[: number - 1]]
        table.add_row(str(number), *cells)
    console.print(table)
    if len(found.settings) > SHOWN:
        say(f"{len(found.settings) - SHOWN} more settings: --json has all.")


def setting_name(found: Consistency, place: int) -> str:
    """A setting in words; its checkpoint only where a model has several."""
    dataset, model, checkpoint, protocol = found.settings[place]
    several = len({setting[:3] for setting in found.settings}) > len(
        {setting[:2] for setting in found.settings}
    )
    parts = [dataset, model, checkpoint if several else "", protocol]
    return ", ".join(dict.fromkeys(part for part in parts if part))
