"""Agreement of settings against SciPy, the `krippendorff` package, identities and definitions."""

import itertools

import numpy as np
import pytest
import scipy

from assay.aggregation.rank_tests import friedman
from assay.aggregation.setting_agreement import (
    cluster_settings,
    common_methods,
    concordance,
    krippendorff_alpha,
    spearman_matrix,
    tau_matrix,
    winner_flips,
)
from assay.aggregation.setting_orders import ascending_ranks
from assay.errors import InputError


def simulated(settings=6, methods=8, seed=0, ties=False, missing=0.0):
    generator = np.random.default_rng(seed)
    scores = generator.normal(size=(settings, methods)) + 0.3 * np.arange(methods)
    scores = np.round(scores) if ties else scores
    scores[generator.random(scores.shape) < missing] = np.nan
    return scores


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_correlations_are_those_of_scipy_on_common_methods(ties, missing):
    scores = simulated(ties=ties, missing=missing)
    tau, rho, common = tau_matrix(scores), spearman_matrix(scores), common_methods(scores)
    for s, t in itertools.product(range(6), repeat=2):
        both = ~np.isnan(scores[s]) & ~np.isnan(scores[t])
        assert common[s, t] == both.sum()
        if both.sum() < 3:
            assert np.isnan([tau[s, t], rho[s, t]]).all()
            continue
        pair = scores[s, both], scores[t, both]
        expected = scipy.stats.kendalltau(*pair).statistic, scipy.stats.spearmanr(*pair).statistic
        assert (tau[s, t], rho[s, t]) == pytest.approx(expected, nan_ok=True)


def test_few_common_methods_and_ties_are_not_measured():
    scores = np.array([[1, 2, np.nan, np.nan], [1, 3, 4, np.nan], [5, 5, 5, 5]], float)
    assert np.isnan(tau_matrix(scores)[0, 1])
    assert tau_matrix(scores, fewest=2)[0, 1] == pytest.approx(1)
    assert np.isnan(tau_matrix(scores)[2]).all()
    assert np.isnan(spearman_matrix(scores)[2]).all()


def test_clusters_find_two_kinds_of_settings():
    generator = np.random.default_rng(0)
    kind = np.array([0, 1, 0, 1, 1, 0])
    scores = generator.normal(size=(2, 12))[kind] + 0.1 * generator.normal(size=(6, 12))
    clusters = cluster_settings(tau_matrix(scores))
    assert sorted(clusters.order) == list(range(6))
    ordered = kind[clusters.order]
    assert (np.diff(ordered) != 0).sum() == 1
    cut = scipy.cluster.hierarchy.fcluster(clusters.linkage, 2, "maxclust")
    assert len({(a, b) for a, b in zip(kind, cut, strict=True)}) == 2
    with pytest.raises(InputError, match="symmetric"):
        cluster_settings([[1, 0.5], [0.2, 1]])
    assert len(cluster_settings([[1, np.nan], [np.nan, 1]]).order) == 2


@pytest.mark.parametrize("ties", [False, True])
def test_w_is_friedman_and_mean_rho(ties):
    scores = simulated(ties=ties)
    mine, test = concordance(scores), friedman(scores)
    assert test.statistic == pytest.approx(6 * 7 * mine.w)
    rho = [scipy.stats.spearmanr(*pair).statistic for pair in itertools.combinations(scores, 2)]
    assert mine.mean_rho == pytest.approx(np.mean(rho))
    if not ties:
        assert mine.mean_rho == pytest.approx((6 * mine.w - 1) / 5)


def test_w_is_the_published_formula_with_ties():
    scores = simulated(ties=True, methods=5)
    ranks = scipy.stats.rankdata(scores, axis=1)
    tied = sum((c**3 - c).sum() for c in (np.unique(row, return_counts=True)[1] for row in scores))
    deviation = np.square(ranks.sum(axis=0) - 6 * 6 / 2).sum()
    assert concordance(scores).w == pytest.approx(12 * deviation / (36 * (125 - 5) - 6 * tied))


@pytest.mark.parametrize("metric", ["ordinal", "interval"])
@pytest.mark.parametrize("missing", [0.0, 0.4])
@pytest.mark.parametrize("seed", range(4))
def test_alpha_is_that_of_the_package(metric, missing, seed):
    krippendorff = pytest.importorskip("krippendorff")
    values = simulated(settings=4, ties=True, missing=missing, seed=seed)
    expected = krippendorff.alpha(values, level_of_measurement=metric)
    assert krippendorff_alpha(values, metric) == pytest.approx(expected)


def by_definition(values, metric):
    """Alpha from the coincidences of values, loop by loop."""
    units = [u[~np.isnan(u)] for u in values.T]
    units = [u for u in units if len(u) > 1]
    pool = np.concatenate(units)
    number = {v: int((pool == v).sum()) for v in np.unique(pool)}

    def distance(c, k):
        if metric == "interval":
            return (c - k) ** 2
        low, high = min(c, k), max(c, k)
        between = sum(n for v, n in number.items() if low <= v <= high)
        return (between - (number[c] + number[k]) / 2) ** 2

    observed = sum(
        distance(c, k) / (len(u) - 1) for u in units for c, k in itertools.permutations(u, 2)
    ) / len(pool)
    pairs = itertools.permutations(pool, 2)
    expected = sum(distance(c, k) for c, k in pairs) / (len(pool) * (len(pool) - 1))
    return 1 - observed / expected


@pytest.mark.parametrize("metric", ["ordinal", "interval"])
def test_alpha_is_its_definition(metric):
    values = simulated(settings=4, methods=7, ties=True, missing=0.3, seed=9)
    assert krippendorff_alpha(values, metric) == pytest.approx(by_definition(values, metric))


def test_alpha_of_complete_ranks_is_the_same_for_both_metrics():
    ranks = ascending_ranks(simulated())
    ordinal, interval = (krippendorff_alpha(ranks, metric) for metric in ("ordinal", "interval"))
    assert ordinal == pytest.approx(interval)
    assert np.isnan(krippendorff_alpha(np.ones((3, 4))))
    with pytest.raises(InputError, match="metric"):
        krippendorff_alpha(ranks, "nominal")


def test_winners_flip():
    scores = np.array([[3, 2, 1], [3, 3, 0], [0, 1, 2], [np.nan, 2, 1]], float)
    flips = winner_flips(scores)
    # Setting 3 lacks method 0: on the common methods 1 wins, as in setting 0 and 1, not in 2.
    assert flips.pairs == 6
    assert flips.share == pytest.approx(3 / 6)
    assert flips.ever_first == 3
    assert flips.winners.tolist()[1] == [True, True, False]


def test_flips_by_brute_force():
    scores = simulated(settings=9, methods=5, ties=True, missing=0.3, seed=2)
    flipped, pairs = 0, 0
    for s, t in itertools.combinations(scores, 2):
        both = ~np.isnan(s) & ~np.isnan(t)
        if both.sum() >= 2:
            first, second = (set(np.flatnonzero(v[both] == v[both].max())) for v in (s, t))
            flipped, pairs = flipped + (not first & second), pairs + 1
    flips = winner_flips(scores)
    assert (flips.pairs, flips.share) == (pairs, pytest.approx(flipped / pairs))
