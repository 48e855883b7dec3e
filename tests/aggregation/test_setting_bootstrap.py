"""Resamples of images and of tasks: spreads by hand, and what travels together."""

import numpy as np
import pytest
from benchmarks.simulate_settings import mean_share, simulate_rankings

from assay.aggregation.setting_bootstrap import (
    SettingSamples,
    StrengthDraws,
    bootstrap_both,
    bootstrap_images,
    bootstrap_tasks,
    mean_scores,
)
from assay.errors import InputError


def settings(seed=0, n=3, samples=40, tasks=6, per_task=2):
    rng = np.random.default_rng(seed)
    made = []
    for t in range(tasks):
        shared = rng.normal(size=(samples, n))
        made.extend(
            SettingSamples(
                f"t{t}", "ab"[t % 2], shared + 0.1 * rng.normal(size=(samples, n)) + np.arange(n),
                [f"g{i // 2}" for i in range(samples)],
            )
            for _ in range(per_task)
        )  # fmt: skip
    return made


def test_image_bootstrap_has_the_error_of_a_mean_over_groups():
    one = settings(tasks=1, per_task=1)
    drawn = bootstrap_images(one, mean_share, resamples=4000)
    sums = one[0].values.reshape(20, 2, 3).mean(axis=1)
    error = sums.std(axis=0) / 20**0.5
    assert drawn.draws.std(axis=0) == pytest.approx(error, rel=0.06)
    assert drawn.observed == pytest.approx(one[0].values.mean(axis=0))


def test_settings_of_a_task_share_their_images():
    pair = settings(tasks=1)
    twin = [pair[0], SettingSamples("t0", "a", -pair[0].values, pair[0].groups)]
    drawn = bootstrap_images(twin, mean_share, resamples=50)
    assert np.abs(drawn.draws).max() < 1e-9
    apart = [twin[0], SettingSamples("t1", "a", -pair[0].values, pair[0].groups)]
    assert bootstrap_images(apart, mean_share, resamples=50).draws.std() > 0.01


def test_task_bootstrap_has_the_error_of_a_mean_over_tasks_within_sources():
    scores = np.random.default_rng(1).normal(size=(9, 3))
    tasks, sources = [f"t{i}" for i in range(9)], ["a"] * 5 + ["b"] * 3 + ["c"]
    drawn = bootstrap_tasks(
        scores, np.ones(9), mean_share, tasks=tasks, sources=sources, resamples=20_000
    )
    variance = (5 * scores[:5].var(axis=0, ddof=1) + 3 * scores[5:8].var(axis=0, ddof=1)) / 81
    assert drawn.draws.var(axis=0) == pytest.approx(variance, rel=0.06)


def test_cells_of_a_task_travel_together():
    scores = np.array([[1.0, 0.0], [-1.0, 0.0]] * 4)
    tasks = [f"t{i // 2}" for i in range(8)]
    drawn = bootstrap_tasks(scores, np.ones(8), mean_share, tasks=tasks, sources=["s"] * 8)
    assert np.abs(drawn.draws).max() < 1e-12


def test_nested_spread_adds_that_of_images_twice_over():
    data = settings(samples=20, tasks=8)
    scores = mean_scores(data)
    own = bootstrap_images(data, mean_share, resamples=3000).draws.var(axis=0)
    tasks = bootstrap_tasks(
        scores, np.ones(16), mean_share, tasks=[s.task for s in data],
        sources=[s.source for s in data], resamples=3000,
    ).draws.var(axis=0)  # fmt: skip
    both = bootstrap_both(data, mean_share, resamples=3000).draws.var(axis=0)
    assert (both > tasks).all()
    assert both == pytest.approx(2 * own + tasks, rel=0.15)  # a squared weight has mean 2


def test_seed_and_missing_methods():
    data = settings()
    one = bootstrap_both(data, mean_share, resamples=20, seed=3)
    assert (one.draws == bootstrap_both(data, mean_share, resamples=20, seed=3).draws).all()
    assert (one.draws != bootstrap_both(data, mean_share, resamples=20, seed=4).draws).any()
    values = data[0].values.copy()
    values[:, 0] = np.nan
    data[0] = SettingSamples("t0", "a", values, data[0].groups)
    assert np.isnan(mean_scores(data)[0, 0])

    def known(scores, weights):
        there = ~np.isnan(scores) * weights[:, None]
        return (np.nan_to_num(scores) * there).sum(axis=0) / there.sum(axis=0)

    assert np.isfinite(bootstrap_both(data, known, resamples=20).draws).all()
    with pytest.raises(InputError, match="finite strength"):
        bootstrap_images(data, mean_share, resamples=20)


def test_probabilities_share_ties():
    drawn = StrengthDraws(np.zeros(3), np.array([[1.0, 1.0, 0.0], [2.0, 1.0, 0.0]]))
    assert drawn.p_best() == pytest.approx([0.75, 0.25, 0.0])
    assert drawn.wins() == pytest.approx(
        np.array([[0.5, 0.75, 1.0], [0.25, 0.5, 1.0], [0.0, 0.0, 0.5]])
    )


def test_rank_intervals_separate_what_differs_and_nothing_else():
    rng = np.random.default_rng(0)
    observed = np.array([3.0, 0.0, 0.05, -3.0])
    drawn = StrengthDraws(observed, observed + 0.1 * rng.normal(size=(2000, 4)))
    best, worst = drawn.rank_intervals()
    assert best.tolist() == [1, 2, 2, 4]
    assert worst.tolist() == [1, 3, 3, 4]
    assert drawn.rank_intervals(freedom=1)[1][0] >= 1
    same = StrengthDraws(np.zeros(3), np.zeros((10, 3)))
    assert [ends.tolist() for ends in same.rank_intervals()] == [[1, 1, 1], [3, 3, 3]]


def test_intervals_are_students():
    rng = np.random.default_rng(0)
    drawn = StrengthDraws(np.zeros(1), rng.normal(size=(4000, 1)))
    low, high = drawn.interval(freedom=3)
    assert high[0] == pytest.approx(3.182 * drawn.draws.std(), rel=1e-3)
    assert low[0] == -high[0]


def test_independent_rankings_are_covered():
    strengths, ranks = simulate_rankings(6, 14, 200, seed=2)
    assert strengths == pytest.approx(0.95, abs=0.03)
    assert ranks > 0.93


def test_refusals():
    with pytest.raises(InputError, match="at least one setting"):
        mean_scores([])
    with pytest.raises(InputError, match="one source"):
        bootstrap_tasks(
            np.zeros((2, 2)), np.ones(2), mean_share, tasks=["t", "t"], sources=["a", "b"]
        )
    with pytest.raises(InputError, match="one task"):
        bootstrap_tasks(np.zeros((2, 2)), np.ones(2), mean_share, tasks=["t"], sources=["a", "b"])
