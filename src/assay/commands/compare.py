"""`assay compare`: models side by side, by protocols that may compare models."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from assay.commands.arguments import JsonOption
from assay.commands.terminal import console
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
    for note in result.notes:
        _say(note)
    _print_refusals(result.refused)


def _mapping(pairs: Sequence[str]) -> dict[str, str]:
    """The architecture by model, from MODEL=NAME."""
    parts = [pair.rpartition("=") for pair in pairs]
    for pair, (model, _, name) in zip(pairs, parts, strict=True):
        if not model or not name:
            raise InputError(f"Expected --architecture MODEL=NAME, got `{pair}`.")
    return {model: name for model, _, name in parts}


def _print_comparison(one: ModelComparison) -> None:
    from assay.ranking.model_rows import in_text

    direction = "higher" if one.higher_is_better else "lower"
    title = f"{one.dataset}: models by {one.protocol}, {direction} is better"
    table = _table(title, ("", "model", "score", "accuracy", "same under noise", "other fill", "n"))
    for row in one.models:
        table.add_row(
            "-" if row.rank is None else str(row.rank),
            escape(row.model),
            in_text(row.score),
            in_text(row.accuracy),
            in_text(row.noise),
            in_text(row.other_fill),
            str(row.n),
        )
    console.print(table)
    _say(
        f"The score is that of the best of {len(one.methods)} common methods, chosen on one half "
        f"of the samples and scored on the other: {', '.join(one.methods)}."
    )
    _print_architectures(one)
    if one.intrinsic:
        maps = [f"{row.model} {row.method} {in_text(row.score)}" for row in one.intrinsic]
        _say(f"Maps of the networks themselves, near-circular and not compared: {', '.join(maps)}.")
    if one.correlation is not None:
        _say(f"Rank correlation of score and accuracy over the models: {one.correlation:.2f}.")
    for note in one.notes:
        _say(note)


def _print_architectures(one: ModelComparison) -> None:
    from assay.ranking.model_rows import in_text

    if not one.architectures:
        return
    title = "Architectures, with intervals over samples and replicates"
    columns = ("", "architecture", "score", "accuracy", "models", "deviation of models")
    table = _table(title, columns)
    for row in one.architectures:
        table.add_row(
            "-" if row.rank is None else str(row.rank),
            escape(row.architecture),
            in_text(row.score),
            "" if row.accuracy is None else f"{row.accuracy:.3f}",
            str(len(row.models)),
            f"{row.deviation:.3f}",
        )
    console.print(table)


def _table(title: str, columns: Sequence[str]) -> Table:
    table = Table(title=escape(title))
    for column in columns:
        left = column in ("model", "architecture")
        table.add_column(column, justify="left" if left else "right", overflow="fold")
    return table


def _print_refusals(refused: Sequence[Refusal]) -> None:
    for one in refused:
        _say(f"Not compared by {one.protocol}. {one.reason}", style="dim")


def _say(text: str, style: str = "") -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True, style=style)
