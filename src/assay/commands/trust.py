"""`assay trust`: do the protocols of a run order the methods as the truth does?"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from assay.commands.arguments import JsonOption
from assay.commands.terminal import console
from assay.errors import InputError


def trust(
    folders: Annotated[
        list[Path], typer.Argument(help="Folders of runs with a protocol that knows the truth.")
    ],
    truth: Annotated[
        str | None, typer.Option(help="The protocol that knows the truth, where there are several.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show how far each protocol orders the methods as the truth does."""
    print_trust(console, folders, truth, as_json)


def print_trust(
    console: Console, folders: Sequence[Path], truth: str | None, as_json: bool
) -> None:
    """How far each protocol orders the methods as the truth does, where it is known."""
    from assay.ranking.trust import FEW_METHODS, NO_ORDER
    from assay.results import load

    several = len(folders) > 1
    rows = []
    for folder in folders:
        found = load(folder).trust(truth, quiet=True)
        rows += [{**row, "run": str(folder) if several else ""} for row in found]
        if not found and (several or as_json):
            left_out = f"Left out `{folder}`. {NO_ORDER}"
            Console(stderr=True).print(left_out, markup=False, highlight=False, soft_wrap=True)
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    if not rows:
        raise InputError(NO_ORDER)
    for where in dict.fromkeys(_where(row) for row in rows):
        mine = [row for row in rows if _where(row) == where]
        methods, truth = len(mine[0]["methods"]), mine[0]["truth"]
        said = ", ".join(dict.fromkeys(part for part in where[:-1] if part))
        title = f"{said}: order of {methods} methods against that by {truth}"
        table = Table(title=escape(title))
        table.add_column("protocol", overflow="fold")
        for column in ("correlation", "95 %", "n"):
            table.add_column(column, justify="right")
        for row in sorted(mine, key=_place):
            value = "" if row["correlation"] is None else f"{row['correlation']:.2f}"
            ends = "" if row["low"] is None else f"{row['low']:.2f} to {row['high']:.2f}"
            table.add_row(escape(row["protocol"]), value, ends, str(row["n"]))
        console.print(table)
        fewest = min(len(row["methods"]) for row in mine)
        if fewest < FEW_METHODS:
            console.print(
                f"So few methods ({fewest}) tell little, however narrow an interval is: it is over "
                f"the samples only. Compare {FEW_METHODS} or more.",
                highlight=False,
            )
    console.print("Intervals are over the samples; other methods may give other correlations.")


def _where(row: Mapping[str, Any]) -> tuple[str, ...]:
    """What one table is about."""
    return tuple(row[key] for key in ("run", "dataset", "model", "checkpoint", "truth"))


def _place(row: Mapping[str, Any]) -> float:
    return 2.0 if row["correlation"] is None else -row["correlation"]
