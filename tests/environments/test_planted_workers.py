"""Planted features in a run of several processes: one of them trains, all have its network."""

import os

import assay
from assay.run import run
from assay.spec import make_suite

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


def test_it_is_trained_once_whatever_the_number_of_workers(tmp_path):
    (tmp_path / "noting.py").write_text(NET)
    options = {"size": 16, "patch": 5, "train": 1024, "epochs": 3, "samples": 16}
    suite = make_suite(
        {
            "environments": [{"yellow_patch": {**options, "net": f"{tmp_path}/noting.py:Noting"}}],
            "methods": ["saliency", "random"],
            "protocols": ["pointing_game"],
        }
    )
    results = run(suite, tmp_path / "run", workers=2, progress=False)
    assert set((tmp_path / "trained").read_text().split()) == {str(os.getpid())}
    assert results.complete
    again = run(suite, tmp_path / "alone", progress=False)
    assert again.scores.equals(assay.load(tmp_path / "run").scores)
