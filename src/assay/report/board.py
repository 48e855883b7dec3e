"""The leaderboard as the page shows it: one matrix, one forest chart per protocol."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from assay.ranking.leaderboard import Leaderboard
from assay.report import charts
from assay.report.charts import NOTHING, shown

Entry = Mapping[str, Any]  # a row of the leaderboard
Key = tuple[str, str, str]  # dataset, model, checkpoint
SHADES = 7  # of the matrix, best to worst


@dataclass(frozen=True)
class Cell:
    """One field of the matrix."""

    text: str
    rank: str = ""
    shade: str = "none"
    marks: tuple[tuple[str, str], ...] = ()  # (CSS class, symbol)
    title: str = ""


@dataclass(frozen=True)
class Line:
    """One method of the matrix, with its place over all protocols."""

    method: str
    control: str
    place: str
    mean_rank: str
    interval: str
    first_share: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Panel:
    """One protocol: its chart, its numbers, and what could not be drawn."""

    protocol: str
    metric: str
    direction: str
    chart: Markup
    rows: tuple[Mapping[str, str], ...]
    left_out: tuple[tuple[str, str], ...]  # (method, why)

    @property
    def beside(self) -> bool:
        """Whether there are numbers beside the score."""
        return any(row["beside"] for row in self.rows)


@dataclass(frozen=True)
class Board:
    """What the leaderboard says of one dataset, model and checkpoint."""

    key: Key
    protocols: tuple[str, ...]
    rows: tuple[Entry, ...] = field(repr=False)
    overall: tuple[Entry, ...] = field(repr=False)
    left_out: tuple[Entry, ...] = field(repr=False)  # of the overall order, with reasons
    lines: tuple[Line, ...] = field(repr=False)
    panels: tuple[Panel, ...] = field(repr=False)

    @property
    def environment(self) -> bool:
        """Whether network and data were made for each other: they have one name."""
        return self.key[0] == self.key[1]

    @property
    def groups(self) -> int:
        """The largest number of groups any row rests on."""
        return max((int(r["n_groups"] or 0) for r in self.rows), default=0)

    @property
    def ties_broken(self) -> bool:
        """Whether any protocol had groups enough to tell methods apart."""
        return any(r.get("ties_broken") for r in self.rows)

    @property
    def samples(self) -> int:
        """The largest number of samples any row rests on."""
        return max((int(r["n"] or 0) for r in self.rows), default=0)


def key_of(entry: Entry) -> Key:
    """Which section an entry belongs to."""
    return entry["dataset"], entry["model"], entry["checkpoint"]


def build(
    key: Key,
    leaderboard: Leaderboard,
    manifest: Entry,
    reasons: Mapping[Any, str],
    beside: Mapping[Any, str],
) -> Board:
    """The board of one section; messages and further numbers come by (key, method, protocol)."""
    rows = tuple(r for r in leaderboard.rows if key_of(r) == key)
    overall = tuple(
        sorted((o for o in leaderboard.overall if key_of(o) == key), key=lambda o: _place(o))
    )
    protocols = _shown_protocols(rows, manifest)
    controls = {m: about.get("control", "") for m, about in manifest["methods"].items()}
    by_field = {(r["method"], r["protocol"]): r for r in rows}
    best = {p: _spread([r for r in rows if r["protocol"] == p]) for p in protocols}
    places = {o["method"]: o for o in overall}
    named = [m for m in manifest["methods"] if any(r["method"] == m for r in rows)]
    order = sorted(named, key=lambda m: (m not in places, _place(places.get(m, {}))))
    lines = tuple(
        _line(
            m,
            controls.get(m, ""),
            places.get(m),
            overall,
            [_cell(by_field.get((m, p)), best[p], reasons.get((key, m, p), "")) for p in protocols],
        )
        for m in order
    )
    panels = tuple(
        _panel([r for r in rows if r["protocol"] == p], controls, reasons, beside)
        for p in protocols
    )
    left_out = tuple(o for o in leaderboard.left_out if key_of(o) == key)
    return Board(key, protocols, rows, overall, left_out, lines, panels)


def _shown_protocols(rows: Sequence[Entry], manifest: Entry) -> tuple[str, ...]:
    """Those that apply to some method; where none does, all, so that the page says so."""
    present = {r["protocol"] for r in rows}
    applying = {r["protocol"] for r in rows if r["status"] != "n/a"}
    return tuple(p for p in manifest["protocols"] if p in (applying or present))


def number(value: float | None) -> float:
    """A number from a row; None is NaN."""
    return math.nan if value is None else float(value)


def arrow(higher: bool) -> str:
    """The direction in words."""
    return "higher is better →" if higher else "← lower is better"


def marks_of(row: Entry) -> tuple[tuple[str, str], ...]:
    """The symbols a row carries, as (CSS class, symbol); the legend explains them."""
    found = []
    if row.get("clearly_below"):
        found.append(("below", "▼"))
    elif row.get("below_control"):
        found.append(("maybe", "▽"))
    if row["status"] == "circular":
        found.append(("circular", "↻"))
    if row["status"] == "upper_bound":
        found.append(("bound", "≤"))
    if row.get("degenerate"):
        found.append(("degenerate", "∅"))
    if row.get("failed"):
        found.append(("failed", "✕"))
    return tuple(found)


def describe(row: Entry) -> str:
    """A row in words, for tooltips."""
    mean, low, high = (number(row[k]) for k in ("mean", "low", "high"))
    lines = [f"{row['method']} under {row['protocol']} ({row['metric']})"]
    if math.isfinite(mean):
        lines.append(f"mean {shown(mean)}, 95 % interval {shown(low)} to {shown(high)}")
    if row["rank"] is not None:
        lines.append(f"rank {row['rank']}")
    if row.get("best_control") and math.isfinite(number(row.get("minus_control"))):
        a, b, c = (number(row.get(f"minus_control{s}")) for s in ("", "_low", "_high"))
        lines.append(f"better than {row['best_control']} by {shown(a)} [{shown(b)}, {shown(c)}]")
    lines.append(f"{row['n']} samples in {row['n_groups']} groups")
    lines += [f"{row[k]} {k} samples" for k in ("failed", "degenerate") if row.get(k)]
    if row["status"] != "ok":
        lines.append(f"status: {row['status']}")
    return "\n".join(lines)


def _place(entry: Entry) -> tuple[float, ...]:
    place = [number(entry.get(name)) for name in ("position", "mean_rank")]
    place.append(-number(entry.get("first_share") or 0.0))  # who of a tie comes first more often
    return tuple(math.inf if math.isnan(v) else v for v in place)


def _spread(rows: Sequence[Entry]) -> tuple[dict[int, int], float]:
    """How often each rank occurs in a protocol, and the largest mean, which fixes the digits."""
    counts: dict[int, int] = {}
    for row in rows:
        if row["rank"] is not None:
            counts[row["rank"]] = counts.get(row["rank"], 0) + 1
    means = [abs(number(r["mean"])) for r in rows]
    return counts, max((m for m in means if math.isfinite(m)), default=1.0)


def _cell(row: Entry | None, spread: tuple[dict[int, int], float], reason: str) -> Cell:
    if row is None:
        return Cell("·", title="not computed")
    counts, scale = spread
    mean = number(row["mean"])
    if row["status"] in ("n/a", "failed") and not math.isfinite(mean):
        text, kind = ("✕", "failed") if row["status"] == "failed" else ("n/a", "na")
        return Cell(text, shade=kind, title=f"{describe(row)}\n{reason}".strip())
    rank, shade = "", "none"
    if row["rank"] is not None:
        rank = f"{row['rank']}{'=' if counts[row['rank']] > 1 else ''}"
        if len(counts) > 1:
            shade = _shade(row["rank"], max(counts))
    return Cell(shown(mean, scale), rank, shade, marks_of(row), describe(row))


def _shade(rank: int, worst: int) -> str:
    """The colour of a rank; the first is only for rank 1, the last for the worst."""
    if rank == 1:
        return "r0"
    return f"r{1 + round((rank - 2) / max(1, worst - 2) * (SHADES - 2))}" if worst > 2 else "r6"


def _line(
    method: str, control: str, place: Entry | None, overall: Sequence[Entry], cells: Sequence[Cell]
) -> Line:
    if place is None:
        return Line(method, control, NOTHING, NOTHING, "", "", tuple(cells))
    mean, low, high = (number(place[k]) for k in ("mean_rank", "low", "high"))
    position = place["position"]
    tied = position is not None and sum(o["position"] == position for o in overall) > 1
    share = number(place.get("first_share"))
    return Line(
        method,
        control,
        NOTHING if position is None else f"{position}{'=' if tied else ''}",
        f"{mean:.1f}" if math.isfinite(mean) else NOTHING,
        f"{low:.1f} to {high:.1f}" if math.isfinite(low) and math.isfinite(high) else "",
        percent(share),
        tuple(cells),
    )


def percent(share: float) -> str:
    """A share in percent; nothing where it is unknown."""
    if math.isnan(share):
        return ""
    if 0 < share < 0.01 or 0.99 < share < 1:
        return "< 1 %" if share < 0.5 else "> 99 %"
    return f"{100 * share:.0f} %"


def _panel(
    rows: Sequence[Entry],
    controls: Mapping[str, str],
    reasons: Mapping[Any, str],
    beside: Mapping[Any, str],
) -> Panel:
    protocol, metric = rows[0]["protocol"], rows[0]["metric"]
    higher = bool(rows[0]["higher_is_better"])
    drawn = [r for r in rows if math.isfinite(number(r["mean"]))]
    drawn.sort(key=lambda r: -r["mean"] if higher else r["mean"])
    left_out = []
    for row in rows:
        if not math.isfinite(number(row["mean"])):
            reason = reasons.get((key_of(row), row["method"], protocol), "")
            left_out.append((row["method"], f"{row['status']}{': ' if reason else ''}{reason}"))
    counts, scale = _spread(rows)
    table = [
        {
            **_numbers(row, counts, scale),
            "beside": beside.get((key_of(row), row["method"], protocol), ""),
        }
        for row in drawn
    ]
    estimates = [
        charts.Estimate(
            label=row["method"],
            mean=number(row["mean"]),
            low=number(row["low"]),
            high=number(row["high"]),
            kind=_kind(row, controls.get(row["method"], "")),
            numbers=f"{line['mean']}  {line['interval']}",
            title=describe(row),
        )
        for row, line in zip(drawn, table, strict=True)
    ]
    means = {r["method"]: number(r["mean"]) for r in drawn}
    marks = {}
    best = next((r["best_control"] for r in rows if r.get("best_control")), None)
    if best in means:
        marks["control"] = means[best]
    random = next((m for m in means if controls.get(m) == "random"), None)  # best first
    if random is not None:
        marks["random"] = means[random]
    direction = arrow(higher)
    chart = charts.forest(
        estimates,
        marks,
        title=f"{protocol}: mean and 95 % interval per method",
        direction=direction,
    )
    return Panel(protocol, metric, direction, chart, tuple(table), tuple(left_out))


def _kind(row: Entry, control: str) -> str:
    if control:
        return "control"
    if row["rank"] is None:
        return "unranked"
    if row.get("clearly_below"):
        return "clearly_below"
    return "below" if row.get("below_control") else "method"


def _numbers(row: Entry, counts: Mapping[int, int], scale: float) -> dict[str, str]:
    def interval(low: str, high: str) -> str:
        a, b = number(row.get(low)), number(row.get(high))
        known = math.isfinite(a) or math.isfinite(b)
        return f"[{shown(a, scale)}, {shown(b, scale)}]" if known else ""

    rank = row["rank"]
    gap = number(row.get("minus_control"))
    return {
        "method": row["method"],
        "rank": NOTHING if rank is None else f"{rank}{'=' if counts[rank] > 1 else ''}",
        "mean": shown(number(row["mean"]), scale),
        "interval": interval("low", "high"),
        "gap": shown(gap, scale) if math.isfinite(gap) else "",
        "gap_interval": interval("minus_control_low", "minus_control_high"),
        "control": str(row.get("best_control") or ""),
        "n": str(row["n"]),
        "groups": str(row["n_groups"]),
        "status": row["status"],
        "failed": str(row.get("failed") or ""),
        "degenerate": str(row.get("degenerate") or ""),
    }
