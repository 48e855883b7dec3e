"""The leaderboard of one setting on the page: a matrix of methods and protocols."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from assay.ranking.leaderboard import Leaderboard
from assay.ranking.overall import LeftOutRow, OverallRow
from assay.ranking.rows import BoardRow
from assay.report.charts import NOTHING, shown
from assay.report.protocol_panels import FieldKey, ProtocolPanel, protocol_panel
from assay.report.row_texts import (
    RankSpread,
    describe,
    marks_of,
    number,
    percent,
    rank_text,
    spread_of,
)
from assay.store import Manifest, SettingKey

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
        protocol_panel([r for r in rows if r.protocol == p], messages, other_metrics)
        for p in protocols
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
    spreads = {p: spread_of([row for row in rows if row.protocol == p]) for p in protocols}
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


def _place(row: OverallRow) -> tuple[float, ...]:
    """Of tied methods the one that comes first in more resamples is listed first."""
    return row.position, row.mean_rank, -(row.first_share or 0.0)


def _field(row: BoardRow | None, spread: RankSpread, message: str) -> MatrixField:
    if row is None:
        return MatrixField("·", title="not computed")
    mean = number(row.mean)
    if row.status in ("n/a", "failed") and not math.isfinite(mean):
        text, kind = ("✕", "failed") if row.status == "failed" else ("n/a", "na")
        return MatrixField(text, shade=kind, title=f"{describe(row)}\n{message}".strip())
    shade = "none"
    if row.rank is not None and len(spread.counts) > 1:
        shade = _shade(row.rank, max(spread.counts))
    return MatrixField(
        shown(mean, spread.scale),
        rank_text(row.rank, spread, ""),
        shade,
        marks_of(row),
        describe(row),
    )


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
