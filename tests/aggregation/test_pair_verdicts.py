"""Verdicts of pairs, on fits that are made by hand and on constructed data."""

import numpy as np
import pytest
import scipy

from assay.aggregation.mixed_fit import MixedFit, SourceMeans
from assay.aggregation.mixed_model import fit_mixed_model
from assay.aggregation.pair_verdicts import critical_value, judge_pairs
from assay.aggregation.task_cells import TaskCells
from assay.errors import InputError


def made(estimate, error, *, tasks=12, freedom=60.0, identical=None):
    """A fit with these estimates and the same standard error of all differences."""
    n = len(estimate)
    means, errors = np.array(estimate), np.eye(n) * error**2 / 2
    nothing = np.zeros(n)
    return MixedFit(
        tuple("abcdefgh"[:n]), means, nothing, nothing, 0.95, errors, freedom, {}, {}, 0.0,
        (SourceMeans("s", 1.0, means, errors),), tasks,
        np.arange(n) if identical is None else np.array(identical),
    )  # fmt: skip


def test_verdicts_by_hand():
    fit = made([1.0, 0.51, 0.5], 0.02)
    pairs = {(p.first, p.second): p for p in judge_pairs(fit, margin=0.1)}
    reach = 0.02 * scipy.stats.studentized_range.ppf(0.95, 3, 60) / 2**0.5
    assert pairs["a", "b"].verdict == "better"
    assert pairs["a", "b"].low == pytest.approx(0.49 - reach)
    assert pairs["b", "c"].verdict == "equivalent"
    assert pairs["b", "c"].tasks_needed is None
    assert pairs["a", "c"].p < 1e-6
    assert [p.difference for p in judge_pairs(fit)] == pytest.approx([0.5, 0.49, 0.01])


@pytest.mark.parametrize("shift", [-1e-6, 1e-6])
def test_equivalence_is_two_one_sided_tests_at_the_level(shift):
    error, freedom = 0.03, 40.0
    gap = 0.1 - error * scipy.stats.t.ppf(0.95, freedom)  # of two methods: one pair
    pair = judge_pairs(made([gap + shift, 0.0], error, freedom=freedom), margin=0.1)[0]
    assert pair.verdict == ("equivalent" if shift < 0 else "unresolved")


def test_the_tasks_needed_resolve_the_pair():
    pair = judge_pairs(made([0.3, 0.0], 0.3))[0]
    assert pair.verdict == "unresolved"
    t = scipy.stats.t.ppf(0.975, 60)
    assert pair.tasks_needed == int(np.ceil(12 * (t * 0.3 / 0.3) ** 2))
    later = made([0.3, 0.0], 0.3 * (12 / pair.tasks_needed) ** 0.5, tasks=pair.tasks_needed)
    assert judge_pairs(later)[0].verdict == "better"
    alike = judge_pairs(made([0.0, 0.0], 0.3))[0]  # equal ones end as equivalent
    t = scipy.stats.t.ppf(0.95, 60)
    assert alike.tasks_needed == int(np.ceil(12 * (t * 0.3 / 0.1) ** 2))
    assert judge_pairs(made([0.0, 0.0], 0.3), margin=0.0)[0].tasks_needed is None


def test_few_tasks_resolve_nothing():
    pair = judge_pairs(made([1.0, 0.0], 0.01, tasks=9))[0]
    assert pair.verdict == "unresolved"
    assert np.isnan([pair.low, pair.p]).all()
    assert pair.tasks_needed == 10


def test_identical_methods_are_equivalent():
    pair = judge_pairs(made([0.4, 0.4], 0.2, identical=[0, 0]))[0]
    assert (pair.verdict, pair.low, pair.high, pair.p) == ("equivalent", 0.0, 0.0, 1.0)


def test_another_order_of_methods_gives_the_same_verdicts():
    def of(estimate):
        return [(p.difference, p.verdict, p.p) for p in judge_pairs(made(estimate, 0.1))]

    one, two = of([0.0, 0.2, 0.9, 0.25]), of([0.9, 0.25, 0.2, 0.0])
    for a, b in zip(one, two, strict=True):
        assert a[0] == pytest.approx(b[0])
        assert a[1] == b[1]


def test_p_values_are_adjusted_over_all_pairs():
    pairs = judge_pairs(made([0.3, 0.1, 0.0], 0.1))
    alone = 2 * scipy.stats.t.sf([3.0, 2.0, 1.0], 60)
    assert [p.p for p in pairs] == pytest.approx([3 * alone[0], 2 * alone[1], alone[2]])


def test_critical_value_of_two_methods_is_students():
    assert critical_value(2, 30, 0.05) == pytest.approx(scipy.stats.t.ppf(0.975, 30))
    assert critical_value(3, 30, 0.05) > critical_value(2, 30, 0.05)


def test_constructed_data_have_all_three_verdicts():
    rng = np.random.default_rng(0)
    tasks, n = 14, 4
    values = np.array([2.0, 0.02, 0.0, -0.12])[:, None] + 0.06 * rng.normal(size=(n, tasks))
    names = tuple(f"t{i}" for i in range(tasks))
    cells = TaskCells(
        ("best", "one", "two", "near"), names, ("q",) * tasks, ("f",) * tasks,
        dict.fromkeys(names, "s"), values + rng.normal(size=tasks),
    )  # fmt: skip
    verdicts = {frozenset((p.first, p.second)): p for p in judge_pairs(fit_mixed_model(cells))}
    assert verdicts[frozenset(("best", "one"))].verdict == "better"
    assert verdicts[frozenset(("best", "one"))].wins > 0.99
    assert verdicts[frozenset(("one", "two"))].verdict == "equivalent"


def test_margin_is_checked():
    with pytest.raises(InputError, match="`margin`"):
        judge_pairs(made([0.0, 1.0], 0.1), margin=-1)
