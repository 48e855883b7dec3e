"""Kemeny's rule: cost and undecided pairs as a search over all subsets of methods finds them."""

import time

import numpy as np
import pytest
import scipy
from benchmarks.kemeny import mallows

from assay.aggregation.kemeny import best_order, disagreement, kemeny
from assay.aggregation.linear_order import LinearOrder
from assay.aggregation.wins import count_wins


def lowest_costs(wins):
    """The lowest cost, and the lowest cost of an order with p before q [n, n], by subsets.

    `head[A]` is the lowest cost among the members of A, `tail[A]` among the others. An order has p
    before q if one of its beginnings holds p and not q.
    """
    n = len(wins)
    subsets = np.arange(1 << n)
    member = (subsets[:, None] >> np.arange(n)) & 1 == 1  # [2^n, n]
    against = member @ wins.T  # [2^n, n], cost of a method after all members
    flipped = subsets[:, None] ^ (1 << np.arange(n))  # [2^n, n], without or with one method
    head, tail = np.zeros(1 << n), np.zeros(1 << n)
    for size in range(1, n + 1):
        level = member.sum(axis=1) == size
        cost = np.where(member, head[flipped] + against, np.inf)
        head[level] = cost[level].min(axis=1)
    for size in range(n - 1, -1, -1):
        level = member.sum(axis=1) == size
        cost = np.where(member, np.inf, tail[flipped] + against)
        tail[level] = cost[level].min(axis=1)
    total = head + tail
    pairs = np.full((n, n), np.inf)
    for p in range(n):
        for q in range(n):
            if p != q:
                pairs[p, q] = total[member[:, p] & ~member[:, q]].min()
    return head[-1], pairs


def random_scores(generator, kind):
    n = int(generator.integers(2, 11))
    settings = int(generator.integers(1, 9))
    scores = generator.normal(size=(settings, n))
    if kind in {"ties", "both"}:
        scores = np.round(scores)
    if kind in {"missing", "both"}:
        scores[generator.random(scores.shape) < 0.3] = np.nan
    return scores


@pytest.mark.parametrize("kind", ["plain", "ties", "missing", "both"])
def test_cost_and_undecided_pairs_equal_the_subset_search(kind):
    generator = np.random.default_rng(["plain", "ties", "missing", "both"].index(kind))
    for trial in range(47):
        scores = random_scores(generator, kind)
        weights = np.ones(len(scores)) if trial % 2 else generator.integers(1, 4, len(scores)) / 3
        check(count_wins(scores, weights))


@pytest.mark.parametrize("seed", range(12))
def test_twelve_methods(seed):
    generator = np.random.default_rng(seed)
    scores = generator.normal(size=(4 + seed % 5, 8 + seed % 5))
    check(count_wins(scores if seed % 2 else np.round(scores), np.ones(len(scores))))


def check(wins):
    lowest, pairs = lowest_costs(wins)
    best = best_order(wins)
    assert best.checked
    assert best.cost == pytest.approx(lowest, abs=1e-9)
    assert best.bound == pytest.approx(lowest, abs=1e-3)
    assert best.cost == disagreement(wins, best.order)
    np.testing.assert_array_equal(
        best.undecided, (pairs < lowest + 1e-9) & (lowest + 1e-9 > pairs.T)
    )


def test_integer_programs_are_needed_and_right(monkeypatch):
    """The linear relaxation leaves a gap here, so that integer programs decide."""
    solved = []
    milp = scipy.optimize.milp
    monkeypatch.setattr(scipy.optimize, "milp", lambda *a, **k: solved.append(1) or milp(*a, **k))
    scores = np.random.default_rng(108).normal(size=(5, 12))
    wins = count_wins(scores, np.ones(5))
    problem = LinearOrder(wins - wins.T, time.monotonic() + 30)
    problem.solve()
    assert solved
    assert problem.solved
    check(wins)


def test_layers_cost_nothing(monkeypatch):
    """Without circles of majorities no program is solved."""
    monkeypatch.setattr(scipy.optimize, "linprog", None)
    scores = mallows(np.random.default_rng(0), 60, 25, 0.2)
    merged = kemeny(scores, np.ones(25))
    assert (merged.undecided, merged.gap, merged.note) == ((), 0.0, "")
    assert np.array_equal(np.sort(merged.strength), np.arange(60))


def test_without_undecided_pairs_the_strengths_are_a_best_order():
    scores = np.random.default_rng(3).normal(size=(7, 8))
    wins = count_wins(scores, np.ones(7))
    merged = kemeny(scores, np.ones(7))
    assert merged.undecided == ()
    order = np.argsort(-merged.strength)
    assert disagreement(wins, order) == lowest_costs(wins)[0]


def test_decided_pairs_are_ordered_by_strength():
    generator = np.random.default_rng(5)
    for _ in range(20):
        scores = np.round(generator.normal(size=(4, 7)))
        best = best_order(count_wins(scores, np.ones(4)))
        strength = kemeny(scores, np.ones(4)).strength
        for place, better in enumerate(best.order):
            for worse in best.order[place + 1 :]:
                assert best.undecided[better, worse] or strength[better] > strength[worse]


def test_one_erratic_setting_does_not_tie_all():
    """Two settings disagree on one method only: the others keep their order."""
    merged = kemeny(np.array([[4.0, 3, 2, 1], [3, 2, 1, 4]]), np.ones(2))
    assert merged.undecided == ((0, 3), (1, 3), (2, 3))
    assert merged.strength.tolist() == [2.5, 1.5, 0.5, 1.5]


@pytest.mark.parametrize("seconds", [0, 0.05])
def test_without_time_the_gap_is_reported(seconds):
    scores = mallows(np.random.default_rng(1), 40, 5, 0.97)
    wins = count_wins(scores, np.ones(5))
    merged = kemeny(scores, np.ones(5), seconds=seconds)
    best = best_order(wins, seconds=seconds)
    assert 0 < merged.gap < 0.2
    assert best.bound <= 1341 <= best.cost  # 1341 is the lowest cost
    assert "not proven" in merged.note


def test_forty_methods_take_seconds():
    best = best_order(count_wins(mallows(np.random.default_rng(0), 40, 30, 0.9), np.ones(30)))
    assert best.checked
    assert best.bound == best.cost == 6321
