"""Soundness and completeness on curves and networks small enough to do by hand."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

import assay
from assay.conformance.worlds import linear_images
from assay.data.memory import as_dataset
from assay.ranking import leaderboard
from assay.ranking.reduce_soundness import at_level, soundness, soundness_curve, soundness_each
from assay.ranking.set_intervals import set_differences, set_interval
from assay.results import load
from assay.run import run
from assay.suite.spec import make_suite

# --- a curve of three steps ---------------------------------------------------------------------

X = np.array([0, 0.1, 0.2, 0.3, 1.0])
CURVES = {
    "correct": np.array([[0, 1, 1, 1, 1], [0, 1, 1, 1, 1], [0, 0, 0, 1, 1], [0, 0, 0, 0, 1]]),
    "mass": np.array([[0, 4, 6, 8, 8], [0, 2, 3, 4, 4], [0, 4, 5, 8, 8], [0, 1, 1, 1, 1]]),
}
# Accuracy 0, 1/2, 1/2, 3/4, 1: the second step is false everywhere; the last adds no mass.
FALSE_SHARE = (2 / 8 + 1 / 4 + 1 / 8 + 0) / 4


@pytest.mark.parametrize("variant", ["slope", "paper", "code"])
def test_a_curve_of_three_steps(variant):
    read = lambda level: soundness(  # noqa: E731
        CURVES, X, np.ones((1, 4)), levels=[level], variant=variant
    )[0]
    assert read(0.5) == pytest.approx(1, abs=1e-6)
    assert read(0.75) == pytest.approx(1 - FALSE_SHARE, abs=1e-6)
    assert read(1.0) == pytest.approx(1 - FALSE_SHARE, abs=1e-6)
    accuracy, curve = soundness_curve(CURVES, X, variant=variant)
    assert accuracy.tolist() == [0.5, 0.5, 0.75, 1]
    # Read before it is judged, the second step is still sound.
    second = 1 if variant == "code" else 1 - (2 / 6 + 1 / 3 + 1 / 5 + 0) / 4
    assert curve == pytest.approx([1, second, 1 - FALSE_SHARE, 1 - FALSE_SHARE], abs=1e-6)
    assert at_level(accuracy, curve, 0.6) == curve[2]
    assert np.isnan(at_level(accuracy[:2], curve[:2], 0.6))


def curves_of(accuracy, mass):
    """One image in a hundred for each percent of accuracy."""
    right = (np.arange(100)[:, None] + 0.5) / 100 < np.array(accuracy)
    return {"correct": right.astype(float), "mass": np.tile(np.array(mass, float), (100, 1))}


def test_a_rise_of_exactly_one_percent_is_false_in_the_code_only():
    curves = curves_of([0.1, 0.2, 0.21, 1], [0, 1, 2, 3])
    x = np.array([0, 0.01, 0.02, 1])
    values = {
        v: soundness(curves, x, np.ones((1, 100)), levels=[1], variant=v)[0]
        for v in ("slope", "paper", "code")
    }
    # The last step, of 98 %, is too slow for a slope of 1 (0.79); the papers' step has no length.
    assert values == pytest.approx({"slope": 2 / 3, "paper": 1, "code": 2 / 3}, abs=1e-6)


def test_a_straight_rise_on_ten_classes_is_sound_by_slope_and_false_by_step():
    """From .10 to .92 in 97 steps gains .0085 a step."""
    x = np.array([0, *np.arange(2, 98) / 100, 1])
    curves = {"correct": 0.1 + 0.82 * x[None], "mass": x[None].copy()}
    read = lambda variant, epsilon: soundness(  # noqa: E731
        curves, x, np.ones((1, 1)), levels=[0.9], variant=variant, epsilon=epsilon
    )[0]
    assert read("slope", 0.8) == 1
    assert read("slope", 0.9) == pytest.approx(0)
    assert read("paper", 1) < 0.05  # all but the first step
    assert read("slope", 1) == pytest.approx(
        0
    )  # 0.82 is below 1: the slope is stated, not the step


def test_a_warm_up_does_not_hide_false_mass():
    """Attribution on what never helps, until what has none brings accuracy: an inverted map."""
    curves = curves_of([0.1, 0.1, 0.1, 0.9], [0, 1, 2, 2])
    x = np.array([0, 0.3, 0.6, 1])
    assert soundness(curves, x, np.ones((1, 100)), levels=[0.9])[0] == 0


def test_after_saturation_soundness_falls_but_is_not_read_there():
    curves = curves_of([0, 1, 1, 1, 1], [0, 1, 2, 3, 4])
    x = np.array([0, 0.1, 0.2, 0.3, 1])
    for variant in ("slope", "paper"):
        _, curve = soundness_curve(curves, x, variant=variant)
        assert curve == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4])
        assert soundness(curves, x, np.ones((1, 100)), levels=[0.9], variant=variant)[0] == 1
    _, lagging = soundness_curve(curves, x, variant="code")
    assert lagging == pytest.approx([1, 1, 2 / 3, 2 / 4], abs=1e-6)


# --- weights are resamples ----------------------------------------------------------------------


def by_the_book(correct, mass, x, epsilon, level):
    """One set, step by step, as the protocol's page tells it."""
    accuracy = correct.mean(0)
    warm, judged = True, []
    false = np.zeros(len(correct))
    for k in range(1, len(x)):
        new = mass[:, k] - mass[:, k - 1]
        if warm:
            judged.append(new)
            if accuracy[k] > accuracy[0] + 0.04 or k == len(x) - 1:
                warm = False
                if accuracy[k] - accuracy[0] < epsilon * x[k] - 1e-12:
                    false += np.sum(judged, 0)
        elif accuracy[k] - accuracy[k - 1] < epsilon * (x[k] - x[k - 1]) - 1e-12:
            false += new
        if accuracy[k] >= level * accuracy[-1]:
            if warm:  # the level lies within the warm-up: judged by how that ends
                end = next(
                    (j for j in range(k, len(x)) if accuracy[j] > accuracy[0] + 0.04), len(x) - 1
                )
                if accuracy[end] - accuracy[0] < epsilon * x[end] - 1e-12:
                    false = mass[:, k].copy()
            return np.mean(np.where(mass[:, k] > 0, 1 - false / np.maximum(mass[:, k], 1e-300), 0))
    raise AssertionError("the level is always reached")


def random_curves(n, steps, seed):
    generator = np.random.default_rng(seed)
    x = np.concatenate([[0], np.sort(generator.random(steps - 2)), [1]])
    start = generator.random((n, 1))
    correct = (generator.random((n, steps)) < start * 0.2 + x * 0.8).astype(float)
    mass = np.concatenate([np.zeros((n, 1)), generator.exponential(size=(n, steps - 1))], 1)
    return {"correct": correct, "mass": mass.cumsum(1)}, x


@pytest.mark.parametrize("seed", range(20))
def test_agrees_with_the_loop_and_with_resampled_images(seed):
    curves, x = random_curves(30, 12, seed)
    generator = np.random.default_rng(seed + 100)
    counts = np.stack([np.bincount(generator.integers(0, 30, 30), minlength=30) for _ in range(9)])
    for level in (0.3, 0.9):
        found = soundness(curves, x, counts, levels=[level], epsilon=0.7)
        for row, value in zip(counts, found, strict=True):
            drawn = np.repeat(np.arange(30), row)
            resampled = {name: c[drawn] for name, c in curves.items()}
            book = by_the_book(resampled["correct"], resampled["mass"], x, 0.7, level)
            assert value == pytest.approx(book)
    for variant in ("slope", "paper", "code"):
        each = soundness_each(curves, x, variant=variant)
        whole = soundness(curves, x, np.ones((1, 30)), variant=variant)
        assert each.mean() == pytest.approx(whole[0])


def test_intervals_of_sets_agree_with_scipy_and_cover():
    generator = np.random.default_rng(0)
    values = generator.exponential(size=60)
    mean = lambda w: (w @ values / w.sum(1))[:, None]  # noqa: E731
    ours = set_interval(mean, np.arange(60), resamples=20_000)
    error = stats.bootstrap((values,), np.mean, n_resamples=20_000, rng=1).standard_error
    half = stats.t.ppf(0.975, 59) * error * np.sqrt(60 / 59)
    assert (ours.low, ours.high) == pytest.approx(
        (values.mean() - half, values.mean() + half), rel=0.02
    )
    covered = 0
    for seed in range(200):
        drawn = np.random.default_rng(seed).exponential(size=40)
        found = set_interval(
            lambda w, d=drawn: (w @ d / w.sum(1))[:, None], np.arange(40), resamples=500
        )
        covered += found.low <= 1 <= found.high
    assert covered >= 180  # of 190 expected; three standard errors below are 181


def test_differences_of_sets_hold_for_all_pairs_at_once():
    generator = np.random.default_rng(1)
    wrong = 0
    for _ in range(200):
        values = generator.normal(size=(30, 4))
        found = set_differences(
            lambda w, v=values: w @ v / w.sum(1, keepdims=True), np.arange(30), resamples=300
        )
        wrong += bool(((found.low > 0) | (found.high < 0)).any())
    assert wrong <= 20  # 10 expected


# --- networks -----------------------------------------------------------------------------------


class Tells(nn.Module):
    """Class 1 if the first or the last of three features is there, else class 0."""

    def forward(self, x):
        there = x[:, 0] + x[:, 2]
        return torch.stack([torch.full_like(there, 0.5), there], 1)


def three_features():
    """Eight samples: half are of class 0 and empty; two show the first feature, two the last."""
    x = torch.zeros(8, 3)
    x[4:6, 0] = 1
    x[6:8, 2] = 1
    x[:, 1] = 1  # says nothing
    return x, torch.tensor([0] * 4 + [1] * 4)


def score(maps, protocol, **options):
    x, y = three_features()
    return assay.score(Tells(), x, y, maps.expand(8, -1), protocol, fill="zero", **options)


def test_maps_of_equal_order_and_other_values_are_told_apart():
    """Removal curves cannot see the difference, soundness and completeness do."""
    low, high = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 1.1, 100.0])
    for protocol in ("deletion", "insertion", "morf", "accuracy_morf"):
        assert torch.equal(score(low, protocol), score(high, protocol))
    sound = [float(score(m, "soundness", levels=(1.0,), epsilon=0.5).mean()) for m in (low, high)]
    # The second feature, of no use, enters between two of use: its mass is false.
    assert sound == pytest.approx([1 - 2 / 6, 1 - 1.1 / 102.1])
    raw = []
    for maps in (low, high):
        x, y = three_features()
        results = assay.benchmark(
            Tells(), (x, y), {"map": maps.expand(8, -1)}, [{"completeness": {"fill": "zero"}}],
            progress=False, controls="off",
        )  # fmt: skip
        found = results.query("select avg(value) v from scores where metric = 'raw'")
        raw.append(found["v"][0].as_py())
    # The last feature leaves at every threshold; the first, of 1, only below a third of 3.
    assert raw == pytest.approx([0.25 + 0.25 * 3 / 9, 0.25])


def test_a_map_of_zeros_and_a_negative_map_score_nothing_and_are_marked():
    for maps in (torch.zeros(3), torch.tensor([-1.0, -2.0, -3.0])):
        for variant in ("slope", "paper", "code"):
            assert not score(maps, "soundness", variant=variant).any()
        assert not score(maps, "completeness").any()
    x, y = three_features()
    results = assay.benchmark(
        Tells(), (x, y), {"below": torch.tensor([[-1.0, -2.0, -3.0]]).expand(8, -1)},
        [{"soundness": {"fill": "zero"}}, {"completeness": {"fill": "zero"}}], progress=False,
        controls="off",
    )  # fmt: skip
    assert not results.failures
    assert {row["degenerate"] for row in results.leaderboard()} == {8}
    assert "8 degenerate" in repr(results.leaderboard())


def test_no_interval_goes_beyond_none_or_all_of_the_attribution():
    x, y = three_features()
    maps = {"map": torch.tensor([1.0, 2.0, 3.0]).expand(8, -1)}
    sound = {"soundness": {"fill": "zero", "levels": (1.0,), "epsilon": 0.5}}
    results = assay.benchmark(Tells(), (x, y), maps, [sound], progress=False, controls="off")
    (free,) = leaderboard(results.scores, controls={}, outcomes=results.outcomes)
    (shown,) = results.leaderboard()
    assert free["low"] < 0
    assert free["high"] > 1
    assert (shown["low"], shown["mean"], shown["high"]) == (0.0, free["mean"], 1.0)


def test_a_constant_map_has_the_greatest_raw_completeness_and_no_excess():
    x, y = three_features()
    maps = {"flat": torch.ones(8, 3), "exact": torch.tensor([[1.0, 0.0, 1.0]]).expand(8, -1)}
    results = assay.benchmark(
        Tells(), (x, y), maps, [{"completeness": {"fill": "zero"}}], progress=False, controls="off"
    )
    rows = results.query(
        "select method, metric, avg(value) v from scores group by all order by all"
    ).to_pylist()
    found = {(r["method"], r["metric"]): r["v"] for r in rows}
    everything = 1 - 0.5  # clean minus empty
    assert found["flat", "raw"] == found["exact", "raw"] == everything
    assert found["flat", "excess"] == 0
    assert found["flat", "area"] == 1
    assert found["exact", "area"] == pytest.approx(2 / 3)


class Either(nn.Module):
    """Class 1 if any of four features is there: the first two say the same, and the last two."""

    def forward(self, x):
        there = torch.maximum(x[:, 0], x[:, 1]) + torch.maximum(x[:, 2], x[:, 3])
        return torch.stack([torch.full_like(there, 0.5), there], 1)


def test_where_features_are_redundant_the_exact_map_is_below_one():
    """Gap A-0: a copy of a feature adds no accuracy, so its attribution counts as false."""
    x = torch.zeros(8, 4)
    x[4:6, :2] = 1
    x[6:8, 2:] = 1
    y = torch.tensor([0] * 4 + [1] * 4)
    exact = torch.tensor([1.3, 1.2, 1.1, 1.0]).expand(8, -1)
    value = assay.score(Either(), x, y, exact, "soundness", fill="zero", levels=(1.0,)).mean()
    assert float(value) == pytest.approx(1 - 1.2 / 3.6)


def test_a_few_coarse_units_must_rise_as_steeply_as_many_fine_ones():
    """A steady rise of .5 is false in sixteen cells, as it would be in a thousand pixels."""
    torch.manual_seed(0)
    x = torch.zeros(64, 16)
    x[torch.arange(32), torch.arange(32) % 16] = 1  # each shows one cell, every second is empty
    y = (torch.arange(64) < 32).long()
    net = nn.Linear(16, 2)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[0.0], [1.0]]).expand(2, 16))
        net.bias.copy_(torch.tensor([0.5, 0.0]))
    maps = torch.linspace(2, 1, 16).expand(64, -1)
    found = assay.score(net, x, y, maps, "soundness", fill="zero").mean()
    assert float(found) == 0
    assert float(assay.score(net, x, y, maps, "soundness", fill="zero", epsilon=0.4).mean()) == 1


def test_a_single_sample_has_nobody_to_be_held_against():
    with pytest.raises(assay.NotApplicable, match="there is only one"):
        assay.score(Tells(), torch.ones(1, 3), [1], torch.rand(1, 3), "completeness", fill="zero")


@pytest.mark.parametrize(
    "option", [{"soundness": {"levels": []}}, {"completeness": {"thresholds": []}}]
)
def test_empty_lists_are_refused(option):
    with pytest.raises(assay.InputError, match="at least 1"):
        assay.score(Tells(), *three_features(), torch.rand(8, 3), option)


def test_seeds_are_judged_apart_and_what_one_seed_lacks_costs_the_run_nothing(tmp_path):
    exam = linear_images()
    suite = {
        "datasets": [as_dataset((exam.x, exam.y))], "models": [assay.model(exam.net)],
        "methods": ["random", "input_x_gradient"], "protocols": [{"soundness": {"fill": "zero"}}],
    }  # fmt: skip

    def mean(folder, seeds):
        results = run(make_suite({**suite, "seeds": seeds}), folder, progress=False)
        return results, {r["method"]: r["mean"] for r in results.leaderboard()}["random"]

    apart = [mean(tmp_path / str(seed), [seed])[1] for seed in (0, 1)]
    results, together = mean(tmp_path / "both", [0, 1])
    assert apart[0] != apart[1]
    assert together == pytest.approx(np.mean(apart))
    rows = results.query("select seed, avg(value) v from scores where method = 'random' group by 1")
    assert sorted(rows["v"].to_pylist()) == pytest.approx(sorted(apart))
    for shard in results.manifest["shards"]:
        if shard["seed"] == 1:
            results.store.log(shard["id"]).path.unlink()
    again = {r["method"]: r for r in load(tmp_path / "both").leaderboard()}
    assert again["random"]["mean"] == pytest.approx(apart[0])
    assert again["random"]["failed"] == 0


def test_thresholds_are_relative_or_absolute():
    maps = torch.tensor([0.1, 0.2, 0.4])
    relative = score(maps, "completeness", thresholds=(0.5,))
    absolute = score(maps, "completeness", thresholds=(0.5,), relative=False)
    assert relative.isfinite().all()
    assert not absolute.any()  # no value exceeds a half


def test_rows_are_shared_with_the_least_relevant_first_curve(net, images):
    def rows(*protocols):
        return assay.dry_run(net, images, ["saliency"], protocols, controls="off").rows

    both = rows("soundness", "road_lerf")
    assert both["soundness"] == rows("soundness")["soundness"] == 6 * 96
    assert both["all absent"] == 6
    assert both["road_lerf"] == 0 < rows("road_lerf")["road_lerf"]
