"""The command line, as a user types it."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from rich.console import Console

import assay
import toy_run  # registers toy_images, toy_net and slow_random
from assay.commands import list as list_command
from assay.conformance.environments import say_small
from assay.plugins import registry
from assay.run import run
from assay.store.cell_records import CELLS, cells_record, read_cells
from assay.suite.spec import make_suite
from stored_logs import logs, unchanged

SUITE = {
    "datasets": ["toy_images"],
    "models": ["toy_net"],
    "methods": ["saliency", "random"],
    "protocols": ["single_deletion", {"deletion": {"steps": 3}}],
    "limit": 12,
}


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    path = tmp_path / "suite.yaml"
    path.write_text(yaml.safe_dump(SUITE))
    return path


def test_run_report_and_run_again(call, suite, tmp_path):
    out = tmp_path / "run"
    code, output, _ = call("run", str(suite), "--out", str(out))
    assert code == 0
    assert "right on" in output
    page = out / "report.html"
    assert str(page) in output.replace("\n", "")
    assert yaml.safe_load((out / "spec.yaml").read_text())["limit"] == 12
    page.unlink()
    before = logs(out)
    assert call("run", str(suite), "--out", str(out))[0] == 0
    assert unchanged(before)
    other = tmp_path / "other.html"
    assert call("report", str(out), "-o", str(other))[0] == 0
    assert "saliency" in other.read_text()


def test_the_written_suite_runs_again_elsewhere(call, suite, tmp_path):
    call("run", str(suite), "--out", str(tmp_path / "a"))
    assert call("run", str(tmp_path / "a" / "spec.yaml"), "--out", str(tmp_path / "b"))[0] == 0
    first, second = (assay.load(tmp_path / x).scores["value"].to_pylist() for x in "ab")
    assert first == second


def test_dry_run_counts_and_writes_nothing(call, suite, tmp_path):
    code, output, _ = call("run", str(suite), "--out", str(tmp_path / "run"), "--dry-run")
    assert code == 0
    assert not (tmp_path / "run").exists()
    # clean 12; 16 cells each; two methods with 2 inner steps, and all absent once; saliency; a
    # look; and four samples to see whether the outputs repeat, two of them again
    expected = 12 + 12 * 16 + 12 * (2 * 2 + 1) + 12 + 2 + 4 + 2
    assert f"{expected:,}" in output
    assert "estimated time" in output


def test_limit_is_written_into_the_suite(call, suite, tmp_path):
    call("run", str(suite), "--out", str(tmp_path / "run"), "--limit", "10")
    results = assay.load(tmp_path / "run")
    assert results.spec.limit == 10
    chosen = set(results.scores["sample"].to_pylist())
    assert len(chosen) == 10
    assert chosen != {f"s{i:03d}" for i in range(10)}  # a draw, not the first


@pytest.fixture
def failing():
    @registry.method("always_fails", family="test", cite="x", title="Fails")
    def always_fails(model, batch):
        """Never gives a map."""
        raise ValueError("on purpose")

    yield
    registry._REGISTERED["method"].pop("always_fails")


@pytest.mark.usefixtures("failing")
def test_failed_cells_exit_with_3_and_keep_the_rest(call, tmp_path):
    path = tmp_path / "suite.yaml"
    path.write_text(yaml.safe_dump({**SUITE, "methods": ["random", "always_fails"]}))
    code, output, _ = call("run", str(path), "--out", str(tmp_path / "run"))
    assert code == 3
    assert "on purpose" in output
    status = {r["method"]: r["status"] for r in assay.load(tmp_path / "run").scores.to_pylist()}
    assert status == {"random": "ok", "always_fails": "failed"}


@pytest.mark.parametrize(
    "kind", ["methods", "protocols", "models", "datasets", "fills", "units", "suites"]
)
def test_lists(call, kind):
    code, output, _ = call("list", kind, "--json")
    rows = json.loads(output)
    assert code == 0
    assert all(row["name"] and row["summary"] for row in rows)
    plain = call("list", kind)[1]
    assert all(row["name"] in plain for row in rows)


def test_list_methods_says_what_each_needs_and_costs(call):
    rows = {row["name"]: row for row in json.loads(call("list", "methods", "--json")[1])}
    ig = rows["integrated_gradients"]
    assert (ig["forward"], ig["backward"], ig["needs"]) == (50, 50, ["gradients"])
    assert ig["options"]["steps"] == 50
    assert rows["random"]["control"] == "random"


def test_the_table_of_methods_is_whole_in_80_columns(call, monkeypatch):
    rows = {row["name"]: row for row in json.loads(call("list", "methods", "--json")[1])}
    monkeypatch.setattr(list_command, "console", Console(width=80))
    lines = call("list", "methods")[1].splitlines()
    assert max(map(len, lines)) <= 80
    assert not any("…" in line for line in lines)
    for name, row in rows.items():
        at = next(i for i, line in enumerate(lines) if line.split(" ")[0] == name)
        words, below = lines[at].split(), lines[at + 1]
        assert words[1] == row["family"]
        assert words[2].rstrip(",") == (row["needs"] or ["nothing"])[0]
        assert all(key in below for key in filter(None, row["cite"].split(", ")))
        if row["forward"] is not None and not row["once"]:
            assert words[-2:] == [f"{row['forward']:,}", f"{row['backward']:,}"]
    scorecam = next(i for i, line in enumerate(lines) if line.startswith("scorecam"))
    assert "channels" in lines[scorecam]  # + 1, beside it or below
    assert "+ 1" in lines[scorecam] + lines[scorecam + 1]
    assert "stride²" in next(line for line in lines if line.startswith("bagnet"))
    own = next(line for line in lines if line.startswith("slow_random"))
    assert own.split() == ["slow_random", "own", "nothing", "not", "said", "not", "said"]
    there = [name for name, row in rows.items() if row["control"]]
    assert f"{len(rows) - len(there)} methods and {len(there)} controls" in " ".join(lines)
    needed = {need for row in rows.values() for need in row["needs"]}
    assert all(any(line.startswith(f"  {need}: ") for line in lines) for need in needed)


def test_one_method_in_words(call):
    _, output, _ = call("list", "methods", "iba", "saliency")
    said = " ".join(output.split())
    assert "forward: 101 + 1,000 once; backward: 100" in said
    assert "steps=10" in said
    assert "saliency" in said
    assert "gradcam" not in said
    assert "steps=10 (a whole number at least 1 and at most 1000000)" in said
    assert 'output="logit" (logit or probability or log_odds)' in said
    assert "noise: noisy copies, {kind: smoothgrad" in said
    assert "path, required" in call("list", "methods", "maps")[1]
    assert [row["name"] for row in json.loads(call("list", "fills", "zero", "--json")[1])] == [
        "zero"
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "dmo", "--out", "x"], "Did you mean `demo`"),
        (["run", "nowhere.yaml", "--out", "x"], "no suite file"),
        (["report", "nowhere"], "Expected a run in"),
        (["list", "methodes"], "Did you mean `methods`"),
        (["list", "methods", "gradcamm"], "Did you mean `gradcam`"),
    ],
)
def test_mistakes_are_said_in_one_line(call, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    code, output, errors = call(*arguments)
    assert code == 2
    assert message in errors.replace("\n", " ")
    assert "Traceback" not in output + errors
    assert not list(tmp_path.iterdir())


def test_unknown_plugins_stop_before_anything_is_written(call, tmp_path):
    path = tmp_path / "suite.yaml"
    for field, wrong in (("methods", "salency"), ("protocols", "deletoin"), ("models", "toy_nett")):
        path.write_text(yaml.safe_dump({**SUITE, field: [wrong]}))
        code, _, errors = call("run", str(path), "--out", str(tmp_path / "run"))
        assert code == 2
        assert "Did you mean" in errors.replace("\n", " ")
        assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("field", ["datasets", "models", "environments", "methods", "protocols"])
@pytest.mark.parametrize(
    ("given", "form"), [("one", "[one]"), ({"one": {"side": 3}}, "[{one: {side: 3}}]")]
)
def test_one_thing_in_place_of_a_list_is_told_the_form(call, tmp_path, field, given, form):
    path = tmp_path / "suite.yaml"
    path.write_text(yaml.safe_dump({**SUITE, field: given}))
    code, _, errors = call("run", str(path), "--out", str(tmp_path / "run"))
    assert code == 2
    assert f"expected a list, `{field}: {form}`, got" in " ".join(errors.split())


def test_doctor_says_how_small_an_environment_is_tried(call):
    code, output, _ = call("doctor", "multi_color_sum")
    assert code == 0
    assert output.startswith("Checked with smaller options: size: 64, samples: 8.")
    said = say_small("number_watermark")
    assert said.startswith("A network is trained first")
    assert "classes: 8, train: 2048, samples: 8." in said


def test_doctor_names_versions(call):
    code, output, _ = call("doctor")
    assert code == 0
    assert "torch" in output


def test_the_toy_plugins_are_the_ones_meant():
    assert toy_run.SAMPLES == 150


TRUE = {
    "environments": [{"multi_color_sum": {"size": 24, "samples": 11, "temperature": 100}}],
    "methods": ["saliency", "input_x_gradient", "gradcam", "random"],
    "protocols": ["truth_f1", {"deletion": {"steps": 3}}, "single_deletion"],
}


@pytest.fixture(scope="module")
def true_run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("true")
    run(make_suite(TRUE), folder / "run", progress=False)
    return folder / "run"


def test_trust_tells_how_far_protocols_agree_with_the_truth(call, true_run):
    code, output, _ = call("trust", str(true_run), "--json")
    assert code == 0
    rows = json.loads(output)
    assert [row["protocol"] for row in rows] == ["deletion[steps=3]", "single_deletion"]
    for row in rows:
        assert row["truth"] == "truth_f1"
        assert row["methods"] == ["gradcam", "input_x_gradient", "saliency"]
        assert -1 <= row["correlation"] <= 1
        assert (row["low"], row["high"], row["distinct"], row["settings"]) == (None, None, 3, 1)
    code, output, _ = call("trust", str(true_run))
    assert code == 0
    assert "order of the methods compared with truth_f1" in " ".join(output.split())
    for row in rows:
        assert f"{row['correlation']:.2f}" in output
    few = "So few methods (3) say little and have no interval. Compare 6 or more distinct ones."
    assert few in " ".join(output.split())


def test_a_run_without_an_order_is_named_with_the_reason(call, true_run, tmp_path):
    two = {**TRUE, "methods": ["saliency", "gradcam", "random"]}
    run(make_suite(two), tmp_path / "two", progress=False)
    reason = "Expected at least 3 methods besides the controls that both the truth and another"
    code, output, errors = call("trust", str(true_run), str(tmp_path / "two"))
    assert code == 0
    assert f"Left out `{tmp_path / 'two'}`. {reason}" in " ".join(errors.split())
    assert "order of the methods" in " ".join(output.split())
    code, output, errors = call("trust", str(tmp_path / "two"), "--json")
    assert (code, json.loads(output)) == (0, [])
    assert reason in " ".join(errors.split())
    code, _, errors = call("trust", str(tmp_path / "two"))
    assert code == 2
    assert reason in " ".join(errors.split())
    with pytest.warns(RuntimeWarning, match=reason) as warned:
        assert assay.load(tmp_path / "two").trust() == []
    assert warned[0].filename == __file__


def test_a_run_ends_with_the_order_by_the_truth(call, true_run):
    code, output, _ = call("run", str(true_run / "spec.yaml"), "--out", str(true_run))
    assert code == 0
    (line,) = [line for line in output.splitlines() if line.startswith("By the truth, truth_f1 on")]
    assert "random" not in line
    rows = assay.load(true_run).leaderboard().rows
    true = [r for r in rows if r["protocol"] == "truth_f1" and r["method"] != "random"]
    assert line.index(true[0]["method"]) < line.index(true[-1]["method"])
    assert all(f"{r['method']} {r['mean']:.3f}" in line for r in true)


def test_trust_needs_a_protocol_that_knows_the_truth(call, suite, tmp_path, true_run):
    call("run", str(suite), "--out", str(tmp_path / "run"))
    code, output, errors = call("trust", str(tmp_path / "run"))
    assert code == 2
    assert "a protocol that knows the truth, such as `truth_f1`" in " ".join(errors.split())
    assert "Traceback" not in output + errors
    code, _, errors = call("trust", str(true_run), "--truth", "synscore")
    assert code == 2
    assert "`synscore`" in errors


def test_environments_are_listed(call):
    code, output, _ = call("list", "environments")
    assert code == 0
    for plugin in registry.everything("environment"):
        assert plugin.name in output
        assert plugin.family in output
    assert "A network that counts the pixels of each colour" in output
    rows = json.loads(call("list", "environments", "--json")[1])
    (row,) = [row for row in rows if row["name"] == "multi_color_sum"]
    assert (row["family"], row["cite"]) == ("designed", "zhang2023attributionlab")
    assert row["options"]["size"] == 224
    output = " ".join(call("list", "environments", "multi_color_sum")[1].split())
    assert "background=[20, 20, 20] (three whole numbers from 0 to 255, (R, G, B))" in output


def test_who_does_not_apply_is_named_and_nobody_else(call, tmp_path):
    """A method under every protocol, and a protocol for every method."""
    suite = {**SUITE, "methods": ["saliency", "random", "oracle"]}
    suite["protocols"] = ["single_deletion", {"deletion": {"steps": 3}}, "truth_f1"]
    (tmp_path / "suite.yaml").write_text(yaml.safe_dump(suite))
    code, output, _ = call("run", str(tmp_path / "suite.yaml"), "--out", str(tmp_path / "run"))
    assert code == 0
    (line,) = [line for line in output.splitlines() if line.startswith("Not applicable: ")]
    assert line.startswith("Not applicable: oracle, truth_f1. Needs truth")
    found = assay.load(tmp_path / "run").not_applicable
    assert all(row["reason"].startswith("Needs truth") for row in found)
    assert sorted((row["method"], row["protocol"]) for row in found) == [
        ("oracle", "deletion[steps=3]"),
        ("oracle", "single_deletion"),
        ("oracle", "truth_f1"),
        ("random", "truth_f1"),
        ("saliency", "truth_f1"),
    ]


def test_every_reason_is_told_where_parts_of_a_cell_have_different_ones(call, suite, tmp_path):
    results = run(make_suite(SUITE), tmp_path / "run", progress=False)
    key = _cell(results, "random")
    for shard, why in zip(results.entries.shards, ("Too few.", "Too dark."), strict=True):
        log = results.store.log(shard.id)
        cells = [cell for record in log.read().of_kind(CELLS) for cell in read_cells(record)]
        (cell,) = (cell for cell in cells if cell.cell == key)
        log.append(cells_record([replace(cell, status="n/a", message=why)]))
    found = assay.load(tmp_path / "run").not_applicable
    places = {(row["dataset"], row["model"], row["method"], row["protocol"]) for row in found}
    assert places == {("toy_images", "toy_net", "random", "single_deletion")}
    assert {row["reason"] for row in found} == {"Too few.", "Too dark."}
    output = call("run", str(suite), "--out", str(tmp_path / "run"))[1]
    assert "Not applicable: random. Too few." in output
    assert "Not applicable: random. Too dark." in output


def _cell(results, method):
    """The key of a method under the first protocol."""
    rows = results.scores.to_pylist()
    return next(
        r["cell"] for r in rows if (r["method"], r["protocol"]) == (method, "single_deletion")
    )


def test_the_number_of_networks_trained_is_said_right(call):
    _, output, _ = call("claims", "--help")
    said = " ".join(output.replace("│", " ").split())
    assert "How many synthetic datasets (default 20); half as many networks." in said


def test_a_reader_that_ends_early_is_not_blamed_on_code():
    command = [sys.executable, "-m", "assay.cli", "claims", "soco"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        process.stdout.close()  # as `| head` does
        errors = process.stderr.read()
    assert "tried to end the program" not in errors
    assert "Traceback" not in errors
