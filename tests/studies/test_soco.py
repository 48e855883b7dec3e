"""SoCo's claims on a network and images small enough for any machine."""

import json

import numpy as np
import pytest

import toy_run  # noqa: F401 - registers toy_images and toy_net
from assay.environments.environment import environment
from assay.errors import InputError, PrerequisiteError
from assay.ranking import reduce_soundness
from assay.studies import planting
from assay.studies.setting import Study, forecasts, run_study
from assay.studies.soco import gaussian
from assay.studies.soco import runs as soco_runs
from assay.studies.soco import study as soco
from stored_logs import logs, unchanged

TRAINED = {f"soco.{n}" for n in (1, 2, 3, 4, 17)}
NETWORKS = [name for name in soco.TESTS if name not in TRAINED | {"soco.7", "soco.8"}]


def small(out, **how):
    told = {"n": 12, "steps": 2, "resamples": 20, **how}
    return Study("toy_images", {"toy_net": "toy_net"}, out, **told)


@pytest.fixture(autouse=True)
def _few_of_the_costly(monkeypatch):
    monkeypatch.setattr(soco_runs, "FEWER", 2)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return small(tmp_path_factory.mktemp("claims"))


@pytest.mark.parametrize("name", NETWORKS)
def test_a_claim_gives_a_row_for_each_network(name, study):
    rows, path = run_study(name, study)
    (row,) = rows
    assert row.id == f"{name}@toy_net"
    assert row.low <= row.value <= row.high
    assert (row.n, row.setting) == (12, "exact" if name == "soco.6" else "stand-in")
    assert (row.verdict, row.again) == ("to be run again", ["n"])  # a few images only
    assert name in {r["claim"] for r in json.loads(path.read_text())["rows"]}


def test_crafted_methods_win_where_the_plant_is_theirs(study, monkeypatch):
    """On a blank canvas with few classes, where networks are trained in seconds."""
    little = {
        "number_watermark": {"size": 16, "classes": 4, "train": 2048, "epochs": 2},
        "stripe_watermark": {"size": 14, "classes": 8, "train": 1024, "epochs": 2},
    }

    def blank(plant, **told):
        return environment(plant, **{**told, "base": "blank", **little[plant]})

    monkeypatch.setattr(planting, "environment", blank)
    (row,), _ = run_study("soco.3", study)
    assert row.n == 12
    assert "number_watermark, rect - pooling" in row.note
    assert row.low > 0


def test_ranks_change_nothing_for_metrics_of_order(study):
    (row,), _ = run_study("soco.6", study)
    assert "road 0.000 [0.000, 0.000]; deletion 0.000 [0.000, 0.000]" in row.note


def test_a_run_is_continued_not_repeated(study):
    run_study("soco.12", study)
    before = logs(study.out / "ensembles-toy_net")
    rows, path = run_study("soco.12", small(study.out))
    assert before
    assert unchanged(before)
    assert path == study.out / "soco.json"
    assert not any(found.forwards for found in forecasts("soco.12", small(study.out)).values())
    assert rows[0].verdict


def test_forward_passes_are_counted_before(tmp_path):
    found = forecasts("soco.12", small(tmp_path))
    assert list(found) == ["ensembles-toy_net"]
    # IG takes 2 steps and a look at either end; the ensembles are readings of the same 20 copies.
    counts = found["ensembles-toy_net"].method_rows
    assert sum(counts.values()) == 12 * (2 + 2 + 20 * 2)
    everything = list(forecasts("soco", small(tmp_path)))
    assert everything == [f"{part}-toy_net" for part in soco.SUITES]
    assert not any(tmp_path.iterdir())


def test_soundness_is_the_protocols_own(study):
    reading = soco.read("ensembles", study, "toy_net")
    ones = np.ones((1, len(reading.samples)))
    for method in reading.methods:
        found = soco.soundness_of(reading, method, ones)
        assert found == pytest.approx(reading.values("soundness", method).mean())


def test_weighted_curves_are_those_of_the_resampled_set(study):
    reading = soco.read("ensembles", study, "toy_net")
    curves, x = reading.curves("soundness", "ig"), reading.x("soundness", "ig")
    drawn = np.random.default_rng(0).integers(0, 12, 12)
    weights = np.bincount(drawn, minlength=12)[None].astype(float)
    again = {name: values[drawn] for name, values in curves.items()}
    for variant in ("slope", "paper", "code"):
        found = reduce_soundness.soundness_curve(curves, x, weights, variant=variant)
        expected = reduce_soundness.soundness_curve(again, x, variant=variant)
        for mine, theirs in zip(found, expected, strict=True):
            assert mine[0] == pytest.approx(theirs)


def test_falls_are_the_raw_completeness(study):
    reading = soco.read("modified", study, "toy_net")
    for method in reading.methods:
        falls = reading.falls("completeness", method)
        assert set(np.unique(falls)) <= {-1, 0, 1}
        assert falls.mean(1) == pytest.approx(reading.values("completeness", method, "raw"))


def test_synthetic_claims_need_no_data(tmp_path, monkeypatch):
    monkeypatch.setattr(gaussian, "trial", lambda variant, seed: trial(seed))
    rows, _ = run_study("soco.7", Study(None, {}, tmp_path, trials=20))
    assert {row.id: row.verdict for row in rows} == {
        "soco.7@literal": "holds",
        "soco.7@clean": "holds",
    }
    rows, _ = run_study("soco.8", Study(None, {}, tmp_path, trials=20))
    assert {row.verdict for row in rows} == {"does not carry over"}
    with pytest.raises(PrerequisiteError, match="needs networks and images"):
        run_study("soco.9", Study(None, {}, tmp_path))


def trial(seed):
    """Introduced attribution is unsound, and not more complete."""
    accuracy = {name: np.array([0.5, 1.0]) for name in gaussian.MAPS}
    fall = {"truth": 0.5, "remove": 0.4, "introduce": 0.5}
    return gaussian.GaussianTrial(
        accuracy,
        {n: np.array([1.0, 0.7 + seed / 100 if n == "introduce" else 1.0]) for n in gaussian.MAPS},
        {name: np.full(9, value + seed / 1e4) for name, value in fall.items()},
    )


@pytest.mark.parametrize("field", ["n", "trials", "steps", "resamples"])
def test_sizes_are_checked(tmp_path, field):
    with pytest.raises(InputError, match=f"Expected `{field}`"):
        small(tmp_path, **{field: 0})
