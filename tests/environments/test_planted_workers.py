"""Planted features in a run of several processes: one of them trains, all have its network."""

import os
import subprocess
import sys

import pytest
from safetensors.torch import load

import assay
from assay.run import dry_run, executors, run
from assay.suite.spec import make_suite

NET = """
import os
from pathlib import Path

from torch import nn


class Noting(nn.Sequential):
    \"\"\"Writes down which process trains it.\"\"\"

    def __init__(self, classes):
        super().__init__(
            nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten(),
            nn.Linear(8, classes),
        )

    def train(self, mode=True):
        if mode:
            with Path(__file__).with_name("trained").open("a") as file:
                file.write(f"{os.getpid()}\\n")
        return super().train(mode)
"""


RUN = """
import sys

import torch

from assay.run import run
from assay.suite.spec import read_suite

torch.set_num_threads(2)
run(read_suite(sys.argv[1]), sys.argv[2], progress=False)
"""
METHODS = ["saliency", "random"]
WEIGHTS = {"0.weight", "0.bias", "4.weight", "4.bias"}  # of that network


@pytest.fixture
def suite(tmp_path):
    (tmp_path / "noting.py").write_text(NET)
    options = {"size": 16, "patch": 5, "train": 1024, "epochs": 3, "samples": 16}
    return make_suite(
        {
            "environments": [{"yellow_patch": {**options, "net": f"{tmp_path}/noting.py:Noting"}}],
            "methods": METHODS,
            "protocols": ["pointing_game"],
        }
    )


def trainers(folder):
    return set((folder / "trained").read_text().split())


def times_trained(folder):
    return len((folder / "trained").read_text().split())


def test_it_is_trained_once_whatever_the_number_of_workers(suite, tmp_path):
    results = run(suite, tmp_path / "run", workers=2, progress=False)
    assert trainers(tmp_path) == {str(os.getpid())}
    assert times_trained(tmp_path) == 1
    assert results.complete
    again = run(suite, tmp_path / "alone", progress=False)
    assert times_trained(tmp_path) == 2  # another run knows nothing of the first
    assert again.scores.equals(assay.load(tmp_path / "run").scores)


def test_a_command_with_a_budget_trains_once(suite, tmp_path, call):
    """The network is needed to estimate the time, and then to run."""
    (tmp_path / "suite.yaml").write_text(suite.dump())
    options = ("--out", str(tmp_path / "run"), "--budget", "10min")
    code, _, _ = call("run", str(tmp_path / "suite.yaml"), *options)
    assert code == 0
    assert times_trained(tmp_path) == 1


def test_a_network_of_painted_parts_is_trained_once(tmp_path, monkeypatch):
    """It is stored with the run as well, and a run that goes on has the same one."""
    monkeypatch.setattr("assay.environments.parts.card", lambda net, scenes: {})  # takes longest
    options = {"weights": "train", "size": 32, "images": 64, "epochs": 1, "samples": 4}
    asked = {"environments": [{"parts": options}], "methods": METHODS, "protocols": ["synscore"]}
    before = run(make_suite(asked), tmp_path / "run", progress=False)
    (file,) = (tmp_path / "run" / "trained").iterdir()
    written = file.stat().st_mtime_ns

    def never(*args, **options):
        raise AssertionError("trained again")

    monkeypatch.setattr("assay.environments.parts.fit", never)
    more = make_suite({**asked, "methods": [*METHODS, "centre"]})
    after = run(more, tmp_path / "run", progress=False)
    assert after.complete
    assert after.manifest["models"] == before.manifest["models"]
    assert file.stat().st_mtime_ns == written  # nothing new, so nothing is written


def test_a_run_continued_in_a_new_process_does_not_train_again(suite, tmp_path):
    run(suite, tmp_path / "run", progress=False)
    (tmp_path / "more.yaml").write_text(
        suite.model_copy(update={"methods": [*METHODS, "centre"]}).dump()
    )
    command = [sys.executable, "-c", RUN, "more.yaml", "run"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert trainers(tmp_path) == {str(os.getpid())}
    results = assay.load(tmp_path / "run")
    assert results.complete
    assert "centre" in results.manifest["methods"]


def test_weights_that_are_not_whole_are_trained_again(suite, tmp_path):
    run(suite, tmp_path / "run", progress=False)
    (file,) = (tmp_path / "run" / "trained").iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[:-9])
    run(suite, tmp_path / "run", progress=False)
    assert file.read_bytes() == whole
    assert times_trained(tmp_path) == 2


def test_workers_get_the_networks_of_their_run_and_no_others(suite, tmp_path, monkeypatch):
    other = assay.TrainedWeights()  # as of a folder whose suite named another environment before
    options = {"size": 16, "patch": 6, "train": 1024, "epochs": 3, "samples": 16}
    assay.environment("yellow_patch", trained=other, **options)
    trained = assay.TrainedWeights(other.packed())
    sent = []

    def stop(work, *told):
        sent.append(told[-1])
        raise InterruptedError

    monkeypatch.setattr(executors, "Worker", stop)
    for folder, act in (("run", run), ("dry", dry_run)):
        with pytest.raises(InterruptedError):
            act(suite, tmp_path / folder, workers=2, trained=trained)
    for known in sent:
        assert [set(load(packed)) for packed in known.weights.values()] == [WEIGHTS]
    assert len(sent) == 2
    assert not (tmp_path / "dry").exists()
