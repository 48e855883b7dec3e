"""The scoring jobs of IDSDS: which there are, and one round on tiny networks."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file as load_numpy
from safetensors.numpy import save_file as numpy_file
from safetensors.torch import save_file
from torch import nn

from assay.errors import InputError
from assay.models.wrap import model as as_model
from assay.removal.fills import blur_idsds, uniform_shared
from assay.studies.idsds import (
    jobs,
    likeness,
    mask_only,
    network_facts,
    panels,
    score_collecting,
    scoring_records,
)
from assay.studies.idsds.paper_methods import AGNOSTIC, ALL, CAMS, NINE, PAIRS, paper_methods
from assay.studies.idsds.runs import (
    ScoringJob,
    StoredNetwork,
    scoring_jobs,
    scoring_suites,
    stored_networks,
)
from assay.studies.idsds.score_table import PanelScore, ScoreTable, merged, read_scores
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


def test_all_readings_of_the_softmax_are_of_the_same_images():
    suite = scoring_suites()["readings"]
    outputs = {
        c.label: {**c.options, **c.reduction}["output"] for c in choose("method", suite.methods)
    }
    assert outputs["IG-U"] == outputs["Grad-CAM"] == "logit"
    assert outputs["IG-U, probability"] == outputs["Grad-CAM, probability"] == "probability"
    assert not any("RISE" in label for label in outputs)  # it has no reading of the logit
    drops = choose("protocol", suite.protocols(parse_arm("tuned")))
    assert [d.options["output"] for d in drops] == ["logit", "probability"]


def test_all_23_methods_are_scored_on_2000_images_of_the_references():
    suite = scoring_suites()["all"]
    assert (suite.n, len(choose("method", suite.methods))) == (2000, 23)
    for name in ("resnet20", "vgg11", "vit_medium", "bcos", "bagnet9"):
        arms = ("base", "tuned")
        assert [suite.wanted(StoredNetwork(name, 0, arm)) for arm in arms] == [True, True]
    assert not suite.wanted(StoredNetwork("resnet20", 1, "tuned"))


def test_which_networks_a_suite_scores():
    def suites_of(name, seed, arm, epoch=None):
        found = scoring_jobs([StoredNetwork(name, seed, arm, epoch)], scoring_suites())
        return {job.suite for job in found}

    assert suites_of("resnet56", 3, "base") == {"nine"}
    assert suites_of("resnet56", 3, "base", 4) == set()
    assert suites_of("resnet20", 1, "tuned") == {
        "nine", "seeds", "readings", "smooth", "sizes", "temperature",
    }  # fmt: skip
    assert suites_of("resnet20", 1, "base") == {
        "nine", "seeds", "ids", "updated", "sizes", "temperature",
    }  # fmt: skip
    for name in ("resnet20", "vgg11"):
        for seed in range(5):
            assert suites_of(name, seed, "tuned") >= {"seeds", "readings", "smooth", "sizes"}
            assert suites_of(name, seed, "base") >= {"nine", "seeds", "ids", "updated", "sizes"}
            assert suites_of(name, seed, "placebo") == {"nine", "seeds"}
            assert suites_of(name, seed, "tuned-g2") == suites_of(name, seed, "tuned-g8")
            assert suites_of(name, seed, "tuned-g8") == {"cells"}
            assert suites_of(name, seed, "tuned-blur") == {"fills"}
            assert suites_of(name, seed, "tuned-uniform") == {"fills"}
            for arm in ("base-d25", "tuned-d25", "base-t3", "tuned-t3"):
                assert suites_of(name, seed, arm) == {"nine"}
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
        kind: score_collecting._overlap(networks, {"kind": kind, "network": "a", "seed": 0})
        for kind in ("tuned", "placebo", "seed", "architecture")
    }
    assert overlaps == {"tuned": 0.7, "placebo": 0.8, "seed": 0.02, "architecture": None}
    assert score_collecting._overlap(networks, {"kind": "tuned", "network": "b", "seed": 0}) is None


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


def write_network(zoo, name, seed, arm, weights):
    """A network of the zoo with the random weights of a seed."""
    path = zoo_file(zoo / "zoo", name, seed, arm)
    path.parent.mkdir(exist_ok=True)
    net = zoo_model(name, weights).net
    save_file({k: v.contiguous() for k, v in net.state_dict().items()}, path)
    path.with_suffix(".json").write_text(json.dumps({"accuracy": 0.5}))


@pytest.fixture
def zoo(tmp_path, monkeypatch):
    from assay.data.memory import as_dataset

    for arm in ("base", "tuned"):
        write_network(tmp_path, "resnet20", 0, arm, 0 if arm == "base" else 1)
    images = as_dataset((torch.randn(6, 3, 32, 32), torch.arange(6)))
    monkeypatch.setattr(scoring_records, "_images", lambda data, n: images)
    return tmp_path


def setting_of(zoo, **how):
    return ScoringSetting(zoo / "zoo", zoo, zoo / "out", **{"limit": 6, "steps": 1, **how})


def networks_only(setting, *suites):
    return [j for j in jobs.all_jobs(setting, suites) if isinstance(j, ScoringJob)]


def test_jobs_write_one_table(zoo):
    setting = setting_of(zoo)
    few = networks_only(setting, "look", "nine")
    assert [j.suite for j in few] == ["look", "look", "nine", "nine"]
    results = list(jobs.run_jobs(few, setting))
    assert [message for _, _, message in results] == [""] * 4
    assert list(jobs.run_jobs(few, setting)) == []  # all have a record
    path, notes = score_collecting.collect(setting)
    assert notes == []
    table = read_scores(path)
    rows = table.select("nine", "single deletion", "tuned", "resnet20")
    assert {row.method for row in rows} == set(NINE)
    assert all(-1 <= row.mean <= 1 and len(row.blocks) == 6 for row in rows)
    assert table.networks["resnet20-s0-base"]["accuracy"] == 0.5
    assert table.networks["resnet20-s0-tuned"]["worst_patch"] <= 1
    assert {(pair["kind"], pair["other"]) for pair in table.pairs} == {("tuned", "resnet20")}


def test_later_calls_score_new_networks_and_new_weights(zoo):
    setting = setting_of(zoo)
    list(jobs.run_jobs(networks_only(setting, "look"), setting))
    write_network(zoo, "resnet20", 0, "tuned", 2)  # trained again
    write_network(zoo, "resnet20", 1, "base", 3)
    _, (note,) = score_collecting.collect(setting)
    assert note.startswith("1 records are left out")
    assert note.endswith("look-resnet20-s0-tuned")
    again = list(jobs.run_jobs(networks_only(setting, "look"), setting))
    assert {name for name, _, _ in again} == {"look-resnet20-s0-tuned", "look-resnet20-s1-base"}
    path, notes = score_collecting.collect(setting)
    assert notes == []
    assert {pair["kind"] for pair in read_scores(path).pairs} == {"tuned", "seed"}


def test_two_architectures_are_compared_network_by_network(zoo):
    for seed in range(2):
        write_network(zoo, "resnet20", seed, "base", seed)
        write_network(zoo, "vgg11", seed, "base", seed)
    setting = setting_of(zoo, limit=2)
    list(jobs.run_jobs(networks_only(setting, "look"), setting))
    path, _ = score_collecting.collect(setting)
    apart = [p for p in read_scores(path).pairs if p["kind"] == "architecture"]
    assert [(p["network"], p["seed"], p["other"]) for p in apart] == [
        ("resnet20", 0, "vgg11"), ("resnet20", 1, "vgg11"), ("vgg11", 0, "resnet20"),
        ("vgg11", 1, "resnet20"),
    ]  # fmt: skip
    assert len({p["mad_softmax"] for p in apart}) == 4  # four different pairs


def test_records_of_other_networks_are_left_out(zoo):
    setting = setting_of(zoo)
    list(jobs.run_jobs(networks_only(setting, "look"), setting))
    zoo_file(zoo / "zoo", "resnet20", 0, "tuned").unlink()
    path, (note,) = score_collecting.collect(setting)
    assert "networks that are not there" in note
    assert set(read_scores(path).networks) == {"resnet20-s0-base"}


def test_a_job_is_done_again_where_more_images_are_asked_for(zoo):
    few = networks_only(setting_of(zoo, limit=4), "look")
    assert len(list(jobs.run_jobs(few, setting_of(zoo, limit=4)))) == 2
    assert list(jobs.run_jobs(few, setting_of(zoo, limit=4))) == []
    assert len(list(jobs.run_jobs(few[:1], setting_of(zoo)))) == 1
    _, (note,) = score_collecting.collect(setting_of(zoo))
    assert note == "The suite `look` has records of 4, 6 images."


def test_no_job_is_started_after_the_time(zoo):
    setting = setting_of(zoo)
    assert list(jobs.run_jobs(networks_only(setting, "look"), setting, minutes=0)) == []


def test_a_failing_job_leaves_its_message_and_others_go_on(zoo):
    setting = setting_of(zoo)
    zoo_file(zoo / "zoo", "resnet20", 0, "base").write_bytes(b"not weights")
    results = dict(
        (name, message)
        for name, _, message in jobs.run_jobs(networks_only(setting, "look"), setting)
    )
    assert results["look-resnet20-s0-tuned"] == ""
    assert results["look-resnet20-s0-base"] != ""
    assert "Error" in setting.error("look-resnet20-s0-base").read_text()
    assert not setting.record("look-resnet20-s0-base").exists()
    write_network(zoo, "resnet20", 0, "base", 0)  # the cause is gone
    ((name, _, message),) = jobs.run_jobs(networks_only(setting, "look"), setting)
    assert (name, message) == ("look-resnet20-s0-base", "")
    assert not setting.error(name).exists()


def test_weights_that_change_while_they_are_scored_are_an_error(zoo, monkeypatch):
    setting = setting_of(zoo)
    (first, *_) = networks_only(setting, "look")

    def replaced(*_):
        write_network(zoo, "resnet20", 0, first.network.arm, 5)
        return {"rows": []}

    monkeypatch.setattr(scoring_records, "scored", replaced)
    _, _, message = scoring_records.do_job(first, setting)
    assert "were replaced" in message
    assert not setting.record(first.name).exists()


def test_a_job_that_fails_on_a_gpu_gets_another_process(zoo, monkeypatch):
    setting = setting_of(zoo, device="cuda")
    rounds = []

    def broken_at_first(waiting, *_):
        rounds.append([job.name for job in waiting])
        for job in waiting:
            yield job.name, 0.0, "launch failure" if len(rounds) == 1 else ""

    monkeypatch.setattr(jobs, "_in_processes", broken_at_first)
    two = networks_only(setting, "look")
    messages = [message for _, _, message in jobs.run_jobs(two, setting, processes=2)]
    assert messages == ["launch failure"] * 2 + [""] * 2
    assert rounds == [[job.name for job in two]] * 2


def test_a_job_that_fails_twice_is_not_started_again(zoo, monkeypatch):
    setting = setting_of(zoo, device="cuda")
    two = networks_only(setting, "look")
    monkeypatch.setattr(jobs, "_in_processes", lambda jobs, *_: ((j.name, 0.0, "no") for j in jobs))
    assert len(list(jobs.run_jobs(two, setting, processes=2))) == 4
    assert len(list(jobs.run_jobs(two, replace(setting, device="cpu"), processes=2))) == 2


def test_what_claims_read_is_scored_first():
    arms = [("resnet56", "base"), ("resnet56", "tuned"), ("vgg11", "base")]
    few = [ScoringJob("nine", StoredNetwork(name, 0, arm)) for name, arm in arms]
    few.append(ScoringJob("all", StoredNetwork("vgg11", 0, "tuned")))
    ordered = sorted(few, key=jobs._place)
    assert [f"{j.suite} {j.network.name} {j.network.arm}" for j in ordered] == [
        "nine resnet56 tuned", "nine vgg11 base", "all vgg11 tuned", "nine resnet56 base",
    ]  # fmt: skip


# --- two tables -----------------------------------------------------------------------------------


def small_table(*networks, mean, masks=()):
    rows = [
        PanelScore("nine", name, seed, arm, "single deletion", "IG", mean)
        for name in networks
        for seed, arm in ((0, "base"), (1, "tuned"))
    ]
    facts = {
        f"{row.network}-s{row.seed}-{row.arm}": {"network": row.network, "accuracy": mean}
        for row in rows
    }
    pairs = [
        {"kind": "tuned", "network": n, "other": n, "seed": 0, "apart": mean} for n in networks
    ]
    return ScoreTable(tuple(rows), facts, tuple(pairs), dict(masks))


def test_other_weights_replace_the_scores_facts_and_pairs_of_a_network(tmp_path):
    new = small_table("vgg11", mean=1.0, masks={"cell": [0.1]})
    extra = PanelScore("parts", "parts", 0, "", "single deletion", "IG", 0.5)
    old = small_table("resnet20", "vgg11", mean=0.0, masks={"cell": [0.2], "bright": [0.3]})
    between = [  # without `other`, as older tables have it, and with it
        {"kind": "architecture", "network": "resnet20", "seed": 0},
        {"kind": "architecture", "network": "resnet20", "other": "vgg16", "seed": 0},
        {"kind": "seed", "network": "resnet20", "seed": 0},
    ]
    old = replace(old, rows=(*old.rows, extra), pairs=(*old.pairs, *between))
    table = merged(new, old)
    table.write(tmp_path / "table.parquet")
    table = read_scores(tmp_path / "table.parquet")
    assert {(r.network, r.mean) for r in table.rows} == {
        ("vgg11", 1.0), ("resnet20", 0.0), ("parts", 0.5),
    }  # fmt: skip
    assert {f["network"]: f["accuracy"] for f in table.networks.values()} == {
        "vgg11": 1.0, "resnet20": 0.0,
    }  # fmt: skip
    assert sorted((p["network"], p["kind"], p.get("other")) for p in table.pairs[1:]) == [
        ("resnet20", "architecture", "vgg16"), ("resnet20", "seed", None),
        ("resnet20", "tuned", "resnet20"),
    ]  # fmt: skip
    assert table.pairs[0]["apart"] == 1.0
    assert table.masks == {"cell": [0.1], "bright": [0.3]}
    assert table.older == ("parts", "resnet20")


def hashed(table, weights):
    facts = {stem: {**of, "weights_hash": weights} for stem, of in table.networks.items()}
    return replace(table, networks=facts)


@pytest.mark.parametrize("same", [True, False], ids=["same weights", "other weights"])
def test_other_seeds_stay_if_the_weights_in_both_tables_are_the_same(same):
    new = hashed(small_table("vgg11", mean=1.0), "a")
    old = hashed(small_table("vgg11", mean=0.0), "a" if same else "b")
    seed = PanelScore("nine", "vgg11", 2, "base", "single deletion", "IG", 0.5)
    old_facts = {**old.networks, seed.stem: {"network": "vgg11", "accuracy": 0.5}}
    table = merged(new, replace(old, rows=(*old.rows, seed), networks=old_facts))
    kept = {seed.stem: 0.5} if same else {}
    expected = {"vgg11-s0-base": 1.0, "vgg11-s1-tuned": 1.0, **kept}
    assert {row.stem: row.mean for row in table.rows} == expected
    assert {stem: of["accuracy"] for stem, of in table.networks.items()} == expected
    assert table.older == (("vgg11 (nine)",) if same else ())


def test_a_network_that_was_trained_again_but_not_scored_replaces_nothing():
    new = small_table("vgg11", mean=1.0)
    facts = {"vgg16-s0-base": {"network": "vgg16", "accuracy": 1.0}}
    pair = {"kind": "tuned", "network": "vgg16", "other": "vgg16", "seed": 0, "apart": 1.0}
    new = replace(new, networks={**new.networks, **facts}, pairs=(*new.pairs, pair))
    table = merged(new, small_table("vgg16", mean=0.0))
    assert {(row.network, row.mean) for row in table.rows} == {("vgg11", 1.0), ("vgg16", 0.0)}
    assert {(of["network"], of["accuracy"]) for of in table.networks.values()} == {
        ("vgg11", 1.0), ("vgg16", 0.0),
    }  # fmt: skip
    assert {(of["network"], of["apart"]) for of in table.pairs} == {("vgg11", 1.0), ("vgg16", 0.0)}
    assert table.older == ("vgg16",)


def test_what_was_measured_once_on_the_same_weights_stays():
    new, old = (hashed(small_table("vgg11", mean=mean), "a") for mean in (1.0, 0.0))
    old = replace(old, networks={s: {**of, "worst_patch": 0.25} for s, of in old.networks.items()})
    facts = merged(new, old).networks["vgg11-s0-base"]
    assert (facts["accuracy"], facts["worst_patch"]) == (1.0, 0.25)


def test_pairs_of_the_same_weights_stay_once():
    def table(mean, *kinds):
        pairs = [
            {"kind": kind, "network": "vgg11", "other": "vgg11", "seed": 0, "apart": mean}
            for kind in kinds
        ]
        return replace(hashed(small_table("vgg11", mean=mean), "a"), pairs=tuple(pairs))

    both = merged(table(1.0, "tuned"), table(0.0, "tuned", "placebo"))
    assert [(pair["kind"], pair["apart"]) for pair in both.pairs] == [
        ("tuned", 1.0), ("placebo", 0.0),
    ]  # fmt: skip


def test_scores_of_the_same_weights_on_as_many_images_stay():
    def score(mean, seed, arm="tuned", n=1000):
        return PanelScore("nine", "vgg11", seed, arm, "single deletion", "IG", mean, n=n)

    def facts(**hashes):
        return {
            f"vgg11-{stem.replace('_', '-')}": {"network": "vgg11", "weights_hash": weights}
            for stem, weights in hashes.items()
        }

    new = ScoreTable((score(1.0, 0),), facts(s0_tuned="a", s1_tuned="b", s2_tuned="c", s0_base="d"))
    old = ScoreTable(
        (score(0.5, 0), score(0.25, 1), score(0.75, 2), score(0.125, 0, "base", 500)),
        facts(s0_tuned="a", s1_tuned="b", s2_tuned="of before", s0_base="d"),
    )
    table = merged(new, old)
    assert [(row.stem, row.mean) for row in table.rows] == [
        ("vgg11-s0-tuned", 1.0), ("vgg11-s1-tuned", 0.25),
    ]  # fmt: skip
    assert table.older == ("vgg11 (nine)",)
    unknown = replace(old, networks={stem: {"network": "vgg11"} for stem in old.networks})
    assert len(merged(new, unknown).rows) == 1


def test_the_description_has_the_weights_that_were_scored(tmp_path):
    def facts(weights, pixels):
        return {
            "name": "vgg11", "seed": 0, "arm": "base", "weights_hash": weights, "pixels": pixels,
        }  # fmt: skip

    zoo, older, out = tmp_path / "zoo", tmp_path / "older.json", tmp_path / "out.json"
    zoo.mkdir()
    (zoo / "vgg11-s0-base.json").write_text(json.dumps({**facts("new", "b"), "losses": [1.0]}))
    (zoo / "vgg11-s0-base.card.json").write_text("{}")
    older.write_text(json.dumps({"pixels": ["a"], "networks": [facts("old", 0)]}))
    trained, described = (
        {network_facts.stem_of(f): f for f in found}
        for found in (network_facts.trained_in(zoo), network_facts.described_in(older))
    )
    for weights, pixels in (("new", "b"), ("old", "a")):
        scored = {"vgg11-s0-base": {"network": "vgg11", "weights_hash": weights}}
        text = network_facts.description(ScoreTable(networks=scored), trained, described)
        network_facts.write_description(text, out)
        assert list(network_facts.described_in(out)) == [facts(weights, pixels)]
    other = ScoreTable(networks={"vgg11-s0-base": {"network": "vgg11", "weights_hash": "other"}})
    with pytest.raises(InputError, match=r"vgg11-s0-base.*other"):
        network_facts.description(other, trained, described)


def test_the_command_completes_an_older_table(zoo, monkeypatch, capsys):
    small_table("vgg11", mean=0.25).write(zoo / "older.parquet")
    arguments = "--only look --limit 6 --steps 1 --with older.parquet --zoo zoo --data . --out out"
    monkeypatch.chdir(zoo)
    monkeypatch.setattr("sys.argv", ["jobs", *arguments.split()])
    jobs.main()
    assert "Kept of `older.parquet`: vgg11." in capsys.readouterr().out
    table = read_scores(zoo / "out")
    assert {row.network for row in table.rows} == {"vgg11"}
    assert {str(f["network"]) for f in table.networks.values()} == {"resnet20", "vgg11"}


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("--with nowhere.parquet", 2, "found none"),
        ("--only everything", 2, "Expected suites among"),
        ("--minutes 0", 1, "2 jobs are not finished, e.g. look-resnet20-s0-base"),
    ],
)
def test_the_command_says_what_is_missing(zoo, monkeypatch, capsys, arguments, code, message):
    monkeypatch.chdir(zoo)
    usual = "--only look --limit 6 --zoo zoo --data . --out out"
    monkeypatch.setattr("sys.argv", ["jobs", *usual.split(), *arguments.split()])
    with pytest.raises(SystemExit) as stopped:
        jobs.main()
    assert stopped.value.code == code
    assert message in capsys.readouterr().err
