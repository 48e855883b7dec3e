"""Ranks with ties and the overall order."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from assay.ranking import (
    FEWEST_GROUPS,
    ProtocolScores,
    overall_order,
    paired_differences,
    positions,
    tied_ranks,
)


def scores(means: list[float], n: int, spread: float = 0.3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(means, spread, size=(n, len(means)))


def names(n: int) -> list[str]:
    return [f"{i:04d}" for i in range(n)]


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


def test_positions_are_scipy_average_ranks() -> None:
    means = np.array([[0.3, 0.1, 0.3, 0.9], [1.0, 2.0, 3.0, 4.0]])
    assert_array_equal(positions(means, higher_is_better=False), stats.rankdata(means, axis=1))
    assert_array_equal(positions(means, higher_is_better=True), stats.rankdata(-means, axis=1))
    assert_array_equal(positions([0.1 + 0.2, 0.3], higher_is_better=True), [1.5, 1.5])
    assert_array_equal(positions([0.0, 0.0], higher_is_better=True), [1.5, 1.5])


def test_overall_is_the_mean_position() -> None:
    first = ProtocolScores(scores([3.0, 2.0, 1.0], 30, 0.01), names(30), True)
    second = ProtocolScores(scores([3.0, 1.0, 2.0], 30, 0.01), names(30), False)
    found = overall_order([first, second])
    assert_allclose(found.mean_rank, [2.0, 1.5, 2.5])
    assert_array_equal(found.position, [2, 1, 3])
    assert_allclose(found.first_share, [0, 1, 0])
    assert_allclose(found.low, found.mean_rank)
    assert_allclose(found.high, found.mean_rank)


def test_an_open_race_is_shown_as_open() -> None:
    found = overall_order([ProtocolScores(scores([0.0, 0.02, -3.0], 50, 1.0), names(50), True)])
    assert found.first_share[:2].min() > 0.05
    assert_allclose(found.first_share.sum(), 1)
    assert_allclose([found.low[0], found.high[0]], [1, 2])
    assert found.low[2] == 3


def test_share_of_one_protocol_is_the_bootstrap_share() -> None:
    values = scores([0.0, 0.15], 40, 1.0, seed=3)
    found = overall_order([ProtocolScores(values, names(40), True)], resamples=20000)
    difference = values[:, 0] - values[:, 1]
    expected = stats.norm.sf(0, difference.mean(), difference.std() / 40**0.5)
    assert found.first_share[0] == pytest.approx(expected, abs=0.02)


def test_protocols_share_their_resamples() -> None:
    values = scores([0.0, 0.1], 40, 1.0, seed=4)
    one = ProtocolScores(values, names(40), True)
    # The same scores twice add nothing: the share must not grow as if they were independent.
    assert_array_equal(overall_order([one]).first_share, overall_order([one, one]).first_share)


def test_ties_split_the_first_place() -> None:
    column = scores([1.0], 20)
    found = overall_order([ProtocolScores(np.hstack([column, column]), names(20), True)])
    assert_allclose(found.first_share, [0.5, 0.5])
    assert_array_equal(found.position, [1, 1])


def test_set_level_protocol_keeps_its_positions() -> None:
    sampled = ProtocolScores(scores([2.0, 1.0], 20, 0.01), names(20), True)
    whole = ProtocolScores(np.array([[0.2, 0.9]]), None, True)
    found = overall_order([sampled, whole])
    assert_allclose(found.mean_rank, [1.5, 1.5])
    assert_allclose([found.low, found.high], 1.5)
    alone = overall_order([whole])
    assert_allclose(alone.mean_rank, [2, 1])
    assert np.isnan(alone.first_share).all()


def test_protocols_may_hold_different_samples() -> None:
    wide = ProtocolScores(scores([1.0, 0.0], 30, 0.1), names(30), True)
    narrow = ProtocolScores(scores([1.0, 0.0], 2, 0.1), ["0028", "0003"], True)
    found = overall_order([wide, narrow])
    assert found.n_groups == 30
    assert_allclose(found.first_share, [1, 0])


def test_rejects_different_methods() -> None:
    with pytest.raises(ValueError, match="same methods"):
        overall_order([])
    with pytest.raises(ValueError, match="same methods"):
        overall_order([ProtocolScores(np.ones((2, k)), ["a", "b"], True) for k in (2, 3)])


def test_a_method_without_a_place_is_ordered_by_its_other_protocols():
    """Its column is NaN in the first protocol; the other places there stretch to 1 ... 3."""
    first = ProtocolScores(np.array([[np.nan, 1.0, 0.0]] * 4), list("abcd"), True)
    second = ProtocolScores(np.array([[3.0, 2.0, 1.0]] * 4), list("abcd"), True)
    order = overall_order([first, second])
    assert order.mean_rank.tolist() == [1.0, 1.5, 3.0]
    assert order.low.tolist() == order.high.tolist() == [1.0, 1.5, 3.0]
    assert order.position.tolist() == [1, 2, 3]


def test_places_are_shared_up_to_rounding():
    means = [1.0, 1.0 - 3e-8, 0.4999995, 0.4999995 + 1e-8, 0.2]
    assert positions(means, higher_is_better=True).tolist() == [1.5, 1.5, 3.5, 3.5, 5.0]
    assert positions(means, higher_is_better=False).tolist() == [4.5, 4.5, 2.5, 2.5, 1.0]
