"""Near-clones: concordance against its textbook form, chains, constants."""

import numpy as np
import pytest

from assay.ranking.near_clones import concordance, near_clones

N = 200


def table(*columns):
    return np.stack(columns, axis=1)


def test_concordance_is_lins():
    """By its definition: 1 minus the mean squared difference over that of independent scores."""
    random = np.random.default_rng(0)
    values = random.normal(0, 1, (N, 3)) @ random.normal(0, 1, (3, 5)) + [0, 0.3, 0, 1, 0]
    apart = values - values.mean(1, keepdims=True)
    for i in range(5):
        for j in range(5):
            x, y = apart[:, i], apart[:, j]
            expected = 1 - np.mean((x - y) ** 2) / (x.var() + y.var() + (x.mean() - y.mean()) ** 2)
            assert concordance(values)[i, j] == pytest.approx(expected)


def test_equal_columns_are_one_even_where_they_are_constant():
    assert near_clones([np.ones((N, 3))]).tolist() == [0, 0, 0]
    one = np.random.default_rng(0).normal(size=N)
    assert near_clones([table(one, -one, one)]).tolist() == [0, 1, 0]


def test_a_chain_of_pairs_is_one():
    random = np.random.default_rng(0)
    one, step, *others = random.normal(size=(10, N))
    values = table(one, others[0], one + 0.09 * step, one + 0.18 * step, *others[1:])
    agreement = concordance(values)
    assert agreement[0, 2] >= 0.99
    assert agreement[2, 3] >= 0.99
    assert agreement[0, 3] < 0.99
    assert near_clones([values]).tolist() == [0, 1, 0, 0, *range(2, 9)]


def test_equal_orders_of_samples_are_not_enough():
    """A map that scores a bit better on every sample is another method."""
    one, other = np.random.default_rng(0).normal(size=(2, N))
    assert near_clones([table(one, one + 1, other)]).tolist() == [0, 1, 2]
