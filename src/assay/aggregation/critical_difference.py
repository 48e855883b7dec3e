"""The critical-difference diagram as SVG: methods on an axis of mean ranks, ties joined by bars."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

import numpy as np
from numpy.typing import ArrayLike

from assay.errors import InputError
from assay.ranking.proportions import Flags
from assay.ranking.resampling import Floats

AXIS, ROW, LEVEL = 520, 20, 9  # the axis' length, the height of a name and of a bar, in pixels
LETTER, GAP, TOP = 7.2, 14, 46  # width of a letter at most, space beside names, above the axis
INK, SOFT, LINE, BAR = "#1f2933", "#52606d", "#9aa5b1", "#00796b"


def critical_difference_svg(
    names: Sequence[str],
    mean_ranks: ArrayLike,
    apart: ArrayLike,
    *,
    distance: float | None = None,
    note: str = "",
) -> str:
    """Draw mean ranks with bars that join methods which are not separated.

    A bar joins neighbours on the axis of which no two are separated. Two methods that are not
    separated while a method between them is separated from one of them have no common bar: the
    diagram says how many such pairs there are.

    Args:
        names: The names of the methods.
        mean_ranks: Their mean ranks [n]; 1 is the best.
        apart: Which pairs are separated [n, n], symmetric.
        distance: A critical difference to draw as a scale, for Nemenyi's test.
        note: A line below the diagram, such as the test and the number of settings.

    Returns:
        A whole SVG document.
    """
    ranks, separated = np.asarray(mean_ranks, np.float64), np.asarray(apart, np.bool_)
    _check(names, ranks, separated)
    order = np.argsort(ranks, kind="stable")
    ranks, separated = ranks[order], separated[np.ix_(order, order)]
    labels = [f"{names[i]}  {rank:.2f}" for i, rank in zip(order, ranks, strict=True)]
    left = GAP + LETTER * max(map(len, labels))
    low, high = _ends(ranks)
    places = left + (ranks - low) / (high - low) * AXIS
    runs = joined_runs(separated)
    stacked = _stacked(runs, places)
    top = TOP + (32 if distance is not None else 0)
    first_row = top + 22 + LEVEL * (max(stacked, default=-1) + 1)
    notes = [text for text in (note, _unjoined(separated, runs)) if text]
    bottom = first_row + ROW * math.ceil(len(ranks) / 2)
    width, height = 2 * left + AXIS, bottom + 18 * len(notes) + 8
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        _text(left + AXIS / 2, 14, "mean rank (1 is the best)", "middle", SOFT),
        *_axis(low, high, left, top),
        *_leaves(labels, places, left, top, first_row),
    ]
    for (start, end), level in zip(runs, stacked, strict=True):
        y = top + 14 + LEVEL * level
        lines.append(_line(places[start] - 3, y, places[end] + 3, y, BAR, 4))
    if distance is not None:
        lines += _scale(distance, distance / (high - low) * AXIS, left)
    for row, text in enumerate(notes):
        lines.append(_text(left + AXIS / 2, bottom + 16 + 18 * row, text, "middle", SOFT))
    return "\n".join([*lines, "</svg>", ""])


def joined_runs(apart: Flags) -> list[tuple[int, int]]:
    """First and last place of the longest runs of neighbours of which no two are separated.

    Args:
        apart: Which pairs are separated [n, n], in the order of the mean ranks.
    """
    runs: list[tuple[int, int]] = []
    for start in range(len(apart)):
        end = start
        while end + 1 < len(apart) and not apart[start : end + 1, end + 1].any():
            end += 1
        if end > start and (not runs or end > runs[-1][1]):
            runs.append((start, end))
    return runs


def _check(names: Sequence[str], ranks: Floats, apart: Flags) -> None:
    number = len(names)
    if number < 2:
        raise InputError(f"Expected at least 2 methods, got {number}.")
    if ranks.shape != (number,) or not np.isfinite(ranks).all():
        raise InputError(f"Expected {number} finite mean ranks, got {ranks.tolist()}.")
    if apart.shape != (number, number) or (apart != apart.T).any():
        raise InputError(
            f"Expected `apart` to be a symmetric matrix of {number} methods, got {apart.shape}."
        )


def _ends(ranks: Floats) -> tuple[float, float]:
    """The whole numbers around the mean ranks."""
    low, high = math.floor(ranks[0]), math.ceil(ranks[-1])
    return low, max(high, low + 1)


def _stacked(runs: Sequence[tuple[int, int]], places: Floats) -> list[int]:
    """A level for each run, so that the bars of a level keep a distance."""
    ends: list[float] = []  # where the last bar of each level ends
    chosen = []
    for start, end in runs:
        free = (i for i, last in enumerate(ends) if places[start] - last > 2 * LEVEL)
        level = next(free, len(ends))
        ends[level : level + 1] = [float(places[end])]
        chosen.append(level)
    return chosen


def _unjoined(apart: Flags, runs: Sequence[tuple[int, int]]) -> str:
    """How many pairs are not separated and have no common bar; empty for none."""
    joined = np.eye(len(apart), dtype=np.bool_)
    for start, end in runs:
        joined[start : end + 1, start : end + 1] = True
    pairs = int((~apart & ~joined).sum()) // 2
    words = "pair is" if pairs == 1 else "pairs are"
    return f"{pairs} more {words} not separated, but a method between them is." if pairs else ""


def _axis(low: float, high: float, left: float, top: float) -> Iterator[str]:
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100) if (high - low) / s <= 14)
    yield _line(left, top, left + AXIS, top, INK, 1.2)
    for tick in range(math.ceil(low / step) * step, int(high) + 1, step):
        x = left + (tick - low) / (high - low) * AXIS
        yield _line(x, top - 6, x, top, INK, 1.2)
        yield _text(x, top - 10, str(tick), "middle", INK)


def _leaves(
    labels: Sequence[str], places: Floats, left: float, top: float, first_row: float
) -> Iterator[str]:
    """A line from the axis to each name: the better half to the left, the others to the right."""
    half = math.ceil(len(labels) / 2)
    for number, (label, x) in enumerate(zip(labels, places, strict=True)):
        on_left = number < half
        y = first_row + ROW * (number if on_left else len(labels) - 1 - number)
        side, anchor = (left - 6, "end") if on_left else (left + AXIS + 6, "start")
        points = f"{x:.1f},{top:.1f} {x:.1f},{y:.1f} {side:.1f},{y:.1f}"
        yield f'<polyline points="{points}" fill="none" stroke="{LINE}"/>'
        yield _text(side + (-4 if on_left else 4), y + 4, label, anchor, INK)


def _scale(distance: float, length: float, left: float) -> Iterator[str]:
    """The critical difference, as a length of the axis where it is not longer."""
    yield _text(left, 34, f"critical difference {distance:.2f}", "start", BAR)
    if length <= AXIS:
        yield _line(left, 42, left + length, 42, BAR, 2)
        for x in (left, left + length):
            yield _line(x, 38, x, 46, BAR, 2)


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, width: float) -> str:
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{colour}" stroke-width="{width}"/>'


def _text(x: float, y: float, words: str, anchor: str, colour: str) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}"'
    return f'<text {place} xml:space="preserve">{escape(words)}</text>'
