"""The leaderboard as the page shows it: one matrix, one forest chart per protocol."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from assay.ranking.leaderboard import Leaderboard
from assay.ranking.overall import LeftOutRow, OverallRow
from assay.ranking.rows import BoardRow
from assay.report import charts
from assay.report.charts import NOTHING, shown
from assay.store import Manifest, SettingKey

FieldKey = tuple[SettingKey, str, str]  # setting, method, protocol
SHADES = 7  # of the matrix, best to worst


@dataclass(frozen=True)
class MatrixField:
    """One field of the matrix: a method under a protocol."""

    text: str
    rank: str = ""
    shade: str = "none"
    marks: tuple[tuple[str, str], ...] = ()  # (CSS class, symbol)
    title: str = ""


@dataclass(frozen=True)
class MatrixLine:
    """One method of the matrix, with its place over all protocols."""

    method: str
    control: str
    place: str
    mean_rank: str
    interval: str
    first_share: str
    fields: tuple[MatrixField, ...]


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


@dataclass(frozen=True)
class Board:
    """The leaderboard of one setting."""

    setting: SettingKey
    protocols: tuple[str, ...]
    rows: tuple[BoardRow, ...] = field(repr=False)
    overall: tuple[OverallRow, ...] = field(repr=False)
    left_out: tuple[LeftOutRow, ...] = field(repr=False)
    lines: tuple[MatrixLine, ...] = field(repr=False)
    panels: tuple[ProtocolPanel, ...] = field(repr=False)

    @property
    def environment(self) -> bool:
        """Whether network and data were made for each other: they have one name."""
        return self.setting.dataset == self.setting.model

    @property
    def groups(self) -> int:
        """The largest number of groups of any row."""
        return max((row.n_groups for row in self.rows), default=0)

    @property
    def ties_broken(self) -> bool:
        """Whether any protocol had enough groups to separate methods."""
        return any(row.ties_broken for row in self.rows)

    @property
    def samples(self) -> int:
        """The largest number of samples of any row."""
        return max((row.n for row in self.rows), default=0)


def build(
    setting: SettingKey,
    leaderboard: Leaderboard,
    manifest: Manifest,
    messages: Mapping[FieldKey, str],
    other_metrics: Mapping[FieldKey, str],
) -> Board:
    """The board of one setting; messages and other metrics are looked up by field."""
    rows = tuple(r for r in leaderboard.by_protocol if r.setting == setting)
    placed = [row for row in leaderboard.over_protocols if row.setting == setting]
    overall = tuple(sorted(placed, key=_place))
    left_out = tuple(row for row in leaderboard.without_place if row.setting == setting)
    protocols = _shown_protocols(rows, manifest)
    panels = tuple(
        _panel([r for r in rows if r.protocol == p], messages, other_metrics) for p in protocols
    )
    lines = _lines(setting, rows, overall, protocols, manifest, messages)
    return Board(setting, protocols, rows, overall, left_out, lines, panels)


def _shown_protocols(rows: Sequence[BoardRow], manifest: Manifest) -> tuple[str, ...]:
    """The protocols that apply to some method; where none does, all, so that the page says so."""
    present = {row.protocol for row in rows}
    applying = {row.protocol for row in rows if row.status != "n/a"}
    return tuple(p for p in manifest.protocols if p in (applying or present))


def _lines(
    setting: SettingKey,
    rows: Sequence[BoardRow],
    overall: Sequence[OverallRow],
    protocols: Sequence[str],
    manifest: Manifest,
    messages: Mapping[FieldKey, str],
) -> tuple[MatrixLine, ...]:
    """The lines of the matrix: methods in overall order, those without a place last."""
    by_field = {(row.method, row.protocol): row for row in rows}
    spreads = {p: _spread([row for row in rows if row.protocol == p]) for p in protocols}
    places = {row.method: row for row in overall}
    present = {row.method for row in rows}
    named = [method for method in manifest.methods if method in present]
    order = sorted((m for m in named if m in places), key=lambda m: _place(places[m]))
    order += [m for m in named if m not in places]
    return tuple(
        _line(
            method,
            manifest.methods[method].control,
            places.get(method),
            overall,
            [
                _field(
                    by_field.get((method, p)), spreads[p], messages.get((setting, method, p), "")
                )
                for p in protocols
            ],
        )
        for method in order
    )


def number(value: float | None) -> float:
    """A number from a row; None is NaN."""
    return math.nan if value is None else float(value)


def arrow(higher: bool) -> str:
    """The direction in words."""
    return "higher is better →" if higher else "← lower is better"


def marks_of(row: BoardRow) -> tuple[tuple[str, str], ...]:
    """The symbols a row carries, as (CSS class, symbol); the legend explains them."""
    marks = []
    if row.clearly_below:
        marks.append(("below", "▼"))
    elif row.below_control:
        marks.append(("maybe", "▽"))
    if row.status == "circular":
        marks.append(("circular", "↻"))
    if row.status == "upper_bound":
        marks.append(("bound", "≤"))
    if row.degenerate:
        marks.append(("degenerate", "∅"))
    if row.failed:
        marks.append(("failed", "✕"))
    return tuple(marks)


def describe(row: BoardRow) -> str:
    """A row in words, for tooltips."""
    mean, low, high = (number(value) for value in (row.mean, row.low, row.high))
    lines = [f"{row.method} under {row.protocol} ({row.metric})"]
    if math.isfinite(mean):
        lines.append(f"mean {shown(mean)}, 95 % interval {shown(low)} to {shown(high)}")
    if row.rank is not None:
        lines.append(f"rank {row.rank}")
    if row.best_control and math.isfinite(number(row.minus_control)):
        ends = (row.minus_control, row.minus_control_low, row.minus_control_high)
        gap, gap_low, gap_high = (shown(number(value)) for value in ends)
        lines.append(f"better than {row.best_control} by {gap} [{gap_low}, {gap_high}]")
    lines.append(f"{row.n} samples in {row.n_groups} groups")
    if row.failed:
        lines.append(f"{row.failed} failed samples")
    if row.degenerate:
        lines.append(f"{row.degenerate} degenerate samples")
    if row.status != "ok":
        lines.append(f"status: {row.status}")
    return "\n".join(lines)


def _place(row: OverallRow) -> tuple[float, ...]:
    """Of tied methods the one that comes first in more resamples is listed first."""
    return row.position, row.mean_rank, -(row.first_share or 0.0)


def _spread(rows: Sequence[BoardRow]) -> tuple[dict[int, int], float]:
    """How often each rank occurs in a protocol, and the largest mean, which fixes the digits."""
    counts: dict[int, int] = {}
    for row in rows:
        if row.rank is not None:
            counts[row.rank] = counts.get(row.rank, 0) + 1
    means = [abs(number(row.mean)) for row in rows]
    return counts, max((m for m in means if math.isfinite(m)), default=1.0)


def _field(row: BoardRow | None, spread: tuple[dict[int, int], float], message: str) -> MatrixField:
    if row is None:
        return MatrixField("·", title="not computed")
    counts, scale = spread
    mean = number(row.mean)
    if row.status in ("n/a", "failed") and not math.isfinite(mean):
        text, kind = ("✕", "failed") if row.status == "failed" else ("n/a", "na")
        return MatrixField(text, shade=kind, title=f"{describe(row)}\n{message}".strip())
    shade = "none"
    if row.rank is not None and len(counts) > 1:
        shade = _shade(row.rank, max(counts))
    return MatrixField(
        shown(mean, scale), _rank(row.rank, counts, ""), shade, marks_of(row), describe(row)
    )


def _rank(rank: int | None, counts: Mapping[int, int], missing: str) -> str:
    """A rank as text, with `=` where it is shared."""
    return missing if rank is None else f"{rank}{'=' if counts[rank] > 1 else ''}"


def _shade(rank: int, worst: int) -> str:
    """The colour of a rank; the first is only for rank 1, the last for the worst."""
    if rank == 1:
        return "r0"
    return f"r{1 + round((rank - 2) / max(1, worst - 2) * (SHADES - 2))}" if worst > 2 else "r6"


def _line(
    method: str,
    control: str,
    place: OverallRow | None,
    overall: Sequence[OverallRow],
    fields: Sequence[MatrixField],
) -> MatrixLine:
    if place is None:
        return MatrixLine(method, control, NOTHING, NOTHING, "", "", tuple(fields))
    low, high = number(place.low), number(place.high)
    tied = sum(row.position == place.position for row in overall) > 1
    return MatrixLine(
        method,
        control,
        f"{place.position}{'=' if tied else ''}",
        f"{place.mean_rank:.1f}",
        f"{low:.1f} to {high:.1f}" if math.isfinite(low) and math.isfinite(high) else "",
        percent(number(place.first_share)),
        tuple(fields),
    )


def percent(share: float) -> str:
    """A share in percent; nothing where it is unknown."""
    if math.isnan(share):
        return ""
    if 0 < share < 0.01 or 0.99 < share < 1:
        return "< 1 %" if share < 0.5 else "> 99 %"
    return f"{100 * share:.0f} %"


def _panel(
    rows: Sequence[BoardRow],
    messages: Mapping[FieldKey, str],
    other_metrics: Mapping[FieldKey, str],
) -> ProtocolPanel:
    protocol, higher = rows[0].protocol, rows[0].higher_is_better
    drawn = [row for row in rows if math.isfinite(number(row.mean))]
    drawn.sort(key=lambda row: -number(row.mean) if higher else number(row.mean))
    left_out = []
    for row in rows:
        if not math.isfinite(number(row.mean)):
            message = messages.get((row.setting, row.method, protocol), "")
            left_out.append((row.method, f"{row.status}{': ' if message else ''}{message}"))
    spread = _spread(rows)
    table = [
        _panel_row(row, spread, other_metrics.get((row.setting, row.method, protocol), ""))
        for row in drawn
    ]
    chart = charts.forest(
        [_estimate(row, numbers) for row, numbers in zip(drawn, table, strict=True)],
        _marks(rows, drawn),
        title=f"{protocol}: mean and 95 % interval per method",
        direction=arrow(higher),
    )
    return ProtocolPanel(
        protocol, rows[0].metric, arrow(higher), chart, tuple(table), tuple(left_out)
    )


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


def _panel_row(row: BoardRow, spread: tuple[dict[int, int], float], other_metrics: str) -> PanelRow:
    counts, scale = spread

    def interval(low: float | None, high: float | None) -> str:
        ends = number(low), number(high)
        known = any(math.isfinite(end) for end in ends)
        return f"[{shown(ends[0], scale)}, {shown(ends[1], scale)}]" if known else ""

    gap = number(row.minus_control)
    return PanelRow(
        method=row.method,
        rank=_rank(row.rank, counts, NOTHING),
        mean=shown(number(row.mean), scale),
        interval=interval(row.low, row.high),
        gap=shown(gap, scale) if math.isfinite(gap) else "",
        gap_interval=interval(row.minus_control_low, row.minus_control_high),
        n=str(row.n),
        groups=str(row.n_groups),
        status=row.status,
        failed=str(row.failed or ""),
        degenerate=str(row.degenerate or ""),
        other_metrics=other_metrics,
    )
