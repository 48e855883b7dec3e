"""Ranks with ties."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from assay.ranking import (
    FEWEST_GROUPS,
    paired_differences,
    tied_ranks,
)


def scores(means: list[float], n: int, spread: float = 0.3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(means, spread, size=(n, len(means)))


def test_clear_leaders_tie_and_the_others_follow() -> None:
    # Two clear leaders that tie, a middle, and a last.
    values = scores([5.0, 5.01, 3.0, 1.0], 40)
    found = tied_ranks(paired_differences(values), higher_is_better=True)
    assert found.ties_broken
    assert_array_equal(found.ranks, [1, 1, 3, 4])
    lower = tied_ranks(paired_differences(values), higher_is_better=False)
    assert_array_equal(lower.ranks, [3, 3, 2, 1])


def test_a_group_ends_at_the_first_that_is_clearly_worse_than_its_first() -> None:
    noise = scores([0, 0, 0], 30, spread=1.0, seed=1)
    differences = paired_differences(noise - noise.mean(axis=0) + [0.0, 0.4, 0.8])
    found = tied_ranks(differences, higher_is_better=True)
    assert differences.low[2, 0] > 0
    assert differences.low[2, 1] < 0
    assert differences.low[1, 0] < 0
    assert_array_equal(found.ranks, [3, 1, 1])


def test_a_worse_mean_never_has_a_better_rank() -> None:
    # The noisy column 2 is not resolved worse than anyone; columns 0 and 1 are tight.
    noise = scores([0, 0, 0], 60, spread=1.0, seed=2)
    values = (noise - noise.mean(axis=0)) * [0.05, 0.05, 20.0] + [1.0, 0.8, 0.5]
    differences = paired_differences(values)
    assert differences.low[0, 1] > 0
    assert differences.low[0, 2] < 0 < differences.high[0, 2]
    found = tied_ranks(differences, higher_is_better=True)
    assert_array_equal(found.ranks, [1, 2, 2])
    for seed in range(50):
        drawn = np.random.default_rng(seed)
        spreads = drawn.lognormal(sigma=2.0, size=7)
        values = drawn.normal(size=(40, 7)) * spreads + drawn.normal(size=7)
        for higher in (True, False):
            ranks = tied_ranks(paired_differences(values), higher_is_better=higher).ranks
            best_first = np.argsort(values.mean(axis=0) * (-1 if higher else 1))
            assert (np.diff(ranks[best_first]) >= 0).all()


def test_sign_flip_with_direction_flip_keeps_ranks() -> None:
    values = scores([1.0, 1.2, 0.2, 0.9], 30)
    up = tied_ranks(paired_differences(values), higher_is_better=True)
    down = tied_ranks(paired_differences(-values), higher_is_better=False)
    assert_array_equal(up.ranks, down.ranks)
    assert up.ranks.max() > 1


@pytest.mark.parametrize(("n", "broken"), [(FEWEST_GROUPS - 1, False), (FEWEST_GROUPS, True)])
def test_no_tie_is_broken_below_ten_groups(n: int, broken: bool) -> None:
    values = scores([0.0, 100.0], n)
    found = tied_ranks(paired_differences(values), higher_is_better=True)
    assert found.ties_broken is broken
    assert_array_equal(found.ranks, [2, 1] if broken else [1, 1])


def test_groups_not_samples_are_counted() -> None:
    values = scores([0.0, 100.0], 36)
    groups = np.arange(36) // 4
    found = tied_ranks(paired_differences(values, groups), higher_is_better=True)
    assert not found.ties_broken


def test_identical_columns_tie() -> None:
    column = scores([1.0], 50)
    values = np.hstack([column, column, column - 1])
    found = tied_ranks(paired_differences(values), higher_is_better=True)
    assert_array_equal(found.ranks, [1, 1, 3])
