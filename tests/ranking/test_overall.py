"""The overall list and the answer, by closed forms and by what must not change them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from assay.ranking import Leaderboard, leaderboard, mean_interval, paired_differences
from assay.ranking.answer_words import headline, sentences
from assay.ranking.overall import OverallRow
from assay.store import SettingKey
from ranking.score_rows import CONTROLS, arrow, rows, several

Values = dict[str, np.ndarray]
SETTING = SettingKey("shapes", "net", "")
ASKED = {"deletion": "necessity", "insertion": "sufficiency", "single": "effects"}


def drawn(seed: int = 0, n: int = 40, spread: float = 0.5, **means: float) -> Values:
    """Scores of methods and of `random`, around these means."""
    generator = np.random.default_rng(seed)
    noise = {m: generator.normal(0, spread, n) for m in (*means, "random")}
    return {m: v - v.mean() + {**means, "random": 0.0}[m] for m, v in noise.items()}


def rank(*tables: list[dict[str, Any]], **options: Any) -> Leaderboard:
    lines = [line for table in tables for line in table]
    return leaderboard(arrow(lines), controls=CONTROLS, **{"questions": ASKED, **options})


def listed(board: Leaderboard) -> dict[str, OverallRow]:
    return {row.method: row for row in board.over_protocols}


def unit(values: Values) -> float:
    return float(values["random"].std(ddof=1))


def test_one_protocol_is_the_difference_in_units_of_random() -> None:
    values = drawn(a=1.0, b=0.2)
    found = listed(rank(several(values)))
    for method in ("a", "b"):
        apart = mean_interval((values[method] - values["random"]) / unit(values))
        row = found[method]
        assert row.difference == pytest.approx(values[method].mean() / unit(values))
        assert (row.low, row.high) == pytest.approx((apart.low, apart.high))
        assert (row.questions, row.protocols, row.n_groups) == (1, 1, 40)
    assert [row.position for row in found.values()] == [1, 2, None]
    assert found["random"].difference == 0


def test_lower_is_better_is_turned() -> None:
    up, down = drawn(a=1.0, b=0.2), {m: -v for m, v in drawn(a=1.0, b=0.2).items()}
    one = rank(several(up))
    other = rank(several(down, higher_is_better=False))
    for method, row in listed(one).items():
        assert listed(other)[method].difference == pytest.approx(row.difference)
    assert one.answers[0].best == other.answers[0].best == ("a",)


def test_a_question_is_the_mean_of_its_protocols() -> None:
    """Two protocols of one question are one paired score per sample and method."""
    first, second = drawn(1, a=0.3, b=0.0), drawn(2, spread=4.0, a=1.0, b=2.0)
    board = rank(
        several(first), several(second, protocol="again"), questions={"deletion": "q", "again": "q"}
    )
    names = sorted(first)
    scores = np.stack([first[m] / unit(first) + second[m] / unit(second) for m in names], 1) / 2
    pairs = paired_differences(scores)
    better = {(names[i], names[j]) for i, j in zip(*np.nonzero(pairs.low > 0), strict=True)}
    (answer,) = board.answers
    assert set(answer.questions) == {"q"}
    assert (("a", "b") in better) == (answer.best == ("a",))
    assert ("b" in answer.not_above) == (("b", "random") not in better)
    place = names.index("random")
    for i, name in enumerate(names[:-1]):
        assert listed(board)[name].difference == pytest.approx(pairs.mean[i, place])


def test_questions_are_corrected_for_each_other() -> None:
    """The intervals of two questions are those of 97.5 % each."""
    noise = drawn(3, n=30, spread=1.0, a=0.0, b=0.0)
    names = sorted(noise)
    stacked = np.stack([noise[m] for m in names], 1)
    one, two = names.index("a"), names.index("random")
    halves = [paired_differences(stacked, level=x).high[one, two] for x in (0.95, 0.975)]
    assert halves[0] < halves[1]
    values = {**noise, "a": noise["a"] + sum(halves) / 2}  # between the two
    other = drawn(4, n=30, a=0.0, b=0.0)
    (alone,) = rank(several(values)).answers
    (both,) = rank(several(values), several(other, protocol="insertion")).answers
    assert "a" not in alone.not_above
    assert "a" in both.not_above


def test_four_copies_of_one_curve_have_one_vote() -> None:
    """`a` wins one question four times, `b` two others once each: copies change nothing."""
    curve, other, third = drawn(5, a=2.0, b=1.0), drawn(6, a=1.0, b=2.0), drawn(7, a=1.0, b=2.0)
    rest = [*several(other, protocol="insertion"), *several(third, protocol="single")]
    copies = [several(curve, protocol=f"copy{i}") for i in range(3)]
    asked = {**ASKED, **{f"copy{i}": "necessity" for i in range(3)}}
    once = rank(several(curve), rest)
    often = rank(several(curve), *copies, rest, questions=asked)
    assert [r.method for r in often.over_protocols] == ["b", "a", "random"]
    for method, row in listed(once).items():
        again = listed(often)[method]
        assert again.difference == pytest.approx(row.difference)
        assert again.low == pytest.approx(row.low)
    (one,), (more,) = once.answers, often.answers
    assert one.best == more.best == ("b", "a")
    assert one.advantages == more.advantages


@pytest.mark.parametrize("extra", ["irrelevant", "clone"])
def test_another_method_keeps_the_order_of_the_others(extra: str) -> None:
    tables = [drawn(8, a=1.0, b=0.8, c=0.2), drawn(9, spread=3.0, a=0.5, b=2.0, c=1.0)]
    more = [{**t, "x": t["b"] if extra == "clone" else drawn(i, x=0.1)["x"]}
            for i, t in enumerate(tables)]  # fmt: skip
    names = ("deletion", "insertion")
    before = rank(*(several(t, protocol=p) for t, p in zip(tables, names, strict=True)))
    after = rank(*(several(t, protocol=p) for t, p in zip(more, names, strict=True)))
    order = [row.method for row in after.over_protocols if row.method != "x"]
    assert order == [row.method for row in before.over_protocols]
    for method, row in listed(before).items():
        assert listed(after)[method].difference == pytest.approx(row.difference)
        assert listed(after)[method].low == pytest.approx(row.low)
    if extra == "clone":
        (answer,) = after.answers
        assert answer.same_as == {"x": "b"}
        assert answer.best == before.answers[0].best
        assert listed(after)["x"].same_as == "b"


def test_a_noisy_worse_method_stands_below_a_better_mean() -> None:
    for seed in range(20):
        generator = np.random.default_rng(seed)
        values = drawn(seed, **{f"m{i}": float(v) for i, v in enumerate(generator.normal(size=5))})
        noisy = {m: v + (v - v.mean()) * (20 if m == "m3" else 0) for m, v in values.items()}
        board = rank(several(noisy))
        means = [noisy[row.method].mean() for row in board.over_protocols]
        assert means == sorted(means, reverse=True)


def test_pairs_use_the_samples_that_both_have() -> None:
    """A method that fails on some samples changes nothing for the others."""
    values = drawn(10, a=1.0, b=0.5, c=0.3)
    failing = [r for r in several(values) if not (r["method"] == "c" and r["sample"] < "s015")]
    lost = rows("c", [np.nan] * 15, status="failed")
    whole, part = rank(several(values)), rank(failing, lost)
    for method in ("a", "b"):
        assert listed(part)[method].difference == pytest.approx(listed(whole)[method].difference)
    kept = values["c"][15:].mean() - values["random"][15:].mean()
    if "c" in listed(part):
        assert listed(part)["c"].difference == pytest.approx(kept / unit(values))


def test_both_counts_only_where_neither_part_is_asked() -> None:
    values, gap = drawn(11, a=1.0, b=0.0), drawn(12, a=0.0, b=5.0)
    asked = {**ASKED, "abpc": "necessity and sufficiency"}
    alone = rank(several(gap, protocol="abpc"), questions=asked)
    assert alone.answers[0].best == ("b",)
    both = rank(several(values), several(gap, protocol="abpc"), questions=asked)
    assert both.answers[0].best == ("a",)
    assert set(both.answers[0].questions) == {"necessity"}


def test_without_one_question_and_with_each_fill() -> None:
    first, second = drawn(13, a=1.0, b=0.0), drawn(14, a=0.0, b=1.0)
    tables = [several(first), several(first, protocol="insertion"), several(second, protocol="x")]
    asked = {**ASKED, "x": "necessity"}
    fills = {"deletion": "zero", "insertion": "zero", "x": "blur"}
    (answer,) = rank(*tables, questions=asked, fills=fills).answers
    assert answer.with_fill.get("blur", answer.best) == ("b",)
    assert answer.with_fill.get("zero", answer.best) == ("a",)
    assert not answer.survives_fills
    assert "By the fill blur alone the best is b." in headline([answer])
    same = rank(several(first), several(first, protocol="insertion"), fills=fills).answers
    assert not same[0].without
    assert "does not change" in headline(same)
    parted = rank(several(first), several(second, protocol="insertion"), fills=fills).answers[0]
    assert parted.best == ("a", "b") or parted.best == ("b", "a")
    assert parted.without == {"necessity": ("b",), "sufficiency": ("a",)}


def test_a_control_may_stand_above_the_best() -> None:
    values = drawn(15, a=1.0, b=0.0, centre=3.0)
    (answer,) = rank(several(values)).answers
    assert answer.best == ("a",)
    assert ("centre", "a", "necessity") in {
        (one.winner, one.loser, one.question) for one in answer.controls_ahead
    }
    assert "But it is worse than the control centre under necessity." in headline([answer])
    assert {"a", "b"} == set(answer.not_above)


def test_nothing_to_rank() -> None:
    values = drawn(16, a=1.0, b=0.0)
    (few,) = rank([r for r in several(values) if r["sample"] < "s008"]).answers
    assert not few.enough
    assert headline([few]) == (
        "8 independent samples: too few to separate methods. a is first in the list, as a hint."
    )
    silent = {(SETTING, "deletion"): "the network is right on 42 % of the samples"}
    board = rank(several(values), silent=silent)
    assert not board.over_protocols
    assert headline(board.answers) == (
        "Nothing can be ranked: the network is right on 42 % of the samples."
    )
    without = {m: v for m, v in values.items() if m != "random"}
    assert "no control `random`" in headline(rank(several(without)).answers)
    flat = {**values, "random": np.zeros(40)}
    assert "do not vary" in headline(rank(several(flat)).answers)


def test_a_silent_protocol_does_not_count() -> None:
    first, second = drawn(17, a=1.0, b=0.0), drawn(18, a=0.0, b=9.0)
    silent = {(SETTING, "insertion"): "the answers hardly move"}
    board = rank(several(first), several(second, protocol="insertion"), silent=silent)
    assert board.answers[0].best == ("a",)
    (left_out,) = board.answers[0].protocols_left_out
    assert (left_out.protocol, left_out.reason) == ("insertion", "the answers hardly move")
    assert listed(board)["a"].protocols == 1


def test_a_shown_cell_is_judged_by_the_protocols_that_both_have() -> None:
    """`a` is circular under insertion: `a` and `b` are compared by deletion alone."""
    first, second = drawn(19, a=1.0, b=0.0), drawn(20, a=9.0, b=1.0)
    shown = [
        {**r, "status": "circular" if r["method"] == "a" else "ok"}
        for r in several(second, protocol="again")
    ]
    board = rank(several(first), shown, questions={"deletion": "q", "again": "q"})
    assert listed(board)["a"].difference == pytest.approx(1.0 / unit(first))
    both = (0.0 / unit(first) + 1.0 / unit(second)) / 2
    assert listed(board)["b"].difference == pytest.approx(both)
    assert board.answers[0].best == ("a",)


def test_groups_are_resampled_together() -> None:
    """Copies of samples in one group add no certainty."""
    values = drawn(21, n=12, a=0.7, b=0.0)
    tiled = {m: np.tile(v, 5) for m, v in values.items()}
    alone = rank(several(values))
    lines = [{**r, "group": f"g{int(r['sample'][1:]) % 12:02d}"} for r in several(tiled)]
    together, apart = rank(lines), rank(several(tiled))
    here = listed(together)["a"]
    once = listed(alone)["a"]
    scale = unit(values) / unit(tiled)
    assert here.n_groups == 12
    assert (here.low, here.high) == pytest.approx((once.low * scale, once.high * scale))
    assert listed(apart)["a"].low > here.low


def test_sentences_name_methods_with_equal_scores_once() -> None:
    values = drawn(22, a=1.0, b=0.0)
    (answer,) = rank(several({**values, "twin": values["a"]})).answers
    assert answer.best == ("a",)
    assert "The same scores: twin = a." in sentences(answer)
    assert headline([answer]).startswith("a is the best of 2 methods; no other one beats it.")


def test_a_pair_has_only_the_groups_that_both_methods_have() -> None:
    """Three samples are too few for a pair, whatever the others have."""
    for seed in range(10):
        values = drawn(100 + seed, n=100, a=0.0, b=0.0, x=0.0)
        lines = [r for r in several(values) if r["method"] != "x" or r["sample"] < "s003"]
        board = rank(lines)
        (answer,) = board.answers
        assert "x" in answer.best
        assert listed(board)["x"].n_groups == 3
        assert all(row.n_groups == 100 for row in board.over_protocols if row.method in "ab")


def test_random_that_lacks_one_protocol_keeps_the_others() -> None:
    first, second = drawn(31, a=1.0, b=0.0), drawn(32, a=0.0, b=1.0)
    lacking = [r for r in several(second, protocol="insertion") if r["method"] != "random"]
    lacking += rows("random", [np.nan] * 40, protocol="insertion", status="n/a")
    (answer,) = rank(several(first), lacking).answers
    assert answer.best == ("a",)
    assert [one.protocol for one in answer.protocols_left_out] == ["insertion"]


def test_a_protocol_that_asks_for_both_counts_where_its_parts_are_silent() -> None:
    first, gap = drawn(33, a=1.0, b=0.0), drawn(34, a=0.0, b=5.0)
    silent = {(SETTING, "deletion"): "the answers hardly move"}
    asked = {**ASKED, "abpc": "necessity and sufficiency"}
    tables = several(first), several(gap, protocol="abpc")
    (answer,) = rank(*tables, questions=asked, silent=silent).answers
    assert answer.best == ("b",)
    (other,) = rank(*tables, questions=asked).answers
    assert [one.protocol for one in other.protocols_left_out] == ["abpc"]


def test_the_truth_ranks_where_no_other_protocol_has_a_unit() -> None:
    flat = {**drawn(35, a=1.0, b=0.0), "random": np.zeros(40)}
    truth = several(drawn(36, a=0.0, b=2.0), protocol="truth_f1")
    board = rank(several(flat), truth, apart=["truth_f1"])
    assert [row.method for row in board.over_protocols] == ["b", "a", "random"]


def test_a_method_without_a_common_protocol_is_named() -> None:
    """`a` is circular where `random` is ranked; elsewhere `random` is constant."""
    first, second = drawn(37, a=1.0, b=0.0), drawn(38, a=1.0, b=0.0)
    circular = [{**r, "status": "circular" if r["method"] == "a" else "ok"} for r in several(first)]
    failing = [
        {**r, "value": 0.0} if r["method"] == "random" else r
        for r in several(second, protocol="insertion")
        if r["method"] != "b"
    ]
    failing += rows("b", [np.nan] * 40, protocol="insertion", status="failed")
    board = rank(circular, failing)
    assert "a" not in listed(board)
    assert headline(board.answers)
    assert "a" in {row.method for row in board.without_place}


def test_a_trade_off_is_not_called_unresolved() -> None:
    first, second = drawn(39, a=1.0, b=0.0), drawn(40, a=0.0, b=1.0)
    text = headline(rank(several(first), several(second, protocol="insertion")).answers)
    assert text.startswith("None of the 2 methods is the best under all questions. ")
    assert "is better under" in text
    assert "do not separate" not in text


def test_a_method_that_the_rest_does_not_rank_does_not_change_the_answer() -> None:
    first, second = drawn(41, a=1.0, b=0.0, m=0.0), drawn(42, a=1.0, b=0.0, m=0.0)
    shown = [
        {**r, "status": "circular" if r["method"] == "m" else "ok"}
        for r in several(second, protocol="insertion")
    ]
    (answer,) = rank(several(first), shown, fills={"deletion": "zero", "insertion": "mean"}).answers
    assert answer.best == ("a",)
    assert not answer.without
    assert answer.survives_fills


def test_several_settings_in_one_headline() -> None:
    """What is said of all settings holds in each."""
    first, second = drawn(43, a=1.0, b=0.0), drawn(44, a=0.0, b=1.0)
    one = several(first) + several(first, protocol="insertion")
    two = several(first, dataset="faces") + several(second, protocol="insertion", dataset="faces")
    text = headline(rank(one, two).answers)
    assert text.count("is the best of 2 methods") == 1
    assert text.endswith("Leaving out one question changes the answer on faces.")
    same = headline(rank(one, [{**r, "dataset": "faces"} for r in one]).answers)
    assert same.startswith("faces and shapes: a is the best of 2 methods")
    assert same.endswith("Leaving out one question does not change this.")
