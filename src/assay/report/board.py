"""The leaderboard of one setting on the page: a matrix of methods and protocols."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from assay.ranking.answer import Answer
from assay.ranking.leaderboard import Leaderboard
from assay.ranking.listing_table import beaten_by, list_cells
from assay.ranking.overall import LeftOutRow, OverallRow
from assay.ranking.rows import BoardRow
from assay.report.charts import NOTHING, shown
from assay.report.protocol_panels import FieldKey, ProtocolPanel, protocol_panel
from assay.report.row_texts import (
    RankSpread,
    describe,
    marks_of,
    number,
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
    difference: str
    interval: str
    beaten_by: str
    fields: tuple[MatrixField, ...]


@dataclass(frozen=True)
class Board:
    """The leaderboard of one setting."""

    setting: SettingKey
    protocols: tuple[str, ...]
    answer: Answer = field(repr=False)
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
    overall = tuple(row for row in leaderboard.over_protocols if row.setting == setting)
    answer = next(one for one in leaderboard.answers if one.setting == setting)
    left_out = tuple(row for row in leaderboard.without_place if row.setting == setting)
    protocols = _shown_protocols(rows, manifest)
    panels = tuple(
        protocol_panel([r for r in rows if r.protocol == p], messages, other_metrics)
        for p in protocols
    )
    lines = _lines(answer, rows, overall, protocols, manifest, messages)
    return Board(setting, protocols, answer, rows, overall, left_out, lines, panels)


def _shown_protocols(rows: Sequence[BoardRow], manifest: Manifest) -> tuple[str, ...]:
    """The protocols that apply to some method; where none does, all, so that the page says so."""
    present = {row.protocol for row in rows}
    applying = {row.protocol for row in rows if row.status != "n/a"}
    return tuple(p for p in manifest.protocols if p in (applying or present))


def _lines(
    answer: Answer,
    rows: Sequence[BoardRow],
    overall: Sequence[OverallRow],
    protocols: Sequence[str],
    manifest: Manifest,
    messages: Mapping[FieldKey, str],
) -> tuple[MatrixLine, ...]:
    """The lines of the matrix: methods in the order of the list, those without a place last."""
    setting = answer.setting
    by_field = {(row.method, row.protocol): row for row in rows}
    spreads = {p: spread_of([row for row in rows if row.protocol == p]) for p in protocols}
    places = {row.method: row for row in overall}
    present = {row.method for row in rows}
    named = [method for method in manifest.methods if method in present]
    order = [*places, *(m for m in named if m not in places)]
    return tuple(
        _line(
            method,
            manifest.methods[method].control,
            places.get(method),
            overall,
            answer,
            [
                _field(
                    by_field.get((method, p)),
                    spreads[p],
                    messages.get((setting, method, p), ""),
                )
                for p in protocols
            ],
        )
        for method in order
    )


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
    row: OverallRow | None,
    overall: Sequence[OverallRow],
    answer: Answer,
    fields: Sequence[MatrixField],
) -> MatrixLine:
    if row is None:
        return MatrixLine(method, control, NOTHING, NOTHING, "", "", tuple(fields))
    place, _, difference, interval, _ = list_cells(row, overall, answer)
    return MatrixLine(
        method, control, place, difference, interval, beaten_by(row, answer), tuple(fields)
    )
