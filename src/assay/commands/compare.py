"""`assay compare`: models side by side, by protocols that may compare models."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from assay.commands.arguments import JsonOption
from assay.commands.terminal import console, say
from assay.errors import InputError

if TYPE_CHECKING:
    from assay.ranking.model_rows import ModelComparison, Refusal


def compare(
    folders: Annotated[list[Path], typer.Argument(help="Folders of runs on the same data.")],
    protocol: Annotated[
        str | None, typer.Option(help="One protocol; by default all that may compare models.")
    ] = None,
    replicates: Annotated[
        str | None,
        typer.Option(
            help="A regular expression for the part of a model's name that numbers replicates of "
            "one architecture, by default -s0, -s1 and so on."
        ),
    ] = None,
    architecture: Annotated[
        list[str] | None,
        typer.Option(help="MODEL=NAME: the architecture of one model. Can be given many times."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare models: how well can each be explained, against its accuracy."""
    from assay.ranking.model_words import RULES
    from assay.results import compare as compare_runs

    if replicates is not None and architecture:
        raise InputError("Expected --replicates or --architecture, got both.")
    grouping = _mapping(architecture) if architecture else replicates
    result = compare_runs(*folders, protocol=protocol, replicates=grouping)
    if as_json:
        print(json.dumps(result.as_dict(), indent=1))
        return
    for one in result.comparisons:
        _print_comparison(one)
        console.print()
    for line in (*RULES, *result.notes):
        say(line)
    for refusal in result.refused:
        _print_refusal(refusal)


def _mapping(pairs: Sequence[str]) -> dict[str, str]:
    """The architecture by model, from MODEL=NAME."""
    parts = [pair.rpartition("=") for pair in pairs]
    for pair, (model, _, name) in zip(pairs, parts, strict=True):
        if not model or not name:
            raise InputError(f"Expected --architecture MODEL=NAME, got `{pair}`.")
    return {model: name for model, _, name in parts}


def _print_comparison(one: ModelComparison) -> None:
    from assay.ranking.model_rows import in_text, sentences
    from assay.ranking.model_words import CEILING, answer, heading, lead, remarks, with_n

    table = _table(("", "model", "score", "lead of the first"))
    beside = _table(("model", "accuracy", "under noise", "with another fill"))
    for row in one.models:
        rank = "-" if row.rank is None else str(row.rank)
        behind = lead(one.pairs, one.models[0].model, row.model)
        table.add_row(rank, escape(row.model), in_text(row.score), in_text(behind))
        others = (with_n(number, row.n, 2) for number in (row.accuracy, row.noise, row.other_fill))
        beside.add_row(escape(row.model), *others)
    say(heading(one))
    say(answer(one), "bold")
    console.print(table)
    say(CEILING)
    console.print(beside)
    _print_architectures(one)
    for line in (*remarks(one), *sentences(one.left_out)):
        say(line)


def _print_architectures(one: ModelComparison) -> None:
    from assay.ranking.model_rows import in_text
    from assay.ranking.model_words import architecture_leads, with_n

    if not one.architectures:
        return
    table = _table(("", "architecture", "score", "accuracy", "models", "sd"))
    for row in one.architectures:
        table.add_row(
            "-" if row.rank is None else str(row.rank),
            escape(row.architecture),
            in_text(row.score),
            with_n(row.accuracy, row.score.n, 2),
            str(len(row.models)),
            f"{row.deviation:.3f}",
        )
    say("Architectures, with intervals over samples and models")
    console.print(table)
    for line in architecture_leads(one):
        say(line)


def _table(columns: Sequence[str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for column in columns:
        named = column in ("model", "architecture")
        table.add_column(
            column, justify="left" if named else "right", overflow="fold", no_wrap=not named
        )
    return table


def _print_refusal(one: Refusal) -> None:
    from assay.ranking.model_rows import sentences

    for line in (f"Not compared by {one.protocol}. {one.reason}", *sentences(one.left_out)):
        say(line, "dim")
