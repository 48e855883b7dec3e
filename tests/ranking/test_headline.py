"""The words of the answer: what comes first, what fits, and what they must not say."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from assay.errors import InputError
from assay.plugins.questions import check_question
from assay.ranking import Leaderboard, leaderboard
from assay.ranking.answer import Answer
from assay.ranking.answer_words import WORDS, headline
from assay.ranking.set_intervals import SetDraws, differences_of_draws
from assay.store import SettingKey
from ranking.score_rows import CONTROLS, arrow, several
from ranking.test_overall import drawn

TRUTHS = {"truth_f1": "known truth", "pointing_game": "known truth"}


def rank(*tables: list[dict[str, Any]], **options: Any) -> Leaderboard:
    lines = [line for table in tables for line in table]
    asked = {"deletion": "necessity", **TRUTHS}
    return leaderboard(arrow(lines), controls=CONTROLS, **{"questions": asked, **options})


def truths(n: int = 40, **means: dict[str, float]) -> list[list[dict[str, Any]]]:
    return [
        several(drawn(i, n=n, **of), protocol=protocol)
        for i, (protocol, of) in enumerate(means.items())
    ]


def test_few_samples_put_no_method_first_by_the_truth() -> None:
    tables = truths(4, truth_f1={"good": 5.0, "bad": 0.0})
    tables.append(several(drawn(9, n=4, good=1.0, bad=0.0)))
    (answer,) = rank(*tables, apart=list(TRUTHS)).answers
    assert not answer.true_first
    assert "first by" not in headline([answer])
    assert "By the truth" not in headline([answer])
    assert "too few to separate" in headline([answer])


def test_where_only_the_truth_ranks_the_headline_is_the_list() -> None:
    board = rank(
        *truths(
            truth_f1={"a": 3.0, "b": 0.0, "c": 0.0}, pointing_game={"a": 3.0, "b": 0.0, "c": 0.0}
        ),
        apart=list(TRUTHS),
    )
    (answer,) = board.answers
    assert headline([answer]).startswith("By the truth: a is the best of 3 methods")
    assert [row.method for row in board.over_protocols if row.position == 1] == ["a"]


def test_protocols_that_know_the_truth_may_disagree() -> None:
    tables = truths(truth_f1={"a": 3.0, "b": 0.0}, pointing_game={"a": 0.0, "b": 3.0})
    (answer,) = rank(*tables, several(drawn(7, a=1.0, b=0.0)), apart=list(TRUTHS)).answers
    text = headline([answer])
    assert text.startswith("Protocols that know the truth differ in the first method")
    assert "truth_f1: a" in text
    assert "pointing_game: b" in text


def test_a_silent_network_is_said_before_the_truth() -> None:
    setting, why = SettingKey("shapes", "net", ""), "the network is right on 0.0% of 40 samples"
    board = rank(
        *truths(truth_f1={"a": 3.0, "b": 0.0}), several(drawn(7, a=1.0, b=0.0)),
        apart=list(TRUTHS), silent={(setting, "deletion"): why},
    )  # fmt: skip
    assert headline(board.answers).startswith(f"Only the known truth ranks here: {why}.")


def test_shuffled_stands_in_the_list_and_is_a_floor() -> None:
    values = drawn(3, a=1.0, mixed=1.0)
    controls = {**CONTROLS, "mixed": "other"}
    lines = several(values)
    board = leaderboard(
        arrow(lines), controls=controls, questions={"deletion": "necessity"}, noise=["mixed"]
    )
    (answer,) = board.answers
    assert "mixed" in {row.method for row in board.over_protocols if row.control}
    assert answer.not_above == ("a",)
    assert headline([answer]).count("It is not clearly better than every control.") == 1
    without = leaderboard(arrow(lines), controls=controls, questions={"deletion": "necessity"})
    assert "mixed" not in {row.method for row in without.over_protocols}


def worst(setting: str) -> Answer:
    """Everything that a headline can say, with long names."""
    names = tuple(f"integrated_gradients[steps={i},baseline=uniform]" for i in range(9))
    questions = ("necessity", "sufficiency", "effects", "values")
    return Answer(
        SettingKey(setting, f"network_{setting}", ""),
        names,
        names[: 1 + len(setting)],
        {q: (q,) for q in questions},
        controls=("random", "edge"),
        not_above=names,
        same_as={names[-1]: names[-2]},
        without={q: names[:6] for q in questions},
        with_fill={f: names[:7] for f in ("zero", "noisy_linear", "blur")},
        fills=("zero", "noisy_linear", "blur"),
        n_groups=100,
    )


@pytest.mark.parametrize("settings", [1, 2, 5, 12])
def test_a_headline_has_at_most_sixty_words(settings: int) -> None:
    text = headline([worst("x" * (1 + i % 7)) for i in range(settings)])
    assert len(text.split()) <= WORDS
    assert len(re.findall("are the best of", text)) >= 1
    if settings > 1:
        assert re.search(r"other answers?\.$", text) or text.count("best of") == settings


def test_a_constant_difference_of_whole_sets_is_not_certain() -> None:
    """Twelve groups that all say the same cannot say how often others would not."""
    drawn_values = SetDraws(np.tile([0.7, 0.5], (500, 1)), 12)
    known = differences_of_draws(np.array([0.7, 0.5]), drawn_values, 12, 0.95, width=1.0)
    seen = 0.025 ** (1 / 12)
    assert known.low[0, 1] == pytest.approx(seen * 0.2 - (1 - seen))
    assert known.high[0, 1] == pytest.approx(seen * 0.2 + (1 - seen))
    unknown = differences_of_draws(np.array([0.7, 0.5]), drawn_values, 12, 0.95)
    assert np.isnan(unknown.low[0, 1])


def test_a_question_that_is_no_text_is_an_error() -> None:
    with pytest.raises(InputError, match="to declare a `question`"):
        check_question("mine", 5)  # type: ignore[arg-type]
