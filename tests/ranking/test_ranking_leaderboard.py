"""The leaderboard from scores tables: ranks, floors, statuses, failures, the overall order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from assay.ranking import Leaderboard, leaderboard, mean_interval, paired_differences
from ranking.score_rows import CONTROLS, arrow, row, rows, several

MEANS = {"random": 0.0, "centre": 0.5, "saliency": 0.3, "gradcam": 1.5, "occlusion": 1.52}


def drawn(n: int = 40, seed: int = 0, means: dict[str, float] = MEANS) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    return {method: generator.normal(mean, 0.2, size=n) for method, mean in means.items()}


def rank(lines: list[dict[str, Any]], **options: Any) -> Leaderboard:
    return leaderboard(arrow(lines), controls=CONTROLS, **options)


def by_method(board: Leaderboard, protocol: str = "deletion") -> dict[str, dict[str, Any]]:
    return {line["method"]: line for line in board if line["protocol"] == protocol}


def test_rows_hold_means_intervals_and_ranks() -> None:
    values = drawn()
    found = by_method(rank(several(values)))
    assert {method: line["rank"] for method, line in found.items()} == {
        "gradcam": 1, "occlusion": 1, "centre": 3, "saliency": 4, "random": 5,
    }  # fmt: skip
    for method, scores in values.items():
        expected = mean_interval(scores)
        line = found[method]
        assert line["mean"] == pytest.approx(scores.mean())
        assert (line["low"], line["high"]) == pytest.approx((expected.low, expected.high))
        assert (line["n"], line["n_groups"], line["n_common"]) == (40, 40, 40)
        assert (line["status"], line["failed"], line["ties_broken"]) == ("ok", 0, True)


def test_rows_are_best_first() -> None:
    board = rank(several(drawn()))
    means = [line["mean"] for line in board]
    assert means == sorted(means, reverse=True)
    assert len(board) == 5
    assert board[-1]["method"] == "random"


def test_distance_to_the_floor() -> None:
    values = drawn()
    found = by_method(rank(several(values)))
    stacked = np.stack([values[method] for method in sorted(values)], axis=1)
    pairs = paired_differences(stacked)
    index = {method: i for i, method in enumerate(sorted(values))}
    line = found["saliency"]
    place = index["saliency"], index["centre"]
    assert line["best_control"] == "centre"
    assert line["minus_control"] == pytest.approx(pairs.mean[place])
    assert line["minus_control_low"] == pytest.approx(pairs.low[place])
    assert line["minus_control_high"] == pytest.approx(pairs.high[place])
    assert line["minus_random"] == pytest.approx((values["saliency"] - values["random"]).mean())
    assert line["minus_random_low"] > 0
    assert (line["below_control"], line["clearly_below"]) == (True, True)
    assert (found["gradcam"]["below_control"], found["gradcam"]["clearly_below"]) == (False, False)
    assert found["centre"]["below_control"] is None
    assert found["centre"]["minus_control"] is None
    assert found["random"]["minus_random"] is None


def test_slightly_below_is_not_clearly_below() -> None:
    means = {"random": 0.0, "centre": 0.5, "saliency": 0.48}
    found = by_method(rank(several(drawn(means=means, seed=5))))["saliency"]
    assert found["minus_control"] < 0
    assert (found["below_control"], found["clearly_below"]) == (True, False)


def test_oracle_is_ranked_but_no_floor() -> None:
    board = rank(several(drawn(means={**MEANS, "oracle": 9.0})))
    found = by_method(board)
    assert found["oracle"]["rank"] == 1
    assert found["gradcam"]["best_control"] == "centre"
    assert "oracle" not in {line["method"] for line in board.overall}
    assert [line["method"] for line in board.left_out] == ["oracle"]


def test_no_control_no_floor() -> None:
    board = leaderboard(arrow(several(drawn())), controls={})
    for line in board:
        assert line["best_control"] is line["minus_control"] is line["below_control"] is None


def test_flipped_scores_and_direction_give_the_same_board() -> None:
    values = drawn()
    up = rank(several(values))
    down = rank(several({m: -v for m, v in values.items()}, higher_is_better=False))
    for one, other in zip(up, down, strict=True):
        assert (one["method"], one["rank"]) == (other["method"], other["rank"])
        assert one["mean"] == pytest.approx(-other["mean"])
        for name in ("minus_random", "minus_control_low", "minus_control_high"):
            assert one[name] == pytest.approx(other[name])
        assert one["below_control"] == other["below_control"]
    assert [line["method"] for line in up.overall] == [line["method"] for line in down.overall]


def test_row_order_does_not_matter() -> None:
    lines = several(drawn()) + several(drawn(seed=1), protocol="insertion")
    order = np.random.default_rng(0).permutation(len(lines))
    board, shuffled = rank(lines), rank([lines[i] for i in order])
    assert board.rows == shuffled.rows
    assert board.overall == shuffled.overall


def test_seeds_are_averaged_per_sample() -> None:
    values = drawn()
    lines = several(values, seed=0)
    spread = {m: v + 0.5 for m, v in values.items()}
    both = by_method(rank(lines + several(spread, seed=1)))
    one = by_method(rank(lines))
    for method in values:
        assert both[method]["mean"] == pytest.approx(one[method]["mean"] + 0.25)
        assert both[method]["n"] == 40
        width = both[method]["high"] - both[method]["low"]
        assert width == pytest.approx(one[method]["high"] - one[method]["low"])


def test_groups_are_resampled_together() -> None:
    values = {m: np.repeat(v, 4) for m, v in drawn(n=9).items()}
    lines = several(values)
    for line in lines:
        line["group"] = f"g{int(line['sample'][1:]) // 4}"
    found = by_method(rank(lines))
    assert {line["rank"] for line in found.values()} == {1}
    assert found["gradcam"]["ties_broken"] is False
    assert (found["gradcam"]["n"], found["gradcam"]["n_groups"]) == (36, 9)
    alone = by_method(rank(several(values)))
    assert alone["gradcam"]["ties_broken"] is True
    assert alone["random"]["rank"] > 1


def test_below_ten_samples_nobody_is_clearly_below() -> None:
    values = drawn(n=9, means={"random": 0.0, "centre": 0.5, "saliency": -9.0})
    found = by_method(rank(several(values)))["saliency"]
    assert found["minus_control_high"] < 0
    assert (found["rank"], found["below_control"], found["clearly_below"]) == (1, True, False)


def test_failed_samples_count_against_the_method_only() -> None:
    lines = several(drawn())
    hit = [line for line in lines if line["method"] == "gradcam"][:3]
    for line in hit:
        line.update(status="failed", value=float("nan"))
    found = by_method(rank(lines))
    assert (found["gradcam"]["failed"], found["gradcam"]["n"]) == (3, 37)
    assert (found["saliency"]["failed"], found["saliency"]["n"]) == (0, 40)
    assert {line["n_common"] for line in found.values()} == {37}
    assert found["gradcam"]["mean"] == pytest.approx(drawn()["gradcam"][3:].mean())
    assert found["gradcam"]["status"] == "ok"


def test_nan_without_a_status_is_a_failure() -> None:
    lines = several(drawn())
    lines[0]["value"] = float("nan")
    lines[1]["value"] = float("inf")
    found = by_method(rank(lines))
    assert (found["random"]["failed"], found["random"]["n"]) == (2, 38)


def test_degenerate_samples() -> None:
    lines = several(drawn())
    for line in lines:
        if line["sample"] == "s000":
            line.update(status="degenerate", value=float("nan"))
        if line["sample"] == "s001" and line["method"] == "saliency":
            line.update(status="degenerate", value=0.0)
    found = by_method(rank(lines))
    saliency = found["saliency"]
    # The model's constant answer is left out; the constant map keeps its expected score.
    assert (saliency["n"], saliency["degenerate"], saliency["failed"]) == (39, 2, 0)
    assert saliency["mean"] == pytest.approx(drawn()["saliency"][2:].sum() / 39)
    assert {line["n_common"] for line in found.values()} == {39}


@pytest.mark.parametrize("status", ["n/a", "failed", "degenerate"])
def test_whole_cell_without_scores_stays_unranked(status: str) -> None:
    lines = [*several(drawn()), row(method="lime", status=status, metric="")]
    if status == "degenerate":
        lines[-1]["metric"] = "area"
    board = rank(lines)
    found = by_method(board)
    lime = found["lime"]
    assert (lime["rank"], lime["mean"], lime["n"], lime["status"]) == (None, None, 0, status)
    assert lime["failed"] == (40 if status == "failed" else 0)
    assert found["gradcam"]["rank"] == 1
    assert found["gradcam"]["n_common"] == 40
    assert board[-1]["method"] == "lime"
    assert board.left_out[0]["reason"] == status


def test_circular_cell_is_shown_and_left_out_of_ranks() -> None:
    lines = several(drawn())
    for line in lines:
        if line["method"] == "occlusion":
            line.update(status="circular", value=1e3 + line["value"])
    board = rank(lines)
    found = by_method(board)
    assert (found["occlusion"]["rank"], found["occlusion"]["status"]) == (None, "circular")
    assert found["occlusion"]["mean"] > 1e3
    assert found["occlusion"]["low"] < found["occlusion"]["mean"] < found["occlusion"]["high"]
    assert found["gradcam"]["rank"] == 1
    assert found["centre"]["rank"] == 2
    assert board.left_out == [
        {
            "dataset": "shapes", "model": "net", "checkpoint": "", "method": "occlusion",
            "protocol": "deletion", "reason": "circular",
        }
    ]  # fmt: skip


def test_method_failing_on_most_samples_does_not_spoil_the_others() -> None:
    values = drawn()
    values["lime"] = np.where(np.arange(40) < 38, np.nan, 2.0)
    found = by_method(rank(several(values)))
    assert (found["lime"]["status"], found["lime"]["rank"]) == ("failed", None)
    assert (found["lime"]["failed"], found["lime"]["n"]) == (38, 2)
    assert found["gradcam"]["n_common"] == 40


def test_set_level_rows() -> None:
    lines = [row(method=m, value=v) for m, v in {**MEANS, "oracle": 2.0}.items()]
    board = rank(lines)
    found = by_method(board)
    for method in MEANS:
        line = found[method]
        assert (line["mean"], line["low"], line["rank"], line["n"]) == (MEANS[method], None, 1, 1)
        assert line["ties_broken"] is False
    assert found["saliency"]["minus_control"] == pytest.approx(-0.2)
    assert found["saliency"]["minus_control_low"] is None
    assert board.overall == []
    assert board.answers[0].nothing == "one score of the whole set, without samples"


def test_identical_methods_tie() -> None:
    values = drawn()
    values["copy"] = values["gradcam"]
    found = by_method(rank(several(values)))
    assert found["copy"]["rank"] == found["gradcam"]["rank"] == 1
    assert found["copy"]["minus_control"] == found["gradcam"]["minus_control"]


def test_only_headline_rows_count() -> None:
    extra = several(drawn(seed=3), metric="slope", headline=False)
    assert rank(several(drawn()) + extra).rows == rank(several(drawn())).rows


def test_overall_over_protocols() -> None:
    lines = several(drawn()) + several(drawn(seed=1), protocol="insertion")
    lines += rows("random", np.zeros(40), protocol="controls only")
    lines += rows("lime", np.full(40, 9.0), protocol="insertion")
    board = rank(lines)
    overall = {line["method"]: line for line in board.overall}
    assert set(overall) == set(MEANS)
    assert overall["random"]["difference"] == 0
    assert overall["gradcam"]["protocols"] == 2
    placed = [line for line in board.overall if not line["control"]]
    assert [line["position"] for line in placed] == [1, 2, 3]
    differences = [line["difference"] for line in board.overall]
    assert differences == sorted(differences, reverse=True)
    assert board.answers[0].best == ("occlusion", "gradcam")
    assert [(line["method"], line["protocol"], line["reason"]) for line in board.left_out] == [
        ("lime", "deletion", "absent")
    ]


def test_what_knows_the_truth_is_ranked_by_itself() -> None:
    """In the overall order it is only where no other protocol ranks a method."""
    turned = dict(zip(MEANS, reversed(list(drawn(seed=1).values())), strict=True))
    both = several(drawn()) + several(turned, protocol="truth_f1")
    board, alone = rank(both, apart=["truth_f1"]), rank(several(drawn()))
    assert board.overall == alone.overall
    assert board.rows == rank(both).rows
    assert rank(both).overall != alone.overall
    absent = rows("gradcam", [float("nan")], status="n/a") + several(turned, protocol="truth_f1")
    only = rank(absent, apart=["truth_f1"])
    assert only.overall == rank(several(turned, protocol="truth_f1")).overall
    missing = both + rows("lime", np.zeros(40))
    assert "lime" in {line["method"] for line in rank(missing, apart=["truth_f1"]).overall}


def test_models_are_kept_apart() -> None:
    lines = several(drawn()) + several(drawn(seed=1), model="other net")
    board = rank(lines)
    assert [line["model"] for line in board] == ["net"] * 5 + ["other net"] * 5
    assert {line["model"] for line in board.overall} == {"net", "other net"}
    assert board.rows[:5] == rank(several(drawn())).rows


def test_no_samples_in_common() -> None:
    lines = rows("a", np.ones(12)) + [
        {**line, "sample": f"t{line['sample']}"} for line in rows("b", np.zeros(12))
    ]
    board = rank(lines)
    assert [(line["rank"], line["n_common"], line["mean"]) for line in board] == [
        (None, 0, 1.0),
        (None, 0, 0.0),
    ]
    assert board.overall == []


def test_empty_table() -> None:
    board = leaderboard(arrow([row()]).slice(0, 0), controls={})
    assert (len(board), board.overall) == (0, [])
    assert "no rows" in repr(board)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"method_options": "{2}", "seed": 1}, "method_options"),
        ({"metric": "slope", "seed": 1}, "metric"),
        ({"higher_is_better": False, "seed": 1}, "higher_is_better"),
        ({"group": "g", "seed": 1}, "one `group`"),
        ({}, "got two"),
    ],
)
def test_rejects_mixed_cells(change: dict[str, Any], match: str) -> None:
    lines = several(drawn())
    with pytest.raises(ValueError, match=match):
        rank([*lines, {**lines[0], **change}])


def test_rejects_unknown_kinds_and_missing_columns() -> None:
    with pytest.raises(ValueError, match="model_free"):
        leaderboard(arrow(several(drawn())), controls={"random": "floor"})
    with pytest.raises(ValueError, match="headline"):
        leaderboard(arrow(several(drawn())).drop_columns(["headline"]), controls={})


def test_one_score_of_the_whole_set_has_no_part_in_the_overall_list() -> None:
    lines = several(drawn())
    lines += [row(method=m, value=v, protocol="whole set") for m, v in MEANS.items()]
    board = rank(lines)
    assert {(line["n_groups"], line["protocols"]) for line in board.overall} == {(40, 1)}


def test_no_interval_leaves_the_range_of_a_score() -> None:
    """Nearly all samples score 1: the whole interval would end beyond it."""
    values = {"gradcam": np.r_[0.0, 0.5, np.ones(8)], "random": np.r_[np.zeros(8), 0.5, 1.0]}
    free, bound = rank(several(values)), rank(several(values), ranges={"deletion": (0.0, 1.0)})
    lines, whole = by_method(bound), by_method(free)
    assert whole["gradcam"]["high"] > 1
    assert whole["random"]["low"] < 0
    assert (lines["gradcam"]["high"], lines["random"]["low"]) == (1.0, 0.0)
    for method in values:
        assert lines[method]["low"] <= lines[method]["mean"] <= lines[method]["high"]
    assert whole["gradcam"]["minus_random_high"] > 1
    assert lines["gradcam"]["minus_random_high"] == 1.0
    assert lines["gradcam"]["low"] == whole["gradcam"]["low"]  # what is possible stays
    assert lines["gradcam"]["minus_random_low"] == whole["gradcam"]["minus_random_low"]


def test_a_range_that_does_not_hold_cuts_no_mean_off() -> None:
    values = {"gradcam": np.linspace(1.5, 2.5, 10), "random": np.zeros(10)}
    found = by_method(rank(several(values), ranges={"deletion": (0.0, 1.0)}))["gradcam"]
    assert found["mean"] == found["high"] == pytest.approx(2.0)
    assert found["low"] < 2.0
