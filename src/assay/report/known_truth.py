"""Where the truth is known: which methods agree with it, and which protocols do."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from assay.ranking.rows import BoardRow
from assay.ranking.trust import TrustRow
from assay.report import charts
from assay.report.board import Board
from assay.report.charts import shown
from assay.report.protocol_panels import ProtocolPanel
from assay.report.row_texts import number
from assay.report.verdict import names


@dataclass(frozen=True)
class Truth:
    """What the truth says about one setting."""

    first: tuple[str, ...]  # the methods in first place by it; none where it ranks none
    answer: Markup
    against: Markup  # that the other protocols put a wrong method first, where they do
    panels: tuple[ProtocolPanel, ...]  # of the protocols that know it
    trust: Markup  # a chart, or nothing where too few methods were run
    basis: str  # how many methods and samples are behind that chart


@dataclass(frozen=True)
class TruePlace:
    """A method's place and score by the truth."""

    place: int
    score: str


def split(
    board: Board, truth_protocols: Collection[str]
) -> tuple[Board, tuple[ProtocolPanel, ...]]:
    """The board without the protocols that know the truth, where there are others, and these."""
    panels = tuple(panel for panel in board.panels if panel.protocol in truth_protocols)
    others = tuple(row for row in board.rows if row.protocol not in truth_protocols)
    return (replace(board, rows=others) if others else board), panels


def describe_truth(
    board: Board,
    panels: Sequence[ProtocolPanel],
    trust: Sequence[TrustRow],
    leaders: Sequence[str],
) -> Truth | None:
    """What is known of the truth in a setting; None where there is none.

    Args:
        board: The whole board of the setting.
        panels: Those of its protocols that know the truth.
        trust: How far the other protocols agree with the truth, in all settings.
        leaders: The methods that no other one beats under the other protocols.
    """
    if not panels:
        return None
    ranking = {row.protocol for row in board.rows if row.rank is not None}
    panel = next((p for p in panels if p.protocol in ranking), panels[0])
    by_truth = [row for row in board.rows if row.protocol == panel.protocol]
    places = _places(by_truth)
    enough = any(row.ties_broken for row in by_truth)
    first = tuple(method for method, true in places.items() if true.place == 1 and enough)
    others = {row.protocol for row in board.rows} - {p.protocol for p in panels}
    rows = [row for row in trust if row.setting == board.setting and row.correlation is not None]
    rows.sort(key=lambda row: -number(row.correlation))
    return Truth(
        first,
        _answer(panel.protocol, first, places),
        _against(leaders, places) if others and enough else Markup(""),
        tuple(panels),
        _chart(rows),
        _basis(rows),
    )


def _places(rows: Sequence[BoardRow]) -> dict[str, TruePlace]:
    """The place of each ranked method; controls are not counted."""
    ranked = [(row, row.rank) for row in rows if row.rank is not None and not row.control]
    return {
        row.method: TruePlace(1 + sum(other < rank for _, other in ranked), shown(number(row.mean)))
        for row, rank in ranked
    }


def _answer(protocol: str, first: Sequence[str], places: dict[str, TruePlace]) -> Markup:
    if places and not first:
        return Markup("Too few samples to separate methods by the truth.")
    if not first:
        return Markup("No method could be ranked by the truth here.")
    return Markup("By the truth, {} {} ({} {}).").format(
        names(first),
        "comes first" if len(first) == 1 else "tie for first",
        protocol,
        ", ".join(places[method].score for method in first),
    )


def _against(leaders: Sequence[str], places: dict[str, TruePlace]) -> Markup:
    """A warning, unless the truth puts one of the leaders first or does not rank one of them."""
    if not leaders or any(m not in places or places[m].place == 1 for m in leaders):
        return Markup("")
    true = [f"{places[method].place} ({places[method].score})" for method in leaders]
    return Markup(
        "The other protocols put {} first, but by the truth {} {}. Do not trust them here."
    ).format(
        names(leaders), "it is number" if len(leaders) == 1 else "they are numbers",
        " and ".join(true),
    )  # fmt: skip


def _chart(rows: Sequence[TrustRow]) -> Markup:
    if not rows:
        return Markup("")
    return charts.forest(
        [_estimate(row) for row in rows],
        {"zero": 0.0},
        title=f"Which protocols order the methods as {rows[0].truth} does",
        direction="rank correlation with the order by truth →",
    )


def _estimate(row: TrustRow) -> charts.Estimate:
    correlation = number(row.correlation)
    interval = "" if row.low is None or row.high is None else f"[{row.low:.2f}, {row.high:.2f}]"
    return charts.Estimate(
        label=row.protocol,
        mean=correlation,
        low=number(row.low),
        high=number(row.high),
        kind="method",
        numbers=f"{correlation:.2f}  {interval}",
        title=f"{row.protocol} orders {row.distinct} methods as {row.truth} does: "
        f"rank correlation {correlation:.2f} {interval}",
    )


def _basis(rows: Sequence[TrustRow]) -> str:
    if not rows:
        return ""
    counts = sorted({row.distinct for row in rows})
    some = "–".join(str(n) for n in dict.fromkeys((counts[0], counts[-1])))
    samples = max(row.n for row in rows)
    return f"{some} methods without controls, near-clones counted once, {samples} samples"
