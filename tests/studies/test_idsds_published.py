"""The published networks, scores and claims of IDSDS belong together."""

import json
from pathlib import Path

import pytest

from assay.models.carded import read_card
from assay.plan.resolving import build_one
from assay.studies.idsds.panels import score_panel
from assay.studies.idsds.paper_methods import paper_methods
from assay.studies.idsds.score_table import read_scores
from assay.studies.published_claims import published
from assay.studies.setting import Study, run_study
from assay.training.zoo import ZOO, zoo_item
from assay.training.zoo_training import load_trained
from assay.types.card import in_domain_need
from beside import beside

RESULTS = Path(__file__).parents[2] / "results"
FACTS = json.loads((RESULTS / "zoo" / "networks.json").read_text())["networks"]
STORED = sorted((RESULTS / "zoo").glob("*.safetensors"))
CARDS = sorted((RESULTS / "zoo").glob("*.card.json"))


def stem(facts):
    epoch = f"-e{facts['epoch']}" if "epoch" in facts else ""
    return f"{facts['name']}-s{facts['seed']}-{facts['arm']}{epoch}"


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_stored_weights_are_those_that_were_scored(path):
    facts = next(f for f in FACTS if stem(f) == path.stem)
    assert load_trained(path, facts["name"]).weights_hash == facts["weights_hash"]
    assert path.stat().st_size == facts["bytes"] <= 4 * 2**20


def test_the_stored_weights_stay_small():
    assert len(STORED) == 20
    assert sum(path.stat().st_size for path in STORED) < 20e6


@pytest.mark.parametrize("path", CARDS, ids=lambda path: path.name)
def test_a_stored_card_makes_a_network_usable_in_a_suite(path):
    weights = path.with_name(path.name.replace(".card.json", ".safetensors"))
    name, seed, arm = weights.stem.split("-", 2)
    item = zoo_item(RESULTS / "zoo", name, int(seed[1:]), arm)
    ((_, options),) = item.items()
    assert options["card"] == str(path)
    model = build_one("model", item)
    needs = {
        "tuned": (4, "zero"), "tuned-g2": (2, "zero"), "tuned-g8": (8, "zero"),
        "tuned-uniform": (4, "uniform"), "tuned-blur": (4, "blur"), "placebo": None,
    }  # fmt: skip
    for need in filter(None, needs.values()):
        assert (in_domain_need(*need) in model.capabilities) == (need == needs[arm]), need
    facts = next(f for f in FACTS if stem(f) == weights.stem)
    card = read_card(path).to_json()
    assert "CIFAR-10" in card.pop("origin")
    assert card == facts["card"]


def test_every_stored_network_that_was_tuned_has_a_card():
    tuned = {path.stem for path in STORED if "-base" not in path.stem}
    assert {path.name.removesuffix(".card.json") for path in CARDS} == tuned


def test_every_network_of_the_table_is_described():
    table = read_scores(RESULTS / "idsds" / "idsds_scores.parquet")
    described = {stem(facts): facts for facts in FACTS}
    for name, scored in table.networks.items():
        assert scored["accuracy"] == pytest.approx(described[name]["accuracy"], abs=1e-9), name
        assert scored["weights_hash"] == described[name]["weights_hash"], name
        assert described[name]["name"] in ZOO
    assert set(described) == set(table.networks)


def test_the_card_of_a_fine_tuned_network_is_that_of_its_weights():
    tuned = [facts for facts in FACTS if facts["arm"].startswith("tuned")]
    assert len(tuned) > 100
    for facts in tuned:
        assert facts["card"]["weights_sha256"] == facts["weights_hash"]
        assert not facts["card"]["placebo"]


def test_published_scores_come_again_from_the_stored_weights():
    pixels = beside("cifar10/cifar10_test_lossless.parquet")
    table = read_scores(RESULTS / "idsds" / "idsds_scores.parquet")
    labels = ("IxG", "Grad-CAM++")
    rows = {
        row.method: row
        for row in table.select("smooth", network="resnet20", arm="tuned")
        if row.seed == 0 and row.method in labels
    }
    model = build_one("model", zoo_item(RESULTS / "zoo", "resnet20", 0, "tuned"))
    item = {"single_deletion": {"grid": 4, "fill": "zero"}}
    methods = paper_methods(labels, usual_noise=True)
    panel = score_panel(model, {"parquet": {"path": str(pixels)}}, methods, [item], 250)
    again = {method: values for (_, method), values in panel.values.items()}
    assert {(method, len(values)) for method, values in again.items()} == {
        (method, row.n) for method, row in rows.items()
    }
    for method, row in rows.items():  # near ties have other ranks on a GPU
        assert again[method].mean() == pytest.approx(row.mean, abs=5e-4)


def test_every_claim_has_a_row():
    assert {row.claim for row in published("idsds")} == {f"idsds.{i}" for i in range(1, 30)}


def test_the_published_verdicts_follow_from_the_published_table(tmp_path):
    source = RESULTS / "idsds" / "idsds_scores.parquet"
    (tmp_path / source.name).write_bytes(source.read_bytes())
    rows, _ = run_study("idsds", Study(None, {}, tmp_path))
    again = {row.id: (row.verdict, row.n) for row in rows}
    assert again == {row.id: (row.verdict, row.n) for row in published("idsds")}
    values = {row.id: row.value for row in rows if row.value is not None}
    assert values == pytest.approx({r.id: r.value for r in published("idsds") if r.id in values})
