"""The published networks, scores and claims of IDSDS belong together."""

import json
from pathlib import Path

import pytest

from assay.studies.idsds.score_table import read_scores
from assay.studies.published_claims import published
from assay.training.zoo import ZOO
from assay.training.zoo_training import load_trained

RESULTS = Path(__file__).parents[2] / "results"
FACTS = json.loads((RESULTS / "zoo" / "networks.json").read_text())["networks"]
STORED = sorted((RESULTS / "zoo").glob("*.safetensors"))


def stem(facts):
    epoch = f"-e{facts['epoch']}" if "epoch" in facts else ""
    return f"{facts['name']}-s{facts['seed']}-{facts['arm']}{epoch}"


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_stored_weights_are_those_that_were_scored(path):
    facts = next(f for f in FACTS if stem(f) == path.stem)
    assert load_trained(path, facts["name"]).weights_hash == facts["weights_hash"]
    assert path.stat().st_size == facts["bytes"] < 4e6


def test_every_network_of_the_table_is_described():
    table = read_scores(RESULTS / "idsds" / "idsds_scores.parquet")
    described = {stem(facts): facts for facts in FACTS}
    for name, scored in table.networks.items():
        assert scored["accuracy"] == pytest.approx(described[name]["accuracy"], abs=0.05), name
        assert described[name]["name"] in ZOO


def test_the_card_of_a_fine_tuned_network_is_that_of_its_weights():
    tuned = [facts for facts in FACTS if facts["arm"] == "tuned"]
    assert tuned
    for facts in tuned:
        assert facts["card"]["weights_sha256"] == facts["weights_hash"]
        assert not facts["card"]["placebo"]


def test_every_claim_has_a_row():
    assert {row.claim for row in published("idsds")} == {f"idsds.{i}" for i in range(1, 30)}
