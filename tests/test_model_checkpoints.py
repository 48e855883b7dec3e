"""Models with several checkpoints: `checkpoints` in a suite and in Python."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

import assay
from assay.conformance.worlds import make_images, make_net
from assay.errors import InputError, PrerequisiteError
from assay.plan.resolving import resolve
from assay.run import dry_run, run
from assay.store import Manifest
from assay.suite.spec import Spec, make_suite, read_suite

pytestmark = pytest.mark.filterwarnings("ignore:.*hardly above chance")

METHODS, PROTOCOLS = ["saliency", "input_x_gradient", "random"], ["single_deletion"]
FACTORY = "from assay.conformance.worlds import make_net\n"
DATA = """
from assay.conformance.worlds import make_images
from assay.data.memory import as_dataset

def images():
    return as_dataset((make_images(6)[0], None), "images", key="images")
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a factory, data, and the weights of two training runs at two times."""
    monkeypatch.chdir(tmp_path)
    Path("nets.py").write_text(FACTORY)
    Path("data.py").write_text(DATA)
    for seed in (0, 1):
        for time in (1, 3):
            torch.save(make_net(10 * seed + time).state_dict(), f"s{seed}-e{time}.pt")
    return tmp_path


def item(seed: int = 0, **changes: object) -> dict[str, dict[str, object]]:
    options: dict[str, object] = {
        "weights": f"s{seed}-e{{}}.pt",
        "checkpoints": [1, 3],
        "as": f"small-s{seed}",
    }
    chosen = {n: v for n, v in {**options, **changes}.items() if v is not None}
    return {"./nets.py:make_net": chosen}


def suite(*models: object) -> Spec:
    fields = {
        "datasets": ["./data.py:images"],
        "models": list(models),
        "methods": METHODS,
        "protocols": PROTOCOLS,
    }
    return make_suite(fields)


def settings(results: assay.Results) -> list[tuple[str, str]]:
    rows = results.query("select distinct model, checkpoint from scores order by all").to_pylist()
    return [(row["model"], row["checkpoint"]) for row in rows]


def scores(results: assay.Results, model: str, checkpoint: str) -> list[float]:
    table = results.query(
        f"select value from scores where model = '{model}' and checkpoint = '{checkpoint}' "
        f"and headline order by method, sample"
    )
    return table["value"].to_pylist()


def test_one_label_and_several_checkpoints_with_the_scores_of_each_alone(home: Path) -> None:
    results = run(suite(item(0), item(1)), home / "out", progress=False)
    assert settings(results) == [(f"small-s{s}", e) for s in (0, 1) for e in "13"]
    assert list(results.entries.models) == ["small-s0@1", "small-s0@3", "small-s1@1", "small-s1@3"]
    alone = {"./nets.py:make_net": {"weights": "s1-e3.pt", "as": "x"}}
    single = run(suite(alone), home / "single", progress=False)
    assert scores(results, "small-s1", "3") == scores(single, "x", "")
    assert scores(results, "small-s1", "1") != scores(single, "x", "")
    entries = results.entries
    hashes = {name: entry.weights_hash for name, entry in entries.models.items()}
    assert hashes["small-s1@3"] == single.entries.models["x"].weights_hash
    assert {s.setting.checkpoint for s in entries.shards} == {"1", "3"}
    ours, theirs = (
        results.maps("saliency", model="small-s1", checkpoint="3"), single.maps("saliency")
    )  # fmt: skip
    assert all(np.array_equal(ours[sample], theirs[sample]) for sample in theirs)


def test_files_in_a_list_are_the_same_as_a_pattern(home: Path) -> None:
    pattern, listed = (
        resolve(suite(one))
        for one in (item(), item(weights=["s0-e1.pt", "s0-e3.pt"], checkpoints=[1, 3]))
    )
    cells = [
        [plan.cell(shard, m, p) for shard in plan.shards for m in plan.methods
         for p in plan.protocols]
        for plan in (pattern, listed)
    ]  # fmt: skip
    assert cells[0] == cells[1]
    assert len(set(cells[0])) == 2 * len(METHODS)


def test_report_compare_and_ranking_keep_checkpoints_apart(home: Path) -> None:
    results = run(suite(item(0), item(1)), home / "out", progress=False)
    page = results.report().read_text()
    assert "small-s0 (1)" in page
    assert "small-s1 (3)" in page
    (one,) = results.compare(resamples=100).comparisons
    assert {row.model for row in one.models} == set(results.entries.models)
    assert {a.architecture for a in one.architectures} <= {"small@1", "small@3"}
    found = assay.consistency(results)
    assert {setting[1:3] for setting in found.settings} <= {
        (f"small-s{s}", e) for s in (0, 1) for e in "13"
    }


def test_resume_computes_only_the_checkpoint_that_is_new(home: Path) -> None:
    first = run(suite(item()), home / "out", progress=False)
    before = scores(first, "small-s0", "3")
    torch.save(make_net(99).state_dict(), "s0-e7.pt")
    more = suite(item(checkpoints=[1, 3, 7]))
    whole = dry_run(more, time_it=False)
    rest = dry_run(more, home / "out", time_it=False)
    assert 0 < rest.rows["single_deletion"] * 3 == whole.rows["single_deletion"]
    again = run(more, home / "out", progress=False)
    assert scores(again, "small-s0", "3") == before
    assert settings(again) == [("small-s0", "1"), ("small-s0", "3"), ("small-s0", "7")]


def test_workers_and_a_suite_file(home: Path) -> None:
    text = yaml.safe_dump(
        {
            "datasets": ["./data.py:images"],
            "models": [item()],
            "methods": METHODS,
            "protocols": PROTOCOLS,
        }
    )
    Path("suite.yaml").write_text(text)
    spec = read_suite("suite.yaml")
    one = run(spec, home / "one", progress=False)
    two = run(spec, home / "two", workers=2, progress=False)
    assert one.scores.equals(two.scores)
    assert two.spec.models == spec.models


def test_benchmark_takes_items_of_a_suite(home: Path) -> None:
    data = make_images(6)
    results = assay.benchmark([item(0), item(1)], data, METHODS, PROTOCOLS, progress=False)
    assert settings(results) == [(f"small-s{s}", e) for s in (0, 1) for e in "13"]
    alone = assay.benchmark(item(), data, METHODS, PROTOCOLS, progress=False)
    assert scores(alone, "small-s0", "1") == scores(results, "small-s0", "1")
    clean = results.entries.accuracy(next(iter(results.entries.datasets)), "small-s0", "3")
    assert clean is not None
    assert clean.model == "small-s0@3"
    direct = assay.benchmark(make_net(1), data, METHODS, PROTOCOLS, progress=False)
    assert (
        direct.scores["value"].to_pylist()
        == alone.scores.filter(np.array(alone.scores["checkpoint"]) == "1")["value"].to_pylist()
    )


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"checkpoints": [1, 2]}, PrerequisiteError, "s0-e2.pt"),
        ({"checkpoints": []}, InputError, r"to be a list of names or numbers, .* got \[\]"),
        ({"checkpoints": "1"}, InputError, "to be a list of names or numbers"),
        ({"checkpoints": [1, "1"]}, InputError, "each once, got `1` twice"),
        ({"checkpoints": [True]}, InputError, "to be text"),
        ({"checkpoints": [" "]}, InputError, "got an empty one"),
        ({"weights": None}, InputError, "Expected `weights` of model"),
        ({"weights": "s0-e1.pt"}, InputError, "path with `{}` for the checkpoint"),
        ({"weights": ["s0-e1.pt"]}, InputError, "one file for each of 2 checkpoints, got 1"),
        ({"weights": ["s0-e1.pt"] * 2}, InputError, "each once, got `s0-e1.pt` twice"),
        ({"weights": []}, InputError, "one file for each of 2 checkpoints, got 0"),
        ({"checkpoint": "x"}, InputError, "got both"),
        ({"card": "card.json"}, InputError, "no `card`"),
    ],
)
def test_errors(
    home: Path, changes: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        resolve(suite(item(**changes)))


def test_labels_are_unique(home: Path) -> None:
    plain = {"./nets.py:make_net": {"weights": "s0-e1.pt", "as": "small-s0"}}
    for models in ((item(), plain), (plain, item()), (item(), item())):
        with pytest.raises(InputError, match="each model once"):
            resolve(suite(*models))


def test_keys_and_manifest_without_checkpoints_are_as_before(home: Path) -> None:
    plain = {"./nets.py:make_net": {"weights": "s0-e1.pt", "as": "small-s0"}}
    results = run(suite(plain), home / "out", progress=False)
    stored = json.loads((home / "out/manifest.json").read_text())
    assert "series" not in stored["models"]["small-s0"]
    known = Manifest.from_json(stored)
    assert known.name_of("small-s0", "anything") == "small-s0"
    assert settings(results) == [("small-s0", "")]


def test_reading_needs_no_torch(home: Path) -> None:
    run(suite(item(0), item(1)), home / "out", progress=False)
    code = (
        "import sys, assay; run = assay.load('out'); print(run.answer is not None); "
        "assay.consistency(run); assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_lists_and_lines_name_the_checkpoint(home: Path) -> None:
    results = run(suite(item()), home / "out", progress=False)
    for checkpoint in "13":
        assert f"images, small-s0 ({checkpoint}): mean difference" in str(results)
        assert f"images, small-s0 ({checkpoint}): mean difference" in results._repr_html_()
