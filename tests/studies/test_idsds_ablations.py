"""The ready suites that repeat the ablations of IDSDS on any network."""

import pytest
import torch
from torch import nn

from assay.data.memory import as_dataset
from assay.models.wrap import model as as_model
from assay.run.suite_run import run_suite
from assay.studies.idsds.runs import scoring_suites
from assay.suite.spec import choose, make_suite, suite_fields, suites
from assay.training.zoo_arms import parse_arm

# Each ablation with the suites of the study that score the same.
STUDIED = {
    "idsds_cells": ("seeds", "cells"),
    "idsds_fills": ("seeds", "fills"),
    "idsds_softmax": ("readings",),
    "idsds_noise": ("seeds", "smooth"),
    "idsds_sizes": ("seeds", "sizes"),
    "idsds_temperature": ("temperature",),
}
ARMS = ("base", "tuned", "tuned-g2", "tuned-g8", "tuned-uniform", "tuned-blur")


def keys(kind, items):
    return [choice.key for choice in choose(kind, items)]


def test_there_is_a_suite_for_each_ablation():
    assert {name for name in suites() if name.startswith("idsds")} == set(STUDIED)


@pytest.mark.parametrize("name", STUDIED)
def test_methods_and_protocols_are_those_of_the_study(name):
    studied = [scoring_suites()[suite] for suite in STUDIED[name]]
    methods = [key for suite in studied for key in keys("method", suite.methods)]
    protocols = [
        key for suite in studied for arm in ARMS
        for key in keys("protocol", suite.protocols(parse_arm(arm)))
    ]  # fmt: skip
    fields, _ = suite_fields(name)
    for choice in choose("method", fields["methods"]):
        assert choice.key in methods, choice.label
    for choice in choose("protocol", fields["protocols"]):
        key = choice.key
        if key["name"] == "sensitivity_n":  # one of the study's sizes each
            (share,) = key["options"]["shares"]
            same = [k for k in protocols if share in k["options"].get("shares", ())]
            key["options"]["shares"] = same[0]["options"]["shares"]
        if key["name"] == "in_domain_single_deletion":  # the same number for a network with a card
            key = {**key, "name": "single_deletion"}
            key["options"] = {**key["options"], "units": None}
        assert key in protocols, choice.label


@pytest.mark.parametrize("name", STUDIED)
def test_a_suite_runs_on_any_network(name, tmp_path):
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=4, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(256, 3)
    )
    fields, where = suite_fields(name)
    data = as_dataset((torch.randn(2, 3, 32, 32), torch.tensor([0, 1])))
    suite = make_suite({**fields, "models": [as_model(net)], "datasets": [data]}, where)
    results = run_suite(suite, tmp_path / "run", progress=False)
    statuses = {(cell["protocol"], cell["status"]) for cell in results.cells}
    labels = [choice.label for choice in choose("protocol", fields["protocols"])]
    assert statuses == {(x, "n/a" if x.startswith("IDSDS") else "ok") for x in labels}
