"""Tests over settings against SciPy, scikit-posthocs, published values; and the diagram."""

import itertools
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
import scipy

from assay.aggregation.critical_difference import critical_difference_svg, joined_runs
from assay.aggregation.rank_tests import (
    adjusted_by_holm,
    critical_distance,
    friedman,
    nemenyi,
    sign_test_holm,
    wilcoxon_holm,
)
from assay.errors import InputError


def simulated(settings=12, methods=6, seed=0, ties=False):
    generator = np.random.default_rng(seed)
    scores = generator.normal(size=(settings, methods)) + 0.5 * np.arange(methods)
    return np.round(scores) if ties else scores


@pytest.mark.parametrize("ties", [False, True])
def test_friedman_is_that_of_scipy(ties):
    scores = simulated(ties=ties)
    mine = friedman(scores)
    other = scipy.stats.friedmanchisquare(*scores.T)
    assert mine.statistic == pytest.approx(other.statistic)
    assert mine.p == pytest.approx(other.pvalue)
    assert mine.mean_ranks == pytest.approx(scipy.stats.rankdata(-scores, axis=1).mean(axis=0))


def test_iman_davenport_is_the_two_way_f_of_ranks():
    scores = simulated()
    ranks = scipy.stats.rankdata(-scores, axis=1)
    rest = ranks - ranks.mean(axis=0) - ranks.mean(axis=1, keepdims=True) + ranks.mean()
    between = len(ranks) * np.square(ranks.mean(axis=0) - ranks.mean()).sum() / 5
    f = between / (np.square(rest).sum() / (5 * 11))
    mine = friedman(scores)
    assert mine.f == pytest.approx(f)
    assert mine.f_degrees == (5, 55)
    assert mine.f_p == pytest.approx(scipy.stats.f.sf(f, 5, 55))


def test_one_order_everywhere_and_only_ties():
    same = friedman(np.tile([1.0, 2, 3], (4, 1)))
    assert (same.statistic, same.f, same.f_p) == (pytest.approx(8), np.inf, 0)
    assert np.isnan(friedman(np.ones((3, 3))).statistic)


def test_incomplete_settings_are_left_out():
    scores = simulated()
    holed = scores.copy()
    holed[[2, 5], [1, 0]] = np.nan
    mine = friedman(holed)
    assert (mine.settings, mine.left_out) == (10, 2)
    assert mine.statistic == friedman(np.delete(scores, [2, 5], axis=0)).statistic
    assert nemenyi(holed).left_out == 2


@pytest.mark.parametrize("test", [friedman, nemenyi, wilcoxon_holm, sign_test_holm])
@pytest.mark.parametrize(
    "scores",
    [np.ones((1, 4)), np.ones((4, 1)), np.ones(4), np.array([[1, np.inf], [1, 2]])],
)
def test_too_little_or_infinite_is_an_error(test, scores):
    with pytest.raises(InputError, match="Expected"):
        test(scores)


def test_published_critical_values():
    assert critical_distance(8, 26) == pytest.approx(2.06, abs=0.005)
    assert critical_distance(8, 13) == pytest.approx(2.91, abs=0.005)
    q = critical_distance(8, 26) / np.sqrt(8 * 9 / (6 * 26))
    assert q == pytest.approx(3.031, abs=0.0005)


@pytest.mark.parametrize("ties", [False, True])
def test_nemenyi_is_that_of_scikit_posthocs(ties):
    posthocs = pytest.importorskip("scikit_posthocs")
    scores = simulated(ties=ties)
    mine, other = nemenyi(scores), posthocs.posthoc_nemenyi_friedman(scores).to_numpy()
    off = ~np.eye(6, dtype=bool)
    assert mine.p[off] == pytest.approx(other[off], abs=1e-6)
    assert (mine.apart[off] == (other[off] <= 0.05)).all()


def test_wilcoxon_holm_is_that_of_scikit_posthocs():
    posthocs = pytest.importorskip("scikit_posthocs")
    scores = simulated()
    mine = wilcoxon_holm(scores)
    other = posthocs.posthoc_wilcoxon(list(scores.T), p_adjust="holm").to_numpy()
    off = ~np.eye(6, dtype=bool)
    assert mine.adjusted[off] == pytest.approx(other[off])


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_wilcoxon_is_exact_over_all_signs_of_differences(ties, seed):
    scores = simulated(settings=9, methods=2, ties=ties, seed=seed)
    difference = scores[:, 0] - scores[:, 1]
    difference = difference[difference != 0]
    ranks = scipy.stats.rankdata(np.abs(difference))
    signs = np.array(list(itertools.product([-1, 1], repeat=len(ranks))))
    p = (np.abs(signs @ ranks) >= abs(np.sign(difference) @ ranks) - 1e-9).mean()
    assert wilcoxon_holm(scores).p[0, 1] == pytest.approx(p)


@pytest.mark.parametrize("settings", [20, 50, 51, 104])
def test_wilcoxon_is_that_of_scipy(settings):
    scores = simulated(settings=settings, methods=3)
    mine = wilcoxon_holm(scores)
    for a, b in [(0, 1), (0, 2), (1, 2)]:
        expected = scipy.stats.wilcoxon(scores[:, a], scores[:, b]).pvalue
        assert mine.p[a, b] == pytest.approx(expected)


def test_pairs_count_the_settings_that_have_both():
    scores = simulated(settings=9, methods=4)
    scores[:3, 0], scores[:, 3] = np.nan, np.nan
    mine = wilcoxon_holm(scores)
    assert mine.settings[0].tolist() == [6, 6, 6, 0]
    expected = scipy.stats.wilcoxon(scores[3:, 0] - scores[3:, 1]).pvalue
    assert mine.p[0, 1] == pytest.approx(expected)
    assert np.isnan(mine.p[:, 3]).all()
    assert not mine.apart()[:, 3].any()
    assert mine.adjusted[1, 2] >= mine.p[1, 2]  # over 3 pairs, not 6
    assert np.nanmax(mine.adjusted / mine.p) <= 3 + 1e-9


def test_equal_methods_are_never_apart():
    scores = simulated(methods=3)
    scores[:, 1] = scores[:, 0] * (1 + 1e-9)
    assert wilcoxon_holm(scores).p[0, 1] == 1
    signs = sign_test_holm(scores)
    assert signs.p[0, 1] == 1
    assert np.isnan([signs.share[0, 1], signs.low[0, 1], signs.high[0, 1]]).all()


def test_holm_is_its_definition():
    p = np.array([0.03, np.nan, 0.01, 0.02, 0.9])
    expected = [0.06, np.nan, 0.04, 0.06, 0.9]
    assert adjusted_by_holm(p) == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("ties", [False, True])
def test_sign_test_is_that_of_scipy(ties):
    scores = simulated(ties=ties)
    mine = sign_test_holm(scores, level=0.9)
    for a, b in [(0, 5), (5, 0), (2, 3)]:
        wins, losses = (scores[:, a] > scores[:, b]).sum(), (scores[:, a] < scores[:, b]).sum()
        other = scipy.stats.binomtest(int(wins), int(wins + losses))
        assert mine.wins[a, b] == wins
        assert mine.p[a, b] == pytest.approx(other.pvalue)
        ends = other.proportion_ci(0.9, "exact")
        assert (mine.low[a, b], mine.high[a, b]) == pytest.approx((ends.low, ends.high))
    assert mine.share + mine.share.T == pytest.approx(np.where(np.eye(6), np.nan, 1), nan_ok=True)


def test_runs_are_the_longest_without_a_separated_pair():
    apart = np.abs(np.subtract.outer([1, 2, 2.5, 4, 6], [1, 2, 2.5, 4, 6])) >= 1.9
    assert joined_runs(apart) == [(0, 2), (2, 3)]
    generator = np.random.default_rng(1)
    for _ in range(50):
        apart = np.triu(generator.random((7, 7)) < 0.3, 1)
        apart |= apart.T
        clear = [
            (a, b)
            for a in range(7)
            for b in range(a + 1, 7)
            if not apart[a : b + 1, a : b + 1].any()
        ]
        inside = {r for r in clear for o in clear if o != r and o[0] <= r[0] and r[1] <= o[1]}
        assert joined_runs(apart) == [run for run in clear if run not in inside]


@pytest.mark.parametrize("methods", [2, 8, 40])
def test_diagram_is_well_formed_and_names_do_not_meet(methods):
    scores = simulated(settings=26, methods=methods, seed=3)
    test = nemenyi(scores)
    names = [f"method <{i}> & more" for i in range(methods)]
    svg = critical_difference_svg(names, test.mean_ranks, test.apart, distance=test.distance)
    root = ET.fromstring(svg)
    texts = [e for e in root.iter() if e.tag.endswith("text")]
    leaves = [e for e in texts if (e.text or "").startswith("method <")]
    assert len(leaves) == methods
    for anchor in ("start", "end"):
        rows = sorted(float(e.get("y")) for e in leaves if e.get("text-anchor") == anchor)
        assert min(np.diff(rows), default=20) >= 15
    numbers = [float(v) for v in re.findall(r' (?:x|x1|x2)="([-\d.]+)"', svg)]
    assert min(numbers) >= 0
    assert max(numbers) <= float(root.get("viewBox").split()[2])


def test_diagram_counts_pairs_that_no_bar_joins():
    apart = np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]], bool)
    svg = critical_difference_svg(["a", "b", "c"], [1, 2, 3], apart)
    assert "1 more pair is not separated" in svg
    assert "more pair" not in critical_difference_svg(["a", "b"], [1, 2], apart[1:, 1:])


def test_diagram_refuses_what_does_not_fit():
    with pytest.raises(InputError, match="symmetric"):
        critical_difference_svg(["a", "b"], [1, 2], [[False, True], [False, False]])
    with pytest.raises(InputError, match="finite mean ranks"):
        critical_difference_svg(["a", "b"], [1, np.nan], np.zeros((2, 2)))
    with pytest.raises(InputError, match="at least 2 methods"):
        critical_difference_svg(["a"], [1], np.zeros((1, 1)))
