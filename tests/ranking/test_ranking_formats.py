"""Formats of a leaderboard."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from score_rows import CONTROLS, arrow, row, several

from assay.ranking import Leaderboard, leaderboard


@pytest.fixture
def board() -> Leaderboard:
    generator = np.random.default_rng(0)
    means = {"random": 0.0, "centre": 0.5, "sal_a": 0.3, "grad & <cam>": 1.5, "tie": 1.5}
    values = {method: generator.normal(mean, 0.2, size=40) for method, mean in means.items()}
    lines = [*several(values), row(method="lime", status="n/a")]
    return leaderboard(arrow(lines), controls=CONTROLS)


def test_arrow_round_trip(board: Leaderboard) -> None:
    table = board.to_table()
    assert table.num_rows == len(board) == 6
    back = table.to_pylist()
    assert set(back[0]) == set(board[0])
    assert back == [{name: line[name] for name in back[0]} for line in board]


def test_csv(board: Leaderboard, tmp_path: Path) -> None:
    text = board.to_csv(tmp_path / "board.csv")
    assert (tmp_path / "board.csv").read_text() == text == board.to_csv()
    lines = list(csv.DictReader(io.StringIO(text)))
    assert [line["method"] for line in lines] == [line["method"] for line in board]
    assert float(lines[0]["mean"]) == board[0]["mean"]
    assert (lines[-1]["mean"], lines[-1]["rank"], lines[-1]["status"]) == ("", "", "n/a")


def test_csv_holds_no_formulas() -> None:
    names = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\n=1", "a\r=1", "a=b", "random"]
    values = {name: np.arange(5.0) - i for i, name in enumerate(names)}
    board = leaderboard(arrow(several(values)), controls={})
    lines = list(csv.DictReader(io.StringIO(board.to_csv(), newline="")))
    written = {name: f"'{name}" for name in names[:6]} | {
        "a\r=1": "a =1",
        "a=b": "a=b",
        "random": "random",
    }
    assert [line["method"] for line in lines] == [written[line["method"]] for line in board]
    assert any(line["mean"] == "-1.0" for line in lines)  # numbers stay numbers
    assert [float(line["mean"]) for line in lines] == [line["mean"] for line in board]


def test_latex_escapes_and_marks_the_best(board: Leaderboard, tmp_path: Path) -> None:
    text = board.to_latex(tmp_path / "board.tex")
    assert (tmp_path / "board.tex").read_text() == text
    assert r"\textbf{grad \& \textless{}cam\textgreater{}}" in text
    assert r"\textbf{tie}" in text
    assert r"sal\_a" in text
    assert r"\textbf{centre}" not in text
    body = [
        line for line in text.splitlines() if line.endswith(r"\\") and "multicolumn" not in line
    ]
    assert {line.replace(r"\&", "").count("&") for line in body} == {6}
    assert text.index(r"\toprule") < text.index(r"\midrule") < text.index(r"\bottomrule")


def test_latex_marks_nobody_where_nothing_is_resolved() -> None:
    lines = several({"a": np.arange(5.0), "b": np.arange(5.0) + 9})
    assert r"\textbf" not in leaderboard(arrow(lines), controls={}).to_latex()


def test_html_escapes(board: Leaderboard) -> None:
    text = board._repr_html_()
    assert "grad &amp; &lt;cam&gt;" in text
    assert text.count("<tr>") == 1 + 1 + len(board)


def test_text_is_aligned(board: Leaderboard) -> None:
    title, header, *lines = repr(board).splitlines()
    assert title == "shapes / net: deletion area, higher is better"
    start = header.index("method")
    assert [line[start:].split("  ")[0] for line in lines] == [line["method"] for line in board]
    assert "clearly below centre" in repr(board)
    assert "n/a" in lines[-1]


def test_ranking_does_not_import_torch() -> None:
    code = "import sys, assay.ranking; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
