"""Are the declared questions real? The rule, stated before the numbers were computed.

Everything is computed from the corrected correlations of protocols over methods, averaged over
networks. Intervals are percentiles of resamples of methods and networks, each by itself at 95 %.

- *own* of a question: the mean over its pairs of protocols. A question of one protocol has none.
- *between* two questions: the mean over the pairs with one protocol of each.
- A pair of questions is **apart** where the mean *own* of the two is above *between*, and so is the
  lower end of the difference; **alike** where the difference is not above 0; else **open**. Where
  both have one protocol, nothing can be said.
- A protocol **moves** where its mean correlation with the others of its own question is below that
  with another question, and so is the upper end of the difference. It **stays** where its
  correlation with its own question is the highest, and all lower ends are above 0; else **open**.
- The proposed mapping: as long as protocols move, the one with the largest deficit goes to the
  question that it correlates with best. Then, as long as questions are alike, the two with the
  highest *between* are merged, and it starts again. A protocol that is left out by both steps and
  whose correlation with its own question is not above 0 becomes a question of its own. What is
  open stays as it was declared.

Not tested, because their formulas answer: ABPC, the sum of two questions, and deletion and
insertion, which are the curves of MoRF and LeRF. The last two follow these in the proposed mapping.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.question_matrix import Matrix
from benchmarks.question_runs import SAME_CURVE
from benchmarks.question_scores import Floats

NOT_TESTED = ("necessity and sufficiency",)
Mapped = Mapping[str, Sequence[str]]  # the protocols of each question


@dataclass(frozen=True)
class Estimate:
    """A number and its interval; all NaN where it is not measurable."""

    value: float
    low: float
    high: float

    @property
    def known(self) -> bool:
        """Whether it is measurable."""
        return not np.isnan(self.value)


@dataclass(frozen=True)
class QuestionPair:
    """Two questions: how far their own protocols agree more than those between them."""

    one: str
    other: str
    between: Estimate
    difference: Estimate
    verdict: str  # apart | alike | open | not measurable


@dataclass(frozen=True)
class Membership:
    """A protocol, its correlation with its own question, and with the nearest other one."""

    protocol: str
    question: str
    own: Estimate
    nearest: str
    between: Estimate
    difference: Estimate  # of own and nearest
    verdict: str  # stays | moves | open | alone | not measurable


class Agreement:
    """Means over groups of pairs of protocols, with intervals."""

    def __init__(self, matrix: Matrix) -> None:
        """Take the correlations and their resamples."""
        self.matrix = matrix
        self._places = {label: place for place, label in enumerate(matrix.protocols)}

    def measurable(self, protocol: str) -> bool:
        """Whether the protocol has a correlation with any other one."""
        place = self._places.get(protocol)
        if place is None:
            return False
        others = np.arange(len(self._places)) != place
        return not np.isnan(self.matrix.mean[place, others]).all()

    def pairs(self, pairs: Sequence[tuple[str, str]]) -> Floats:
        """The mean over some pairs, then that of each resample [1 + b]."""
        places = [(self._places[a], self._places[b]) for a, b in pairs]
        values = np.array(
            [np.concatenate([[self.matrix.mean[p]], self.matrix.drawn[(slice(None), *p)]])
             for p in places]
        )  # fmt: skip
        known = values[~np.isnan(values[:, 0])] if len(places) else np.empty((0, 1))
        if not len(known):
            return np.full(1 + len(self.matrix.drawn), np.nan)
        count = (~np.isnan(known)).sum(axis=0)
        mean: Floats = np.where(count > 0, np.nansum(known, axis=0) / np.maximum(count, 1), np.nan)
        return mean

    def own(self, protocols: Sequence[str]) -> Floats:
        """The mean over the pairs of a question [1 + b]; NaN for one protocol."""
        return self.pairs([(a, b) for i, a in enumerate(protocols) for b in protocols[:i]])

    def between(self, some: Sequence[str], others: Sequence[str]) -> Floats:
        """The mean over the pairs of two questions [1 + b]."""
        return self.pairs([(a, b) for a in some for b in others])


def estimate(numbers: Floats, level: float = 0.95) -> Estimate:
    """The number that stands first, with the percentiles of the rest."""
    if np.isnan(numbers[0]):
        return Estimate(np.nan, np.nan, np.nan)
    ends = np.nanquantile(numbers[1:], [(1 - level) / 2, (1 + level) / 2])
    return Estimate(float(numbers[0]), float(ends[0]), float(ends[1]))


def tested(agreement: Agreement, declared: Mapped) -> dict[str, list[str]]:
    """The questions that are tested, with their measurable protocols."""
    questions = {
        question: [
            label for label in labels if label not in SAME_CURVE and agreement.measurable(label)
        ]
        for question, labels in declared.items()
        if question not in NOT_TESTED
    }
    return {question: labels for question, labels in questions.items() if labels}


def compare_questions(agreement: Agreement, declared: Mapped) -> list[QuestionPair]:
    """Every pair of questions by the rule."""
    questions = tested(agreement, declared)
    names = list(questions)
    return [
        _compare(agreement, (one, questions[one]), (other, questions[other]))
        for place, other in enumerate(names)
        for one in names[:place]
    ]


def _compare(
    agreement: Agreement, one: tuple[str, Sequence[str]], other: tuple[str, Sequence[str]]
) -> QuestionPair:
    between = agreement.between(one[1], other[1])
    owns = [agreement.own(labels) for _, labels in (one, other)]
    known = [own for own in owns if not np.isnan(own[0])]
    difference = np.mean(known, axis=0) - between if known else np.full_like(between, np.nan)
    made = estimate(difference)
    if not made.known:
        verdict = "not measurable"
    elif made.value <= 0:
        verdict = "alike"
    else:
        verdict = "apart" if made.low > 0 else "open"
    return QuestionPair(one[0], other[0], estimate(between), made, verdict)


def memberships(agreement: Agreement, declared: Mapped) -> list[Membership]:
    """Every protocol by the rule."""
    questions = tested(agreement, declared)
    return [
        _membership(agreement, label, question, questions)
        for question, labels in questions.items()
        for label in labels
    ]


def _membership(
    agreement: Agreement, protocol: str, question: str, questions: Mapped
) -> Membership:
    own = agreement.between([protocol], [p for p in questions[question] if p != protocol])
    others = {
        other: agreement.between([protocol], labels)
        for other, labels in questions.items()
        if other != question
    }
    others = {other: values for other, values in others.items() if not np.isnan(values[0])}
    if not others:
        nothing = Estimate(np.nan, np.nan, np.nan)
        return Membership(protocol, question, nothing, "", nothing, nothing, "not measurable")
    nearest = max(others, key=lambda other: others[other][0])
    gaps = [estimate(own - values) for values in others.values()]
    if np.isnan(own[0]):
        verdict = "alone" if len(questions[question]) == 1 else "not measurable"
    elif any(gap.high < 0 for gap in gaps):
        verdict = "moves"
    else:
        verdict = "stays" if all(gap.low > 0 for gap in gaps) else "open"
    difference = estimate(own - others[nearest])
    return Membership(
        protocol, question, estimate(own), nearest, estimate(others[nearest]), difference, verdict
    )


def proposed(agreement: Agreement, declared: Mapped) -> dict[str, list[str]]:
    """The mapping that the rule leads to."""
    questions: Mapped = tested(agreement, declared)
    changed: Mapped | None = questions
    for _ in range(len(agreement.matrix.protocols) ** 2):  # a cycle ends
        changed = _moved(agreement, questions) or _merged(agreement, questions)
        if changed is None:
            break
        questions = changed
    return {
        question: [*labels, *(twin for twin, of in SAME_CURVE.items() if of in labels)]
        for question, labels in _split(agreement, questions).items()
    }


def _moved(agreement: Agreement, questions: Mapped) -> dict[str, list[str]] | None:
    moving = [m for m in memberships(agreement, questions) if m.verdict == "moves"]
    if not moving:
        return None
    first = min(moving, key=lambda m: m.difference.value)
    moved = {
        question: [label for label in labels if label != first.protocol]
        + ([first.protocol] if question == first.nearest else [])
        for question, labels in questions.items()
    }
    return {question: labels for question, labels in moved.items() if labels}


def _merged(agreement: Agreement, questions: Mapped) -> dict[str, list[str]] | None:
    alike = [p for p in compare_questions(agreement, questions) if p.verdict == "alike"]
    if not alike:
        return None
    first = max(alike, key=lambda pair: pair.between.value)
    rest = {q: list(labels) for q, labels in questions.items() if q not in (first.one, first.other)}
    both = [*questions[first.one], *questions[first.other]]
    return {f"{first.one} + {first.other}": both, **rest}


def _split(agreement: Agreement, questions: Mapped) -> dict[str, list[str]]:
    alone = {
        m.protocol
        for m in memberships(agreement, questions)
        if m.own.known and m.own.value <= 0 and len(questions[m.question]) > 1
    }
    rest = {q: [p for p in labels if p not in alone] for q, labels in questions.items()}
    return {q: labels for q, labels in rest.items() if labels} | {p: [p] for p in sorted(alone)}
