"""The sums of a setting by question and fill, and what each question resolves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from assay.plugins.questions import OTHER
from assay.ranking.blocks import Block
from assay.ranking.question_scores import QuestionResult, QuestionSum, question_level
from assay.ranking.resampling import BootstrapOptions
from assay.ranking.standardised import Resampling, groups_of, standard_pairs


@dataclass(eq=False)
class SettingSums:
    """The differences of all pairs, added up by question and fill."""

    resampling: Resampling
    by_question_and_fill: dict[tuple[str, str], QuestionSum] = field(default_factory=dict)

    def by_question(self, fill: str | None = None) -> dict[str, QuestionSum]:
        """The sum of each question, over all fills or with one of them."""
        whole: dict[str, QuestionSum] = {}
        for (question, its_fill), one in self.by_question_and_fill.items():
            if fill in (None, its_fill):
                whole[question] = whole[question].plus(one) if question in whole else one
        return whole

    @property
    def fills(self) -> list[str]:
        """The fills of the protocols, without those that fill nothing."""
        return list(dict.fromkeys(fill for _, fill in self.by_question_and_fill if fill))


def add_up(
    blocks: Sequence[Block],
    names: Sequence[str],
    reference: str,
    options: BootstrapOptions,
    questions: Mapping[str, str],
    fills: Mapping[str, str],
) -> SettingSums:
    """Add up the differences of all pairs of these methods under all protocols of a setting."""
    sums = SettingSums(Resampling(groups_of(blocks), options))
    for block in blocks:
        one = standard_pairs(block, names, reference, sums.resampling)
        question = questions.get(block.protocol, OTHER)
        key = question, fills.get(block.protocol, "")
        if key not in sums.by_question_and_fill:
            sums.by_question_and_fill[key] = QuestionSum(len(one.mean), sums.resampling.count)
        sums.by_question_and_fill[key].add(block.protocol, one)
    return sums


def question_results(
    sums: Mapping[str, QuestionSum], resampling: Resampling
) -> list[QuestionResult]:
    """All pairs under each question, with intervals that hold for all questions together."""
    level = question_level(resampling.level, len(sums))
    return [
        QuestionResult(name, tuple(one.protocols), one.differences(resampling, level), level)
        for name, one in sums.items()
    ]
