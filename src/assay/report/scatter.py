"""A chart of one number against another, each with its interval, as inline SVG."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from assay.report.charts import tag, ticks

GAP = 14.0  # between the names of two dots


@dataclass(frozen=True)
class Point:
    """One dot: its numbers, and their intervals, NaN where they are not known."""

    label: str
    x: float
    x_ends: tuple[float, float]
    y: float
    y_ends: tuple[float, float]
    title: str


def scatter(
    points: Sequence[Point],
    *,
    title: str,
    xlabel: str,
    ylabel: str,
    width: int = 600,
) -> Markup:
    """Dots with horizontal and vertical 95 % intervals, and their names beside them.

    Args:
        points: The dots; their numbers must be finite.
        title: Read out by screen readers.
        xlabel: Shown under the horizontal axis.
        ylabel: Shown above the vertical axis.
        width: Of the drawing, in its own units; it is higher where there are many names.

    Returns:
        An `svg` element; both axes are linear between their ticks.
    """
    height = max(360, 70 + round(GAP * len(points)))
    left, right, top, bottom = 52, width - 110, 26, height - 44
    at_x = _axis([(p.x, *p.x_ends) for p in points], left, right)
    at_y = _axis([(p.y, *p.y_ends) for p in points], bottom, top)
    body = [tag("title", title)]
    for t in at_x.ticks:
        x = at_x(t)
        body.append(tag("line", class_="grid", x1=x, x2=x, y1=top, y2=bottom))
        body.append(tag("text", f"{t + 0.0:.4g}", class_="tick", x=x, y=bottom + 16,
                        text_anchor="middle"))  # fmt: skip
    for t in at_y.ticks:
        y = at_y(t)
        body.append(tag("line", class_="grid", x1=left, x2=right, y1=y, y2=y))
        body.append(tag("text", f"{t + 0.0:.4g}", class_="tick", x=left - 6, y=y + 4,
                        text_anchor="end"))  # fmt: skip
    names = _label_heights([at_y(point.y) for point in points], bottom)
    for point, name_y in zip(points, names, strict=True):
        body.append(_dot(point, at_x, at_y, name_y, right))
    body.append(tag("text", ylabel, class_="direction", x=4, y=14))
    body.append(tag("text", xlabel, class_="direction", x=(left + right) / 2, y=height - 8,
                    text_anchor="middle"))  # fmt: skip
    box = f"0 0 {width} {height}"
    return tag("svg", *body, class_="scatter", viewBox=box, role="img", aria_label=title)


@dataclass(frozen=True)
class _Axis:
    """Places numbers on the drawing."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Where a number is drawn."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    @property
    def ticks(self) -> list[float]:
        """Round numbers on this axis."""
        return ticks(self.low, self.high)


def _axis(numbers: Sequence[tuple[float, float, float]], start: float, end: float) -> _Axis:
    known = [value for three in numbers for value in three if math.isfinite(value)]
    low, high = min(known, default=0.0), max(known, default=1.0)
    pad = 0.05 * (high - low) or 0.05 * max(abs(low), 1.0)
    return _Axis(low - pad, high + pad, start, end)


def _dot(
    point: Point,
    at_x: Callable[[float], float],
    at_y: Callable[[float], float],
    name_y: float,
    right: float,
) -> Markup:
    x, y = at_x(point.x), at_y(point.y)
    parts = [tag("title", point.title)]
    parts.append(tag("line", class_="lead", x1=x, x2=right + 4, y1=y, y2=name_y))
    if all(map(math.isfinite, point.x_ends)):
        a, b = map(at_x, point.x_ends)
        parts.append(tag("line", class_="interval thin", x1=a, x2=b, y1=y, y2=y))
    if all(map(math.isfinite, point.y_ends)):
        a, b = map(at_y, point.y_ends)
        parts.append(tag("line", class_="interval thin", x1=x, x2=x, y1=a, y2=b))
    parts.append(tag("circle", class_="dot", cx=x, cy=y, r=4.5))
    short = point.label if len(point.label) <= 17 else f"{point.label[:8]}…{point.label[-8:]}"
    parts.append(tag("text", short, class_="name", x=right + 8, y=name_y + 4))
    return tag("g", *parts, class_="estimate method", data_model=point.label)


def _label_heights(heights: Sequence[float], bottom: float) -> list[float]:
    """The heights of the names: near their dots, above the bottom, and apart from each other."""
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    placed = list(heights)
    for before, here in itertools.pairwise(order):
        placed[here] = max(placed[here], placed[before] + GAP)
    limit = bottom
    for here in reversed(order):
        placed[here] = min(placed[here], limit)
        limit = placed[here] - GAP
    return placed
