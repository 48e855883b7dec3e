"""Rows of the leaderboard as text: numbers, ranks, symbols, tooltips."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from assay.ranking.rows import BoardRow
from assay.report.charts import shown


def number(value: float | None) -> float:
    """A number from a row; None is NaN."""
    return math.nan if value is None else float(value)


def percent(share: float) -> str:
    """A share in percent; nothing where it is unknown."""
    if math.isnan(share):
        return ""
    if 0 < share < 0.01 or 0.99 < share < 1:
        return "< 1 %" if share < 0.5 else "> 99 %"
    return f"{100 * share:.0f} %"


class RankSpread(NamedTuple):
    """How often each rank occurs under a protocol, and the largest mean, which fixes the digits."""

    counts: dict[int, int]
    scale: float


def spread_of(rows: Sequence[BoardRow]) -> RankSpread:
    """The ranks and means of one protocol."""
    counts: dict[int, int] = {}
    for row in rows:
        if row.rank is not None:
            counts[row.rank] = counts.get(row.rank, 0) + 1
    means = [abs(number(row.mean)) for row in rows]
    return RankSpread(counts, max((m for m in means if math.isfinite(m)), default=1.0))


def rank_text(rank: int | None, spread: RankSpread, missing: str) -> str:
    """A rank as text, with `=` where it is shared."""
    return missing if rank is None else f"{rank}{'=' if spread.counts[rank] > 1 else ''}"


def marks_of(row: BoardRow) -> tuple[tuple[str, str], ...]:
    """The symbols a row carries, as (CSS class, symbol); the legend explains them."""
    marks = []
    if row.clearly_below:
        marks.append(("below", "▼"))
    elif row.below_control:
        marks.append(("maybe", "▽"))
    if row.aligned and row.rank is not None:
        marks.append(("aligned", "≈"))
    if row.status == "circular":
        marks.append(("circular", "↻"))
    if row.status == "upper_bound":
        marks.append(("bound", "≤"))
    if row.status == "shown":
        marks.append(("shown", "◦"))
    if row.degenerate:
        marks.append(("degenerate", "∅"))
    if row.failed:
        marks.append(("failed", "✕"))
    return tuple(marks)


def _interval(row: BoardRow, low: str, high: str) -> str:
    if row.low is None:
        return "no interval: the scores do not vary, or there are too few samples"
    if row.level is None:
        return f"interval {low} to {high} without a level: too few samples"
    return f"{100 * row.level:g} % interval {low} to {high}"


def describe(row: BoardRow) -> str:
    """A row in words, for tooltips."""
    mean, low, high = (number(value) for value in (row.mean, row.low, row.high))
    lines = [f"{row.method} under {row.protocol} ({row.metric})"]
    if math.isfinite(mean):
        lines.append(f"mean {shown(mean)}, {_interval(row, shown(low), shown(high))}")
    if row.rank is not None:
        lines.append(f"rank {row.rank}")
    if row.best_control and math.isfinite(number(row.minus_control)):
        ends = (row.minus_control, row.minus_control_low, row.minus_control_high)
        gap, gap_low, gap_high = (shown(number(value)) for value in ends)
        lines.append(f"better than {row.best_control} by {gap} [{gap_low}, {gap_high}]")
    if row.aligned:
        lines.append("the method starts from what the protocol fills with")
    lines.append(f"{row.n} samples in {row.n_groups} groups")
    if row.failed:
        lines.append(f"{row.failed} failed samples")
    if row.degenerate:
        lines.append(f"{row.degenerate} degenerate samples")
    if row.status != "ok":
        lines.append(f"status: {row.status}")
    return "\n".join(lines)
