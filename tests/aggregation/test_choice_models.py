"""Fitted strengths: as `choix` fits them, and as small cases can be solved by hand."""

import itertools
import math

import numpy as np
import pytest
import scipy

from assay.aggregation.choice_models import bradley_terry, metarank, plackett_luce
from assay.aggregation.wins import count_wins
from assay.errors import InputError


def choix():
    return pytest.importorskip("choix", reason="choix, the reference, is not installed")


def scores_of(seed, settings=25, methods=7):
    generator = np.random.default_rng(seed)
    return generator.normal(size=methods) + 1.5 * generator.normal(size=(settings, methods))


def rankings(scores):
    return [tuple(np.argsort(-row)) for row in scores]


@pytest.mark.parametrize("seed", range(3))
def test_bradley_terry_equals_choix(seed):
    scores = scores_of(seed)
    pairs = [pair for ranking in rankings(scores) for pair in itertools.combinations(ranking, 2)]
    strength = bradley_terry(scores, np.ones(25), ridge=0).strength
    np.testing.assert_allclose(
        strength, choix().opt_pairwise(7, pairs, method="Newton-CG", tol=1e-12), atol=1e-6
    )


@pytest.mark.parametrize("seed", range(3))
def test_the_ridge_equals_choix(seed):
    """Its `alpha` multiplies the sum of squares, ours half of it."""
    scores = scores_of(seed, settings=4)
    pairs = [pair for ranking in rankings(scores) for pair in itertools.combinations(ranking, 2)]
    reference = choix().opt_pairwise(7, pairs, alpha=0.005, method="Newton-CG", tol=1e-12)
    np.testing.assert_allclose(bradley_terry(scores, np.ones(4)).strength, reference, atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_plackett_luce_equals_choix(seed):
    scores = scores_of(seed)
    strength = plackett_luce(scores, np.ones(25), ridge=0).strength
    for fit in (choix().opt_rankings, choix().ilsr_rankings):
        np.testing.assert_allclose(strength, fit(7, rankings(scores)), atol=1e-4)


def test_plackett_luce_of_partial_rankings_equals_choix():
    scores = scores_of(9, settings=60)
    scores[np.random.default_rng(9).random(scores.shape) < 0.3] = np.nan
    partial = [tuple(np.argsort(-row)[: (~np.isnan(row)).sum()]) for row in scores]
    strength = plackett_luce(scores, np.ones(60), ridge=0).strength
    reference = choix().ilsr_rankings(7, [ranking for ranking in partial if len(ranking) > 1])
    np.testing.assert_allclose(strength, reference, atol=1e-6)


def test_two_methods_have_the_log_odds():
    scores = np.array([[1.0, 0]] * 3 + [[0.0, 1]] + [[1.0, 1]] * 2)  # 3 wins, 1 loss, 2 ties
    for rule in (bradley_terry, plackett_luce):
        strength = rule(scores, np.ones(6), ridge=0).strength
        assert strength[0] - strength[1] == pytest.approx(math.log(4 / 2))
    strength = metarank(scores, np.ones(6)).strength
    assert strength[0] - strength[1] == pytest.approx(math.log(4.5 / 2.5))


def test_a_tie_of_two_methods_is_the_mean_of_both_orders():
    scores = scores_of(4, settings=6)
    tied, first, second = scores.copy(), scores.copy(), scores.copy()
    best, next_best = np.argsort(-scores[0])[[2, 3]]
    tied[0, best] = tied[0, next_best]
    first[0, best], second[0, best] = scores[0, next_best] + 1e-9, scores[0, next_best] - 1e-9
    both = np.concatenate([first[:1], second[:1], scores[1:]])
    np.testing.assert_allclose(
        plackett_luce(tied, np.ones(6)).strength,
        plackett_luce(both, np.array([0.5, 0.5, 1, 1, 1, 1, 1])).strength,
        atol=1e-9,
    )


def test_a_tie_of_many_methods_is_near_the_mean_of_all_orders():
    scores = scores_of(4, settings=8)
    tied = scores.copy()
    members = np.argsort(-scores[0])[2:6]
    tied[0, members] = scores[0, members].mean()
    rows = []
    for order in itertools.permutations(range(4)):
        rows.append(tied[0].copy())
        rows[-1][members] += 1e-9 * np.array(order)
    weights = np.concatenate([np.full(24, 1 / 24), np.ones(7)])
    mean = plackett_luce(np.concatenate([rows, scores[1:]]), weights).strength
    np.testing.assert_allclose(plackett_luce(tied, np.ones(8)).strength, mean, atol=0.05)


def test_the_fit_is_a_maximum():
    scores = np.round(scores_of(2, settings=6))
    strength = bradley_terry(scores, np.ones(6)).strength
    wins = count_wins(scores, np.ones(6))

    def value(k):
        likelihood = (wins * scipy.special.log_expit(k[:, None] - k)).sum()
        return likelihood - 0.005 * k @ k

    for step in 1e-3 * np.eye(7):
        assert value(strength) > max(value(strength + step), value(strength - step))


def test_metarank_is_the_mean_log_odds_of_complete_rankings():
    scores = scores_of(0, settings=26, methods=8)
    wins = count_wins(scores, np.ones(26))
    odds = scipy.special.logit((wins + 0.5) / 27)
    np.fill_diagonal(odds, 0)
    np.testing.assert_allclose(metarank(scores, np.ones(26)).strength, odds.mean(axis=1))


def test_metarank_is_a_least_squares_fit():
    scores = scores_of(1, settings=9)
    scores[np.random.default_rng(1).random(scores.shape) < 0.4] = np.nan
    wins = count_wins(scores, np.ones(9))
    total = wins + wins.T
    p, q = np.nonzero(np.triu(total))
    lines = np.zeros((len(p) + 1, 7))
    lines[range(len(p)), p], lines[range(len(p)), q], lines[-1] = 1, -1, 1
    odds = scipy.special.logit((wins[p, q] + 0.5) / (total[p, q] + 1))
    root = np.sqrt(np.append(total[p, q], 1))
    reference = np.linalg.lstsq(lines * root[:, None], np.append(odds, 0) * root)[0]
    np.testing.assert_allclose(metarank(scores, np.ones(9)).strength, reference, atol=1e-10)


@pytest.mark.parametrize("rule", [bradley_terry, plackett_luce])
def test_without_ridge_the_fit_must_exist(rule):
    scores = np.array([[3.0, 2, 1], [3, 1, 2]])
    with pytest.raises(InputError, match=r"chains of wins.*ridge above 0"):
        rule(scores, np.ones(2), ridge=0)
    with pytest.raises(InputError, match="at least 0, got -1"):
        rule(scores, np.ones(2), ridge=-1)
    assert np.argmax(rule(scores, np.ones(2)).strength) == 0


@pytest.mark.parametrize("rule", [bradley_terry, plackett_luce])
def test_extreme_profiles_converge(rule):
    for settings in (1, 30, 300):
        merged = rule(np.tile(np.arange(20.0), (settings, 1)), np.ones(settings))
        assert merged.note == ""
        assert (np.diff(merged.strength) > 0.01).all()
