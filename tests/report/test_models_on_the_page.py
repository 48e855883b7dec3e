"""The part of the page that compares models."""

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import assay
from assay.cli import app
from assay.conformance.worlds import make_bagnet, make_images, make_net
from assay.ranking.compared_runs import compare_runs
from assay.ranking.model_rows import in_text
from assay.ranking.model_words import RULES, answer, architecture_leads, heading, lead, remarks
from assay.report.model_section import model_section
from assay.report.page import render
from assay.report.scatter import GAP, Point, scatter
from ranking.model_runs import Run, noise, two_models

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


@pytest.fixture(scope="module")
def copies(tmp_path_factory):
    """Two networks, a copy of one, and a protocol that applies to none of them."""
    nets = {"a": make_net(0), "<i>copy": make_net(0), "b": make_net(1)}
    protocols = ["single_deletion", "in_domain_single_deletion", {"deletion": {"steps": 3}}]
    folder = tmp_path_factory.mktemp("copies")
    return assay.benchmark(nets, make_images(12), METHODS, protocols, out=folder, progress=False)


def test_models_that_are_left_out_are_on_the_page_with_the_reason(copies):
    page = render(copies).replace("<wbr>", "")
    section = page[page.index('<section id="models">') : page.index('<section id="measured">')]
    assert "<td>&lt;i&gt;copy</td><td>Has the same weights as a, and counts once.</td>" in section
    assert "Fewer than two different models have scores" in section
    cells = re.findall(r"<td>([^<]*)</td><td>(.*?)</td>", section)
    reasons = dict(cells)
    assert "assay finetune --model M --data D --grid 4" in reasons["a, &lt;i&gt;copy, b"]
    assert "another scale of the logits changes the score" in section


def test_the_command_says_the_same_as_the_page(copies):
    shown = CliRunner().invoke(app, ["compare", str(copies.folder)], env={"COLUMNS": "80"}).stdout
    (one,) = copies.compare().comparisons
    assert shown.startswith(f"{heading(one)}\n{answer(one)}\n")
    for line in (*RULES, *remarks(one)):
        assert line in shown
    assert "Left out: <i>copy. Has the same weights as a, and counts once." in shown
    assert "Not compared by in_domain_single_deletion. Fewer than two different" in shown
    assert "Left out: a, <i>copy, b. Not applicable. Needs in_domain" in shown
    for row in one.models:  # no number is broken into two lines
        assert in_text(row.score) in shown
        assert in_text(row.accuracy, 2) in shown
    assert in_text(lead(one.pairs, one.models[0].model, one.models[1].model)) in shown
    told = json.loads(CliRunner().invoke(app, ["compare", str(copies.folder), "--json"]).stdout)
    assert told["comparisons"][0]["left_out"][0]["name"] == "<i>copy"
    assert len(told["refused"][0]["left_out"]) == 3


def test_answers_in_words():
    best = two_models()
    assert told(best) == "The network that can be explained best is good."
    clean = [replace(row, accuracy=0.26, chance=0.25) for row in best.entries.clean]
    best.entries = replace(best.entries, clean=clean)
    assert told(best).endswith("good, but it is hardly right more often than by chance.")
    equal = Run({m: {"a": noise(40, 0.1, i)} for i, m in enumerate("xyz")})
    assert told(equal) == "No network can clearly be explained better than another."
    assert told(two_models(9)).startswith("There are too few samples to tell which network")
    low = {f"low-s{i}": {"a": noise(40, 0.1 + 0.1 * i, i)} for i in range(3)}
    high = {f"high-s{i}": {"a": noise(40, 0.9, 5 + i)} for i in range(3)}
    for i, of in enumerate(high.values()):
        of["a"] += 0.9 - 0.001 * i - of["a"].mean()
    assert told(Run(low | high)) == (
        "The architecture that can be explained best is high. The single networks high-s0, "
        "high-s1 and high-s2 tie for the best explained."
    )


def told(run):
    (one,) = compare_runs([run], resamples=200).comparisons
    return answer(one)


def test_leads_of_architectures_have_their_intervals():
    models = {f"{name}-s{i}": {"a": noise(40, mean + 0.02 * i, 10 * k + i)}
              for k, (name, mean) in enumerate({"x": 0.1, "y": 0.6, "z": 0.58}.items())
              for i in range(3)}  # fmt: skip
    (one,) = compare_runs([Run(models)], resamples=200).comparisons
    first, second = architecture_leads(one)
    assert re.fullmatch(r"y is ahead of z by 0\.\d+ \[-0\.\d+, 0\.\d+\]: not clear\.", first)
    assert re.fullmatch(r"y is ahead of x by 0\.\d+ \[0\.\d+, 0\.\d+\]: clear\.", second)


def test_sentences_are_short():
    for line in RULES:
        assert all(len(sentence.split()) <= 25 for sentence in line.split(". "))


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
