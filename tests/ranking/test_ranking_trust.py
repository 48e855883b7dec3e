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


def only(rows):
    (row,) = trust(arrow(rows), "truth_f1", ["deletion"])
    return row


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
    assert (found.low, found.high) == pytest.approx((expected, expected))


def test_where_lower_is_better_the_order_turns():
    rows = lines(range(6), [5, 4, 3, 2, 1, 0], higher_is_better=False)
    assert only(rows).correlation == pytest.approx(1)
    assert only(lines(range(6), [5, 4, 3, 2, 1, 0])).correlation == pytest.approx(-1)


def test_clear_orders_have_narrow_intervals_and_equal_methods_wide_ones():
    clear = only(lines(range(6), range(6)))
    assert (clear.low, clear.high) == (1, 1)
    equal = only(lines([0] * 6, [0] * 6, noise=1.0))
    assert equal.high - equal.low > 0.5


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
