"""`assay claims`: the published claims and their verdicts, and claims run again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE
from rich.markup import escape
from rich.table import Table

from assay.commands.arguments import (
    BatchOption,
    DeviceOption,
    DryOption,
    JsonOption,
    OutOption,
    WorkersOption,
)
from assay.commands.terminal import console, say
from assay.errors import InputError

if TYPE_CHECKING:
    from assay.studies.claim import ClaimRow
    from assay.studies.setting import Study

NUMBERS = ("value", "low", "high", "n")  # columns aligned to the right
WIDTHS = {"statement": 9, "verdict": 9}


def claims(
    paper: Annotated[
        str | None,
        typer.Option(help="Only this paper's claims: m4, idsds, soco or attributionlab."),
    ] = None,
    run_id: Annotated[
        str | None,
        typer.Option("--run", help="Run one claim (soco.12) or all claims of a paper (soco)."),
    ] = None,
    as_json: JsonOption = False,
    data: Annotated[
        Path | None, typer.Option(help="For --run: the folder that holds cifar10/ and weights/.")
    ] = None,
    out: OutOption = Path("assay-claims"),
    n: Annotated[
        int | None,
        typer.Option(min=2, help="The number of images. The default depends on the paper."),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(
            min=2, help="How many synthetic datasets (default 20); half as many networks."
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="The random seed, 0 by default.")] = None,
    device: DeviceOption = None,
    workers: WorkersOption = 1,
    micro_batch: BatchOption = None,
    dry_run: DryOption = False,
) -> None:
    """List claims from papers and our verdicts. With --run, repeat the experiments."""
    if run_id is None:
        return print_claims(published_rows(paper), as_json)
    if paper is not None:
        raise InputError("Expected `--paper` or `--run`, not both: the claim names its paper.")
    from assay.studies.setting import Study, usual_n

    study = Study.cifar(
        data, out, n=n or usual_n(run_id.partition(".")[0]), trials=trials, seed=seed,
        device=device, workers=workers, micro_batch=micro_batch,
    )  # fmt: skip
    if dry_run:
        print_forecasts(run_id, study)
    else:
        run_claims(run_id, study, as_json)


def published_rows(paper: str | None) -> list[ClaimRow]:
    """The published rows of one paper, or of all."""
    from assay.studies.published_claims import PAPERS, published

    return [row for name in ([paper] if paper else PAPERS) for row in published(name)]


def print_claims(rows: Sequence[ClaimRow], as_json: bool) -> None:
    """Print the rows as a table, or as JSON."""
    shown = [row.shown() for row in rows]
    if as_json:
        print(json.dumps(shown, indent=1, ensure_ascii=False))
        return
    from assay.studies.claim import COLUMNS

    columns = COLUMNS[:-1]  # the note is printed below the table
    table = Table(
        title="Claims of the literature", box=SIMPLE, padding=(0, 1, 0, 0), pad_edge=False
    )
    for column in columns:
        number = column in NUMBERS
        table.add_column(
            column,
            justify="right" if number else "left",
            no_wrap=number,
            overflow="fold",
            min_width=WIDTHS.get(column),
        )
    for row in shown:
        table.add_row(*(escape(_cell(row[column])) for column in columns))
    console.print(table)
    for row in shown:
        if row["note"]:
            say(f"{row['id']}: {row['note']}", style="dim")


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.3f}" if isinstance(value, float) else f"{value}"


def print_forecasts(name: str, study: Study) -> None:
    """Print what a claim, or all claims of a paper, would cost."""
    from assay.commands.printing import forecast_table
    from assay.studies.setting import forecasts

    for title, forecast in forecasts(name, study).items():
        say(title)
        console.print(forecast_table(forecast))


def run_claims(name: str, study: Study, as_json: bool) -> None:
    """Run a claim, or all claims of a paper, and print the verdicts."""
    from assay.studies.setting import run_study

    rows, path = run_study(name, study)
    print_claims(rows, as_json)
    if not as_json:
        say(f"The results: {path}")
