"""The answer of one setting: which methods no other one beats, and whether that is sure."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from assay.ranking.orders import FEWEST_GROUPS
from assay.ranking.partial_order import Relation, beats, unbeaten
from assay.ranking.question_scores import QuestionResult
from assay.store import SettingKey

FLOOR = ("random", "model_free")  # kinds of control that a method must beat


@dataclass(frozen=True)
class LeftOutProtocol:
    """Why a protocol has no part in the answer."""

    protocol: str
    reason: str


@dataclass(frozen=True)
class Advantage:
    """One method, or control, is resolved better than a method under a question."""

    winner: str
    loser: str
    question: str


@dataclass(frozen=True)
class Answer:
    """Which methods of a setting no other method beats.

    Attributes:
        setting: Dataset, model and checkpoint.
        methods: All methods that could be ranked, in the order of the list, without controls.
        best: The methods that no other one beats, in the same order. Of methods with the same
            scores only the first is named.
        questions: The questions, with their protocols.
        beaten_by: For each method that is not among the best, a method that beats it.
        advantages: Where members of the best are resolved better than another member.
        controls: The controls that no method may fall behind.
        controls_ahead: Where a control is resolved better than a method.
        not_above: Methods that are resolved better than every control under no question.
        same_as: Methods that have the scores of an earlier one.
        without: The best where one question is left out, if they are others. Methods that the
            remaining protocols do not rank are not counted.
        with_fill: The best by the protocols with one fill alone, if they are others.
        fills: The fills of the protocols.
        fills_left_out: Fills of protocols that have no part in the answer.
        reference: The control from which differences are taken.
        aligned: The best methods that start from one of these fills.
        n_groups: Number of independent groups of samples.
        protocols_left_out: Protocols that have no part in the answer.
        nothing: Why there is no answer; empty where there is one.
        silent: Why no protocol that runs the network ranks a method, where only those that know
            the truth are left; empty otherwise.
        true_first: The methods in first place by each protocol that knows the truth and separates
            methods.
    """

    setting: SettingKey
    methods: tuple[str, ...] = ()
    best: tuple[str, ...] = ()
    questions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    beaten_by: Mapping[str, str] = field(default_factory=dict)
    advantages: tuple[Advantage, ...] = ()
    controls: tuple[str, ...] = ()
    controls_ahead: tuple[Advantage, ...] = ()
    not_above: tuple[str, ...] = ()
    same_as: Mapping[str, str] = field(default_factory=dict)
    without: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    with_fill: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    fills: tuple[str, ...] = ()
    fills_left_out: tuple[str, ...] = ()
    reference: str = ""
    aligned: tuple[str, ...] = ()
    n_groups: int = 0
    protocols_left_out: tuple[LeftOutProtocol, ...] = ()
    nothing: str = ""
    silent: str = ""
    true_first: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def enough(self) -> bool:
        """Whether there are enough groups to separate any two methods."""
        return self.n_groups >= FEWEST_GROUPS

    @property
    def different(self) -> tuple[str, ...]:
        """The methods, each set of methods with the same scores once."""
        return tuple(name for name in self.methods if name not in self.same_as)

    @property
    def one_question(self) -> bool:
        """Whether all protocols ask the same."""
        return len(self.questions) == 1

    @property
    def survives_fills(self) -> bool:
        """Whether every fill by itself gives the same best methods."""
        return not self.with_fill


def nothing_to_rank(
    setting: SettingKey,
    methods: Sequence[str],
    reason: str,
    protocols_left_out: Sequence[LeftOutProtocol],
) -> Answer:
    """The answer of a setting in which nothing can be ranked."""
    out = tuple(protocols_left_out)
    return Answer(setting, tuple(methods), nothing=reason, protocols_left_out=out)


def answer_of(
    setting: SettingKey,
    listed: Sequence[str],
    names: Sequence[str],
    controls: Mapping[str, str],
    results: Sequence[QuestionResult],
    by_fill: Mapping[str, Sequence[QuestionResult]],
    noise: Collection[str] = (),
) -> Answer:
    """The answer from all pairs under all questions.

    Args:
        setting: Dataset, model and checkpoint.
        listed: The methods in the order of the list, without controls.
        names: Methods and controls in the order of the rows of the differences.
        controls: Kind of each control.
        results: All pairs under each question.
        by_fill: The same from the protocols of each fill alone, if there are several.
        noise: Controls that a method must beat besides those of the kinds in `FLOOR`.
    """
    same_as = _same(listed, names, results)
    chosen = [name for name in listed if name not in same_as]
    places = [names.index(name) for name in chosen]
    best = _best(chosen, [_better(one, places) for one in results])
    relation = beats([_better(one, places) for one in results])
    floor = [name for name in names if controls.get(name) in FLOOR or name in noise]
    return Answer(
        setting,
        tuple(listed),
        best,
        {one.name: one.protocols for one in results},
        {name: _beater(name, relation, chosen) for name in chosen if name not in best},
        tuple(_advantages(best, best, names, results)),
        tuple(floor),
        tuple(_advantages(floor, chosen, names, results)),
        tuple(name for name in chosen if not _above(name, floor, names, results)),
        same_as,
        _others(chosen, names, best, _each_left_out(results)),
        _others(chosen, names, best, by_fill),
        n_groups=max((one.differences.n_groups for one in results), default=0),
    )


def _better(one: QuestionResult, places: Sequence[int]) -> Relation:
    return one.better[np.ix_(places, places)]


def _best(chosen: Sequence[str], better: Sequence[Relation]) -> tuple[str, ...]:
    top = unbeaten(beats(better)) if better else np.ones(len(chosen), np.bool_)
    return tuple(name for name, first in zip(chosen, top, strict=True) if first)


def _beater(name: str, relation: Relation, chosen: Sequence[str]) -> str:
    """The first method of the list that beats this one."""
    column = relation[:, chosen.index(name)]
    return chosen[int(np.argmax(column))] if column.any() else ""


def _each_left_out(results: Sequence[QuestionResult]) -> dict[str, list[QuestionResult]]:
    """The results without each question."""
    if len(results) < 2:
        return {}
    return {out.name: [one for one in results if one is not out] for out in results}


def _others(
    chosen: Sequence[str],
    names: Sequence[str],
    best: Sequence[str],
    cases: Mapping[str, Sequence[QuestionResult]],
) -> dict[str, tuple[str, ...]]:
    """The best by parts of the results, where they are others.

    A method that such a part compares with no other one is not counted.
    """
    others = {}
    for case, results in cases.items():
        places = np.array([names.index(name) for name in chosen], np.int64)
        known = np.any([~np.isnan(one.differences.mean[np.ix_(places, places)]) for one in results],
                       axis=0)  # fmt: skip
        np.fill_diagonal(known, False)
        here = [name for name, compared in zip(chosen, known.any(axis=0), strict=True) if compared]
        first = _best(here, [_better(one, [names.index(name) for name in here]) for one in results])
        if here and set(first) != set(best) & set(here):
            others[case] = first
    return others


def _above(
    name: str, floor: Sequence[str], names: Sequence[str], results: Sequence[QuestionResult]
) -> bool:
    """Whether a method is resolved better than every control under some question."""
    below = [names.index(control) for control in floor]
    return any(one.better[names.index(name), below].all() for one in results)


def _advantages(
    winners: Sequence[str],
    losers: Sequence[str],
    names: Sequence[str],
    results: Sequence[QuestionResult],
) -> list[Advantage]:
    return [
        Advantage(winner, loser, one.name)
        for one in results
        for winner in winners
        for loser in losers
        if one.better[names.index(winner), names.index(loser)]
    ]


def _same(
    listed: Sequence[str], names: Sequence[str], results: Sequence[QuestionResult]
) -> dict[str, str]:
    """Methods that have the same scores as an earlier one under every question, and which."""
    same: dict[str, str] = {}
    for i, name in enumerate(listed):
        for earlier in listed[:i]:
            if earlier not in same and _equal(names.index(earlier), names.index(name), results):
                same[name] = earlier
                break
    return same


def _equal(one: int, other: int, results: Sequence[QuestionResult]) -> bool:
    """Whether two methods differ by 0, without any spread, wherever both are ranked."""
    ends = [
        (one_question.differences.low[one, other], one_question.differences.high[one, other])
        for one_question in results
    ]
    known = [pair for pair in ends if not math.isnan(pair[0])]
    return bool(known) and all(low == high == 0 for low, high in known)
