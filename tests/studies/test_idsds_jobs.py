"""The scoring jobs of IDSDS: which there are, and one round on tiny networks."""

import itertools
import json

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file as load_numpy
from safetensors.numpy import save_file as numpy_file
from safetensors.torch import save_file
from torch import nn

from assay.models.wrap import model as as_model
from assay.removal.fills import blur_idsds, uniform_shared
from assay.studies.idsds import jobs, likeness, mask_only, panels, scoring_records
from assay.studies.idsds.paper_methods import AGNOSTIC, ALL, CAMS, NINE, PAIRS, paper_methods
from assay.studies.idsds.runs import (
    ScoringJob,
    StoredNetwork,
    scoring_jobs,
    scoring_suites,
    stored_networks,
)
from assay.studies.idsds.score_table import read_scores
from assay.studies.idsds.scoring_records import ScoringSetting
from assay.suite.spec import choose
from assay.training.zoo import ZOO, zoo_file, zoo_model
from assay.training.zoo_arms import parse_arm
from assay.types import Batch


def test_there_are_23_methods_and_all_of_them_resolve():
    assert (len(ALL), len(AGNOSTIC), len(NINE), len(CAMS), len(PAIRS)) == (23, 19, 9, 5, 5)
    assert len(set(ALL)) == 23
    assert set(NINE) < set(AGNOSTIC)
    choices = choose("method", paper_methods(ALL))
    assert {c.label for c in choices} == set(ALL)
    by_label = {c.label: c for c in choices}
    noise = by_label["IG-SG"].noise
    assert (noise.samples, noise.sigma, noise.relative) == (4, 1.0, False)
    assert by_label["IG-SG"].formula_key == by_label["IG-SG-SQ"].formula_key
    assert by_label["IG abs"].reduction["abs"] is True
    assert by_label["RISE"].options["masks"] == 1000


def test_methods_with_one_formula_stand_together():
    keys = [c.formula_key for c in choose("method", paper_methods(ALL))]
    assert sum(a != b for a, b in itertools.pairwise(keys)) == len(set(keys)) - 1


@pytest.mark.parametrize("name", scoring_suites())
def test_every_suite_resolves(name):
    suite = scoring_suites()[name]
    choose("method", suite.methods)
    for arm in ("base", "tuned", "tuned-g8", "tuned-uniform", "tuned-blur", "placebo"):
        choose("protocol", suite.protocols(parse_arm(arm)))


def test_which_networks_a_suite_scores():
    def suites_of(name, seed, arm, epoch=None):
        found = scoring_jobs([StoredNetwork(name, seed, arm, epoch)], scoring_suites())
        return {job.suite for job in found}

    assert suites_of("resnet56", 3, "base") == {"nine"}
    assert suites_of("resnet56", 3, "base", 4) == set()
    assert suites_of("resnet20", 1, "tuned") == {
        "nine", "seeds", "softmax", "smooth", "sizes", "temperature",
    }  # fmt: skip
    assert suites_of("resnet20", 1, "base") == {
        "nine", "seeds", "ids", "updated", "sizes", "temperature",
    }  # fmt: skip
    assert suites_of("resnet20", 0, "tuned-g8") == {"cells"}
    assert suites_of("vgg11", 0, "tuned-blur") == {"fills"}
    assert "all" in suites_of("vit_medium", 0, "tuned")


def test_networks_are_found_by_their_files(tmp_path):
    for stem in ("resnet20-s3-tuned-g8", "vgg11_bn-s0-base-e4", "pixels-123", "unknown-s0-base"):
        (tmp_path / f"{stem}.safetensors").touch()
        (tmp_path / f"{stem}.json").touch()
    (tmp_path / "resnet32-s0-base.safetensors").touch()  # still being written
    found = stored_networks(tmp_path)
    assert found == [
        StoredNetwork("resnet20", 3, "tuned-g8"), StoredNetwork("vgg11_bn", 0, "base", 4),
    ]  # fmt: skip
    assert [n.stem for n in found] == ["resnet20-s3-tuned-g8", "vgg11_bn-s0-base-e4"]
    assert found[0].kind.grid == 8
    assert found[0].design is ZOO["resnet20"]


# --- a panel --------------------------------------------------------------------------------------


class Cells(nn.Module):
    """Logits that add up over the cells of a 4 x 4 grid."""

    def __init__(self):
        super().__init__()
        self.pool = nn.AvgPool2d(8)
        self.linear = nn.Linear(48, 4, bias=False)

    def forward(self, x):
        return self.linear(self.pool(x).flatten(1))


def made_up(n=20):
    torch.manual_seed(0)
    net = as_model(Cells(), name="cells")
    return net, (torch.randn(n, 3, 32, 32), torch.arange(n) % 4)


def test_a_panel_scores_what_is_known():
    from assay.data.memory import as_dataset

    model, data = made_up()
    methods = paper_methods(["IxG", "IG", "B-cos"], steps=2)
    protocols = scoring_suites()["sizes"].protocols(parse_arm("tuned"))
    protocols += scoring_suites()["nine"].protocols(parse_arm("tuned"))
    panel = panels.score_panel(model, as_dataset(data), methods, protocols, 20, micro_batch=20)
    exact = panel.values["single deletion", "IxG"]
    np.testing.assert_allclose(exact, 1, atol=1e-6)  # additive over cells
    assert panel.statuses["single deletion", "B-cos"] == "n/a"
    assert len([p for p, m in panel.values if m == "IxG"]) == 17  # and 15 sizes, their mean
    np.testing.assert_allclose(panel.values["sets of 15", "IG"], 1, atol=1e-4)
    rows = {(r["protocol"], r["method"]): r for r in panel.rows()}
    assert rows["single deletion", "B-cos"]["mean"] is None
    assert len(rows["single deletion", "IxG"]["blocks"]) == 20
    assert 0 <= panel.accuracy <= 1


def test_summaries_leave_out_what_has_no_score():
    summary = panels.summary(np.array([1.0, np.nan, 3.0] + [2.0] * 97))
    assert (summary["n"], summary["mean"]) == (99, 2.0)
    assert len(summary["blocks"]) == panels.BLOCKS
    assert summary["blocks"][0] == 1.0
    assert panels.summary(np.full(3, np.nan)) == {"n": 0, "mean": None, "sd": None, "blocks": []}


def test_a_temperature_divides_the_logits():
    model, (inputs, _) = made_up()
    before = model.logits(inputs)
    after = panels.tempered(model, 4.0).logits(inputs)
    torch.testing.assert_close(after, before / 4)


# --- networks side by side ------------------------------------------------------------------------


def test_the_overlap_of_channels_is_that_of_the_cards():
    cards = {
        "a-s0-tuned": {"overlap": 0.7, "seeds_overlap": 0.02},
        "a-s0-placebo": {"overlap": 0.8},
    }
    networks = {name: {"card": card} for name, card in cards.items()}
    overlaps = {
        kind: jobs._overlap(networks, {"kind": kind, "network": "a", "seed": 0})
        for kind in ("tuned", "placebo", "seed", "architecture")
    }
    assert overlaps == {"tuned": 0.7, "placebo": 0.8, "seed": 0.02, "architecture": None}
    assert jobs._overlap(networks, {"kind": "tuned", "network": "b", "seed": 0}) is None


def test_a_look_is_read_back_as_it_was(tmp_path):
    from assay.data.memory import as_dataset

    model, data = made_up()
    ready, batch = panels.batch_of(model, as_dataset(data), 20, None, 20)
    seen = likeness.look(ready, batch, 4, "zero")
    numpy_file(seen, tmp_path / "seen.safetensors")
    for name, array in load_numpy(tmp_path / "seen.safetensors").items():
        np.testing.assert_array_equal(array, seen[name])


def test_a_network_is_like_itself():
    from assay.data.memory import as_dataset

    model, data = made_up()
    ready, batch = panels.batch_of(model, as_dataset(data), 20, None, 20)
    seen = likeness.look(ready, batch, 4, "zero")
    same = likeness.compare(seen, seen)
    assert same["mad_softmax"] == 0
    facts = likeness.facts(seen)
    assert facts["worst_patch"] <= facts["lowest_patch"] <= 1
    assert facts["worst_patch"] <= facts["accuracy_seen"]


# --- masks ----------------------------------------------------------------------------------------


def test_masks():
    pixels = torch.rand(12, 3, 32, 32)
    made = {
        k: mask_only.masks(k, pixels, torch.Generator().manual_seed(0)) for k in mask_only.KINDS
    }
    assert {k: tuple(m.shape) for k, m in made.items()} == dict.fromkeys(made, (12, 1, 32, 32))
    assert (made["cell"].sum((1, 2, 3)) == 64).all()
    assert (made["segment"].sum((1, 2, 3)) > 0).all()
    assert made["bright"].mean() == pytest.approx(0.25, abs=0.01)


def test_masks_tell_the_class_only_if_they_depend_on_it():
    labels = torch.arange(400) % 2
    pixels = torch.rand(400, 3, 32, 32) * 0.1
    pixels[:, :, :16] += labels[:, None, None, None]  # the bright half is above or below
    pixels[:, :, 16:] += 1 - labels[:, None, None, None]
    assert mask_only.mask_accuracy("bright", pixels, labels, steps=40) > 0.9
    assert abs(mask_only.mask_accuracy("cell", pixels, labels, steps=40) - 0.5) < 0.15


# --- fills ----------------------------------------------------------------------------------------


def test_fills_of_the_authors():
    images = torch.rand(3, 3, 32, 32)
    batch = Batch(("a", "b", "c"), images, torch.zeros(3, dtype=torch.long))
    field = uniform_shared(batch)
    assert field.shape == (1, 3, 32, 32)
    assert torch.equal(field, uniform_shared(batch.select([1])))  # the same for every sample
    assert -1 <= float(field.min()) < -0.9 < 0.9 < float(field.max()) <= 1
    ones = Batch(("a",), torch.ones(1, 3, 32, 32), torch.zeros(1, dtype=torch.long))
    torch.testing.assert_close(blur_idsds(ones), torch.ones(1, 3, 32, 32))
    code = blur_idsds(ones, variant="code")  # zeros around the image darken its borders
    assert float(code[0, 0, 16, 16]) == pytest.approx(1, abs=1e-5)
    assert float(code[0, 0, 0, 0]) == pytest.approx((4 / 7) ** 2, abs=0.03)


# --- jobs -----------------------------------------------------------------------------------------


@pytest.fixture
def zoo(tmp_path):
    for arm in ("base", "tuned"):
        path = zoo_file(tmp_path / "zoo", "resnet20", 0, arm)
        path.parent.mkdir(exist_ok=True)
        net = zoo_model("resnet20", 0 if arm == "base" else 1).net
        save_file({k: v.contiguous() for k, v in net.state_dict().items()}, path)
        path.with_suffix(".json").write_text(json.dumps({"accuracy": 0.5}))
    return tmp_path


def test_jobs_write_one_table(zoo, monkeypatch):
    from assay.data.memory import as_dataset

    images = as_dataset((torch.randn(6, 3, 32, 32), torch.arange(6)))
    monkeypatch.setattr(scoring_records, "_images", lambda data, n: images)
    setting = ScoringSetting(zoo / "zoo", zoo, zoo / "out", limit=6, steps=1)
    few = [j for j in jobs.all_jobs(setting, ["look", "nine"]) if isinstance(j, ScoringJob)]
    assert [j.suite for j in few] == ["look", "look", "nine", "nine"]
    results = list(jobs.run_jobs(few, setting))
    assert [message for _, _, message in results] == [""] * 4
    assert list(jobs.run_jobs(few, setting)) == []  # all have a record
    table = read_scores(jobs.collect(setting))
    rows = table.select("nine", "single deletion", "tuned", "resnet20")
    assert {row.method for row in rows} == set(NINE)
    assert all(-1 <= row.mean <= 1 and len(row.blocks) == 6 for row in rows)
    assert table.networks["resnet20-s0-base"]["accuracy"] == 0.5
    assert table.networks["resnet20-s0-tuned"]["worst_patch"] <= 1
    assert {pair["kind"] for pair in table.pairs} == {"tuned"}


def test_a_failing_job_leaves_its_message(zoo, monkeypatch):
    def fails(*_):
        raise ValueError("no images")

    monkeypatch.setattr(scoring_records, "_images", fails)
    setting = ScoringSetting(zoo / "zoo", zoo, zoo / "out", limit=2)
    (first, *_) = jobs.all_jobs(setting, ["nine"])
    name, _, message = scoring_records.do_job(first, setting)
    assert message == "ValueError: no images"
    assert "no images" in setting.error(name).read_text()
    assert not setting.record(name).exists()
