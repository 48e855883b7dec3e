"""Where the truth is known: who finds it, and which protocols agree with it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup

from assay.report import charts
from assay.report.board import Board, Entry, Panel, key_of, number
from assay.report.charts import shown
from assay.report.verdict import names


@dataclass(frozen=True)
class Truth:
    """What the truth says of one section."""

    first: tuple[str, ...]  # the methods in first place by it; none where it ranks none
    answer: Markup
    against: Markup  # that the other protocols put a wrong method first, where they do
    panels: tuple[Panel, ...]  # of the protocols that know it
    trust: Markup  # a chart, or nothing where too few methods were run
    rests_on: str  # what that chart rests on


def split(board: Board, knowing: Collection[str]) -> tuple[Board, tuple[Panel, ...]]:
    """The board without the protocols that know the truth, where there are others, and these."""
    panels = tuple(p for p in board.panels if p.protocol in knowing)
    others = tuple(r for r in board.rows if r["protocol"] not in knowing)
    return (replace(board, rows=others) if others else board), panels


def of(
    board: Board,
    panels: Sequence[Panel],
    trust: Sequence[Mapping[str, Any]],
    methods: Mapping[str, Mapping[str, Any]],
    leaders: Sequence[str],
) -> Truth | None:
    """What is known of the truth in a section; None where it has none.

    Args:
        board: The whole board of the section.
        panels: Those of its protocols that know the truth.
        trust: How far the other protocols agree with the truth, of all sections.
        methods: What the manifest says of each method.
        leaders: The methods in first place over the other protocols.
    """
    if not panels:
        return None
    ranking = {r["protocol"] for r in board.rows if r["rank"] is not None}
    panel = next((p for p in panels if p.protocol in ranking), panels[0])
    placed = _placed([r for r in board.rows if r["protocol"] == panel.protocol], methods)
    first = tuple(method for method, (place, _) in placed.items() if place == 1)
    others = {r["protocol"] for r in board.rows} - {p.protocol for p in panels}
    mine = [row for row in trust if key_of(row) == board.key and row["correlation"] is not None]
    mine.sort(key=lambda row: -row["correlation"])
    return Truth(
        first,
        _answer(panel.protocol, first, placed),
        _against(leaders, placed) if others else Markup(""),
        tuple(panels),
        _chart(mine),
        _rests_on(mine),
    )


def _placed(
    rows: Sequence[Entry], methods: Mapping[str, Mapping[str, Any]]
) -> dict[str, tuple[int, str]]:
    """Place and score by the truth of each method that has a rank, the controls aside."""
    found = [r for r in rows if r["rank"] is not None and not methods[r["method"]].get("control")]
    ranks = [r["rank"] for r in found]
    return {
        r["method"]: (1 + sum(rank < r["rank"] for rank in ranks), shown(number(r["mean"])))
        for r in found
    }


def _answer(protocol: str, first: Sequence[str], placed: Mapping[str, tuple[int, str]]) -> Markup:
    if not first:
        return Markup("No method could be ranked by the truth here.")
    return Markup("By the truth, {} {} ({} {}).").format(
        names(first),
        "comes first" if len(first) == 1 else "tie for first",
        protocol,
        ", ".join(placed[method][1] for method in first),
    )


def _against(leaders: Sequence[str], placed: Mapping[str, tuple[int, str]]) -> Markup:
    """A warning, unless the truth puts one of the leaders first or does not know one of them."""
    if not leaders or any(placed.get(method, (1, ""))[0] == 1 for method in leaders):
        return Markup("")
    places = ["{} ({})".format(*placed[method]) for method in leaders]
    return Markup(
        "The protocols put {} first, which by the truth {} {}: here they are not to be trusted."
    ).format(
        names(leaders), "is number" if len(leaders) == 1 else "are numbers", " and ".join(places)
    )


def _chart(trust: Sequence[Mapping[str, Any]]) -> Markup:
    if not trust:
        return Markup("")
    estimates = [
        charts.Estimate(
            label=row["protocol"],
            mean=row["correlation"],
            low=number(row["low"]),
            high=number(row["high"]),
            kind="method",
            numbers=f"{row['correlation']:.2f}  {_interval(row)}",
            title=f"{row['protocol']} orders {len(row['methods'])} methods as {row['truth']} does: "
            f"rank correlation {row['correlation']:.2f} {_interval(row)}",
        )
        for row in trust
    ]
    return charts.forest(
        estimates,
        {"zero": 0.0},
        title=f"Which protocols order the methods as {trust[0]['truth']} does",
        direction="rank correlation with the order by truth →",
    )


def _rests_on(trust: Sequence[Mapping[str, Any]]) -> str:
    if not trust:
        return ""
    counts = sorted({len(row["methods"]) for row in trust})
    some = "–".join(str(n) for n in dict.fromkeys((counts[0], counts[-1])))
    return f"{some} methods without the controls, {max(row['n'] for row in trust)} samples"


def _interval(row: Mapping[str, Any]) -> str:
    return "" if row["low"] is None else f"[{row['low']:.2f}, {row['high']:.2f}]"
