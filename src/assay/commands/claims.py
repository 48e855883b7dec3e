"""The published claims and their verdicts, and claims run again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from assay.studies.claim import COLUMNS, ClaimRow
from assay.studies.published_claims import PAPERS, published


def rows_of(paper: str | None) -> list[ClaimRow]:
    """The published rows of one paper, or of all."""
    return [row for name in ([paper] if paper else PAPERS) for row in published(name)]


def print_rows(console: Console, rows: list[ClaimRow], as_json: bool) -> None:
    """The rows as a table, or for programs."""
    shown = [row.shown() for row in rows]
    if as_json:
        print(json.dumps(shown, indent=1, ensure_ascii=False))
        return
    table = Table(
        title="Claims of the literature", box=SIMPLE, padding=(0, 1, 0, 0), pad_edge=False
    )
    for column in COLUMNS[:-1]:
        right = column in ("value", "low", "high", "n")
        widths = {"statement": 9, "verdict": 9}
        table.add_column(
            column,
            justify="right" if right else "left",
            no_wrap=right,
            overflow="fold",
            min_width=widths.get(column),
        )
    for row in shown:
        table.add_row(*(escape(_cell(row[column])) for column in COLUMNS[:-1]))
    console.print(table)
    for row in shown:
        if row["note"]:
            line = f"{row['id']}: {row['note']}"
            console.print(line, style="dim", markup=False, highlight=False, soft_wrap=True)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.3f}" if isinstance(value, float) else f"{value}"


def run_claims(
    console: Console,
    name: str,
    data: Path | None,
    out: Path,
    *,
    dry_run: bool,
    as_json: bool,
    **how: Any,
) -> None:
    """Run a claim, or all of a paper, and print what came out.

    Args:
        console: Where it is printed.
        name: `soco` or `soco.12`.
        data: The folder with data and weights, where the claim needs them.
        out: The folder of the runs and the results; what is there already is kept.
        dry_run: Only count forward passes.
        as_json: Print rows for programs.
        **how: Fields of the study: `n`, `trials`, `seed`, `device`, `workers`, `micro_batch`.
    """
    from assay.studies.setting import Study, run_study, usual_n

    how["n"] = how["n"] or usual_n(name.partition(".")[0])
    study = Study.cifar(data, out, **how)
    if dry_run:
        from assay.commands.printing import forecast_table
        from assay.studies.setting import forecasts

        for title, found in forecasts(name, study).items():
            console.print(title, markup=False)
            console.print(forecast_table(found))
        return
    rows, path = run_study(name, study)
    print_rows(console, rows, as_json)
    if not as_json:
        console.print(f"The results: {path}", markup=False, soft_wrap=True)
