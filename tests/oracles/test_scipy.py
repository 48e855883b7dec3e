"""Correlations and areas against scipy and numpy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from assay.ranking import arithmetic

small = st.integers(min_value=-3, max_value=3)  # few values, so that ties are many


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(small, small), min_size=3, max_size=20))
def test_correlations_equal_scipy_with_ties(pairs):
    a, d = np.array(pairs, dtype=float).T
    if np.ptp(d) == 0:
        assert np.isnan(arithmetic.spearman(a[None], d[None])[0])
    elif np.ptp(a) == 0:
        assert arithmetic.spearman(a[None], d[None])[0] == 0
    else:
        assert arithmetic.spearman(a[None], d[None])[0] == pytest.approx(
            stats.spearmanr(a, d)[0], abs=1e-12
        )
        assert arithmetic.pearson(a[None], d[None])[0] == pytest.approx(
            stats.pearsonr(a, d)[0], abs=1e-12
        )


def test_correlations_among_valid_columns_equal_scipy():
    rng = np.random.default_rng(0)
    a, d = rng.integers(-4, 5, size=(2, 40, 12)).astype(float)  # many ties
    valid = rng.random((40, 12)) < rng.random((40, 1))
    few = valid.sum(1) < 3
    assert 0 < few.sum() < 40
    for ours, theirs in (
        (arithmetic.spearman, stats.spearmanr),
        (arithmetic.pearson, stats.pearsonr),
    ):
        found = ours(a, d, valid)
        assert np.isnan(found[few]).all()
        for row in np.flatnonzero(~few):
            x, y = a[row, valid[row]], d[row, valid[row]]
            if np.ptp(x) and np.ptp(y):
                assert found[row] == pytest.approx(theirs(x, y)[0], abs=1e-12)
        assert np.array_equal(found, ours(a, np.where(valid, d, 99), valid), equal_nan=True)


def test_rows_are_independent():
    rng = np.random.default_rng(0)
    a, d = rng.normal(size=(2, 7, 16))
    together = arithmetic.spearman(a, d)
    alone = [arithmetic.spearman(a[i : i + 1], d[i : i + 1])[0] for i in range(7)]
    assert together.tolist() == alone


def test_rounding_is_not_information():
    a = np.full((1, 10), 0.1) + np.linspace(0, 1e-17, 10)
    assert arithmetic.pearson(a, np.arange(10.0)[None])[0] == 0


def test_area_of_known_curves():
    x = np.linspace(0, 1, 101)
    assert arithmetic.area(x[None] ** 2, x)[0] == pytest.approx(1 / 3, abs=1e-4)
    assert arithmetic.area(np.ones((1, 3)), np.array([0.0, 0.2, 0.5]))[0] == 1
