"""M4's claims: stated in full, judged on made-up scores, run in miniature."""

import functools
import json
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import nn

from assay.environments.environment import Environment
from assay.errors import InputError, PrerequisiteError
from assay.models.small_vit import SmallViT
from assay.plugins import registry
from assay.studies.claim import judge
from assay.studies.m4 import networks as m4_networks
from assay.studies.m4 import runs as m4_runs
from assay.studies.m4 import study as m4
from assay.studies.m4.networks import CONVOLUTIONAL, TRANSFORMERS, Kind
from assay.studies.m4.runs import Scored
from assay.studies.published_claims import claims_of, published
from assay.studies.setting import Study, forecasts, run_study
from assay.types import Dataset, Sample
from stored_logs import logs, unchanged

CLAIMS = {claim.id: claim for claim in claims_of("m4")}


def test_all_claims_are_stated():
    assert list(CLAIMS) == [f"m4.{i}" for i in range(1, 14)]
    for claim in CLAIMS.values():
        assert claim.statement, claim.id
        assert claim.statistic, claim.id
        assert claim.margin > 0, claim.id
        assert claim.unit.startswith("image" if claim.id == "m4.12" else "network"), claim.id
        assert claim.n >= 10, claim.id
        assert bool(claim.reason) == (claim.id not in m4.TESTS), claim.id


def test_the_table_needs_no_run(call):
    code, output, _ = call("claims", "--paper", "m4", "--json")
    assert code == 0
    assert [row["claim"] for row in json.loads(output)] == list(CLAIMS)
    assert all(row.note for row in published("m4"))


# --- times ----------------------------------------------------------------------------------------

TIMES = """# Seconds for 100 images

Abacus X1, torch 2; made by `python -m benchmarks.speed`.

| network | method | forwards | backwards | seconds | over floor | M4's seconds |
|---|---|---|---|---|---|---|
| ResNet-50 | rise | 1000 | 0 | 1.85 | 1.09 |  |
| ResNet-50 | smoothgrad[noise=samples=100] | 100 | 100 | {other} | 1 | 470 |
| ResNet-50 | gradcam | 1 | 1 | 2.00 | 0.96 | 5 |
| ViT-B/16 | generic_attention | 1 | 1 | 3.00 | 1.04 | 7 |
| ViT-B/16 | bt_head | 20 | 20 | 300.00 | 0.52 | 179 |
"""


@pytest.mark.parametrize(
    ("other", "expected"),
    [("120.00", "holds"), ("19.00", "does not carry over"), ("62.00", "undecided")],
)
def test_times_are_decided_from_a_named_run(tmp_path, other, expected):
    (tmp_path / "speed_abacus.md").write_text(TIMES.format(other=other))
    (row,), _ = run_study("m4.12", Study(None, {}, tmp_path))
    assert row.id == "m4.12@speed_abacus"
    assert row.verdict == expected
    assert "`speed_abacus.md` on Abacus X1" in row.note
    assert row.source == (tmp_path / "speed_abacus.md").as_posix()
    assert row.command == f"assay claims --run m4.12 --out {tmp_path}"
    assert (row.n, row.size) == (100, 224)


def test_times_need_a_table_of_two_networks(tmp_path):
    (row,), _ = run_study("m4.12", Study(None, {}, tmp_path))
    assert row.verdict == "not run yet"
    assert "`python -m benchmarks.speed` makes one" in row.note
    (tmp_path / "speed_half.md").write_text(TIMES.format(other="1.00").partition("| ViT")[0])
    with pytest.raises(PrerequisiteError, match=r"on two networks, got {'ResNet-50'"):
        run_study("m4.12", Study(None, {}, tmp_path))


def test_the_published_times_are_those_of_the_benchmark(tmp_path):
    table = Path(__file__).parents[2] / "benchmarks" / "speed_h200.md"
    (tmp_path / table.name).write_bytes(table.read_bytes())
    (row,), _ = run_study("m4.12", Study(None, {}, tmp_path))
    (stored,) = (row for row in published("m4") if row.claim == "m4.12")
    assert stored.source == "benchmarks/speed_h200.md"
    assert (row.id, row.value, row.note) == (stored.id, stored.value, stored.note)


# --- networks -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*CONVOLUTIONAL, *TRANSFORMERS], ids=lambda kind: kind.name)
def test_a_network_tells_two_classes_apart(kind):
    model = kind(2)
    parts = dict(model.net.named_modules())
    sizes = {}
    for layer in kind.layers:
        keep = functools.partial(_keep_side, sizes, layer)
        parts[layer].register_forward_hook(keep)
    assert model.logits(torch.rand(3, 3, 32, 32)).shape == (3, 2)
    assert list(sizes.values()) == ([32, 16, 8] if kind.convolutional else [])
    assert kind.convolutional != ("attention" in model.capabilities)
    assert model.cam_layer == (kind.layers[-1] if kind.convolutional else None)


def _keep_side(sizes, layer, module, inputs, output):
    sizes[layer] = output.shape[-1]


@pytest.mark.parametrize(("kinds", "each"), [(CONVOLUTIONAL, 2), (TRANSFORMERS, 4)])
def test_there_are_enough_networks_to_decide(kinds, each, monkeypatch, tmp_path):
    made = Environment("patch", None, None, card={"proof": {}})
    monkeypatch.setattr(m4_runs, "read_once", lambda study, size: None)
    monkeypatch.setattr(m4_runs, "planted", lambda plant, study, **options: made)
    networks = list(m4_runs.trained(kinds, Study(None, {}, tmp_path)))
    assert Counter(network.kind.name for network in networks) == {k.name: each for k in kinds}
    assert len({network.name for network in networks}) == len(networks) >= CLAIMS["m4.4"].n


# --- verdicts on made-up scores -------------------------------------------------------------------


def made_up(n=12, refused=(), **means):
    """Networks that differ a little, each method as said."""
    values = {
        f"{('plain', 'deep')[i % 2]}-{i}": {m: mean + 0.001 * (i % 4) for m, mean in means.items()}
        for i in range(n)
    }
    for i, scores in enumerate(values.values()):  # not all methods alike, or there is no error
        scores["smoothgrad"] += 0.0005 * (i % 3)
    return Scored(values, list(refused))


def verdict(row):
    (judged,) = judge([row])
    return judged.verdict


def on_cnns(**means):
    early = {"gradcam at 1": means["gradcam"] + 0.02}
    found = made_up(
        integrated_gradients=means.pop("ig"), smoothgrad=means.pop("sg"), **means, **early
    )
    return m4.smoothgrad_last(CLAIMS["m4.4"], found)


@pytest.mark.parametrize(
    ("means", "expected"),
    [
        ({"ig": 0.99, "gradcam": 0.97, "sg": 0.95}, "holds"),
        ({"ig": 0.99, "gradcam": 0.97, "sg": 0.98}, "does not carry over"),  # SmoothGrad not last
        ({"ig": 0.96, "gradcam": 0.95, "sg": 0.99}, "does not carry over"),  # nor beaten at all
        ({"ig": 0.99, "gradcam": 0.97, "sg": 0.90}, "does not carry over"),  # below .92
        ({"ig": 0.957, "gradcam": 0.958, "sg": 0.95}, "does not carry over"),  # hardly ahead
    ],
)
def test_smoothgrad_is_last_or_not(means, expected):
    row = on_cnns(**means)
    assert verdict(row) == expected
    assert (row.n, row.setting) == (12, "stand-in")
    # What an earlier layer of Grad-CAM would change is said beside, and decides nothing.
    assert "At the layer that is best" in row.note
    assert "must be" not in row.note
    assert "12 networks of 2 kinds (plain 6, deep 6): no independent draws" in row.note


def on_transformers(attention, ig, sg, refused=()):
    others = {"bt_head": 0.9, "bt_token": 0.91}
    here = made_up(
        12, refused, generic_attention=attention, integrated_gradients=ig, smoothgrad=sg, **others
    )
    there = made_up(10, integrated_gradients=0.98, smoothgrad=0.95, gradcam=0.97)
    return m4.attention_first(CLAIMS["m4.8"], here, there)


@pytest.mark.parametrize(
    ("means", "expected"),
    [
        ((0.96, 0.85, 0.8), "holds"),
        ((0.90, 0.85, 0.8), "does not carry over"),  # not first
        ((0.96, 0.94, 0.8), "does not carry over"),  # gradients lose too little
    ],
)
def test_attention_is_first_or_not(means, expected):
    row = on_transformers(*means)
    assert verdict(row) == expected
    assert "MAE is not testable here" in row.note
    assert "12 networks of 2 kinds (plain 6, deep 6) and 10 networks of 2 kinds (" in row.note


def test_networks_without_proof_are_named():
    assert "vit_small-3" in on_transformers(0.96, 0.85, 0.8, ["vit_small-3"]).note
    with pytest.raises(InputError, match="at least 2 replicates"):
        m4.smoothgrad_last(CLAIMS["m4.4"], Scored({}, ["plain-0"]))


def proof(changed=1.0, alone=1.0, moved=1.0, sufficient=("left half",)):
    parts = dict.fromkeys(("left half", "border", "interior", "quarter"), 0.9)
    return {
        "planted": 0.99, "changed": changed, "alone": alone, "moved": moved, "parts": parts,
        "sufficient": list(sufficient),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({}, "holds"),
        ({"changed": 0.6}, "does not carry over"),
        ({"alone": 0.8}, "does not carry over"),
        ({"moved": 0.8}, "does not carry over"),
    ],
)
def test_the_patch_is_used_or_not(wrong, expected):
    proofs = {f"net-{i}": proof(**{"changed": 0.99 + 0.001 * (i % 3), **wrong}) for i in range(20)}
    row = m4.needed(CLAIMS["m4.13"], proofs, [])
    assert verdict(row) == expected
    assert "20 of 20 networks have proof of use" in row.note
    assert "Networks for which a part suffices: left half 20" in row.note
    assert "is shown" not in row.note  # that is for the verdict to say


def test_a_network_without_proof_counts_against_the_claim():
    proofs = {f"net-{i}": proof() for i in range(20)}
    sure = m4.needed(CLAIMS["m4.13"], proofs, [])
    proofs["net-7"] = proof(changed=0.0, alone=0.5)
    row = m4.needed(CLAIMS["m4.13"], proofs, ["net-7"])
    assert "19 of 20 networks have proof of use, but net-7; least changed 0.000" in row.note
    assert sure.p_holds < row.p_holds


# --- in miniature ---------------------------------------------------------------------------------


@registry.dataset("m4_colours")
def m4_colours() -> Dataset:
    """Smooth random colours of 16 pixels a side."""
    noise = torch.rand(600, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    images = nn.functional.interpolate(noise, size=16, mode="bilinear")
    ids = tuple(f"{i:03d}" for i in range(len(images)))
    return Dataset(
        "m4_colours", "image", ids, lambda name: Sample(images[int(name)], 0), fingerprint="colours"
    )


def _convolutions(classes):
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(),
        nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(8, classes),
    )  # fmt: skip


def _blind(classes):
    net = nn.Sequential(nn.Conv2d(3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(512, classes))
    return net.requires_grad_(False)


def _attention(classes):
    return SmallViT(classes, size=16, patch=2, width=32, depth=1, heads=2)


@pytest.fixture
def in_small(monkeypatch, tmp_path):
    monkeypatch.setattr(m4_runs, "SIZE", 16)
    monkeypatch.setattr(m4_runs, "EPOCHS", 2)
    monkeypatch.setattr(m4_runs, "TRAIN", 2048)
    seeing = [Kind(name, _convolutions, layers=("1", "3")) for name in ("one", "other")]
    blind = Kind("blind", _blind, layers=("1",))
    monkeypatch.setattr(m4_networks, "CONVOLUTIONAL", (*seeing, blind))
    monkeypatch.setattr(m4_networks, "TRANSFORMERS", (Kind("attending", _attention),))
    return Study("m4_colours", {}, tmp_path, n=6, steps=2, trials=4)


def test_the_claims_run_from_training_to_verdict(in_small):
    rows, path = run_study("m4", in_small)
    by_id = {row.id: row for row in rows}
    assert list(by_id) == ["m4.4", "m4.8", "m4.12", "m4.13"]
    assert [row.n for row in rows] == [2, 2, None, 5]  # one network is blind, nothing was timed
    assert by_id.pop("m4.12").verdict == "not run yet"
    assert "Left out without proof of use: blind-0" in by_id["m4.4"].note
    assert "gradcam at" not in by_id["m4.4"].note
    assert "bt_head" in by_id["m4.8"].note
    assert "4 of 5 networks have proof of use, but blind-0" in by_id["m4.13"].note
    assert {row.verdict for row in by_id.values()} == {"to be run again"}
    assert "n = 2 instead of 10" in by_id["m4.4"].remedy
    assert path == in_small.out / "m4.json"
    before = logs(in_small.out / "patch-one-0-6")
    run_study("m4.4", in_small)
    assert before
    assert unchanged(before)


def test_what_cannot_be_run_says_why(tmp_path):
    with pytest.raises(PrerequisiteError, match="plants a feature on images"):
        run_study("m4.4", Study(None, {}, tmp_path))
    with pytest.raises(PrerequisiteError, match="Needs ten vision transformers"):
        run_study("m4.9", Study(None, {}, tmp_path))
    with pytest.raises(InputError, match="trains networks or draws data first"):
        forecasts("m4.4", Study(None, {}, tmp_path))
