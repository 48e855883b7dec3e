"""`assay rank`: one order of the methods over all settings of some runs."""

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
    from assay.aggregation.merged_ranking import Ranking

FoldersArgument = Annotated[list[Path], typer.Argument(help="Folders of runs.")]
ReplicatesOption = Annotated[
    str | None,
    typer.Option(
        help="A regular expression for the part of a model's name that numbers replicates of one "
        "architecture, by default -s0, -s1 and so on."
    ),
]
SourceOption = Annotated[
    list[str] | None,
    typer.Option(help="DATASET=SOURCE: where a dataset comes from. Can be given many times."),
]


def rank(
    folders: FoldersArgument,
    rule: Annotated[
        str,
        typer.Option(
            help="mixed, a model of standardised differences, or a voting rule: metarank, borda, "
            "copeland, kemeny, schulze, ranked_pairs, bradley_terry, plackett_luce."
        ),
    ] = "mixed",
    weights: Annotated[
        str, typer.Option(help="Of rows in a voting rule: equal, dataset or two_stage.")
    ] = "equal",
    replicates: ReplicatesOption = None,
    source: SourceOption = None,
    margin: Annotated[
        float, typer.Option(help="Differences below it do not matter; the spread of random is 1.")
    ] = 0.1,
    as_json: JsonOption = False,
) -> None:
    """Rank methods over all datasets, models and protocols of one or more runs."""
    from assay.aggregation.of_runs import rank as rank_runs

    ranking = rank_runs(
        folders, rule, weights=weights, families=replicates, sources=pairs_of(source),
        margin=margin,
    )  # fmt: skip
    if as_json:
        print(json.dumps(ranking.as_dict(), indent=1))
        return
    print_ranking(ranking)


def pairs_of(texts: Sequence[str] | None) -> dict[str, str] | None:
    """The source by dataset, from DATASET=SOURCE."""
    if not texts:
        return None
    parts = [text.rpartition("=") for text in texts]
    for text, (dataset, _, name) in zip(texts, parts, strict=True):
        if not dataset or not name:
            raise InputError(f"Expected --source DATASET=SOURCE, got `{text}`.")
    return {dataset: name for dataset, _, name in parts}


def print_ranking(ranking: Ranking) -> None:
    """Print the answer, the order, and what to make of it."""
    from assay.aggregation.merged_ranking import HEADER, cells_of

    say(ranking.verdict, "bold")
    table = Table(box=box.SIMPLE_HEAD)
    for column in HEADER:
        table.add_column(column, justify="left" if column == "method" else "right", overflow="fold")
    for row in ranking.rows:
        table.add_row(*map(escape, cells_of(row)))
    console.print(table)
    say(f"P(best) is over {ranking.basis}. Methods share a place where {ranking.tied}.")
    for line in ranking.recommendation:
        say(line)
    for note in ranking.notes:
        say(note, "dim")
