"""What all rules share: unanimity, relabelling, weights, clones, missing scores, errors."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from assay.aggregation.rank_rules import RULES, merge, order_of
from assay.aggregation.wins import count_wins
from assay.errors import InputError

ALL = sorted(RULES)
CIRCLE = np.array([[3.0, 2, 1], [1, 3, 2], [2, 1, 3]])  # a > b > c, b > c > a, c > a > b
MAJORITY = ["copeland", "kemeny", "ranked_pairs", "schulze"]


def random_scores(seed, shape=(6, 6), ties=True, missing=False):
    generator = np.random.default_rng(seed)
    scores = generator.normal(size=shape)
    scores = np.round(2 * scores) if ties else scores
    if missing:
        scores[generator.random(shape) < 0.25] = np.nan
        scores[0] = np.arange(shape[1])
    return scores


def profiles(most_settings=6, most_methods=6):
    shapes = st.tuples(st.integers(1, most_settings), st.integers(2, most_methods))
    values = st.integers(0, 3).map(float)
    return shapes.flatmap(lambda shape: arrays(np.float64, shape, elements=values))


def same(one, other):
    np.testing.assert_allclose(one.strength, other.strength, atol=1e-8)
    assert one.undecided == other.undecided


def test_every_rule_says_what_it_is():
    for rule in RULES.values():
        line = rule.__doc__.splitlines()[0]
        assert line.endswith(".")
        assert len(line.split()) <= 25


@pytest.mark.parametrize("rule", ALL)
class TestEveryRule:
    def test_unanimous_settings_keep_their_order(self, rule):
        order = np.random.default_rng(0).permutation(7)
        merged = merge(rule, np.tile(-np.argsort(order), (5, 1)))
        assert order_of(merged.strength) == [[method] for method in order.tolist()]
        assert (merged.undecided, merged.gap, merged.note) == ((), 0.0, "")

    def test_a_circle_ties_all(self, rule):
        merged = merge(rule, CIRCLE)
        assert order_of(merged.strength) == [[0, 1, 2]]
        assert merged.undecided in [(), ((0, 1), (0, 2), (1, 2))]

    @pytest.mark.parametrize("missing", [False, True])
    def test_relabelling_permutes_strengths(self, rule, missing):
        for seed in range(10):
            scores = random_scores(seed, missing=missing)
            labels = np.random.default_rng(seed).permutation(6)
            one, other = merge(rule, scores), merge(rule, scores[:, labels])
            np.testing.assert_allclose(one.strength[labels], other.strength, atol=1e-8)
            back = {tuple(sorted(labels[list(pair)].tolist())) for pair in other.undecided}
            assert back == set(one.undecided)

    def test_the_order_of_settings_has_no_influence(self, rule):
        for seed in range(10):
            scores = random_scores(seed, missing=True)
            weights = np.random.default_rng(seed).integers(1, 4, 6) / 3
            order = np.random.default_rng(seed).permutation(6)
            same(merge(rule, scores, weights), merge(rule, scores[order], weights[order]))

    def test_whole_weights_repeat_settings(self, rule):
        for seed in range(10):
            scores = random_scores(seed, missing=True)
            times = np.random.default_rng(seed).integers(1, 4, 6)
            same(merge(rule, scores, times), merge(rule, np.repeat(scores, times, axis=0)))

    def test_a_clone_shares_the_place_of_its_original(self, rule):
        for seed in range(10):
            scores = random_scores(seed, missing=True)
            strength = merge(rule, np.column_stack([scores, scores[:, 2]])).strength
            assert any({2, 6} <= set(group) for group in order_of(strength))

    def test_any_growing_function_of_scores_gives_the_same(self, rule):
        scores = random_scores(1, missing=True)
        same(merge(rule, scores), merge(rule, np.exp(scores) + np.arange(6)[:, None]))

    def test_settings_with_one_score_contribute_nothing(self, rule):
        scores = random_scores(2)
        lonely = np.full((2, 6), np.nan)
        lonely[1, 3] = 9.0
        same(merge(rule, scores), merge(rule, np.concatenate([lonely, scores])))

    def test_a_method_never_compared_has_no_strength(self, rule):
        scores = np.insert(random_scores(3), 1, np.nan, axis=1)
        scores = np.concatenate([scores, np.full((1, 7), np.nan)])
        scores[-1, 1] = 1.0
        merged, without = merge(rule, scores), merge(rule, random_scores(3))
        assert np.isnan(merged.strength[1])
        np.testing.assert_allclose(np.delete(merged.strength, 1), without.strength, atol=1e-9)
        assert not any(1 in pair for pair in merged.undecided)
        assert not any(1 in group for group in order_of(merged.strength))

    def test_methods_without_a_chain_of_settings_are_undecided(self, rule):
        nan = np.nan
        merged = merge(rule, [[2, 1, nan, nan], [nan, nan, 2, 1]])
        assert merged.undecided == ((0, 2), (0, 3), (1, 2), (1, 3))
        assert merged.note == "No chain of settings compares some of the methods."
        assert merged.strength[0] > merged.strength[1]
        assert merged.strength[2] > merged.strength[3]

    def test_two_methods(self, rule):
        assert order_of(merge(rule, [[1, 2], [1, 2], [2, 1]]).strength) == [[1], [0]]
        assert order_of(merge(rule, [[1, 2], [2, 1]]).strength) == [[0, 1]]
        assert order_of(merge(rule, [[1, 2], [2, 1]], [2, 1]).strength) == [[1], [0]]

    def test_infinite_scores_are_scores(self, rule):
        same(merge(rule, [[np.inf, 1, -np.inf], [2, 1, 0]]), merge(rule, [[2, 1, 0], [2, 1, 0]]))

    @pytest.mark.parametrize(
        ("scores", "weights", "message"),
        [
            ([1.0, 2.0], None, r"\[settings, methods\], got shape \(2,\)"),
            ([[1.0], [2.0]], None, "at least two methods, got 1"),
            (np.full((2, 3), np.nan), None, "all are missing"),
            ([[1, np.nan], [np.nan, 1]], None, "at least two methods, got none"),
            ([[1, 2]], [1, 1], r"each of the 1 settings, got shape \(2,\)"),
            ([[1, 2], [2, 1]], [1, 0], "weights above 0"),
            ([[1, 2], [2, 1]], [1, np.nan], "weights above 0"),
        ],
    )
    def test_wrong_input_is_named(self, rule, scores, weights, message):
        with pytest.raises(InputError, match=message):
            merge(rule, scores, weights)


@pytest.mark.parametrize("rule", [*MAJORITY, "borda"])
def test_the_unit_of_weights_has_no_influence(rule):
    """Rounding errors of 0.1 + 0.2 make or break no tie."""
    for seed in range(40):
        scores = random_scores(seed, missing=True)
        weights = np.random.default_rng(seed).integers(1, 4, 6)
        same(merge(rule, scores, weights), merge(rule, scores, weights / 10))


def test_an_unknown_rule_lists_all():
    with pytest.raises(InputError, match=r"Unknown rule `bord`. Did you mean `borda`.*schulze"):
        merge("bord", [[1, 2]])


@pytest.mark.parametrize("rule", MAJORITY)
@settings(max_examples=60, deadline=None)
@given(scores=profiles())
def test_a_method_that_beats_all_is_first(rule, scores):
    wins = count_wins(scores, np.ones(len(scores)))
    winners = np.flatnonzero((wins > wins.T).sum(axis=1) == len(wins) - 1)
    losers = np.flatnonzero((wins > wins.T).sum(axis=0) == len(wins) - 1)
    order = order_of(merge(rule, scores).strength)
    for winner in winners:
        assert order[0] == [winner]
    for loser in losers:
        assert order[-1] == [loser]


@pytest.mark.parametrize("rule", ALL)
@settings(max_examples=25, deadline=None)
@given(scores=profiles())
def test_reversed_scores_and_unanimous_pairs(rule, scores):
    """A method above another one in all settings is never below; most rules can be reversed."""
    merged = merge(rule, scores)
    assert merged.note == ""
    for p, q in np.argwhere((scores[:, :, None] > scores[:, None, :]).all(axis=0)):
        assert merged.strength[p] > merged.strength[q] - 1e-9
    if rule != "plackett_luce":
        back = merge(rule, -scores).strength
        centre = back + merged.strength
        np.testing.assert_allclose(centre, centre[0], atol=1e-8)


def test_schulze_on_a_published_election():
    """Schulze's example of 45 voters: E beats A, C, B and D, in this order."""
    votes = {
        "ACBED": 5, "ADECB": 5, "BEDAC": 8, "CABED": 3,
        "CAEBD": 7, "CBADE": 2, "DCEBA": 7, "EBADC": 8,
    }  # fmt: skip
    scores = [[-vote.index(name) for name in "ABCDE"] for vote in votes]
    merged = merge("schulze", scores, list(votes.values()))
    assert order_of(merged.strength) == [[4], [0], [2], [1], [3]]


def test_ranked_pairs_on_a_published_election():
    """Tennessee chooses a capital: Nashville, Chattanooga, Knoxville, Memphis."""
    scores = [[4, 3, 2, 1], [1, 4, 3, 2], [1, 2, 4, 3], [1, 2, 3, 4]]  # M, N, C, K
    merged = merge("ranked_pairs", scores, [42, 26, 15, 17])
    assert order_of(merged.strength) == [[1], [2], [3], [0]]


def test_ranked_pairs_drops_the_weakest_majority_of_a_circle():
    merged = merge("ranked_pairs", CIRCLE, [4, 3, 2])  # a > b by 3, b > c by 5, c > a by 1
    assert order_of(merged.strength) == [[0], [1], [2]]
    assert merged.undecided == ()


def test_ranked_pairs_leaves_equal_majorities_of_a_circle_undecided():
    """The circle a, b, c stays open; all of it is above d."""
    merged = merge("ranked_pairs", np.column_stack([CIRCLE, np.zeros(3)]))
    assert merged.undecided == ((0, 1), (0, 2), (1, 2))
    assert order_of(merged.strength) == [[0, 1, 2], [3]]


def test_borda_and_copeland_are_shares():
    scores = [[3, 2, 1, np.nan], [2, 2, np.nan, 1]]
    assert merge("borda", scores).strength.tolist() == [0.875, 0.625, 0.0, 0.0]
    assert merge("borda", scores, [3, 1]).strength.tolist() == [0.9375, 0.5625, 0.0, 0.0]
    assert merge("copeland", scores).strength.tolist() == [1.0, 2 / 3, 0.0, 0.0]


def test_order_of_groups_equal_strengths():
    assert order_of([0.5, np.nan, 1.0, 0.5 + 1e-12, 1.0]) == [[2, 4], [0, 3]]
    assert order_of([1e9, 1e9 + 0.5, 0]) == [[0, 1], [2]]
    assert order_of([np.nan, np.nan]) == []


def test_ties_count_half():
    wins = count_wins(np.array([[1.0, 1, 0], [np.nan, 2, 2]]), np.array([1.0, 0.5]))
    assert wins.tolist() == [[0, 0.5, 1], [0.5, 0, 1.25], [0, 0.25, 0]]
