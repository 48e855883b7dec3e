"""What the page says of the truth: by itself, and about the metrics."""

import html
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from synthetic_run import Plan, Setting, write

from assay.report.page import render
from assay.results import Results

METHODS = {
    "gradcam": (0.7, ""),
    "lime": (0.5, ""),
    "saliency": (0.3, ""),
    "random": (0.35, "random"),
}
PROTOCOLS = {"morf": True, "deletion": False, "truth_f1": True}
CHART = "Which metrics agree with the truth here?"


def plan_of(*settings: Setting, **fields) -> Plan:
    return Plan(list(settings), METHODS, PROTOCOLS, knowing=("truth_f1",), **fields)


@pytest.fixture(scope="module")
def true_run(tmp_path_factory) -> Results:
    """Photos without truth, and an environment, which has one name for data and network."""
    plan = plan_of(
        Setting("photos", "net"), Setting("colours", "colours"), unknown=("photos",),
    )  # fmt: skip
    return write(tmp_path_factory.mktemp("true"), plan)


@pytest.fixture(scope="module")
def true_page(true_run) -> str:
    return render(true_run)


def section(page: str, name: str) -> str:
    return page.split(f'aria-label="{name}"')[1].split("</section>")[0]


def forests(part: str) -> dict[str, ET.Element]:
    drawn = [ET.fromstring(svg) for svg in re.findall(r'<svg class="forest".*?</svg>', part, re.S)]
    return {svg.get("aria-label", ""): svg for svg in drawn}


def test_the_truth_has_a_part_of_its_own(true_page):
    part = section(true_page, "colours")
    truth, others = part.split("<h3>By the truth</h3>")[1].split("<h3>Per protocol</h3>")
    header = true_page.split("</header>")[0]
    assert header.count("By truth_f1, <b>gradcam</b> comes first of the methods (0.") == 1
    assert "truth_f1: mean and 95 % interval per method" in forests(truth)
    assert not any(title.startswith("truth_f1") for title in forests(others))
    assert len(forests(others)) == 2


def test_the_chart_shows_what_trust_gives(true_run, true_page):
    rows = {row["protocol"]: row for row in true_run.trust()}
    assert set(rows) == {"morf", "deletion"}
    part = section(true_page, "colours")
    assert CHART in part
    assert "3 methods without the controls, 12 samples" in part
    drawn = forests(part)["Which protocols order the methods as truth_f1 does"]
    shown = {group.get("data-method"): "".join(group.itertext()) for group in drawn.iter("g")}
    for name, row in rows.items():
        assert f"{row['correlation']:.2f}" in shown[name]
        assert f"[{row['low']:.2f}, {row['high']:.2f}]" in shown[name]


def test_the_truth_is_not_in_the_overall_order(true_run, true_page):
    overall = true_run.leaderboard().overall
    assert {row["protocols"] for row in overall} == {2}
    assert "<b>gradcam</b> comes first over 2 protocols" in true_page
    lead = true_page.split('<p class="lead">')[1].split("</p>")[0]
    assert lead == "<b>gradcam</b> comes first on photos · net, the environment aside."
    assert "stays out of the overall order" in section(true_page, "colours")


def test_where_there_is_no_truth_nothing_is_said_of_it(true_page):
    part = section(true_page, "photos · net")
    assert "By the truth" not in part
    matrix = part.split("</thead>")[0]
    assert "deletion" in matrix
    assert "truth_" not in matrix  # applies to no method here
    assert "truth_f1" in true_page.split('id="failures"')[1]  # where it says why


def test_the_lead_is_about_what_was_asked(tmp_path: Path):
    """An environment's own order does not make the answer depend on the setting."""
    plan = plan_of(
        Setting("photos", "net"), Setting("mosaics", "net"), Setting("colours", "colours")
    )
    found = html.unescape(render(write(tmp_path, plan)))
    lead = found.split('<p class="lead">')[1].split("</p>")[0]
    assert lead == "<b>gradcam</b> comes first in both settings, the environment aside."
    assert 'aria-label="colours"' in found


def test_a_run_without_such_a_protocol_has_no_such_part(page):
    assert "By the truth" not in page
    assert CHART not in page


def test_a_run_by_the_truth_alone_is_ordered_by_it(tmp_path: Path):
    plan = plan_of(Setting("colours", "colours"))
    plan.protocols = {"truth_f1": True}
    found = render(write(tmp_path, plan))
    assert "<b>gradcam</b> comes first over 1 protocol:" in found
    assert "<h3>By the truth</h3>" in found
    assert "<h3>Per protocol</h3>" not in found
    assert CHART not in found


def test_two_methods_have_no_order_to_agree_with(tmp_path: Path):
    plan = plan_of(Setting("colours", "colours"))
    plan.methods = {name: METHODS[name] for name in ("gradcam", "lime", "random")}
    found = render(write(tmp_path, plan))
    assert "<h3>By the truth</h3>" in found
    assert CHART not in found
