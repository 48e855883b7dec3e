"""Variance components against known ones, the textbook's mean squares, and brute force."""

import itertools

import numpy as np
import pytest

from assay.aggregation.variance_parts import balanced_core, variance_parts
from assay.errors import InputError


def table(generator, sizes, spreads):
    """Scores with independent normal effects of the given standard deviations, by their axes."""
    scores = np.zeros(sizes)
    for axes, spread in spreads.items():
        shape = [size if i in axes else 1 for i, size in enumerate(sizes)]
        scores = scores + spread * generator.normal(size=shape)
    return scores


def test_two_factors_are_the_textbook():
    scores = table(np.random.default_rng(0), (5, 7), {(0,): 1, (1,): 2, (0, 1): 0.5})
    rows, columns = scores.mean(axis=1), scores.mean(axis=0)
    rest = scores - rows[:, None] - columns + scores.mean()
    residual = np.square(rest).sum() / (4 * 6)
    parts = variance_parts(scores, ["dataset"])
    method = (7 * rows.var(ddof=1) - residual) / 7
    assert parts.part("method").raw == pytest.approx(method)
    assert parts.part("dataset").raw == pytest.approx((5 * columns.var(ddof=1) - residual) / 5)
    assert parts.part("dataset", "method").raw == pytest.approx(residual)
    assert parts.generalisability == pytest.approx(method / (method + residual / 7))
    assert [p.degrees for p in parts.parts] == [4, 6, 24]


def test_known_components_are_estimated_without_bias():
    generator = np.random.default_rng(1)
    spreads = {(0,): 1.0, (1,): 2.0, (0, 1): 0.7, (0, 2): 0.5, (0, 3): 0.3, (0, 1, 2, 3): 0.6}
    names = ("method", "dataset", "model", "protocol")
    raw = []
    for _ in range(300):
        parts = variance_parts(table(generator, (6, 4, 3, 3), spreads), names[1:])
        raw.append([part.raw for part in parts.parts])
    raw = np.array(raw)
    error = raw.std(axis=0) / np.sqrt(len(raw))
    for part, mean, off in zip(parts.parts, raw.mean(axis=0), error, strict=True):
        axes = tuple(names.index(name) for name in part.factors)
        assert abs(mean - spreads.get(axes, 0) ** 2) < 4 * off + 1e-9


def test_generalisability_is_the_squared_correlation_with_the_universe():
    """The mean over the table and the mean over another table of fresh facets correlate so."""
    generator = np.random.default_rng(2)
    spreads = {(0,): 1.0, (0, 1): 1.0, (0, 2): 0.5, (0, 1, 2): 1.0}
    expected = 1 / (1 + 1 / 4 + 0.25 / 3 + 1 / 12)
    coefficients, universes = [], []
    for _ in range(60):
        effect = generator.normal(size=(40, 1, 1))
        rest = table(generator, (40, 4, 3), {k: v for k, v in spreads.items() if k != (0,)})
        coefficients.append(variance_parts(effect + rest, ["a", "b"]).generalisability)
        universes.append(np.corrcoef(effect[:, 0, 0], (effect + rest).mean(axis=(1, 2)))[0, 1] ** 2)
    assert np.mean(coefficients) == pytest.approx(expected, abs=0.02)
    assert np.mean(universes) == pytest.approx(expected, abs=0.03)


def test_shares_are_of_what_tells_methods_apart():
    scores = table(np.random.default_rng(3), (6, 5, 4), {(0,): 1, (1,): 3, (0, 1, 2): 1})
    parts = variance_parts(scores, ["dataset", "model"])
    shares = [p.share for p in parts.parts if "method" in p.factors]
    assert sum(shares) == pytest.approx(1)
    assert np.isnan(parts.part("dataset").share)
    shifted = scores + np.arange(5)[:, None]  # a facet's level changes no order of methods
    again = variance_parts(shifted, ["dataset", "model"])
    assert again.generalisability == pytest.approx(parts.generalisability)


def test_negative_estimates_stay_visible():
    scores = np.array([[1.0, -1], [-1, 1]])
    parts = variance_parts(scores, ["dataset"])
    assert parts.part("method").raw == pytest.approx(-2)
    assert parts.part("method").value == 0
    assert parts.generalisability == 0


def test_more_levels_generalise_better():
    scores = table(np.random.default_rng(4), (8, 3, 3), {(0,): 1, (0, 1): 1, (0, 1, 2): 1})
    parts = variance_parts(scores, ["dataset", "model"])
    assert parts.generalisability_of({"dataset": 30}) > parts.generalisability
    assert parts.generalisability_of({}) == parts.generalisability
    with pytest.raises(InputError, match="facets"):
        parts.generalisability_of({"seed": 3})


@pytest.mark.parametrize(
    ("scores", "facets", "message"),
    [
        (np.ones((3, 4)), ["a", "b"], "axis"),
        (np.ones(3), [], "at least 1"),
        (np.ones((3, 1)), ["a"], "one level"),
        (np.full((3, 2), np.nan), ["a"], "balanced_core"),
        (np.ones((3, 2)), ["method"], "different names"),
    ],
)
def test_wrong_tables(scores, facets, message):
    with pytest.raises(InputError, match=message):
        variance_parts(scores, facets)


def test_core_leaves_out_what_is_mostly_missing():
    present = np.ones((6, 4, 3), bool)
    present[5, 1:] = False
    present[:, 3, 0] = False
    core = balanced_core(present)
    assert [places.tolist() for places in core] == [[0, 1, 2, 3, 4], [0, 1, 2], [0, 1, 2]]


def test_core_is_complete_and_no_level_fits_again():
    generator = np.random.default_rng(5)
    ratios = []
    for _ in range(30):
        present = generator.random((5, 4, 3)) < 0.85
        core = balanced_core(present)
        assert present[np.ix_(*core)].all()
        for axis, size in enumerate(present.shape):
            for level in set(range(size)) - set(core[axis].tolist()):
                more = [[*c, level] if i == axis else c for i, c in enumerate(core)]
                assert not present[np.ix_(*more)].all()
        ratios.append(np.prod([len(c) for c in core]) / largest(present))
    assert np.mean(ratios) > 0.75
    assert balanced_core(np.zeros((3, 2)))[0].tolist() == []


def largest(present):
    """The cells of the largest complete core, by trying all sets of levels of two factors."""
    best = 0
    _, b, c = present.shape
    for second in subsets(b):
        for third in subsets(c):
            first = present[:, second][:, :, third].all(axis=(1, 2)).sum()
            best = max(best, first * len(second) * len(third))
    return best


def subsets(size):
    return [list(s) for k in range(1, size + 1) for s in itertools.combinations(range(size), k)]
