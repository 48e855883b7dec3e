"""A biased number of a whole set: its interval reaches to where the truth is, or has no level."""

from __future__ import annotations

import re

import numpy as np
import pytest

import assay
from assay.ranking.set_intervals import SetDraws, interval_of_draws, set_interval
from assay.report.row_texts import describe
from small_worlds import make_images, make_net


def test_the_interval_is_prolonged_by_the_bias_that_resamples_show() -> None:
    """The largest of 60 numbers is too low, and that of a resample is lower still."""
    values = np.random.default_rng(3).random(60)

    def largest(weights: np.ndarray) -> np.ndarray:
        return np.where(weights > 0, values, -np.inf).max(1)[:, None]

    found = set_interval(largest, np.arange(60))
    assert found.high - found.mean > 1.2 * (found.mean - found.low)
    assert found.low <= found.mean <= found.high


def test_an_unbiased_number_keeps_equal_arms() -> None:
    draws = np.array([[-1.0], [1.0], [-2.0], [2.0]])
    found = interval_of_draws(0.0, SetDraws(draws, 20), 20, 0.95)
    assert found.high == -found.low


def test_a_level_needs_a_thousand_groups() -> None:
    draws = np.array([[-1.0], [1.0]])
    assert not interval_of_draws(0.0, SetDraws(draws, 999), 999, 0.95).has_level
    combined = interval_of_draws(0.0, SetDraws(draws, 2000), 50_000, 0.95)
    assert combined.has_level
    assert combined.within(-1, 1).widened(2).has_level


def test_a_bias_larger_than_the_interval_is_counted_no_further() -> None:
    draws = np.array([[5.0], [5.1]])
    found = interval_of_draws(0.0, SetDraws(draws, 20), 20, 0.95)
    assert found.low == pytest.approx(-2 * found.high)
    assert found.low <= 0 <= found.high


@pytest.mark.filterwarnings("ignore:.*hardly above chance")
def test_soundness_of_few_images_has_no_level() -> None:
    protocols = ["soundness", "deletion"]
    results = assay.benchmark(
        make_net(), make_images(12), ["saliency", "random"], protocols, progress=False
    )
    board = results.leaderboard()
    for row in board.by_protocol:
        assert row.low is not None
        if row.protocol == "soundness":
            assert row.level is None
            assert "without a level" in describe(row)
        else:
            assert row.level == 0.95
            assert "95 % interval" in describe(row)
    assert len(re.findall("interval without a level: too few samples", repr(board))) == 2
    assert board.to_table()["level"].null_count == 2
