"""The overall list as cells of a table: for the terminal, Python and notebooks."""

from __future__ import annotations

import html
from collections.abc import Sequence

from assay.ranking.answer import Answer
from assay.ranking.answer_words import setting_names
from assay.ranking.overall import OverallRow

HEADER = ("", "method", "difference", "95 %", "beaten by")


def list_cells(row: OverallRow, rows: Sequence[OverallRow], answer: Answer) -> tuple[str, ...]:
    """The cells of one row: place, method, difference, interval, who beats it."""
    tied = sum(other.position == row.position for other in rows) > 1
    place = "" if row.position is None else f"{row.position}{'=' if tied else ''}"
    known = row.low is not None and row.high is not None
    return (
        place,
        f"{row.method} (control)" if row.control else row.method,
        f"{row.difference:.2f}",
        f"{row.low:.2f} to {row.high:.2f}" if known else "",
        beaten_by(row, answer),
    )


def beaten_by(row: OverallRow, answer: Answer) -> str:
    """A method that beats this one; or whose scores it has."""
    if row.same_as:
        return f"same scores as {row.same_as}"
    return "" if row.control else answer.beaten_by.get(row.method, "")


def list_text(rows: Sequence[OverallRow], answer: Answer, name: str) -> str:
    """An aligned table of one setting."""
    cells = [HEADER, *(list_cells(row, rows, answer) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in cells]
    return "\n".join([title_of(answer, name), *(f"  {x}" for x in lines)])


def title_of(answer: Answer, name: str) -> str:
    """The title of the list of one setting, by its name."""
    unit = f"mean difference from {answer.reference}, in units of its spread"
    return f"{name}: {unit}"


def list_html(rows: Sequence[OverallRow], answer: Answer, name: str) -> str:
    """A plain HTML table of one setting."""
    title = html.escape(title_of(answer, name))
    head = "".join(f"<th>{name}</th>" for name in HEADER)
    body = "".join(
        f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in list_cells(row, rows, answer))}"
        "</tr>"
        for row in rows
    )
    return f"<table><caption>{title}</caption><tr>{head}</tr>{body}</table>"


def whole_text(headline: str, answers: Sequence[Answer], rows: Sequence[OverallRow]) -> str:
    """The answer in words, then the list of each setting."""
    names = setting_names([one.setting for one in answers])
    lists = [list_text(mine, a, names[a.setting]) for a in answers if (mine := _of(a, rows))]
    return "\n\n".join([headline, *lists])


def whole_html(headline: str, answers: Sequence[Answer], rows: Sequence[OverallRow]) -> str:
    """The same for a notebook."""
    names = setting_names([one.setting for one in answers])
    lists = [list_html(mine, a, names[a.setting]) for a in answers if (mine := _of(a, rows))]
    return "".join([f"<p>{html.escape(headline)}</p>", *lists])


def _of(answer: Answer, rows: Sequence[OverallRow]) -> list[OverallRow]:
    return [row for row in rows if row.setting == answer.setting]
