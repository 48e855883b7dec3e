"""What `assay finetune` prints: the card, and the scores before and after."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from assay.commands.terminal import console, say
from assay.suite.defaults import IN_DOMAIN_PROTOCOLS

if TYPE_CHECKING:
    from rich.table import Table

    from assay.ranking.rows import BoardRow
    from assay.results import Results
    from assay.training.tuned_folder import TunedFolder
    from assay.types import Card

BEFORE, AFTER = "before", "fine-tuned"  # the labels of the two networks
IDSDS, SDS = IN_DOMAIN_PROTOCOLS


def print_card(card: Card, folder: TunedFolder) -> None:
    """Print a card and where it is stored."""
    console.print(_accuracies(card))
    console.print(_distances(card))
    say(card.sentence)
    say(f"{card.origin[:1].upper()}{card.origin[1:]}.")
    say(f"The weights: {folder.weights}")
    say(f"The card: {folder.card_file}")


def print_scores(results: Results) -> None:
    """Print the score of each method with its interval, of both networks."""
    rows: dict[tuple[str, str], dict[str, BoardRow]] = {}
    for row in results.leaderboard().by_protocol:
        name = results.entries.protocols[row.protocol].name
        if row.mean is not None:
            rows.setdefault((row.model, name), {})[row.method] = row
    shown = {
        "before: SDS": rows.get((BEFORE, SDS), {}),
        "fine-tuned: IDSDS": rows.get((AFTER, IDSDS), {}),
    }
    if not shown["fine-tuned: IDSDS"]:  # the card is not one of an in-domain network
        shown = {"before: SDS": shown["before: SDS"], "fine-tuned: SDS": rows.get((AFTER, SDS), {})}
    shown = {title: column for title, column in shown.items() if column}
    if not shown:
        return
    last = list(shown.values())[-1]
    every = {method: row for column in shown.values() for method, row in column.items()}
    methods = sorted(every, key=lambda m: -(last[m].mean or 0.0) if m in last else float("inf"))
    console.print(
        _table(
            f"Rank correlation on {max(row.n for row in every.values())} samples, with 95 % "
            f"intervals",
            ("method", *shown),
            [
                (
                    f"{method} (control)" if every[method].control else method,
                    *(_score(column.get(method)) for column in shown.values()),
                )
                for method in methods
            ],
        )
    )


def _score(row: BoardRow | None) -> str:
    if row is None or row.mean is None:
        return ""
    interval = "" if row.low is None else f"  {row.low:z.2f} to {row.high:z.2f}"
    return f"{row.mean:z.3f}{interval}"  # z: no -0.000


def _accuracies(card: Card) -> Table:
    from assay.types.card import fill_text

    rows = (
        ("whole images", card.accuracy_before, card.accuracy_after, card.placebo_accuracy),
        ("whichever cell is missing", card.worst_patch_before, card.worst_patch_after,
         card.placebo_worst_patch),
        ("without the cell that costs most", card.lowest_patch_before, card.lowest_patch_after,
         card.placebo_lowest_patch),
    )  # fmt: skip
    return _table(f"Accuracy on {card.n} samples, grid {card.grid}, fill {fill_text(card.fill)}",
                  ("", BEFORE, AFTER, "placebo"),
                  [(name, *map(_percent, values)) for name, *values in rows])  # fmt: skip


def _distances(card: Card) -> Table:
    """How far the network moved, beside the placebo and another seed."""
    rows = (
        ("mean difference of the label's probability", card.mad_softmax, card.placebo_mad_softmax,
         card.seeds_mad_softmax),
        ("mean difference of Grad-CAM maps", card.mad_gradcam, card.placebo_mad_gradcam,
         card.seeds_mad_gradcam),
        ("overlap of top samples", card.overlap, card.placebo_overlap, card.seeds_overlap),
    )  # fmt: skip
    return _table("Compared with the network before",
                  ("", AFTER, "placebo", "another seed"),
                  [(name, *map(_number, values)) for name, *values in rows])  # fmt: skip


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A table without the columns and rows that hold nothing."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(title))
    kept = [0, *(i for i in range(1, len(columns)) if any(row[i] for row in rows))]
    for place in kept:
        table.add_column(columns[place], justify="right" if place else "left", overflow="fold")
    for row in rows:
        if any(row[place] for place in kept[1:]):
            table.add_row(*(escape(row[place]) for place in kept))
    return table


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
