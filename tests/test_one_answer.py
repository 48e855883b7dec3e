"""Page, terminal, Python and comparisons with a control say the same of a stored run."""

from __future__ import annotations

import html
import io
import math
import re
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from rich.console import Console

import assay
from assay.commands.run import _print_order as print_order
from assay.plugins import registry
from assay.plugins.questions import OF_BUILT_IN, QUESTIONS
from assay.results import Results
from assay.run import run
from assay.suite.spec import Spec
from small_worlds import make_images, make_net

PROTOCOLS = [
    {"deletion": {"steps": 4, "units": {"grid": {"side": 4}}}},
    {"insertion": {"steps": 4, "units": {"grid": {"side": 4}}, "fill": "blur"}},
    "single_deletion",
]
METHODS = ["saliency", "input_x_gradient", {"integrated_gradients": {"steps": 4}}, "random"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Results]:
    folder = tmp_path_factory.mktemp("runs")
    net, (x, _) = make_net(), make_images(24)
    labels = net(x).argmax(1)
    both: dict[str, Any] = {"progress": False}
    assay.benchmark(net, (x, labels), [*METHODS, "edge"], PROTOCOLS, out=folder / "images", **both)
    assay.benchmark(net, (x[:6], labels[:6]), METHODS, PROTOCOLS, out=folder / "few", **both)
    spec = Spec(
        environments=[{"multi_color_sum": {"size": 16, "samples": 12}}],
        methods=[*METHODS, "oracle"],
        protocols=["deletion", "truth_f1"],
    )
    run(spec, folder / "environment", progress=False)
    return {name: assay.load(folder / name) for name in ("images", "few", "environment")}


@pytest.fixture(params=["images", "few", "environment"])
def stored(request: pytest.FixtureRequest, runs: dict[str, Results]) -> Results:
    return runs[request.param]


def lead(results: Results, folder: Path) -> str:
    """The first paragraph of the page as plain text."""
    text = results.report(folder / "page.html").read_text()
    (first,) = re.findall('<p class="lead">(.*?)</p>', text, re.S)
    return html.unescape(re.sub("<.*?>", "", first))


def printed(results: Results) -> str:
    console = Console(record=True, width=1000, file=io.StringIO())
    with patch("assay.commands.run.console", console):
        print_order(results)
    return console.export_text()


def test_all_begin_with_the_same_words(stored: Results, tmp_path: Path) -> None:
    answer = stored.answer
    assert lead(stored, tmp_path) == answer
    assert printed(stored).splitlines()[0].strip() == answer
    assert str(stored).splitlines()[0] == answer
    assert stored._repr_html_().startswith(f"<p>{html.escape(answer)}</p>")


def test_all_list_the_methods_in_one_order(stored: Results, tmp_path: Path) -> None:
    listed = [row["method"] for row in stored.leaderboard().overall]
    page = stored.report(tmp_path / "page.html").read_text()
    matrix = page.split('<table class="matrix">')[1].split("</table>")[0].replace("<wbr>", "")
    shown = re.findall(r'<th scope="row"><span class="place">.*?</span>([^<]*)', matrix)
    assert [name.strip() for name in shown][: len(listed)] == listed
    names = [re.split(" {2,}", line.strip()) for line in str(stored).splitlines()[4:] if line]
    text = [next(part for part in parts if part[:1].isalpha()) for parts in names]
    assert [name.removesuffix(" (control)") for name in text] == listed


def test_a_run_without_scores_can_be_shown(runs: dict[str, Results], tmp_path: Path) -> None:
    for name in ("spec.yaml", "manifest.json"):
        shutil.copy(runs["few"].folder / name, tmp_path / name)
    results = assay.load(tmp_path)
    assert str(results).endswith("no scores yet")
    assert results._repr_html_() == html.escape(str(results))


def test_the_listed_order_is_that_of_the_differences(stored: Results) -> None:
    differences = [row["difference"] for row in stored.leaderboard().overall]
    assert differences == sorted(differences, reverse=True)


def test_comparisons_with_a_control_agree_with_the_table(stored: Results) -> None:
    rows = [row for row in stored.leaderboard().rows if row["best_control"] and not row["control"]]
    assert rows
    for row in rows:
        (other,) = (
            one
            for one in stored.against(row["best_control"])
            if (one["protocol"], one["method"]) == (row["protocol"], row["method"])
        )
        assert other["difference"] == pytest.approx(row["minus_control"])
        assert other["n"] == row["n_common"]
        assert (other["verdict"] == "below") == row["clearly_below"]
        if not math.isnan(other["low"]):
            assert other["low"] == pytest.approx(row["minus_control_low"])
            assert other["high"] == pytest.approx(row["minus_control_high"])


def test_within_a_protocol_no_worse_mean_has_a_better_rank(stored: Results) -> None:
    board = stored.leaderboard().rows
    for protocol in {row["protocol"] for row in board}:
        rows = [r for r in board if r["protocol"] == protocol and r["rank"] is not None]
        sign = -1 if rows and rows[0]["higher_is_better"] else 1
        rows.sort(key=lambda r: sign * r["mean"])
        ranks = [row["rank"] for row in rows]
        assert ranks == sorted(ranks)


def test_cells_that_start_from_the_fill_are_marked(runs: dict[str, Results]) -> None:
    found = {
        (row["method"].split("[")[0], row["protocol"].split("[")[0])
        for row in runs["images"].leaderboard().rows
        if row["aligned"]
    }
    # From zero, under the protocols that fill with zero; insertion fills with blur.
    assert found == {
        ("integrated_gradients", "deletion"),
        ("integrated_gradients", "single_deletion"),
    }
    assert set(runs["images"].answers[0].fills) == {"zero", "blur"}


def test_every_protocol_declares_a_known_question() -> None:
    declared = {
        name: registry.get("protocol", name).question for name in registry.names("protocol")
    }
    assert declared == OF_BUILT_IN
    assert set(declared.values()) < set(QUESTIONS)


def test_a_question_that_is_nearly_known_is_an_error() -> None:
    with pytest.raises(assay.InputError, match="Did you mean `necessity`"):
        registry.protocol("mine", question="necesity", higher_is_better=True)(lambda case: None)
    with pytest.raises(assay.InputError, match="declare a `question`"):
        registry.protocol("mine", question="", higher_is_better=True)(lambda case: None)


def test_a_network_at_chance_is_said_first(tmp_path: Path) -> None:
    net, (x, _) = make_net(), make_images(40)
    labels = (net(x).argmax(1) + 1) % net(x).shape[1]  # always wrong
    results = assay.benchmark(net, (x, labels), METHODS, PROTOCOLS, progress=False)
    assert results.answer.startswith(
        "Nothing can be ranked: the network is right on 0.0% of 40 samples"
    )
    assert lead(results, tmp_path) == results.answer
    assert not results.leaderboard().overall
    assert torch.isfinite(torch.tensor([row["mean"] for row in results.leaderboard().rows])).all()
