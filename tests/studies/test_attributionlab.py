"""AttributionLab's claims and tables: its printed ranks, our runs in miniature."""

import json

import numpy as np
import pytest
import torch
from scipy import stats

import assay
from assay.studies.attributionlab import paper_tables as lab_tables
from assay.studies.attributionlab import real as lab_real
from assay.studies.attributionlab import runs as lab_runs
from assay.studies.attributionlab import study as attributionlab
from assay.studies.attributionlab.units import true_patches
from assay.studies.claim import Effect, judge, make_row
from assay.studies.published_claims import claims_of, published
from assay.studies.setting import Study, reproducible, run_study


def test_all_claims_are_stated():
    claims = claims_of("attributionlab")
    assert [claim.id for claim in claims] == [f"attributionlab.{i}" for i in range(1, 19)]
    assert all(claim.statistic and claim.statement for claim in claims)
    assert set(attributionlab.TESTS) <= {claim.id for claim in claims}


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        (lab_tables.TABLE_3, (0.936, 0.982, 1.0)),
        (lab_tables.TABLE_5, (-0.36, -0.19, 0.02)),
        (lab_tables.TABLE_6, (0.76, 0.67, 0.43)),
    ],
    ids=["table 3", "table 5", "table 6"],
)
def test_what_the_printed_ranks_say(ranks, expected):
    """Table 3's give the correlations the paper prints, those of Tables 5 and 6 do not."""
    assert lab_tables.printed_correlations(ranks) == pytest.approx(expected, abs=0.006)


def test_the_true_patches_are_units():
    batch = assay.environment("multi_color_sum", size=64).batch(3)
    units = true_patches(batch)
    for b in range(3):
        coloured = batch.truth[b] != 0
        inside = units.index[b][coloured]
        assert int(inside.min()) >= 1  # the background is unit 0
        signs = torch.sign(batch.truth[b])
        for patch in inside.unique():
            found = signs[(units.index[b] == patch) & coloured].unique()
            assert len(found) == 1, "a unit holds one colour only"


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    out = tmp_path_factory.mktemp("lab")
    return Study(None, {}, out, n=12, size=24, steps=2, resamples=50)


@pytest.mark.parametrize("number", [8, 9, 10])
def test_modulo_claims_run(study, number):
    claim = claims_of("attributionlab")[number - 1]
    (row,) = attributionlab.TESTS[claim.id](claim, study)
    assert row.n == 12
    assert np.isfinite(row.value)
    assert judge([row])[0].verdict == "to be run again"  # 12 of 100 images


def test_the_modulo_table_stands_beside_the_papers(study):
    lines = list(lab_tables.modulo_table(lab_runs.read("modulo", study, "modulo")))
    assert len(lines) == 2 + len(lab_runs.MODULO_TABLE)
    assert "(0.9754)" in next(line for line in lines if line.startswith("| integrated_gradients |"))
    said = lab_tables.images(study.out / "modulo-modulo")
    assert said == "On 12 images of 24 x 24 pixels.\n"


@pytest.mark.parametrize("part", ["colors", "metrics", "gradients", "segments"])
@pytest.mark.parametrize("setting", lab_runs.SETTINGS)
@pytest.mark.parametrize("target", lab_runs.TARGETS)
def test_every_suite_is_whole(study, part, setting, target):
    """Its methods and protocols exist, and its environment has the layers that are looked at."""
    from assay.plan.resolving import resolve

    plan = resolve(lab_runs.SUITES[part](study, f"{target}-{setting}"))
    (model,) = plan.models.values()
    layers = dict(model.net.named_modules())
    named = [m.options["layer"] for m in plan.methods if m.options.get("layer")]
    assert len(named) == (0 if part == "segments" else 2)
    assert all(name in layers for name in named)
    expected = {
        "gradients": {"overall", "positive", "sensitivity_n"}, "segments": {"overall"},
    }  # fmt: skip
    usual = {"overall", "insertion", "deletion", "sensitivity_n"}
    assert expected.get(part, usual) <= {p.label for p in plan.protocols}


@pytest.mark.parametrize("number", [2, 11, 13, 14, 15])
def test_color_claims_run_on_methods_of_few_passes(study, number):
    rows, path = run_study(f"attributionlab.{number}", study)
    (row,) = rows
    assert row.n == 12
    assert np.isfinite(row.value)
    assert (row.size, row.stated_size, row.verdict) == (24, 24, "to be run again")
    command = f"python -m assay.studies.attributionlab.study attributionlab.{number} --n 12"
    assert row.command.startswith(f"{command} --size 24 --steps 2 --resamples 50 --out ")
    assert json.loads(path.read_text())["rows"]


def test_the_command_states_the_size(tmp_path):
    study = Study(None, {}, tmp_path, n=100, size=64)
    row = make_row(claims_of("attributionlab")[1], [Effect("it", 0.1, 0.1, 100)], "stand-in")
    stated = reproducible(row, study)
    assert (stated.size, stated.stated_size) == (64, 64)
    expected = f"assay claims --run attributionlab.2 --n 100 --size 64 --out {tmp_path}"
    assert stated.command == expected


# --- each test asks what the claim says, on made-up scores ----------------------------------------

N = 100


class MadeUp:
    """Scores by (protocol, method, metric); the last given method stands for all others."""

    def __init__(self, scores=None, curves=None):
        self.samples = [str(i) for i in range(N)]
        self.scores, self.made = scores or {}, curves or {}

    def values(self, protocol, method, metric=None):
        value = self.scores.get((protocol, method, metric), 0.0)
        return value + np.random.default_rng(0).normal(0, 0.01, N)

    def curves(self, protocol, method):
        return {"correlation": np.tile(self.made.get(method, np.zeros(4)), (N, 1))}

    def x(self, protocol, method):
        return np.array([0.001, 0.01, 0.6, 0.9])


def made_up_rows(number, readings, monkeypatch, tmp_path):
    """The judged rows of a claim whose runs are made up, by part."""
    monkeypatch.setattr(attributionlab, "read", lambda part, study, name: readings[part])
    claim = claims_of("attributionlab")[number - 1]
    study = Study(None, {}, tmp_path, resamples=200)
    return judge(attributionlab.TESTS[claim.id](claim, study), [claim])


def test_segments_are_judged_from_both_fills(monkeypatch, tmp_path):
    passes = {("overall", "lime patches", None): 0.9}
    rows = made_up_rows(3, {"segments": MadeUp(passes)}, monkeypatch, tmp_path)
    verdicts = {row.id: row.verdict for row in rows}
    assert verdicts == {
        "attributionlab.3@black": "holds", "attributionlab.3@background": "does not carry over",
    }  # fmt: skip


@pytest.mark.parametrize("worse", ["gradcam", "guided_backprop", "lrp", "iba"])
def test_recall_is_that_of_the_papers_four_methods(worse, monkeypatch, tmp_path):
    recall = {("positive", m, "recall"): 0.9 for m in ("gradcam", "guided_backprop", "lrp", "iba")}
    (row,) = made_up_rows(13, {"gradients": MadeUp(recall)}, monkeypatch, tmp_path)
    assert row.verdict == "holds"
    less = MadeUp({**recall, ("positive", worse, "recall"): -0.9})
    (row,) = made_up_rows(13, {"gradients": less}, monkeypatch, tmp_path)
    assert row.verdict == "does not carry over"


def test_the_bottleneck_is_compared_by_precision(monkeypatch, tmp_path):
    for gain, expected in ((0.3, "holds"), (-0.3, "does not carry over")):
        here = MadeUp({("truth_f1", "iba", "precision"): 0.5, ("truth_f1", "iba", None): 0.5})
        there = MadeUp({("positive", "iba", "precision"): 0.5 + gain})
        parts = {"gradients": there, "bottleneck": here}
        (row,) = made_up_rows(14, parts, monkeypatch, tmp_path)
        assert row.verdict == expected


def test_only_pairs_named_beforehand_can_cross(monkeypatch, tmp_path):
    rising, falling = np.array([0, 0, 0.5, 0.5]), np.array([0.5, 0.5, 0, 0])
    crossing = MadeUp(curves={"iba": rising, "deepshap": falling})
    (row,) = made_up_rows(15, {"gradients": crossing}, monkeypatch, tmp_path)
    assert row.verdict == "holds"
    others = MadeUp(curves={"lrp": rising, "guided_backprop": falling})
    (row,) = made_up_rows(15, {"gradients": others}, monkeypatch, tmp_path)
    assert row.verdict == "does not carry over"


@pytest.mark.parametrize(
    ("lost", "expected"), [((0.6, 0.6), "holds"), ((0.2, 0.6), "does not carry over")]
)
def test_uniform_weights_are_compared_with_non_uniform(lost, expected, monkeypatch, tmp_path):
    """A loss of .2 with uniform weights is a third of that with non-uniform ones: most is gone."""
    made = iter([MadeUp() for _ in range(4)])
    agreement = {}

    def read(part, study, name):
        reading = next(made)
        with_effect, uniform = "unseen" in name, name.endswith("-uniform")
        agreement[id(reading)] = 0.9 - with_effect * (lost[0] if uniform else lost[1])
        return reading

    def correlations(reading, methods, truth, metrics, weights):
        noise = 0.01 * (weights @ np.random.default_rng(1).standard_normal(N)) / weights.sum(1)
        return np.tile((agreement[id(reading)] + noise)[:, None], (1, len(metrics)))

    monkeypatch.setattr(attributionlab, "read", read)
    monkeypatch.setattr(attributionlab, "correlations", correlations)
    claim = claims_of("attributionlab")[11]
    rows = attributionlab.TESTS[claim.id](claim, Study(None, {}, tmp_path, resamples=200))
    assert [row.verdict for row in judge(rows, [claim])] == [expected]


def test_unrelated_maps_do_not_decide_what_the_baseline_changes():
    claim = claims_of("attributionlab")[16]
    assert claim.margin > 0.9
    (row,) = judge([make_row(claim, [Effect("not shared", 0.9, 0.003, 100)], "stand-in")], [claim])
    assert row.verdict == "does not carry over"


def test_mixed_signs_are_compared_with_another_method_with_signs(monkeypatch, tmp_path):
    shares = {"deepshap": 0.5, "integrated_gradients": 0.5}

    def flips(model, batch, method, **options):
        return shares[method] + np.random.default_rng(0).normal(0, 0.01, N)

    monkeypatch.setattr(lab_real, "_samples", lambda study, name: (None, None))
    monkeypatch.setattr(lab_real, "_flips", flips)
    claim = claims_of("attributionlab")[15]
    study = Study(None, {"net": "net"}, tmp_path, resamples=200)
    verdicts = []
    for other in (0.5, 0.2):
        shares["integrated_gradients"] = other
        (row,) = judge(lab_real.mixed_signs(claim, study), [claim])
        verdicts.append(row.verdict)
    assert verdicts == ["does not carry over", "holds"]


def test_optimal_images_are_counted_exactly(monkeypatch, tmp_path):
    class Optimal(MadeUp):
        def values(self, protocol, method, metric=None):
            return np.repeat([1.0, 0.0], (95, 5))

    (row,) = made_up_rows(8, {"modulo": Optimal()}, monkeypatch, tmp_path)
    expected = stats.binomtest(95, 100, 0.9, alternative="greater").pvalue
    assert row.p_holds == pytest.approx(2 * expected)
    assert (row.low, row.high) == pytest.approx(
        tuple(stats.binomtest(95, 100).proportion_ci(method="exact"))
    )


def test_published_rows_have_verdicts():
    rows = published("attributionlab")
    assert len({row.claim for row in rows}) == 18
    assert {row.verdict for row in rows} <= {
        "holds", "fails", "undecided", "does not carry over", "not testable here", "not run yet",
        "to be run again",
    }  # fmt: skip
