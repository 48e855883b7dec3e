"""`assay list`: tables of plug-ins and suites."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from assay.commands.arguments import JsonOption
from assay.commands.listing import KINDS, SUITES, Listed, cost_of, rows_of
from assay.commands.terminal import console, print_json
from assay.errors import unknown
from assay.plugins.needs import NEEDS

# Fields that are not printed as facts: they have their own place, or are for programs.
NOT_FACTS = (
    "name", "title", "version", "summary", "options", "allowed", "required", "common", "by", "once",
)  # fmt: skip


def list_plugins(
    what: Annotated[str, typer.Argument(help=f"{', '.join([*KINDS, SUITES])}.")],
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Show only these, with their description and options."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List methods, protocols, models, datasets, environments, fills, units or suites."""
    if what not in (*KINDS, SUITES):
        raise unknown("list", what, [*KINDS, SUITES])
    rows = rows_of(what, names or ())
    if as_json:
        print_json(rows)
    elif what == "methods" and not names:
        print_methods(rows)
    else:
        for row in rows:
            print_entry(row)


def print_methods(rows: Sequence[Listed]) -> None:
    """Print methods by family, controls last, in at most 80 columns."""
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    for column in ("method, citation", "family", "needs"):
        table.add_column(column, no_wrap=column != "needs")
    for column in ("forward", "backward"):
        table.add_column(column, justify="right")
    by_family = sorted(rows, key=lambda row: (row["family"], row["name"]))
    controls = [row for row in by_family if row["control"]]
    for row in [row for row in by_family if not row["control"]] + controls:
        if controls and row is controls[0]:
            table.add_row("\n[bold]controls[/bold]")
        cite = f"\n  [dim]{escape(row['cite'])}[/dim]" if row["cite"] else ""
        needs = ", ".join(row["needs"]) or "nothing"
        table.add_row(f"{escape(row['name'])}{cite}", row["family"], needs, *cost_of(row))
    console.print(table, highlight=False)
    console.print(
        f"\n{len(rows) - len(controls)} methods and {len(controls)} controls. Costs are network "
        f"passes per sample at the default options. For one method's description and options: "
        f"assay list methods NAME",
        markup=False, highlight=False,
    )  # fmt: skip
    needed = {need for row in rows for need in row["needs"]}
    for need, words in NEEDS.items():
        if need in needed:
            _print_indented(f"{need}: {words}", 2)


def print_entry(row: Listed) -> None:
    """Print one plug-in or suite: its description, facts and options."""
    console.print(f"[bold]{escape(row['name'])}[/bold]  {escape(row['summary'])}", highlight=False)
    for line in (_facts(row), _options(row), _common(row)):
        if line:
            _print_indented("; ".join(line), 4)


def _print_indented(text: str, columns: int) -> None:
    padded = Padding(escape(text), (0, 0, 0, columns), expand=False)
    console.print(padded, style="dim", highlight=False)


def _facts(row: Listed) -> list[str]:
    facts = {key: value for key, value in row.items() if key not in NOT_FACTS}
    if "by" in row:
        facts["forward"], facts["backward"] = cost_of(row)
    if "properties" in row:
        facts["properties"] = ", ".join(
            name.replace("_", " ") for name, holds in row["properties"].items() if holds is True
        )
    return [
        f"{key.replace('_', ' ')}: {', '.join(map(str, v)) if isinstance(v, list) else v}"
        for key, v in facts.items()
        if v not in ("", [], {})
    ]


def _options(row: Listed) -> list[str]:
    """Required options first, then those with a default, each with the values it accepts."""
    defaults, allowed = row.get("options", {}), row.get("allowed", {})
    return [
        (f"{name}={json.dumps(defaults[name])}" if name in defaults else f"{name}, required")
        + (f" ({allowed[name]})" if allowed.get(name) else "")
        for name in {**dict.fromkeys(row.get("required", ())), **defaults}
    ]


def _common(row: Listed) -> list[str]:
    return [f"{name}: {words}" for name, words in row.get("common", {}).items()]
