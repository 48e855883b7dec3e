"""The fast set: what `assay run --model` and `assay.benchmark` take without lists."""

import torch
from torch import nn

import assay
from assay.conformance.worlds import bag_of_words, make_texts
from assay.suite.defaults import METHODS, PROTOCOLS
from assay.suite.spec import choose_one

CHOICES = [choose_one("protocol", item) for item in PROTOCOLS]


def test_necessity_and_sufficiency_are_asked_with_two_fills():
    fills = {}
    for choice in CHOICES:
        fills.setdefault(choice.plugin.name, set()).add(choice.options["fill"])
    assert fills["deletion"] == fills["insertion"] == {"zero", "second"}
    assert fills.keys() == {"deletion", "insertion", "single_deletion", "sensitivity_n"}


def test_there_are_at_least_a_hundred_random_sets():
    (sets,) = (choice.options for choice in CHOICES if choice.plugin.name == "sensitivity_n")
    assert sets["subsets"] * len(sets["shares"]) >= 100


def test_both_kinds_of_random_controls_are_part_of_it():
    names = {choose_one("method", item).plugin.name for item in METHODS}
    assert {"random", "shuffled"} <= names


def test_every_question_has_scores_on_vectors():
    x = 3 + torch.randn(12, 6, generator=torch.Generator().manual_seed(0))
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).eval()
    results = assay.benchmark(net, (x, torch.arange(12) % 3), progress=False)
    assert not results.failures
    rows = results.leaderboard()
    scored = {(row["method"], row["protocol"]) for row in rows if row["n"]}
    assert {protocol for _, protocol in scored} == {choice.label for choice in CHOICES}
    assert {method for method, _ in scored} >= {"random", "shuffled[of=input_x_gradient]"}


def test_every_question_has_scores_on_texts():
    results = assay.benchmark(bag_of_words(hidden=4), make_texts(12), progress=False)
    assert not results.failures
    scored = {(row["method"], row["protocol"]) for row in results.leaderboard() if row["n"]}
    assert {protocol for _, protocol in scored} >= {"deletion[steps=10]", "insertion[steps=10]"}
    assert {method for method, _ in scored} >= {"random", "shuffled[of=input_x_gradient]"}
