"""Runs of an older assay: they load, rank and report; they go on where their keys still hold."""

import contextlib
import json
import multiprocessing
import shutil
import tarfile
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from torch import nn

import assay
from assay.errors import AssayWarning
from assay.plan import plan
from assay.plugins import registry
from assay.processes import Worker
from assay.results import Results
from assay.run import earlier_runs, manifest, run
from assay.run.executors import threads
from assay.suite.spec import make_suite
from old_runs import ARCHIVE, METHODS, SAME, continue_run, samples, torch_net

pytestmark = pytest.mark.filterwarnings("ignore:.*hardly above chance")
ALL = ("torch_alone", "own_network", "own_method")
RAISED = ("deletion", "sensitivity_n", "soundness")  # of a higher version than in the archive


@pytest.fixture
def same_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if random numbers were still those of the old runs, so that their keys hold."""
    for module in (plan, earlier_runs, manifest):
        monkeypatch.setattr(module, "DRAWS", 1)


@pytest.fixture
def first_deletion(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the version of deletion had never been raised, so that its keys hold."""
    first = replace(registry.get("protocol", "deletion"), version=1)
    monkeypatch.setitem(registry._REGISTERED["protocol"], "deletion", first)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def states(folder: Path) -> dict[Path, int]:
    """When each map was written."""
    files = (folder / "attributions").rglob("*.safetensors")
    return {file: file.stat().st_mtime_ns for file in files}


@contextlib.contextmanager
def counted() -> Iterator[list[int]]:
    """The rows of every convolution that is computed inside."""
    rows: list[int] = []

    def count(module: nn.Module, inputs: Any, output: Any) -> None:
        if isinstance(module, nn.Conv2d):
            rows.append(len(output))

    handle = nn.modules.module.register_module_forward_hook(count)
    try:
        yield rows
    finally:
        handle.remove()


def rows(results: Results, method: str) -> list[dict[str, Any]]:
    kept = ("protocol", "sample", "metric", "value", "status")
    found = [r for r in results.scores.to_pylist() if r["method"] == method]
    return [{name: row[name] for name in kept} for row in found]


def values_of(found: list[dict[str, Any]]) -> list[float]:
    """The values without random numbers, taken out of the rows; the others are taken out too."""
    values = [(row, row.pop("value")) for row in found]
    return [value for row, value in values if not with_random_numbers(row)]


def with_random_numbers(row: dict[str, Any]) -> bool:
    """Whether a score depends on them: by random sets, or by the order of a map's ties."""
    ties = row["sample"] == "0003" or row.get("method") == "occlusion"
    return row["protocol"].startswith("sensitivity_n") or ties


def test_the_archive_is_small_and_old(runs: Path) -> None:
    assert ARCHIVE.stat().st_size < 300_000
    for name in ALL:
        assert "identity" not in json.loads((runs / name / "manifest.json").read_text())


@pytest.mark.parametrize("name", ALL)
def test_an_old_run_loads_ranks_and_reports(runs: Path, name: str) -> None:
    results = assay.load(runs / name)
    assert results.complete
    assert not results.failures
    methods = set(results.manifest["methods"])
    assert {row["method"] for row in results.leaderboard()} == methods
    assert "not clearly above chance" in results.answer  # of networks with numbers without an order
    page = results.report(runs / "page.html")
    text = Path(page or runs / "page.html").read_text()
    assert all(method.split("[")[0] in text.lower().replace(" ", "_") for method in methods)


def without(table: pa.Table, cells: set[str]) -> list[dict[str, Any]]:
    return [row for row in table.to_pylist() if row["cell"] not in cells]


def test_results_of_other_random_numbers_are_computed_again_and_listed_once(runs: Path) -> None:
    old = assay.load(runs / "torch_alone")
    cells, known = set(old.scores["cell"].to_pylist()), rows(old, "saliency")
    with pytest.warns(AssayWarning, match=r"version 1;.*version 2.*computed again"):
        results = continue_run("torch_alone", runs)
    assert results.complete
    assert results.manifest["draws"] == 2
    assert not cells & set(results.scores["cell"].to_pylist())
    assert values_of(rows(results, "saliency")) == pytest.approx(
        values_of(known), abs=1e-6, nan_ok=True
    )
    with counted() as passes, warnings.catch_warnings():
        warnings.simplefilter("error", AssayWarning)
        warnings.filterwarnings("ignore", message=".*hardly above chance")
        continue_run("torch_alone", runs)
    assert passes == []


def test_a_run_of_newer_random_numbers_is_refused(runs: Path) -> None:
    path = runs / "torch_alone" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "draws": 3}))
    with pytest.raises(assay.InputError, match=r"version 1 to 2.*got 3.*newer version of assay"):
        continue_run("torch_alone", runs)


@pytest.mark.usefixtures("same_draws", "first_deletion")
def test_an_old_run_of_torchs_modules_goes_on_without_computing(runs: Path) -> None:
    """Where the version of a protocol was raised since, its scores no longer hold."""
    before, old = states(runs / "torch_alone"), assay.load(runs / "torch_alone")
    scores, curves = old.scores, old.curves
    gone = {r["cell"] for r in scores.to_pylist() if not r["protocol"].startswith("deletion")}
    with counted() as passes:
        results = continue_run("torch_alone", runs, protocols=SAME[:1])
    assert passes == []
    assert states(runs / "torch_alone") == before
    for table, known in ((results.scores, scores), (results.curves, curves)):
        assert without(table, gone) == without(known, gone)
    assert results.manifest["identity"] == 1


def by_deletion(results: Results) -> list[str]:
    """The methods in the order of deletion; the network is at chance, so there is no other one."""
    return [r["method"] for r in results.leaderboard() if r["protocol"].startswith("deletion")]


@pytest.mark.usefixtures("same_draws")
def test_scores_of_an_older_version_of_a_protocol_are_computed_again(runs: Path) -> None:
    before, old = states(runs / "torch_alone"), assay.load(runs / "torch_alone")
    scores, order = old.scores.to_pylist(), by_deletion(old)
    assert len(order) == len(METHODS)
    results = continue_run("torch_alone", runs)
    assert states(runs / "torch_alone") == before  # the maps still hold
    for row, known in zip(results.scores.to_pylist(), scores, strict=True):
        again = row["protocol"].startswith(RAISED)
        assert (row["cell"] != known["cell"]) == again
        assert row["protocol_version"] == known["protocol_version"] + again
        if not (again and with_random_numbers(row)):
            assert row["value"] == pytest.approx(known["value"], abs=1e-6, nan_ok=True)
    assert by_deletion(results) == order


@pytest.mark.usefixtures("same_draws")
def test_an_old_run_grows(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A new method in it is as in a run of its own, and nothing else is touched."""
    before = states(runs / "torch_alone")
    methods = [*METHODS, "input_x_gradient"]
    with counted() as passes:
        grown = continue_run("torch_alone", runs, methods=methods)
    assert passes
    assert before.items() <= states(runs / "torch_alone").items()
    fresh = continue_run("torch_alone", tmp_path_factory.mktemp("fresh"), methods=methods)
    assert fresh.manifest["identity"] == 2
    for method in ("saliency", "input_x_gradient"):
        ours, theirs = rows(grown, method), rows(fresh, method)
        values = [values_of(found) for found in (ours, theirs)]
        assert ours == theirs
        assert values[0] == pytest.approx(values[1], rel=1e-4, abs=1e-6, nan_ok=True)


@pytest.mark.usefixtures("same_draws", "first_deletion")
def test_ones_own_method_in_an_old_run_is_computed_again_and_listed_once(runs: Path) -> None:
    old = assay.load(runs / "own_method")
    known = {method: rows(old, method) for method in ("random", "bright")}
    before = states(runs / "own_method")
    results = continue_run("own_method", runs)
    assert before.items() < states(runs / "own_method").items()
    assert not (runs / "own_method" / "scores").exists()  # converted
    kept, stored = (
        [row for row in found if row["protocol"].startswith("deletion")]
        for found in (rows(results, "random"), known["random"])
    )
    assert kept == stored  # not computed again
    for method, before_it in known.items():
        again = rows(results, method)
        assert values_of(again) == pytest.approx(
            values_of(before_it), rel=1e-4, abs=1e-6, nan_ok=True
        )
        assert again == before_it
    cells = {cell for shard in results.entries.shards for cell in shard.cells}
    assert set(results.scores["cell"].to_pylist()) == cells


def test_an_old_run_of_ones_own_network_is_refused_before_anything_is_written(runs: Path) -> None:
    folder = runs / "own_network"
    whole = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    reason = r"depended on the source text.*model `toy`.*torch's own \(`Own`\).*new folder"
    with pytest.raises(assay.InputError, match=reason):
        continue_run("own_network", runs)
    assert whole == {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_other_weights_in_an_old_run_are_refused(runs: Path) -> None:
    net = torch_net()
    with torch.no_grad():
        net[0].bias[0] += 1
    with pytest.raises(assay.InputError, match="weights of model `toy` changed"):
        assay.benchmark(
            assay.model(net, name="toy"), samples(), ["random"], out=runs / "torch_alone"
        )


def test_a_run_of_a_newer_assay_is_refused(runs: Path) -> None:
    path = runs / "torch_alone" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "identity": 3}))
    with pytest.raises(assay.InputError, match=r"version 1 to 2.*got 3.*newer version of assay"):
        continue_run("torch_alone", runs)


def test_several_workers_go_on_with_the_keys_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(Path(__file__).parent / "old_runs.py", tmp_path / "made.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Worker, "context", multiprocessing.get_context("fork"))  # starts at once
    fields = {
        "datasets": ["./made.py:samples"], "models": ["./made.py:torch_net"],
        "methods": ["random"], "protocols": ["single_deletion"],
    }  # fmt: skip
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "manifest.json").write_text(json.dumps({"created": "long ago"}))
    with threads(None):
        results = run(make_suite(fields), "run", workers=2, progress=False)
    assert results.manifest["identity"] == 1
    assert results.complete
    assert len(results.scores) == 12
