"""One protocol on the page: a forest chart and its numbers."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from assay.ranking.rows import BoardRow
from assay.report import charts
from assay.report.charts import NOTHING, shown
from assay.report.row_texts import RankSpread, describe, number, rank_text, spread_of
from assay.store import SettingKey

FieldKey = tuple[SettingKey, str, str]  # setting, method, protocol


@dataclass(frozen=True)
class PanelRow:
    """One method's numbers under one protocol, as text."""

    method: str
    rank: str
    mean: str
    interval: str
    gap: str
    gap_interval: str
    n: str
    groups: str
    status: str
    failed: str
    degenerate: str
    other_metrics: str


@dataclass(frozen=True)
class ProtocolPanel:
    """One protocol: its chart, its numbers, and what could not be drawn."""

    protocol: str
    metric: str
    direction: str
    chart: Markup
    rows: tuple[PanelRow, ...]
    left_out: tuple[tuple[str, str], ...]  # (method, reason)

    @property
    def other_metrics(self) -> bool:
        """Whether the protocol gives other numbers besides its score."""
        return any(row.other_metrics for row in self.rows)


def protocol_panel(
    rows: Sequence[BoardRow],
    messages: Mapping[FieldKey, str],
    other_metrics: Mapping[FieldKey, str],
) -> ProtocolPanel:
    """The panel of one protocol; messages and other metrics are looked up by field."""
    protocol, higher = rows[0].protocol, rows[0].higher_is_better
    drawn = [row for row in rows if math.isfinite(number(row.mean))]
    drawn.sort(key=lambda row: -number(row.mean) if higher else number(row.mean))
    left_out = []
    for row in rows:
        if not math.isfinite(number(row.mean)):
            message = messages.get((row.setting, row.method, protocol), "")
            left_out.append((row.method, f"{row.status}{': ' if message else ''}{message}"))
    spread = spread_of(rows)
    table = [
        _panel_row(row, spread, other_metrics.get((row.setting, row.method, protocol), ""))
        for row in drawn
    ]
    chart = charts.forest(
        [_estimate(row, numbers) for row, numbers in zip(drawn, table, strict=True)],
        _marks(rows, drawn),
        title=f"{protocol}: mean and 95 % interval per method",
        direction=_arrow(higher),
    )
    return ProtocolPanel(
        protocol, rows[0].metric, _arrow(higher), chart, tuple(table), tuple(left_out)
    )


def _arrow(higher: bool) -> str:
    """The direction in words."""
    return "higher is better →" if higher else "← lower is better"


def _estimate(row: BoardRow, numbers: PanelRow) -> charts.Estimate:
    return charts.Estimate(
        label=row.method,
        mean=number(row.mean),
        low=number(row.low),
        high=number(row.high),
        kind=_kind(row),
        numbers=f"{numbers.mean}  {numbers.interval}",
        title=describe(row),
    )


def _marks(rows: Sequence[BoardRow], drawn: Sequence[BoardRow]) -> dict[str, float]:
    """The vertical lines of a chart: the best model-free control, and the best random one."""
    means = {row.method: number(row.mean) for row in drawn}
    marks = {}
    best = next((row.best_control for row in rows if row.best_control), None)
    if best in means:
        marks["control"] = means[best]
    random = next((row.method for row in drawn if row.control == "random"), None)  # best first
    if random is not None:
        marks["random"] = means[random]
    return marks


def _kind(row: BoardRow) -> str:
    if row.control:
        return "control"
    if row.rank is None:
        return "unranked"
    if row.clearly_below:
        return "clearly_below"
    return "below" if row.below_control else "method"


def _panel_row(row: BoardRow, spread: RankSpread, other_metrics: str) -> PanelRow:
    scale = spread.scale

    def interval(low: float | None, high: float | None) -> str:
        ends = number(low), number(high)
        known = any(math.isfinite(end) for end in ends)
        return f"[{shown(ends[0], scale)}, {shown(ends[1], scale)}]" if known else ""

    gap = number(row.minus_control)
    return PanelRow(
        method=row.method,
        rank=rank_text(row.rank, spread, NOTHING),
        mean=shown(number(row.mean), scale),
        interval=interval(row.low, row.high) + (" (no level)" if row.without_level else ""),
        gap=shown(gap, scale) if math.isfinite(gap) else "",
        gap_interval=interval(row.minus_control_low, row.minus_control_high),
        n=str(row.n),
        groups=str(row.n_groups),
        status=row.status,
        failed=str(row.failed or ""),
        degenerate=str(row.degenerate or ""),
        other_metrics=other_metrics,
    )
