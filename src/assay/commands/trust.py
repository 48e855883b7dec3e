"""`assay trust`: do the protocols of a run order the methods as the truth does?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from assay.commands.arguments import JsonOption
from assay.commands.terminal import console
from assay.errors import InputError

if TYPE_CHECKING:
    from assay.ranking.trust import TrustRow


def trust(
    folders: Annotated[
        list[Path], typer.Argument(help="Folders of runs that have a ground-truth protocol.")
    ],
    truth: Annotated[
        str | None, typer.Option(help="The ground-truth protocol to use, if a run has several.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show how well the order by each protocol agrees with the order by the ground truth."""
    print_trust(console, folders, truth, as_json)


def print_trust(
    console: Console, folders: Sequence[Path], truth: str | None, as_json: bool
) -> None:
    """How far each protocol orders the methods as the truth does, where it is known."""
    from assay.ranking.trust import NO_ORDER
    from assay.results import load

    several = len(folders) > 1
    rows: list[tuple[str, TrustRow]] = []  # with the folder, where there are several
    for folder in folders:
        own = load(folder).trust_rows(truth)
        rows += [(str(folder) if several else "", row) for row in own]
        if not own and (several or as_json):
            left_out = f"Left out `{folder}`. {NO_ORDER}"
            Console(stderr=True).print(left_out, markup=False, highlight=False, soft_wrap=True)
    if as_json:
        print(json.dumps([{**row.as_dict(), "run": run} for run, row in rows], indent=1))
        return
    if not rows:
        raise InputError(NO_ORDER)
    for key in dict.fromkeys(_table_key(run, row) for run, row in rows):
        _print_table(console, key, [row for run, row in rows if _table_key(run, row) == key])
    console.print(
        "Intervals are over samples and methods, and over networks and retrainings where there are "
        "several. Near-clones count as one method."
    )


def _table_key(run: str, row: TrustRow) -> tuple[str, ...]:
    """What one table is about: run, setting, and the protocol that knows the truth."""
    return run, *row.setting, row.truth


def _print_table(console: Console, key: tuple[str, ...], rows: Sequence[TrustRow]) -> None:
    from assay.ranking.trust_draws import FEW_METHODS, FEWEST_NETWORKS

    several = rows[0].settings
    where = ", ".join(dict.fromkeys(part for part in key[:-1] if part))
    where += f"{': ' if where else ''}mean over {several} networks" if several > 1 else ""
    table = Table(title=escape(f"{where}: order of the methods compared with {rows[0].truth}"))
    table.add_column("protocol", overflow="fold")
    for column in ("correlation", "95 %", "methods", "n"):
        table.add_column(column, justify="right")
    for row in sorted(rows, key=_descending):
        value = "" if row.correlation is None else f"{row.correlation:.2f}"
        known = row.low is not None and row.high is not None
        ends = f"{row.low:.2f} to {row.high:.2f}" if known else ""
        table.add_row(escape(row.protocol), value, ends, str(row.distinct), str(row.n))
    console.print(table)
    fewest = min(row.distinct for row in rows)
    if fewest < FEW_METHODS:
        console.print(
            f"So few methods ({fewest}) say little and have no interval. Compare {FEW_METHODS} or "
            f"more distinct ones.",
            highlight=False,
        )
    if 1 < several < FEWEST_NETWORKS:
        console.print(
            f"So few networks ({several}) have no interval: it needs {FEWEST_NETWORKS}.",
            highlight=False,
        )


def _descending(row: TrustRow) -> float:
    """Sort by correlation, the highest first; an unknown one is last."""
    return 2.0 if row.correlation is None else -row.correlation
