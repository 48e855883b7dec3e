"""Intervals against closed forms, SciPy, and what must not change them."""

from __future__ import annotations

import time

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from assay.ranking import mean_interval, paired_differences
from assay.ranking.deviations import standard_error, studentised
from assay.ranking.intervals import mean_intervals
from assay.ranking.resampling import group_sums, resample_counts


def ends(values: np.ndarray, groups: np.ndarray | None = None, **options: float) -> np.ndarray:
    interval = mean_interval(values, groups, **options)
    return np.array([interval.mean, interval.low, interval.high])


def test_large_normal_sample_gives_the_t_interval() -> None:
    values = np.random.default_rng(0).normal(3, 2, size=400)
    low, high = stats.t.interval(0.95, 399, values.mean(), stats.sem(values))
    found = ends(values, resamples=20000)
    assert_allclose(found, [values.mean(), low, high], atol=0.04 * stats.sem(values) * 2)


def test_many_columns_have_the_intervals_of_each() -> None:
    rng = np.random.default_rng(7)
    values, groups = rng.exponential(size=(60, 4)), rng.integers(0, 20, 60)
    values[:, 2] = 0.3  # constant
    for of in (None, groups, np.zeros(60)):
        many = mean_intervals(values, of, resamples=300)
        alone = [mean_interval(column, of, resamples=300) for column in values.T]
        for one, other in zip(many, alone, strict=True):
            assert one.n_groups == other.n_groups
            assert_allclose([one.mean, one.low, one.high], [other.mean, other.low, other.high],
                            rtol=1e-12)  # fmt: skip


def test_agrees_roughly_with_scipy_bca_on_skewed_scores() -> None:
    values = np.random.default_rng(1).beta(0.5, 2, size=200)
    reference = stats.bootstrap((values,), np.mean, method="BCa", rng=0).confidence_interval
    found = mean_interval(values)
    width = reference.high - reference.low
    assert_allclose([found.low, found.high], reference, atol=0.06 * width)


def test_the_longer_arm_is_on_the_side_of_the_long_tail() -> None:
    values = np.random.default_rng(2).beta(0.5, 2, size=25)
    found = mean_interval(values)
    mirrored = mean_interval(-values)
    assert found.high - found.mean > 1.2 * (found.mean - found.low)
    assert mirrored.mean - mirrored.low > 1.2 * (mirrored.high - mirrored.mean)


def test_standard_error_is_the_cluster_robust_formula() -> None:
    generator = np.random.default_rng(3)
    groups = np.array([0, 0, 0, 1, 2, 2, 3])
    values = generator.normal(size=7)
    sums, sizes = group_sums(values[:, None], groups)
    deviations = sums - sizes[:, None] * values.mean()
    expected = 0.0
    for group in range(4):
        expected += (values[groups == group] - values.mean()).sum() ** 2
    assert_allclose(standard_error(deviations, sizes)[0], np.sqrt(4 / 3 * expected) / 7)
    alone = standard_error((values - values.mean())[:, None], np.ones(7))
    assert_allclose(alone[0], stats.sem(values))


def test_count_form_equals_gathering_the_samples() -> None:
    generator = np.random.default_rng(4)
    groups = np.array([0, 0, 0, 1, 2, 2, 3, 4, 4])
    values = generator.normal(size=9)
    sums, sizes = group_sums(values[:, None], groups)
    counts = next(resample_counts(5, 20, 7))
    assert_array_equal(counts.sum(axis=1), np.full(20, 5.0))
    found = studentised(counts, sums - sizes[:, None] * values.mean(), sizes)[:, 0]
    for row, t in zip(counts.astype(int), found, strict=True):
        drawn = [values[groups == group] for group in np.repeat(np.arange(5), row)]
        mean = np.concatenate(drawn).mean()
        squares = sum((part.sum() - len(part) * mean) ** 2 for part in drawn)
        error = np.sqrt(5 / 4 * squares) / sum(map(len, drawn))
        if squares > 1e-12:
            assert_allclose(t, (mean - values.mean()) / error)
        else:
            assert np.isnan(t)


def test_blocks_do_not_change_the_draw() -> None:
    whole = np.concatenate(list(resample_counts(50, 300, 1)))
    split = np.concatenate(list(resample_counts(50, 300, 1, columns=1 << 15)))
    assert len(list(resample_counts(50, 300, 1, columns=1 << 15))) > 1
    assert_array_equal(whole, split)


def test_repeating_every_sample_within_its_group_changes_nothing() -> None:
    values = np.random.default_rng(5).normal(size=30)
    assert_allclose(ends(np.repeat(values, 3), np.repeat(np.arange(30), 3)), ends(values))


def test_copies_taken_as_independent_would_look_surer() -> None:
    values = np.repeat(np.random.default_rng(6).normal(size=30), 4)
    grouped = mean_interval(values, np.repeat(np.arange(30), 4))
    alone = mean_interval(values)
    assert grouped.high - grouped.low > 1.7 * (alone.high - alone.low)
    assert (grouped.n_groups, alone.n_groups) == (30, 120)


@pytest.mark.parametrize("shift", [-7.0, 0.1, 1000.0])
def test_adding_a_constant_moves_the_interval(shift: float) -> None:
    values = np.random.default_rng(7).beta(0.5, 2, size=40)
    assert_allclose(ends(values + shift), ends(values) + shift, rtol=0, atol=1e-9)


def test_scaling_and_group_names() -> None:
    generator = np.random.default_rng(8)
    values, groups = generator.normal(size=40), np.arange(40) // 2
    names = np.array([f"scene {group:02d}" for group in groups])
    order = generator.permutation(40)
    assert_allclose(ends(values, names), ends(values, groups))
    assert_allclose(ends(values[order], groups[order]), ends(values, groups))
    assert_allclose(ends(1e-9 * values, groups), 1e-9 * ends(values, groups))
    other = ends(values, (groups * 7) % 20)
    assert_allclose(other, ends(values, groups), atol=0.05)


def test_constant_scores_have_no_interval() -> None:
    """They do not show how much scores can differ."""
    for value in (0.0, 0.1, 1.0, -1e6):
        found = mean_interval(np.full(12, value))
        assert found.mean == pytest.approx(value)
        assert np.isnan([found.low, found.high]).all()
        assert found.n_groups == 12


def test_one_group_has_no_interval() -> None:
    for found in (mean_interval([0.3]), mean_interval([0.2, 0.4], ["a", "a"])):
        assert found.mean == pytest.approx(0.3)
        assert np.isnan([found.low, found.high]).all()
        assert found.n_groups == 1


@pytest.mark.parametrize("values", [[0.0, 1.0], [0.0, 0.0, 1.0], [1.0] * 9 + [0.0]])
def test_few_distinct_values_are_no_surer_than_student(values: list[float]) -> None:
    found = mean_interval(values)
    student = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)
    assert found.high - found.mean >= student * (1 - 1e-9)
    assert found.mean - found.low >= student * (1 - 1e-9)


@pytest.mark.parametrize("values", [[0.0, np.nan], [0.0, np.inf], [], [[0.0, 1.0]]])
def test_rejects_what_has_no_mean(values: list[float]) -> None:
    with pytest.raises(ValueError, match="Expected `values`"):
        mean_interval(values)


def test_rejects_options_out_of_range() -> None:
    with pytest.raises(ValueError, match="`level`"):
        mean_interval([0.0, 1.0], level=95)
    with pytest.raises(ValueError, match="`resamples`"):
        paired_differences([[0.0, 1.0]], resamples=0)
    with pytest.raises(ValueError, match="`groups`"):
        mean_interval([0.0, 1.0], ["a"])


def test_differences_are_paired_and_antisymmetric() -> None:
    generator = np.random.default_rng(9)
    level = generator.normal(0, 10, size=(60, 1))
    values = level + generator.normal([0.0, 0.5, 2.0], 0.3, size=(60, 3))
    found = paired_differences(values)
    assert_allclose(found.mean, values.mean(0)[:, None] - values.mean(0))
    assert_array_equal(found.low, -found.high.T)
    # Unpaired, the level's spread of 10 would hide the differences.
    assert found.low[2, 0] > 1.5
    assert found.low[1, 0] > 0


def test_simultaneous_is_wider_than_single_and_narrower_than_bonferroni_at_large_n() -> None:
    values = np.random.default_rng(10).normal(size=(400, 8))
    found = paired_differences(values, resamples=4000)
    difference = values[:, 0] - values[:, 1]
    critical = (found.high - found.mean)[0, 1] / stats.sem(difference)
    # Equal variances make this the studentised range of 8 means.
    assert critical == pytest.approx(
        stats.studentized_range.ppf(0.95, 8, 399 * 7) / 2**0.5, rel=0.04
    )
    assert stats.t.ppf(0.975, 399) < critical < stats.t.ppf(1 - 0.025 / 28, 399)


def test_identical_columns_are_exactly_zero() -> None:
    column = np.random.default_rng(11).normal(size=30)
    other = np.random.default_rng(12).normal(size=30)
    values = np.stack([column, other, column, (column + 0.3) - 0.3], axis=1)
    found = paired_differences(values)
    for i, j in ((0, 2), (2, 3), (0, 3), (1, 1)):
        assert (found.mean[i, j], found.low[i, j], found.high[i, j]) == (0, 0, 0)
    assert found.low[0, 1] < found.mean[0, 1] < found.high[0, 1]


def test_all_columns_identical() -> None:
    found = paired_differences(np.ones((20, 3)))
    assert_array_equal([found.mean, found.low, found.high], np.zeros((3, 3, 3)))


def test_constant_difference_is_a_point() -> None:
    column = np.random.default_rng(13).normal(size=30)
    found = paired_differences(np.stack([column + 0.1, column], axis=1))
    assert found.low[0, 1] == found.high[0, 1] == pytest.approx(0.1)


def test_method_order_only_reorders_differences() -> None:
    values = np.random.default_rng(14).beta(0.5, 2, size=(20, 4))
    order = [2, 0, 3, 1]
    found, other = paired_differences(values), paired_differences(values[:, order])
    assert_allclose(other.low, found.low[np.ix_(order, order)], atol=1e-12)
    assert_allclose(other.high, found.high[np.ix_(order, order)], atol=1e-12)


def test_one_rare_difference_does_not_widen_or_resolve_other_pairs() -> None:
    generator = np.random.default_rng(15)
    values = generator.normal([0, 3], 0.5, size=(30, 2))
    nearly = values[:, 0].copy()
    nearly[4] += 1e-3
    found = paired_differences(np.column_stack([values, nearly]))
    assert found.low[1, 0] > 2
    assert found.low[2, 0] < 0 < found.high[2, 0]


def test_single_group_differences_are_unknown() -> None:
    found = paired_differences([[0.1, 0.4]])
    assert found.mean[1, 0] == pytest.approx(0.3)
    assert np.isnan([found.low[1, 0], found.high[1, 0]]).all()


def test_speed_at_full_size() -> None:
    values = np.random.default_rng(16).normal(size=(500, 15))
    start = time.process_time()
    paired_differences(values, resamples=2000)
    assert time.process_time() - start < 2.0


def test_rounding_of_equal_columns_does_not_widen_the_others():
    """Two perfect methods, a few of whose scores differ in the last bit of single precision."""
    generator = np.random.default_rng(0)
    perfect = np.ones(12)
    nearly = perfect - np.where(np.arange(12) < 2, 3e-8, 0.0)
    others = generator.uniform(0.1, 0.4, (12, 2))
    exact, noisy = (
        paired_differences(np.column_stack([perfect, twin, others])) for twin in (perfect, nearly)
    )
    assert_allclose(noisy.low, exact.low, atol=1e-6)
    assert_allclose(noisy.high, exact.high, atol=1e-6)
    assert noisy.low[0, 1] == noisy.high[0, 1] == 0
