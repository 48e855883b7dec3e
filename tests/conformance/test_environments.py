"""Every registered environment, tested by existing."""

import pytest
import torch

import assay
from assay.conformance import environments as checks
from assay.conformance.worlds import Fault
from assay.data.memory import as_dataset
from assay.errors import NotApplicable
from assay.plugins import registry

# Options of those whose defaults take long: they train a network.
CHEAP: dict[str, dict] = {
    "yellow_patch": {"size": 16, "patch": 5, "train": 1024, "epochs": 3, "samples": 24},
    "number_watermark": {"size": 16, "classes": 4, "train": 2048, "epochs": 2, "samples": 24},
    "stripe_watermark": {"size": 14, "classes": 8, "train": 1024, "epochs": 2, "samples": 24},
}
# Options beside the defaults that change data, network or truth.
VARIANTS = {
    "multi_color_sum": [
        {"size": 64, "samples": 8, "target": "softmax", "weights": "uniform"},
        {"size": 48, "samples": 8, "colors": 2, "unseen": False},
    ],
    "single_color_modulo": [{"size": 48, "samples": 8, "modulus": 7, "weights": "uniform"}],
}
NAMES = [e.name for e in registry.everything("environment") if not e.own]


@pytest.mark.parametrize("name", NAMES)
def test_rules(name):
    """Under every option set all of them hold, and all but one at most apply."""
    usual = {name: CHEAP[name]} if name in CHEAP else name
    for item in (usual, *({name: options} for options in VARIANTS.get(name, ()))):
        broken, idle = [], []
        for check in checks.RULES:
            try:
                check(checks.in_small(), item)
            except Fault as fault:
                broken.append(f"{item}: {check.__name__}: {fault}")
            except NotApplicable as reason:
                idle.append(f"{item}: {check.__name__}: {reason}")
        assert not broken
        assert len(idle) <= 1


@pytest.mark.parametrize("name", NAMES)
def test_every_environment_describes_itself(name):
    plugin = registry.get("environment", name)
    assert plugin.summary.endswith(".")
    assert plugin.title
    assert plugin.family
    assert plugin.cite
    if name not in CHEAP:
        assert checks.build(checks.in_small(), name).card["truth"]


@pytest.mark.parametrize("name", sorted(checks.CHANCE))
def test_chance_is_what_many_noise_maps_score(name):
    """On one small truth, uneven and of both signs, where the mean of many draws is sharp."""
    truth = torch.zeros(6, 6)
    truth[0, :3], truth[2, 1:5] = torch.tensor([1.0, 0.5, 0.25]), -1.0
    draws = 4000
    generator = torch.Generator().manual_seed(2)
    x, y = torch.rand(draws, 3, 6, 6, generator=generator), torch.zeros(draws, dtype=torch.long)
    truths = truth.expand(draws, 6, 6)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(108, 2))
    noise = torch.rand(draws, 6, 6, generator=torch.Generator().manual_seed(1))
    found = assay.score(net, as_dataset((x, y, truths)), None, noise, name)
    error = float(found.std()) / draws**0.5
    expected = float(checks.CHANCE[name](truths[:1].double()))
    slack = 1 / 36 * expected if name == "truth_f1" else 0  # right up to 1 / units
    assert abs(float(found.mean()) - expected) <= 4 * error + slack


@pytest.mark.parametrize(
    ("check", "table", "name", "message"),
    [
        (checks.the_truth_scores_best, checks.BEST, "truth_f1", "the truth to score"),
        (checks.noise_scores_chance, checks.CHANCE, "truth_recall", "noise to score"),
        (checks.noise_scores_chance, checks.CHANCE, "synscore", "noise to score"),
    ],
)
def test_a_score_that_is_not_as_theory_gives_it_is_found(monkeypatch, check, table, name, message):
    theory = table[name]
    monkeypatch.setitem(table, name, lambda truth: 1.1 * theory(truth))
    with pytest.raises(Fault, match=message):
        check(checks.in_small(), "multi_color_sum")


def test_how_much_training_the_environment_of_another_needs_is_left_to_it(monkeypatch):
    known = {name: registry.get("environment", name) for name in registry.names("environment")}
    monkeypatch.setitem(registry._REGISTERED, "environment", known)
    asked = []

    @registry.environment("well_trained", family="planted", title="Well trained")
    def well_trained(*, size: int = 224, classes: int = 10, train: int = 9000, samples: int = 50):
        """Notes what it is asked for."""
        asked.append((size, classes, train, samples))
        return assay.environment("multi_color_sum", size=size, samples=samples)

    said = checks.say_small("well_trained")
    assert said == "A network is trained first. Checked with smaller options: size: 64, samples: 8."
    checks.build(checks.in_small(), "well_trained")
    assert asked == [(64, 10, 9000, 8)]
    assert "in about a minute" in checks.say_small("number_watermark")
