"""The part of the page that compares models."""

import itertools
import re
from pathlib import Path

import pytest

import assay
from assay.conformance.worlds import make_bagnet, make_images, make_net
from assay.ranking.model_rows import in_text
from assay.report.model_section import model_section
from assay.report.page import render
from assay.report.scatter import GAP, Point, scatter

pytestmark = pytest.mark.filterwarnings("ignore:.*hardly above chance")
METHODS = ["saliency", "input_x_gradient", "bagnet", "random"]
PROTOCOLS = ["single_deletion", "drop_stability", {"deletion": {"steps": 3}}]


def of_models(protocols: list, out: Path | None = None, labels: bool = True) -> assay.Results:
    x, y = make_images(12)
    nets = {"a-s0": make_net(0), "a-s1": make_net(1), "bag <b>": make_bagnet()}
    data = (x, y if labels else None)
    return assay.benchmark(nets, data, METHODS, protocols, out=out, progress=False)


@pytest.fixture(scope="module")
def results() -> assay.Results:
    return of_models(PROTOCOLS)


def test_the_section_shows_the_numbers_of_the_comparison(results):
    page = render(results)
    section = page[page.index('<section id="models">') : page.index('<section id="measured">')]
    text = re.sub(r"<wbr>|<[^>]+>", " ", section)
    (one,) = results.compare().comparisons
    for row in one.models:
        for value in (row.score, row.accuracy, row.noise, row.other_fill):
            assert in_text(value) in text
    assert in_text(one.architectures[0].score) in text
    assert "near-circular" in text
    assert "another scale of the logits changes the score" in text
    assert "<b>bag" not in section
    assert "bag &lt;b&gt;" in section
    assert section.count('class="dot"') == 3


def test_protocols_show_their_properties_on_their_cards(results):
    page = render(results)
    assert page.count("<dt>inter model</dt>") == 3
    assert "<dt>natural data</dt><dd>yes</dd>" in page


def test_where_no_protocol_may_compare_the_reasons_are_shown():
    section = model_section(of_models([{"deletion": {"steps": 3}}]))
    assert section.panels == ()
    assert section.refused[0].protocols == "deletion[steps=3]"


def test_one_model_has_no_section():
    one = assay.benchmark(make_net(), make_images(5), METHODS[:2], PROTOCOLS, progress=False)
    assert model_section(one) is None
    assert '<section id="models">' not in render(one)


def test_old_runs_have_no_section(small, page):
    assert model_section(small) is None
    assert '<section id="models">' not in page


def test_without_accuracy_scores_are_shown_alone():
    section = model_section(of_models(PROTOCOLS[:2], labels=False))
    assert 'class="forest"' in section.panels[0].chart


def test_names_of_many_dots_do_not_overlap():
    dots = [Point(f"m{i}", 0.5, (0.4, 0.6), 0.3, (0.2, 0.4), f"m{i}") for i in range(40)]
    chart = str(scatter(dots, title="t", xlabel="x", ylabel="y"))
    heights = sorted(float(y) for y in re.findall(r'class="name" x="[\d.]+" y="([\d.]+)"', chart))
    assert len(heights) == 40
    assert all(b - a > GAP - 0.1 for a, b in itertools.pairwise(heights))
    height = float(re.search(r'viewBox="0 0 \d+ (\d+)"', chart)[1])
    assert heights[-1] < height
    assert heights[0] > 0
