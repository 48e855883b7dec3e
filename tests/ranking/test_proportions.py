"""Scores that are 0 or 1 have exact intervals; what does not vary has none, or an honest one."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from score_rows import arrow, several

from assay.ranking import leaderboard, mean_interval, paired_differences
from assay.ranking.intervals import mean_intervals


def board(values: dict[str, np.ndarray], limits: tuple[float, float] | None = (0.0, 1.0)) -> dict:
    ranges = {} if limits is None else {"deletion": limits}
    rows = leaderboard(arrow(several(values)), controls={}, ranges=ranges).rows
    return {row["method"]: row for row in rows}


@pytest.mark.parametrize(("right", "n"), [(0, 10), (9, 10), (10, 10), (37, 50)])
def test_the_interval_of_a_share_is_clopper_and_pearsons(right: int, n: int) -> None:
    values = np.r_[np.ones(right), np.zeros(n - right)]
    found = mean_interval(values, binary=True)
    expected = stats.binomtest(right, n).proportion_ci(0.95, method="exact")
    assert_allclose([found.low, found.high], [expected.low, expected.high], atol=1e-12)


def test_ten_of_ten_in_a_leaderboard() -> None:
    """It was [1, 1], from a sample without variance."""
    half = np.r_[np.ones(5), np.zeros(5)]
    for limits in ((0.0, 1.0), None):
        rows = board({"a": np.ones(10), "b": half}, limits)
        assert rows["a"]["low"] == pytest.approx(0.6915, abs=1e-4)
        assert rows["a"]["high"] == 1


@pytest.mark.parametrize("limits", [(-1.0, 1.0), None])
def test_constant_scores_that_are_no_shares_have_no_interval(limits) -> None:
    """A constant map has correlation 0 on every sample, which says nothing of its spread."""
    values = {"a": np.linspace(-0.2, 0.9, 12), "flat": np.zeros(12)}
    row = board(values, limits)["flat"]
    assert (row["mean"], row["low"], row["high"]) == (0, None, None)


def test_groups_of_equal_samples_count_once() -> None:
    values = np.r_[np.ones(14), np.zeros(6)]
    alone = mean_interval(values, binary=True)
    grouped = mean_interval(np.repeat(values, 5), np.repeat(np.arange(20), 5), binary=True)
    assert_allclose([grouped.low, grouped.high], [alone.low, alone.high], atol=0.03)
    assert grouped.low < alone.low
    agreeing = mean_interval(np.ones(100), np.repeat(np.arange(20), 5), binary=True)
    assert_allclose([agreeing.low, agreeing.high], [0.025 ** (1 / 20), 1])


def test_independent_samples_in_groups_lose_little() -> None:
    generator = np.random.default_rng(0)
    values = (generator.random(400) < 0.7).astype(float)
    alone = mean_interval(values, binary=True)
    grouped = mean_interval(values, np.arange(400) // 4, binary=True)
    assert grouped.high - grouped.low < 1.25 * (alone.high - alone.low)


def test_only_marked_columns_are_shares() -> None:
    values = np.random.default_rng(1).integers(0, 2, size=(30, 3)).astype(float)
    many = mean_intervals(values, binary=np.array([True, False, True]))
    for column, share in enumerate((True, False, True)):
        one = mean_interval(values[:, column], binary=share)
        assert_allclose([many[column].low, many[column].high], [one.low, one.high], rtol=1e-12)
    assert many[1].low != pytest.approx(mean_interval(values[:, 1], binary=True).low)


def test_a_constant_difference_is_not_certain() -> None:
    """Right on all samples and wrong on all samples: how rare a contradiction may be."""
    ones, zeros = np.ones(10), np.zeros(10)
    found = paired_differences(np.stack([ones, zeros], axis=1), width=1.0)
    seen = 0.025 ** (1 / 10)
    assert found.low[0, 1] == pytest.approx(2 * seen - 1)
    assert found.low[0, 1] > 0
    unknown = paired_differences(np.stack([ones, zeros], axis=1), width=np.inf)
    assert np.isnan([unknown.low[0, 1], unknown.high[0, 1]]).all()
    tied = paired_differences(np.stack([ones, ones], axis=1), width=1.0)
    assert (tied.low[0, 1], tied.high[0, 1]) == (0, 0)


def test_a_constant_difference_in_a_leaderboard() -> None:
    rows = board({"a": np.ones(30), "b": np.zeros(30)})
    assert (rows["a"]["rank"], rows["b"]["rank"]) == (1, 2)
    unknown = board({"a": np.full(30, 0.7), "b": np.full(30, 0.2)}, None)
    assert (unknown["a"]["rank"], unknown["b"]["rank"]) == (1, 1)
