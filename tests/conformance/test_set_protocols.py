"""Every registered set protocol, against maps whose worth is known: tested by existing."""

import pytest

from assay.conformance import examine
from assay.conformance import set_protocols as checks
from assay.plugins import registry
from conformance.everywhere import made

FEW = {"epochs": 4, "augment": False}
CHEAP = {
    "roar": {**FEW, "fractions": (0.1, 0.5), "retrainings": 2},
    "kar": {**FEW, "fractions": (0.5, 0.9), "retrainings": 2},
    "mask_leakage": FEW,
}
NAMES = [p.name for p in registry.everything("protocol") if not p.own and p.scope == "set"]


@pytest.mark.parametrize("rule", checks.RULES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("name", NAMES)
def test_rules(name, rule):
    unranked = rule is checks.the_oracle_beats_noise and name == "mask_leakage"
    if unranked:
        with pytest.raises(checks.NotApplicable, match="does not judge maps"):
            rule(made(checks.planted_block), {name: CHEAP.get(name, {})})
    else:
        rule(made(checks.planted_block), {name: CHEAP.get(name, {})})


def test_a_protocol_that_trains_behind_the_run_is_found(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import torch, assay\n"
        "@assay.protocol('mine', scope='set', range=(0, 1))\n"
        "def mine(trial):\n"
        "    return assay.Scores(torch.rand(len(trial.batch()), dtype=torch.float64))\n"
    )
    found = {f.check: f for f in examine(f"{tmp_path}/mine.py:mine")}
    failed = [check for check, finding in found.items() if finding.failed]
    assert "Two runs with one seed give the same scores" in failed
