"""Prediction of settings that were left out: by hand, by brute force and by simulation."""

import numpy as np
import pytest
import scipy

from assay.aggregation.prediction_skill import left_out_prediction, skill
from assay.errors import InputError


def mean_rank(scores, weights):
    return np.average(scipy.stats.rankdata(scores, axis=1), axis=0, weights=weights)


def simulated(groups, noise, seed=0, each=2, methods=8):
    generator = np.random.default_rng(seed)
    scores = generator.normal(size=methods) + noise * generator.normal(
        size=(groups * each, methods)
    )
    return scores, [f"group {i // each}" for i in range(groups * each)]


def test_one_order_is_predicted_perfectly():
    scores, labels = simulated(4, 0.0)
    result = left_out_prediction(scores, labels, mean_rank)
    assert result.tau == pytest.approx(np.ones(4))
    assert result.top == pytest.approx(np.ones(4))
    assert result.regret == pytest.approx(np.zeros(4))
    assert result.against_random.value == 1
    assert np.isnan(result.against_single.value)  # a single setting makes no error either


def test_numbers_by_hand():
    scores = np.array([[1, 2, 3], [1, 2, 3], [2, 1, 5], [4, 3, 3]], float)
    result = left_out_prediction(scores, ["a", "a", "b", "b"], mean_rank)
    # From a, the order is 0 < 1 < 2: two of three pairs in (2, 1, 5); none of two in (4, 3, 3).
    assert result.groups == ("a", "b")
    assert result.accuracy[1] == pytest.approx((2 / 3 + 0) / 2)
    assert result.tau[1] == pytest.approx((1 / 3 - 2 / np.sqrt(3 * 2)) / 2)
    assert result.top[1] == pytest.approx(0.5)
    assert result.regret[1] == pytest.approx((0 + 1) / 2)
    assert not result.against_random.is_interval
    ends = result.against_random.low, result.against_random.high
    assert ends == pytest.approx(tuple(np.sort(2 * result.accuracy - 1)))


def test_left_out_settings_are_never_seen():
    scores, labels = simulated(5, 1.0)
    seen = []

    def rule(rest, weights):
        seen.append((rest.copy(), weights.copy()))
        return mean_rank(rest, weights)

    weights = np.arange(1.0, 11)
    left_out_prediction(scores, labels, rule, weights=weights)
    for number, (rest, weighted) in enumerate(seen):
        assert (rest == np.delete(scores, [2 * number, 2 * number + 1], axis=0)).all()
        assert (weighted == np.delete(weights, [2 * number, 2 * number + 1])).all()


def test_the_single_setting_is_the_most_typical_of_the_rest():
    order = np.arange(6.0)
    scores = np.stack([order, -order, order + 2 * np.eye(6)[2], order, order])
    result = left_out_prediction(scores, list("abcde"), mean_rank)
    assert result.single_accuracy == pytest.approx([1, 0, 14 / 15, 1, 1], abs=0.04)


def test_no_order_has_no_skill_and_more_settings_beat_one():
    values, gains = [], []
    for seed in range(60):
        noise = np.random.default_rng(seed).normal(size=(12, 8))
        labels = [str(i) for i in range(12)]
        values.append(left_out_prediction(noise, labels, mean_rank).against_random.value)
        scores, groups = simulated(12, 1.0, seed, each=1)
        gains.append(left_out_prediction(scores, groups, mean_rank).against_single.value)
    assert abs(np.mean(values)) < 0.05
    assert np.mean(gains) > 2 * np.std(gains) / np.sqrt(60)


def test_jackknife_interval_covers():
    """Independent groups: the interval covers the true skill about as often as it says."""
    generator = np.random.default_rng(0)
    covered = []
    for _ in range(400):
        accuracy = generator.beta(8, 4, size=15)
        baseline = np.clip(accuracy - 0.1 + 0.1 * generator.normal(size=15), 0, 1)
        estimate = skill(accuracy, baseline)
        covered.append(estimate.low <= 0.1 / (1 - 2 / 3 + 0.1) <= estimate.high)
    assert estimate.is_interval
    assert np.mean(covered) == pytest.approx(0.95, abs=0.04)


def test_jackknife_is_its_definition():
    generator = np.random.default_rng(1)
    accuracy, baseline = generator.random(10), generator.random(10) / 2
    mine = skill(accuracy, baseline, 0.9)
    without = []
    for i in range(10):
        a, b = np.delete(accuracy, i).mean(), np.delete(baseline, i).mean()
        without.append((a - b) / (1 - b))
    error = np.sqrt(0.9 * np.square(without - np.mean(without)).sum())
    arm = scipy.stats.t.ppf(0.95, 9) * error
    assert (mine.low, mine.high) == pytest.approx((mine.value - arm, mine.value + arm))
    assert not skill(accuracy[:9], baseline[:9]).is_interval


def test_missing_methods_and_unknown_strengths():
    scores, labels = simulated(4, 0.0)
    scores[0, 3], scores[5, :6] = np.nan, np.nan

    def rule(rest, weights):
        strength = np.nanmean(rest, axis=0)
        strength[7] = np.nan
        return strength

    result = left_out_prediction(scores, labels, rule)
    assert result.accuracy == pytest.approx(np.ones(4))
    assert result.regret == pytest.approx(np.zeros(4))


def test_a_rule_that_ties_everything_guesses():
    scores, labels = simulated(4, 1.0)
    result = left_out_prediction(scores, labels, lambda rest, weights: np.zeros(rest.shape[1]))
    assert result.accuracy == pytest.approx(np.full(4, 0.5))
    assert result.tau == pytest.approx(np.zeros(4))
    assert result.top == pytest.approx(np.full(4, 1 / 8))
    assert result.against_random.value == 0


def test_wrong_input():
    scores, labels = simulated(4, 1.0)
    with pytest.raises(InputError, match="at least 2 groups"):
        left_out_prediction(scores, ["a"] * 8, mean_rank)
    with pytest.raises(InputError, match="label"):
        left_out_prediction(scores, labels[:3], mean_rank)
    with pytest.raises(InputError, match="one strength per method"):
        left_out_prediction(scores, labels, lambda rest, weights: rest)
    with pytest.raises(InputError, match="both order"):
        left_out_prediction(np.ones((4, 3)), list("abcd"), mean_rank)
