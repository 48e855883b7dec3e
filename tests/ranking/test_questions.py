"""Which protocols ask the same question: the correction, and the rule, where the truth is known."""

from types import SimpleNamespace

import numpy as np
import pytest
from benchmarks.question_matrix import corrected, over_networks, plain, reliability
from benchmarks.question_rule import Agreement, compare_questions, memberships, proposed
from benchmarks.question_scores import NetworkScores, network_scores
from score_rows import arrow, rows, several

from assay.errors import InputError


def noisy_halves(truth, noise, splits=8, seed=0):
    """Scores on halves of 100 images: true means and the noise of 50 images each."""
    random = np.random.default_rng(seed)
    scores = truth[None] + random.normal(0, noise, (100, *truth.shape))  # [n, p, m]
    order = [random.permutation(100) for _ in range(splits)]
    return np.stack([[scores[o[:50]].mean(0), scores[o[50:]].mean(0)] for o in order])


def correlated(correlation, methods, seed=0):
    random = np.random.default_rng(seed)
    return random.multivariate_normal([0, 0], [[1, correlation], [correlation, 1]], methods).T


@pytest.mark.parametrize("correlation", [-0.6, 0.0, 0.8])
def test_the_correction_recovers_the_correlation_without_noise(correlation):
    truth = correlated(correlation, 3000)
    halves = noisy_halves(truth, noise=5.0)  # noise of a half: .7 of a standard deviation
    raw = plain(halves.mean((0, 1)), "pearson")[0, 1]
    without_noise = np.corrcoef(truth)[0, 1]
    assert abs(raw) <= abs(without_noise)
    assert corrected(halves, "pearson")[0, 1] == pytest.approx(without_noise, abs=0.04)
    assert reliability(halves, "pearson") == pytest.approx(1 / (1 + 0.5), abs=0.05)


def test_noise_in_common_does_not_make_protocols_agree():
    """Two protocols without any relation share the noise of the same images."""
    truth = correlated(0.0, 3000)
    random = np.random.default_rng(1)
    noise = random.normal(0, 7, (100, 1, 3000))
    scores = truth[None] + noise
    halves = np.stack(
        [
            [scores[o[:50]].mean(0), scores[o[50:]].mean(0)]
            for o in (random.permutation(100) for _ in range(8))
        ]
    )
    assert plain(scores.mean(0), "pearson")[0, 1] > 0.2
    without_noise = np.corrcoef(truth)[0, 1]
    assert corrected(halves, "pearson")[0, 1] == pytest.approx(without_noise, abs=0.05)


def test_what_is_mostly_noise_is_not_measurable():
    matrix = corrected(noisy_halves(correlated(0.5, 500), noise=[[1.0], [30.0]]), "spearman")
    assert np.isnan(matrix[0, 1])
    assert np.isnan(matrix[1, 1])
    assert matrix[0, 0] == pytest.approx(1)


def test_spearman_is_scipys():
    from scipy import stats

    whole = correlated(0.4, 40)
    expected = stats.spearmanr(whole[0], whole[1]).statistic
    assert plain(whole, "spearman")[0, 1] == pytest.approx(expected)


# --- the rule -------------------------------------------------------------------------------------

TRUE = {"necessity": ["a1", "a2", "a3"], "sufficiency": ["b1", "b2", "b3"], "values": ["c1", "c2"]}
LABELS = [label for labels in TRUE.values() for label in labels]


def of_factors(factors, networks=6, methods=20):
    """Networks on which protocols of one factor agree and others do not."""
    made = []
    for network in range(networks):
        random = np.random.default_rng(network)
        known = {factor: random.normal(size=methods) for factor in sorted(set(factors.values()))}
        truth = np.stack([known[factors[p]] + 0.3 * random.normal(size=methods) for p in LABELS])
        made.append(
            NetworkScores(
                f"net{network}", LABELS, [f"m{i}" for i in range(methods)], [], truth,
                noisy_halves(truth, 0.5, splits=4, seed=network), 100,
            )
        )  # fmt: skip
    return Agreement(over_networks(made, LABELS, resamples=200))


def factors(mapping):
    return {label: question for question, labels in mapping.items() for label in labels}


def test_true_questions_pass():
    agreement = of_factors(factors(TRUE))
    assert {m.verdict for m in memberships(agreement, TRUE)} == {"stays"}
    assert {p.verdict for p in compare_questions(agreement, TRUE)} == {"apart"}
    assert proposed(agreement, TRUE) == TRUE


def test_a_misplaced_protocol_moves():
    declared = {"necessity": ["a1", "a2", "a3", "b3"], "sufficiency": ["b1", "b2"],
                "values": ["c1", "c2"]}  # fmt: skip
    agreement = of_factors(factors(TRUE))
    moving = [m for m in memberships(agreement, declared) if m.verdict == "moves"]
    assert [(m.protocol, m.nearest) for m in moving] == [("b3", "sufficiency")]
    assert {q: sorted(p) for q, p in proposed(agreement, declared).items()} == TRUE


def test_two_names_of_one_question_are_merged():
    same = {**factors(TRUE), "c1": "necessity", "c2": "necessity"}
    agreement = of_factors(same, methods=12)
    (pair,) = (p for p in compare_questions(agreement, TRUE)
               if {p.one, p.other} == {"necessity", "values"})  # fmt: skip
    assert pair.difference.low < 0 < pair.difference.high or pair.verdict == "alike"
    mapping = proposed(agreement, TRUE)
    assert mapping["sufficiency"] == TRUE["sufficiency"]
    assert (len(mapping) == 2) == (pair.verdict == "alike")


def test_methods_are_matched_by_name_and_networks_drawn_together():
    """A network without some methods or protocols counts only where it has them."""
    agreement = of_factors(factors(TRUE), networks=2)
    whole = agreement.matrix.networks
    assert (whole == 2).all()
    missing = NetworkScores("few", LABELS[:3], ["m0", "m1", "new", "m3", "m4"], [],
                            np.arange(15.0).reshape(3, 5),
                            noisy_halves(np.tile(np.arange(5.0), (3, 1)), 0.1, 4), 100)  # fmt: skip
    matrix = over_networks([missing], LABELS, resamples=5)
    assert np.isnan(matrix.mean[0, 4])
    assert matrix.mean[0, 1] == pytest.approx(1)


# --- scores ---------------------------------------------------------------------------------------


def results(methods=11, samples=20):
    random = np.random.default_rng(0)
    values = {f"m{i:02d}": random.normal(i, 1, samples) for i in range(methods)}
    lines = several(values, protocol="morf")
    lines += several(values, protocol="deletion", higher_is_better=False)
    lines += rows("random", random.normal(0, 1, samples), protocol="morf")  # a control: left out
    lines += rows("random", random.normal(0, 1, samples), protocol="deletion",
                  higher_is_better=False)  # fmt: skip
    entries = SimpleNamespace(controls={"random": "random"})
    return SimpleNamespace(arrays=arrow(lines), outcomes={}, entries=entries), values


def test_scores_of_halves_are_means_turned_to_better():
    run, values = results()
    found = network_scores("net", run, ["morf", "deletion"], splits=3)
    means = np.array([values[method].mean() for method in found.methods])
    assert found.whole == pytest.approx(np.stack([means, -means]))
    assert found.halves.mean(1) == pytest.approx(np.tile(found.whole, (3, 1, 1)))
    assert np.abs(found.halves[0, 0, 0] - found.halves[0, 1, 0]).min() > 0
    assert found.n == 20


def test_near_clones_and_methods_that_a_protocol_lacks_are_left_out():
    _, values = results(13)
    lines = several(values, protocol="morf") + several(values, protocol="deletion")
    lines += several({"again": values["m03"]}, protocol="morf")
    lines += several({"again": values["m03"]}, protocol="deletion")
    lines += several({"lone": values["m03"] + 5}, protocol="morf")
    found = network_scores(
        "net",
        SimpleNamespace(arrays=arrow(lines), outcomes={}, entries=SimpleNamespace(controls={})),
        ["morf", "deletion"],
        splits=2,
    )
    assert "lone" not in (*found.methods, *found.clones)
    assert found.clones == ["m03"]
    assert len(found.methods) == 13


def test_too_few_methods_are_refused():
    with pytest.raises(InputError, match=r"at least 10 methods .* on `net`, got 5"):
        network_scores("net", results(5)[0], ["morf", "deletion"], splits=2)
