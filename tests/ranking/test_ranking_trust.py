"""Protocols against the truth: correlations and intervals, against scipy and by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from score_rows import arrow, several

from assay.errors import InputError
from assay.ranking.trust import trust

METHODS = [f"method_{i}" for i in range(6)]


def lines(truth, judged, n=30, noise=0.1, seed=0, **fields):
    """Scores of both protocols around these means."""
    random = np.random.default_rng(seed)
    found = []
    for protocol, means, more in (("truth_f1", truth, {}), ("deletion", judged, fields)):
        values = {m: random.normal(v, noise, n) for m, v in zip(METHODS, means, strict=True)}
        found += several(values, protocol=protocol, **more)
    return found


def only(rows, **options):
    (row,) = trust(arrow(rows), "truth_f1", ["deletion"], **options)
    return row


def scored(truth, judged, n=30, noise=0.01, seed=0, **fields):
    """Scores of as many methods as there are means, as `lines`."""
    random = np.random.default_rng(seed)
    return [
        line
        for protocol, means in (("truth_f1", truth), ("deletion", judged))
        for line in several(
            {f"m{i:02d}": random.normal(v, noise, n) for i, v in enumerate(means)},
            protocol=protocol,
            **fields,
        )
    ]


def mean_of(rows, protocol):
    return [
        np.mean([r["value"] for r in rows if (r["protocol"], r["method"]) == (protocol, m)])
        for m in METHODS
    ]


def test_the_correlation_is_scipys():
    rows = lines(range(6), [3, 1, 2, 5, 4, 0], noise=3.0)
    expected = stats.spearmanr(mean_of(rows, "truth_f1"), mean_of(rows, "deletion")).statistic
    found = only(rows)
    assert found.correlation == pytest.approx(expected)
    assert found.low <= found.correlation <= found.high
    assert (found.n, found.methods) == (30, METHODS)


def test_scores_equal_up_to_rounding_are_a_tie():
    rows = lines(range(6), range(6))
    twins = {r["sample"]: r["value"] for r in rows if r["protocol"] == "deletion"
             and r["method"] == METHODS[2]}  # fmt: skip
    for row in rows:
        if row["protocol"] == "deletion" and row["method"] == METHODS[3]:
            row["value"] = twins[row["sample"]] * (1 + 1e-15)
    found = only(rows)
    expected = stats.spearmanr(range(6), [0, 1, 2, 2, 4, 5]).statistic
    assert found.correlation == pytest.approx(expected)
    assert found.low < expected <= found.high


def test_where_lower_is_better_the_order_turns():
    rows = lines(range(6), [5, 4, 3, 2, 1, 0], higher_is_better=False)
    assert only(rows).correlation == pytest.approx(1)
    assert only(lines(range(6), [5, 4, 3, 2, 1, 0])).correlation == pytest.approx(-1)


def test_a_perfect_order_of_few_methods_is_less_certain_than_it_looks():
    """Fisher's interval of the order with two neighbours swapped, by Bonett and Wright's error."""
    swapped = stats.spearmanr(range(6), [0, 1, 2, 3, 5, 4]).statistic
    arm = stats.norm.ppf(0.975) * np.sqrt((1 + swapped**2 / 2) / 3)
    found = only(lines(range(6), range(6)))
    assert found.low == pytest.approx(np.tanh(np.arctanh(swapped) - arm))
    assert found.high == 1


def test_few_samples_give_no_interval():
    found = only(lines(range(6), range(6), n=5))
    assert found.low is None
    assert found.correlation == pytest.approx(1)


def test_circular_cells_and_controls_are_left_out():
    rows = lines(range(6), range(6))
    for row in rows:
        if row["method"] == METHODS[0] and row["protocol"] == "deletion":
            row["status"] = "circular"
    (found,) = trust(arrow(rows), "truth_f1", ["deletion"], controls=[METHODS[1]])
    assert found.methods == METHODS[2:]


def test_two_methods_have_no_order():
    rows = [r for r in lines(range(6), range(6)) if r["method"] in METHODS[:2]]
    assert trust(arrow(rows), "truth_f1", ["deletion"]) == []


def test_an_unknown_truth_is_named():
    with pytest.raises(InputError, match="`synscore`"):
        trust(arrow(lines(range(6), range(6))), "synscore", ["deletion"])


def test_the_first_truth_that_ranks_is_taken():
    """Where the truth is an upper bound, F1 ranks nobody and the next protocol judges."""
    rows = lines(range(6), range(6))
    rows += [{**row, "protocol": "pointing_game"} for row in rows if row["protocol"] == "truth_f1"]
    for row in rows:
        if row["protocol"] == "truth_f1":
            row["status"] = "upper_bound"
    (found,) = trust(arrow(rows), ["truth_f1", "pointing_game"], ["deletion"])
    assert found.truth == "pointing_game"
    assert trust(arrow(rows), "truth_f1", ["deletion"]) == []


def test_over_sixteen_methods_the_interval_is_fishers():
    """A correlation of .53 over 16 methods has [.01, .82], however many samples there are."""
    judged = shuffled_until(0.53)
    found = only(scored(range(16), judged, n=200))
    fisher = stats.pearsonr(range(16), judged).confidence_interval(0.95)
    assert found.correlation == pytest.approx(0.53, abs=0.01)
    assert (found.low, found.high) == pytest.approx((fisher.low, fisher.high), abs=0.12)
    assert (found.low, found.high) == pytest.approx((0.01, 0.82), abs=0.12)


def shuffled_until(correlation):
    """An order of 16 with about this rank correlation to 0, 1, ..., 15."""
    orders = np.random.default_rng(1).permuted(np.tile(np.arange(16), (20_000, 1)), axis=1)
    correlations = 1 - 6 * ((orders - np.arange(16)) ** 2).sum(1) / (16 * (16**2 - 1))
    return orders[np.abs(correlations - correlation).argmin()]


@pytest.mark.parametrize("correlation", [0.0, 0.5])
def test_intervals_cover_the_correlation_of_all_methods(correlation):
    """Methods are drawn from a normal population with a known rank correlation."""
    assert coverage(correlation, methods=16, runs=120) >= 0.88


def coverage(correlation, methods, runs):
    pearson = 2 * np.sin(np.pi * correlation / 6)
    random = np.random.default_rng(0)
    means = random.multivariate_normal([0, 0], [[1, pearson], [pearson, 1]], (runs, methods))
    hits = 0
    for run, (truth, judged) in enumerate(means.transpose(0, 2, 1)):
        found = only(scored(truth, judged, n=12, noise=1e-3, seed=run), resamples=300)
        hits += found.low <= correlation <= found.high
    return hits / runs


def test_near_clones_count_as_one_method():
    judged = shuffled_until(0.53)
    rows = scored(range(16), judged)
    alone, random = only(rows), np.random.default_rng(0)
    for copy in range(5):
        rows += [
            {**r, "method": f"m07 again {copy}", "value": r["value"] + random.normal(0, 1e-5)}
            for r in rows
            if r["method"] == "m07"
        ]
    found = only(rows)
    assert (len(found.methods), found.distinct, alone.distinct) == (21, 16, 16)
    assert (found.correlation, found.low, found.high) == pytest.approx(
        (alone.correlation, alone.low, alone.high), abs=1e-6
    )


def test_methods_are_clones_only_where_both_protocols_say_so():
    rows = scored(range(8), range(8))
    twins = {r["sample"]: r["value"] for r in rows
             if (r["protocol"], r["method"]) == ("deletion", "m03")}  # fmt: skip
    for row in rows:
        if (row["protocol"], row["method"]) == ("deletion", "m04"):
            row["value"] = twins[row["sample"]]
    assert only(rows).distinct == 8


def test_samples_that_are_easy_for_all_make_no_clones():
    rows, random = scored(range(8), range(8), noise=1.0), np.random.default_rng(0)
    easy = dict.fromkeys(sorted({r["sample"] for r in rows}), 0.0)
    for sample in easy:
        easy[sample] = random.normal(0, 1000)
    for row in rows:
        row["value"] += easy[row["sample"]]
    assert only(rows).distinct == 8


@pytest.mark.parametrize(("methods", "known"), [(5, False), (6, True)])
def test_fewer_than_six_methods_have_no_interval(methods, known):
    found = only(scored(range(methods), [*range(methods)][::-1]))
    assert found.correlation == pytest.approx(-1)
    assert (found.low is not None) is known
    assert (found.high is not None) is known


def test_the_interval_depends_on_the_seed_alone():
    rows = scored(range(16), shuffled_until(0.53))
    assert only(rows, seed=3) == only(rows, seed=3)
    assert only(rows, seed=3).low != only(rows, seed=4).low
    assert only(rows[::-1], seed=3) == only(rows, seed=3)


def of_networks(orders):
    rows = []
    for place, judged in enumerate(orders):
        rows += scored(range(16), judged, model=f"net{place}")
    return trust(arrow(rows), "truth_f1", ["deletion"])


def test_the_mean_over_networks_has_a_row_of_its_own():
    orders = [shuffled_until(0.3), shuffled_until(0.5), shuffled_until(0.7)]
    *each, pooled = of_networks(orders)
    assert [row.model for row in each] == ["net0", "net1", "net2"]
    assert (pooled.model, pooled.settings, pooled.distinct, pooled.n) == ("", 3, 16, 30)
    assert pooled.correlation == pytest.approx(np.mean([row.correlation for row in each]))
    half = stats.t.ppf(0.975, 2) * np.std([row.correlation for row in each], ddof=1) / 3**0.5
    assert pooled.high - pooled.low > half  # one that only knows how networks differ, cut at 1


def test_networks_that_agree_leave_the_uncertainty_of_the_methods():
    one, _, _, pooled = of_networks([shuffled_until(0.53)] * 3)
    assert (pooled.low, pooled.high) == pytest.approx((one.low, one.high), abs=0.02)


def test_two_networks_have_no_interval():
    *_, pooled = of_networks([shuffled_until(0.3), shuffled_until(0.7)])
    assert pooled.settings == 2
    assert pooled.correlation == pytest.approx(0.5, abs=0.01)
    assert pooled.low is None
