"""What the page says of the truth: by itself, and about the metrics."""

import html
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from synthetic_run import Plan, Setting, write

from assay.report.page import render
from assay.results import Results
from assay.run import run
from assay.suite.spec import Spec

METHODS = {
    "gradcam": (0.7, ""),
    "lime": (0.5, ""),
    "saliency": (0.3, ""),
    "random": (0.35, "random"),
}
PROTOCOLS = {"morf": True, "deletion": False, "truth_f1": True}
CHART = "Which protocols agree with the truth here?"


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


MISLED = {"gradcam": 0.3, "saliency": 0.7}  # the truth turns the protocols' order round


def sentences(page: str) -> list[str]:
    """The paragraphs of the answer, the lead first."""
    answer = page.split('<div class="answer">')[1].split("</div>")[0]
    return [" ".join(p.split()) for p in re.findall(r"<(?:p|li)\b.*?</(?:p|li)>", answer, re.S)]


def section(page: str, name: str) -> str:
    return page.split(f'aria-label="{name}"')[1].split("</section>")[0]


def forests(part: str) -> dict[str, ET.Element]:
    drawn = [ET.fromstring(svg) for svg in re.findall(r'<svg class="forest".*?</svg>', part, re.S)]
    return {svg.get("aria-label", ""): svg for svg in drawn}


def test_the_truth_has_a_part_of_its_own(true_page):
    part = section(true_page, "colours")
    truth, others = part.split("<h3>By the truth</h3>")[1].split("<h3>Per protocol</h3>")
    header = true_page.split("</header>")[0]
    assert header.count("By the truth, <b>gradcam</b> comes first (truth_f1 0.") == 1
    assert "truth_f1: mean and 95 % interval per method" in forests(truth)
    assert not any(title.startswith("truth_f1") for title in forests(others))
    assert len(forests(others)) == 2


def correlations(part: str) -> dict[str, str]:
    """What the chart of correlations says of each protocol."""
    drawn = forests(part)["Which protocols order the methods as truth_f1 does"]
    return {group.get("data-method", ""): "".join(group.itertext()) for group in drawn.iter("g")}


def test_the_chart_shows_what_trust_gives(tmp_path: Path):
    names = ("gradcam", "lime", "saliency", "occlusion", "rise", "lrp", "deeplift")
    methods = {name: (0.2 + 0.1 * place, "") for place, name in enumerate(names)}
    plan = Plan([Setting("colours", "colours")], methods, PROTOCOLS, knowing=("truth_f1",))
    run = write(tmp_path, plan)
    part = section(render(run), "colours")
    assert CHART in part
    assert "7 methods without controls, near-clones counted once, 12 samples" in part
    rows = {row["protocol"]: row for row in run.trust()}
    assert set(rows) == {"morf", "deletion"}
    for name, row in rows.items():
        assert f"{row['correlation']:.2f}" in correlations(part)[name]
        assert f"[{row['low']:.2f}, {row['high']:.2f}]" in correlations(part)[name]


def test_few_methods_have_a_correlation_without_an_interval(true_run, true_page):
    part = section(true_page, "colours")
    assert "3 methods without controls" in part
    for row in true_run.trust():
        shown = correlations(part)[row["protocol"]]
        assert f"{row['correlation']:.2f}" in shown
        assert "[" not in shown


def test_the_truth_is_not_in_the_overall_order(true_run, true_page):
    overall = true_run.leaderboard().overall
    assert {row["protocols"] for row in overall} == {2}
    lead = html.unescape(true_page.split('<p class="lead">')[1].split("</p>")[0])
    assert lead.startswith("<b>gradcam</b> is the best of 3 methods; no other one beats it.")
    assert re.sub("</?b>", "", lead) == true_run.answer
    assert "has no part in the overall list" in section(true_page, "colours")


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
    both = "photos and mosaics: <b>gradcam</b> is the best of 3 methods;"
    assert lead.startswith(both)
    assert "colours" not in lead
    assert 'aria-label="colours"' in found


def test_a_run_without_such_a_protocol_has_no_such_part(page):
    assert "By the truth" not in page
    assert CHART not in page


def test_a_run_by_the_truth_alone_is_ordered_by_it(tmp_path: Path):
    plan = plan_of(Setting("colours", "colours"))
    plan.protocols = {"truth_f1": True}
    found = render(write(tmp_path, plan))
    assert "By the truth: <b>gradcam</b> is the best of 3 methods; no other one beats it." in found
    assert "Without the truth" not in found
    assert "<h3>By the truth</h3>" in found
    assert "<h3>Per protocol</h3>" not in found
    assert CHART not in found


def test_two_methods_have_no_order_to_agree_with(tmp_path: Path):
    plan = plan_of(Setting("colours", "colours"))
    plan.methods = {name: METHODS[name] for name in ("gradcam", "lime", "random")}
    found = render(write(tmp_path, plan))
    assert "<h3>By the truth</h3>" in found
    assert CHART not in found


def test_the_lead_is_by_the_truth_and_says_that_the_protocols_are_wrong(tmp_path: Path):
    results = write(tmp_path, plan_of(Setting("colours", "colours"), true=MISLED))
    rows = results.leaderboard().rows
    mean = {r["method"]: r["mean"] for r in rows if r["protocol"] == "truth_f1"}
    lead, warning, *_ = sentences(render(results))
    assert lead.startswith(
        '<p class="lead">By the truth (truth_f1), <b>saliency</b> comes first. Without the truth: '
        "<b>gradcam</b> is the best of 3 methods"
    )
    assert warning == (
        '<p class="notice warn"><span>The other protocols put <b>gradcam</b> first, but by the '
        f"truth it is number 3 ({mean['gradcam']:.3f}). Do not trust them here.</span></p>"
    )


def test_protocols_that_agree_with_the_truth_are_not_warned_of(tmp_path: Path):
    found = render(write(tmp_path, plan_of(Setting("colours", "colours"))))
    assert sentences(found)[0].startswith(
        '<p class="lead">By the truth (truth_f1), <b>gradcam</b> comes'
    )
    assert "Do not trust them here." not in found


def test_a_leader_that_the_truth_does_not_rank_is_not_called_wrong(tmp_path: Path):
    plan = plan_of(Setting("colours", "colours"), statuses={("gradcam", "truth_f1"): "circular"})
    found = render(write(tmp_path, plan))
    assert sentences(found)[0].startswith(
        '<p class="lead">By the truth (truth_f1), <b>lime</b> comes first'
    )
    assert "<b>gradcam</b> is the best of" in found
    assert "Do not trust them here." not in found


def test_a_truth_that_ranks_nobody_does_not_lead(tmp_path: Path):
    statuses = {(method, "truth_f1"): "circular" for method in METHODS}
    found = render(write(tmp_path, plan_of(Setting("colours", "colours"), statuses=statuses)))
    assert sentences(found)[0].startswith('<p class="lead"><b>gradcam</b> is the best of')
    assert "<p>No method could be ranked by the truth here.</p>" in found


def test_environments_alone_are_led_by_the_truth_and_photographs_are_not(tmp_path: Path):
    environments = [Setting("colours", "colours"), Setting("patches", "patches")]
    lead, *each = sentences(render(write(tmp_path / "a", plan_of(*environments, true=MISLED))))
    assert lead.startswith(
        '<p class="lead">colours and patches: By the truth (truth_f1), <b>saliency</b> comes first.'
    )
    assert all("<b>gradcam</b> first, but by the truth it is number 3" in line for line in each)
    beside = plan_of(Setting("photos", "net"), environments[0], unknown=("photos",), true=MISLED)
    lead, photos, colours = sentences(render(write(tmp_path / "b", beside)))
    assert lead.startswith('<p class="lead"><b>gradcam</b> is the best of 3 methods;')
    assert "saliency" not in lead
    assert "truth" not in photos
    assert colours.index("By the truth, <b>saliency</b>") < colours.index("is the best of")
    assert "Do not trust them here." in colours


def test_the_true_maps_stand_beside_the_images(tmp_path: Path):
    """What a real run keeps of the truth is the first column of its gallery."""
    spec = Spec(
        environments=[{"multi_color_sum": {"size": 16, "samples": 2}}],
        methods=["saliency", "oracle"],
        protocols=["truth_f1"],
    )
    found = render(run(spec, tmp_path, progress=False))
    table = found.split('<table class="gallery')[1].split("</table>")[0]
    assert re.findall(r'<th scope="col"[^>]*>([^<]*)', table)[:2] == ["sample", "the truth"]
    rows = table.split("<tr>")[2:]
    assert len(rows) == 2
    for row in rows:
        tiles = {alt: uri for uri, alt in re.findall(r'src="([^"]*)" alt="(.*?) of ', row)}
        assert tiles["the truth"] == tiles["oracle"]
