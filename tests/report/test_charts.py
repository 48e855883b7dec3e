"""The charts: marks stand where their numbers say."""

import math
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from assay.report import charts


def estimate(label: str, mean: float, low: float, high: float, kind: str = "method"):
    """A line of a forest chart."""
    return charts.Estimate(label, mean, low, high, kind, "", "")


def axis(svg: ET.Element):
    """The map from values to x that the ticks of a chart state."""
    found = [(float(t.text or ""), float(t.get("x", ""))) for t in svg.iter("text")
             if t.get("class") == "tick" and t.get("text-anchor") == "middle"]  # fmt: skip
    (v0, x0), (v1, x1) = found[0], found[-1]
    assert v0 != v1
    return lambda value: x0 + (value - v0) / (v1 - v0) * (x1 - x0)


def by_class(element: ET.Element, name: str) -> list[ET.Element]:
    """The elements with this class, in order."""
    return [e for e in element.iter() if name in (e.get("class") or "").split()]


def test_forest_marks_stand_at_their_values():
    rows = [estimate("a", 0.7, 0.6, 0.85), estimate("b", -0.2, -0.3, 0.05, "control")]
    svg = ET.fromstring(
        charts.forest(rows, {"control": -0.2, "random": 0.1}, title="t", direction="d")
    )
    at = axis(svg)
    for row, drawn in zip(rows, by_class(svg, "estimate"), strict=True):
        (bar,) = by_class(drawn, "interval")
        (dot,) = by_class(drawn, "dot")
        assert float(bar.get("x1", "")) == pytest.approx(at(row.low), abs=0.05)
        assert float(bar.get("x2", "")) == pytest.approx(at(row.high), abs=0.05)
        assert float(dot.get("cx") or dot.get("data-x", "")) == pytest.approx(
            at(row.mean), abs=0.05
        )
        assert not by_class(drawn, "beyond")
    control, random = by_class(svg, "mark")
    assert float(control.get("x1", "")) == pytest.approx(at(-0.2), abs=0.05)
    assert float(random.get("x1", "")) == pytest.approx(at(0.1), abs=0.05)


def test_a_gigantic_interval_is_cut_and_says_so():
    rows = [estimate("a", 0.5, 0.4, 0.6), estimate("b", 0.6, 0.5, 0.7), estimate("c", 0.4, -9, 9)]
    svg = ET.fromstring(charts.forest(rows, {}, title="t", direction="d"))
    at = axis(svg)
    assert at(0.6) - at(0.4) > 30  # the other two can still be told apart
    assert [len(by_class(e, "beyond")) for e in by_class(svg, "estimate")] == [0, 0, 2]


def test_a_mean_without_interval_is_a_bare_dot():
    svg = ET.fromstring(
        charts.forest([estimate("a", 0.5, math.nan, math.nan)], {}, title="t", direction="d")
    )
    assert by_class(svg, "dot")
    assert not by_class(svg, "interval")


def test_no_rows_make_an_empty_chart():
    svg = ET.fromstring(charts.forest([], {"control": math.nan}, title="t", direction="d"))
    assert not by_class(svg, "estimate")
    assert not by_class(svg, "mark")


def test_text_is_escaped():
    text = '<b>&"x'
    drawn = charts.forest([estimate(text, 1.0, 0.5, 1.5)], {}, title=text, direction=text)
    assert "<b>" not in drawn
    svg = ET.fromstring(drawn)
    assert svg.get("aria-label") == text
    assert by_class(svg, "estimate")[0].get("data-method") == text


def test_curves_pass_through_their_points():
    x, mean = np.array([0.0, 0.5, 1.0]), np.array([1.0, 0.2, 0.0])
    line = charts.CurveLine("a", "s0", x, mean, np.array([0.0, 0.1, 0.0]))
    svg = ET.fromstring(charts.curves([line], title="t", xlabel="x"))
    ys = {float(t.text or ""): float(t.get("y", "")) - 4 for t in svg.iter("text")
          if t.get("text-anchor") == "end"}  # fmt: skip
    at = axis(svg)
    points = [
        tuple(map(float, p.split(","))) for p in by_class(svg, "line")[0].get("points", "").split()
    ]
    for (px, py), value, height in zip(points, x, mean, strict=True):
        assert px == pytest.approx(at(value), abs=0.1)
        assert py == pytest.approx(ys[0.0] + height * (ys[1.0] - ys[0.0]), abs=0.1)
    band = by_class(svg, "band")[0].get("points", "").split()
    assert len(band) == 6
    upper, lower = (float(band[i].split(",")[1]) for i in (1, 4))
    assert upper - lower == pytest.approx(0.2 * (ys[1.0] - ys[0.0]), abs=0.2)


def test_a_single_curve_has_no_band():
    x = np.array([0.0, 1.0])
    svg = ET.fromstring(
        charts.curves([charts.CurveLine("a", "s0", x, x, np.full(2, np.nan))], title="", xlabel="")
    )
    assert by_class(svg, "line")
    assert not by_class(svg, "band")


@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (-3.2, 17), (1e-7, 3e-7), (0.247, 0.751), (-1e6, 2)]
)
def test_ticks_are_few_round_and_inside(low: float, high: float):
    found = charts.ticks(low, high)
    assert 3 <= len(found) <= 8
    assert all(low - 1e-9 <= t <= high + 1e-9 for t in found)
    assert np.allclose(np.diff(found), found[1] - found[0])


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.12345, "0.123"), (-0.0001, "-1.00e-04"), (12.345, "12.35"), (1234.5, "1234.5"),
     (0, "0.000"), (math.nan, "–"), (math.inf, "∞"), (123456.0, "1.23e+05")],
)  # fmt: skip
def test_shown(value: float, text: str):
    assert charts.shown(value) == text


def test_shown_has_no_negative_zero():
    assert charts.shown(-0.0001, scale=1.0) == "0.000"
