"""One order of methods over the settings of some runs, with what is known about it."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from assay.aggregation.pair_verdicts import PairVerdict


@dataclass(frozen=True)
class RankedMethod:
    """One method in the order.

    Attributes:
        method: Its label.
        place: Its place; methods that cannot be separated from the first of their group share it.
        strength: What the rule gives it, higher is better.
        low: Lower end of an interval, or of a range; None where nothing is known.
        high: Upper end.
        best_place: The best place it may have; None where nothing is known.
        worst_place: The worst place it may have.
        p_best: The probability that it is the best; None where nothing is known.
        settings: Number of rows that score it.
        same_as: An earlier method with the same scores everywhere; empty where there is none.
    """

    method: str
    place: int
    strength: float
    low: float | None
    high: float | None
    best_place: int | None
    worst_place: int | None
    p_best: float | None
    settings: int
    same_as: str = ""


@dataclass(frozen=True, repr=False)
class Ranking:
    """One order of methods over several settings.

    Attributes:
        rule: The rule.
        rows: The methods, best first.
        verdict: The answer in one sentence.
        recommendation: What to use for which purpose, what would change the answer, what limits
            it: one sentence each.
        basis: What `p_best` is over.
        tied: Why methods share a place.
        pairs: What is known of each pair; only of the rule `mixed`.
        other_rules: The methods that each other rule puts first.
        tasks: The datasets.
        sources: The source of each dataset.
        stated: Whether the sources were given.
        settings: Number of datasets, models and checkpoints.
        notes: What was left out, and why.
    """

    rule: str
    rows: Sequence[RankedMethod]
    verdict: str
    recommendation: Sequence[str] = ()
    basis: str = ""
    tied: str = ""
    pairs: Sequence[PairVerdict] = ()
    other_rules: Mapping[str, Sequence[str]] = field(default_factory=dict)
    tasks: Sequence[str] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    stated: bool = False
    settings: int = 0
    notes: Sequence[str] = ()

    @property
    def order(self) -> list[str]:
        """The methods, best first."""
        return [row.method for row in self.rows]

    @property
    def ties(self) -> list[list[str]]:
        """The methods in groups that share a place, best first."""
        places = dict.fromkeys(row.place for row in self.rows)
        return [[row.method for row in self.rows if row.place == place] for place in places]

    @property
    def p_best(self) -> dict[str, float]:
        """The probability of each method to be the best; empty where nothing is known."""
        return {row.method: row.p_best for row in self.rows if row.p_best is not None}

    def as_dict(self) -> dict[str, object]:
        """All of it as plain values; None where a number is not known."""
        plain: dict[str, object] = {
            **asdict(self), "order": self.order, "ties": self.ties, "p_best": self.p_best,
        }  # fmt: skip
        plain["pairs"] = [
            {name: None if _unknown(value) else value for name, value in asdict(pair).items()}
            for pair in self.pairs
        ]
        return plain

    def __repr__(self) -> str:
        """The verdict, then the order as an aligned table."""
        lines = [HEADER, *map(cells_of, self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
        return "\n".join([self.verdict, *(f"  {line}" for line in table)])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in HEADER)
        body = "".join(
            f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in cells_of(row))}</tr>"
            for row in self.rows
        )
        return f"<p>{html.escape(self.verdict)}</p><table><tr>{head}</tr>{body}</table>"


HEADER = ("", "method", "strength", "range", "places", "P(best)", "rows")


def cells_of(row: RankedMethod) -> tuple[str, ...]:
    """The cells of one row of the table."""
    known = row.low is not None and row.high is not None
    places = row.best_place is not None and row.worst_place is not None
    name = f"{row.method} (same scores as {row.same_as})" if row.same_as else row.method
    return (
        str(row.place),
        name,
        f"{row.strength:.2f}",
        f"{row.low:.2f} to {row.high:.2f}" if known else "",
        f"{row.best_place} to {row.worst_place}" if places else "",
        "" if row.p_best is None else f"{row.p_best:.2f}",
        str(row.settings),
    )


def _unknown(value: object) -> bool:
    return isinstance(value, float) and bool(np.isnan(value))
