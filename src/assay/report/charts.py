"""Charts as inline SVG: pure functions from numbers to markup; colours are CSS classes."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup, escape

from assay.store import Array

NOTHING = "\N{EN DASH}"  # where there is no number
ROW = 22  # height of one line of a forest chart
LABEL, NUMBERS = 216, 154  # widths left and right of its axis


@dataclass(frozen=True)
class Estimate:
    """One line of a forest chart."""

    label: str
    mean: float
    low: float
    high: float
    kind: str  # method | below | clearly_below | control | unranked
    numbers: str
    title: str


@dataclass(frozen=True)
class CurveLine:
    """One mean curve with the half-width of its band; NaN where there is no band."""

    label: str
    style: str  # CSS class that gives colour and dashes
    x: Array
    mean: Array
    half: Array


def tag(name: str, *children: str, **attributes: object) -> Markup:
    """An element; every attribute and plain child is escaped."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_number(value))}"'
        for key, value in attributes.items()
    )
    return Markup(f"<{name}{written}>{''.join(escape(c) for c in children)}</{name}>")


def shown(value: float, scale: float | None = None) -> str:
    """A number for people; `scale`, the largest of its column, fixes the digits."""
    if not math.isfinite(value):
        return NOTHING if math.isnan(value) else ("∞" if value > 0 else "-∞")
    size = abs(value) if scale is None else scale
    if size >= 1e5 or 0 < size < 1e-3:
        return f"{value:.2e}"
    text = f"{value:.{1 if size >= 1000 else 2 if size >= 10 else 3}f}"
    return text[1:] if text.startswith("-") and not text.strip("-0.") else text


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers within [low, high], about `count` of them."""
    span = high - low
    if not (math.isfinite(span) and span > 0):
        return [low] if math.isfinite(low) else []
    raw = span / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw * 0.8)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def domain(rows: Sequence[Estimate], marks: Iterable[float] = ()) -> tuple[float, float]:
    """The part of the axis that is shown: all means and marks, and intervals of usual size."""
    means = [r.mean for r in rows] + [m for m in marks if math.isfinite(m)]
    if not means:
        return 0.0, 1.0
    halves = [abs(e - r.mean) for r in rows for e in (r.low, r.high) if math.isfinite(e)]
    typical = float(np.median(halves)) if halves else 0.0
    slack = 1.5 * max(max(means) - min(means), typical)
    ends = [e for r in rows for e in (r.low, r.high) if math.isfinite(e)]
    low = max(min(ends + means), min(means) - slack)
    high = min(max(ends + means), max(means) + slack)
    pad = 0.04 * (high - low) or 0.05 * max(abs(low), 1e-6)
    return low - pad, high + pad


def forest(
    rows: Sequence[Estimate],
    marks: Mapping[str, float],
    *,
    title: str,
    direction: str,
    width: int = 600,
) -> Markup:
    """Dots with 95 % intervals, one line each, in the order of `rows`.

    Args:
        rows: The lines; their means must be finite.
        marks: Vertical lines by name: `control` and `random`.
        title: Read out by screen readers.
        direction: Shown under the axis, such as "higher is better".
        width: Of the drawing, in its own units.

    Returns:
        An `svg` element. The axis is linear between its ticks.
    """
    low, high = domain(rows, marks.values())
    left, right = LABEL, width - NUMBERS

    def at(value: float) -> float:
        return left + (value - low) / (high - low) * (right - left)

    bottom = 8 + ROW * len(rows)
    body = [tag("title", title)]
    axis = ticks(low, high)
    largest = max((abs(t) for t in axis), default=1.0)
    for t in axis:
        body.append(tag("line", class_="grid", x1=at(t), x2=at(t), y1=4, y2=bottom))
        label = f"{t + 0.0:.4g}" if largest < 1e5 else f"{t:.1e}"
        body.append(tag("text", label, class_="tick", x=at(t), y=bottom + 15, text_anchor="middle"))
    for name, value in marks.items():
        if math.isfinite(value):
            where = {"x1": at(value), "x2": at(value), "y1": 2, "y2": bottom}
            body.append(tag("line", tag("title", f"{name}: {shown(value)}"), class_=f"mark {name}",
                            **where))  # fmt: skip
    body += [_estimate(row, at, (low, high), 8 + ROW * i, width) for i, row in enumerate(rows)]
    body.append(tag("text", direction, class_="direction", x=(left + right) / 2, y=bottom + 32,
                    text_anchor="middle"))  # fmt: skip
    box = f"0 0 {width} {bottom + 40}"
    return tag("svg", *body, class_="forest", viewBox=box, role="img", aria_label=title)


def curves(
    lines: Sequence[CurveLine], *, title: str, xlabel: str, width: int = 560, height: int = 330
) -> Markup:
    """Mean curves with bands; every series is a group whose class is its style."""
    left, right, top, bottom = 46, width - 12, 10, height - 40
    tops, bottoms, xs = ([] for _ in range(3))  # type: tuple[list[Array], list[Array], list[Array]]
    for line in lines:
        half = np.nan_to_num(line.half)
        tops.append(line.mean + half)
        bottoms.append(line.mean - half)
        xs.append(line.x)
    x0, x1 = _span(xs)
    y0, y1 = _span(tops + bottoms, pad=0.03)

    def at(x: Array, y: Array) -> str:
        px = left + (x - x0) / (x1 - x0) * (right - left)
        py = bottom - (y - y0) / (y1 - y0) * (bottom - top)
        return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(px, py, strict=True))

    body = [tag("title", title)]
    for t in ticks(y0, y1):
        y = bottom - (t - y0) / (y1 - y0) * (bottom - top)
        body.append(tag("line", class_="grid", x1=left, x2=right, y1=y, y2=y))
        body.append(tag("text", f"{t + 0.0:.4g}", class_="tick", x=left - 6, y=y + 4,
                        text_anchor="end"))  # fmt: skip
    for t in ticks(x0, x1):
        x = left + (t - x0) / (x1 - x0) * (right - left)
        body.append(tag("text", f"{t + 0.0:.4g}", class_="tick", x=x, y=bottom + 16,
                        text_anchor="middle"))  # fmt: skip
    for line, up, down in zip(lines, tops, bottoms, strict=True):
        parts = [tag("title", line.label)]
        if np.isfinite(line.half).any():
            around = at(np.concatenate([line.x, line.x[::-1]]), np.concatenate([up, down[::-1]]))
            parts.append(tag("polygon", class_="band", points=around))
        parts.append(tag("polyline", class_="line", points=at(line.x, line.mean)))
        body.append(tag("g", *parts, class_=f"series {line.style}", data_method=line.label))
    body.append(tag("text", xlabel, class_="direction", x=(left + right) / 2, y=height - 6,
                    text_anchor="middle"))  # fmt: skip
    box = f"0 0 {width} {height}"
    return tag("svg", *body, class_="curves", viewBox=box, role="img", aria_label=title)


def _estimate(
    row: Estimate, at: Callable[[float], float], limits: tuple[float, float], top: float, width: int
) -> Markup:
    y = top + ROW / 2
    parts = [tag("title", row.title)]
    parts.append(tag("rect", class_="hit", x=0, y=top, width=width, height=ROW))
    parts.append(tag("text", _short(row.label), class_="name", x=LABEL - 12, y=y + 4,
                     text_anchor="end"))  # fmt: skip
    if math.isfinite(row.low) and math.isfinite(row.high):
        a, b = at(max(row.low, limits[0])), at(min(row.high, limits[1]))
        parts.append(tag("line", class_="interval", x1=a, x2=b, y1=y, y2=y))
        for value, x, side in ((row.low, a, -1), (row.high, b, 1)):
            if limits[0] <= value <= limits[1]:
                parts.append(tag("line", class_="cap", x1=x, x2=x, y1=y - 3.5, y2=y + 3.5))
            else:  # the interval continues beyond the axis
                points = f"{x:.2f},{y - 4} {x + 6 * side:.2f},{y} {x:.2f},{y + 4}"
                parts.append(tag("polygon", class_="beyond", points=points))
    x = at(row.mean)
    if row.kind == "control":
        points = f"{x - 5:.2f},{y} {x:.2f},{y - 5} {x + 5:.2f},{y} {x:.2f},{y + 5}"
        parts.append(tag("polygon", class_="dot", points=points, data_x=x))
    else:
        parts.append(tag("circle", class_="dot", cx=x, cy=y, r=4.5))
    parts.append(tag("text", row.numbers, class_="numbers", x=width - NUMBERS + 12, y=y + 4))
    return tag("g", *parts, class_=f"estimate {row.kind}", data_method=row.label)


def _span(arrays: Sequence[Array], pad: float = 0.0) -> tuple[float, float]:
    values = np.concatenate(arrays) if arrays else np.zeros(0)
    values = values[np.isfinite(values)]
    if not values.size:
        return 0.0, 1.0
    low, high = float(values.min()), float(values.max())
    if high <= low:
        return low - 0.5, high + 0.5
    return low - pad * (high - low), high + pad * (high - low)


def _short(label: str, limit: int = 29) -> str:
    if len(label) <= limit:
        return label
    head = (limit - 1) // 2  # the end of a label holds what sets it apart from its neighbours
    return f"{label[:head]}…{label[head + 1 - limit :]}"


def _number(value: object) -> object:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else value
