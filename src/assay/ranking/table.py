"""Formats of a leaderboard: Arrow, CSV, LaTeX, HTML and aligned text."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import pyarrow as pa

from assay.ranking.rows import BoardRow

SCHEMA = pa.schema(
    [
        ("dataset", pa.string()),
        ("model", pa.string()),
        ("checkpoint", pa.string()),
        ("protocol", pa.string()),
        ("method", pa.string()),
        ("mean", pa.float64()),
        ("low", pa.float64()),
        ("high", pa.float64()),
        ("rank", pa.int64()),
        ("n", pa.int64()),
        ("status", pa.string()),
        ("method_options", pa.string()),
        ("protocol_options", pa.string()),
        ("metric", pa.string()),
        ("n_groups", pa.int64()),
        ("n_common", pa.int64()),
        ("ties_broken", pa.bool_()),
        ("failed", pa.int64()),
        ("degenerate", pa.int64()),
        ("higher_is_better", pa.bool_()),
        ("control", pa.string()),
        ("minus_random", pa.float64()),
        ("minus_random_low", pa.float64()),
        ("minus_random_high", pa.float64()),
        ("minus_control", pa.float64()),
        ("minus_control_low", pa.float64()),
        ("minus_control_high", pa.float64()),
        ("best_control", pa.string()),
        ("below_control", pa.bool_()),
        ("clearly_below", pa.bool_()),
        ("told_apart", pa.bool_()),
        ("aligned", pa.bool_()),
        ("level", pa.float64()),
    ]
)

STATUS_NAMES = {
    "upper_bound": "upper-bound truth",
    "shown": "not ranked",
}  # statuses that people read differently
FORMULA = ("=", "+", "-", "@", "\t", "\n")  # how a formula may start in a spreadsheet
HEADER = ("rank", "method", "mean", "interval", "n", "vs best control", "note")

_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}",
}  # fmt: skip


def to_arrow(rows: Sequence[BoardRow]) -> pa.Table:
    """Give rows as an Arrow table with the fixed schema, null where nothing is known."""
    return pa.Table.from_pylist([row.as_dict() for row in rows], schema=SCHEMA)


def to_csv(rows: Sequence[BoardRow]) -> str:
    """Give all columns as CSV, empty where nothing is known.

    A text that a spreadsheet would read as a formula gets an apostrophe in front.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(SCHEMA.names)
    writer.writerows([_no_formula(getattr(row, name)) for name in SCHEMA.names] for row in rows)
    return out.getvalue()


def to_text(rows: Sequence[BoardRow]) -> str:
    """Give an aligned table, one part per protocol, for a terminal."""
    if not rows:
        return "Leaderboard: no rows"
    parts = []
    for title, part in _parts(rows):
        cells = [HEADER, *(_cells(row) for row in part)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in cells]
        parts.append("\n".join([title, *(f"  {line}" for line in lines)]))
    return "\n\n".join(parts)


def to_html(rows: Sequence[BoardRow]) -> str:
    """Give a plain HTML table, one part per protocol, for a notebook."""
    head = "".join(f"<th>{name}</th>" for name in HEADER)
    body = []
    for title, part in _parts(rows):
        body.append(f'<tr><th colspan="{len(HEADER)}">{html.escape(title)}</th></tr>')
        for row in part:
            cells = "".join(f"<td>{html.escape(cell)}</td>" for cell in _cells(row))
            body.append(f"<tr>{cells}</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def to_latex(rows: Sequence[BoardRow]) -> str:
    """Give a booktabs table; the methods of rank 1 are bold where ranks differ, ties included."""
    lines = [r"\begin{tabular}{rlrlrrl}", r"\toprule"]
    lines.append(" & ".join(map(_escape, HEADER)) + r" \\")
    for title, part in _parts(rows):
        lines += [r"\midrule", rf"\multicolumn{{7}}{{l}}{{{_escape(title)}}} \\", r"\midrule"]
        best = _best_methods(part)
        for row in part:
            cells = [_escape(cell) for cell in _cells(row)]
            if row.method in best:
                cells[1:3] = [rf"\textbf{{{cell}}}" for cell in cells[1:3]]
            lines.append(" & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def written(text: str, path: str | Path | None) -> str:
    """Write the text to `path` if there is one, and give it back."""
    if path is not None:
        Path(path).write_text(text, encoding="utf-8")
    return text


def _best_methods(rows: Sequence[BoardRow]) -> set[str]:
    """Name the methods of rank 1; none where too few samples leave all methods at rank 1."""
    return {row.method for row in rows if row.rank == 1 and row.ties_broken}


def _parts(rows: Sequence[BoardRow]) -> list[tuple[str, list[BoardRow]]]:
    return [(title, list(part)) for title, part in groupby(rows, key=_title)]


def _title(row: BoardRow) -> str:
    place = " / ".join(part for part in row.setting if part)
    better = "higher" if row.higher_is_better else "lower"
    metric = f" {row.metric}" if row.metric else ""
    return f"{place}: {row.protocol}{metric}, {better} is better"


def _cells(row: BoardRow) -> tuple[str, ...]:
    return (
        "-" if row.rank is None else str(row.rank),
        row.method,
        _number(row.mean),
        _interval(row.low, row.high),
        str(row.n),
        _against_control(row),
        _note(row),
    )


def _digits(value: float, sign: str = "") -> str:
    """Three decimals, or three digits where decimals would show nothing."""
    return f"{value:{sign}.3f}" if value == 0 or abs(value) >= 0.01 else f"{value:{sign}.3g}"


def _no_formula(cell: object) -> object:
    """A cell that no spreadsheet calculates, and that stays one cell; numbers stay numbers."""
    if not isinstance(cell, str):
        return cell
    text = cell.replace("\r", " ")  # unquoted, it would begin a row
    return f"'{text}" if text.startswith(FORMULA) else text


def _number(value: float | None) -> str:
    return "" if value is None else _digits(value)


def _interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"[{_digits(low)}, {_digits(high)}]"


def _against_control(row: BoardRow) -> str:
    value = row.minus_control
    if value is None:
        return ""
    interval = _interval(row.minus_control_low, row.minus_control_high)
    return f"{_digits(value, '+')} {interval}".strip()


def _note(row: BoardRow) -> str:
    notes = [] if row.status == "ok" else [STATUS_NAMES.get(row.status, row.status)]
    if row.control:
        notes.append("control")
    if row.failed:
        notes.append(f"{row.failed} failed")
    if row.degenerate:
        notes.append(f"{row.degenerate} degenerate")
    if row.clearly_below:
        notes.append(f"clearly below {row.best_control}")
    elif row.below_control:
        notes.append(f"below {row.best_control}, not clearly")
    if row.aligned:
        notes.append("starts from the fill")
    if row.without_level:
        notes.append("interval without a level: too few samples")
    if row.ties_broken is False:
        notes.append("too few samples to rank")
    return ", ".join(notes)


def _escape(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)
