"""Over all protocols of a setting: the order in which methods are listed, and the answer.

Methods are listed by their mean difference from the control `random`: over the questions, within
a question over its protocols, in units of the spread of `random`'s own scores over samples. This
is a listing. The answer is a partial order: see `assay.ranking.partial_order`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import scipy

from assay.plugins.questions import BOTH, KNOWN_TRUTH, OTHER, PARTS_OF_BOTH
from assay.ranking.answer import Answer, LeftOutProtocol, answer_of, nothing_to_rank
from assay.ranking.blocks import Block
from assay.ranking.listing import differences_from, is_known, protocols_behind
from assay.ranking.resampling import BootstrapOptions
from assay.ranking.rows import PublicRow, known
from assay.ranking.setting_sums import SettingSums, add_up, question_results
from assay.ranking.standardised import refusal
from assay.store import SHOWN_ONLY, SettingKey

RANDOM = "random"
ASKED_APART = "it asks for necessity and sufficiency at once, which other protocols ask apart"


@dataclass(frozen=True)
class OverallRow:
    """One method over all protocols of a setting.

    Attributes:
        dataset: Label of the dataset.
        model: Label of the model.
        checkpoint: Which weights of the model.
        method: Label of the method.
        control: Kind of control; empty for a method.
        position: Place in the list, without the controls; equal differences share a place. None
            for a control.
        difference: Mean difference from `random`, in units of the spread of its scores.
        low: Lower end of its interval, of this method alone.
        high: Upper end of its interval.
        unbeaten: Whether no other method beats it; None for a control.
        same_as: An earlier method with the same scores; empty where there is none.
        n_groups: Number of groups of samples.
        questions: Number of questions that rank the method.
        protocols: Number of protocols that rank the method.
    """

    dataset: str
    model: str
    checkpoint: str
    method: str
    control: str
    position: int | None
    difference: float
    low: float | None
    high: float | None
    unbeaten: bool | None
    same_as: str
    n_groups: int
    questions: int
    protocols: int

    @property
    def setting(self) -> SettingKey:
        """The setting it belongs to."""
        return SettingKey(self.dataset, self.model, self.checkpoint)

    def as_dict(self) -> PublicRow:
        """The row as users read it."""
        return dict(vars(self))


@dataclass(frozen=True)
class LeftOutRow:
    """One reason why a method has no place in the overall list of a setting."""

    dataset: str
    model: str
    checkpoint: str
    method: str
    protocol: str
    reason: str

    @property
    def setting(self) -> SettingKey:
        """The setting it belongs to."""
        return SettingKey(self.dataset, self.model, self.checkpoint)

    def as_dict(self) -> PublicRow:
        """The row as users read it."""
        return dict(vars(self))


@dataclass(frozen=True)
class Asked:
    """What is known of the protocols of a run, by their labels.

    Attributes:
        questions: What each one asks.
        fills: What each one puts in place of absent units.
        apart: Protocols that are not mixed with others; they rank where no other one does.
        silent: Why a protocol has nothing to rank in a setting.
        noise: Controls without information, besides those of the kind `random`.
    """

    questions: Mapping[str, str] = field(default_factory=dict)
    fills: Mapping[str, str] = field(default_factory=dict)
    apart: frozenset[str] = frozenset()
    silent: Mapping[tuple[SettingKey, str], str] = field(default_factory=dict)
    noise: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Overall:
    """The list of one setting, what has no place in it, and the answer."""

    rows: Sequence[OverallRow]
    left_out: Sequence[LeftOutRow]
    answer: Answer


def rank_overall(
    blocks: Sequence[Block],
    controls: Mapping[str, str],
    options: BootstrapOptions,
    asked: Asked,
) -> Overall:
    """List the methods of one model over all protocols, and answer which are not beaten.

    A method whose scores under some protocols are only shown is ranked by the others.

    Args:
        blocks: All protocols of one setting.
        controls: Kind of each control by method label; kind `other` stays out.
        options: Level, number and seed of the resamples.
        asked: What the protocols ask.
    """
    setting = blocks[0].setting
    reference = reference_control(blocks, controls)
    used, refused = counting_protocols(blocks, controls, asked, reference, options)
    names = sorted({scores.method for block in blocks for scores in block.methods})
    reasons = {name: _reasons(name, used, controls, asked.noise) for name in names}
    left_out = [
        LeftOutRow(*setting, method=name, protocol=protocol, reason=reason)
        for name in names
        for protocol, reason in reasons[name]
    ]
    placed = [name for name in names if not reasons[name]]
    methods = [name for name in placed if name not in controls]
    why = _why_nothing(methods, used, refused, reference)
    if why:
        return Overall([], left_out, nothing_to_rank(setting, methods, why, refused))
    sums = add_up(used, placed, reference, options, asked.questions, asked.fills)
    return _judged(setting, placed, controls, reference, sums, left_out, refused, asked)


def reference_control(blocks: Sequence[Block], controls: Mapping[str, str]) -> str:
    """The control from which differences are taken; empty where there is none."""
    ranked = {scores.method for block in blocks for scores in block.ranked}
    random = sorted(name for name in ranked if controls.get(name) == RANDOM)
    return RANDOM if RANDOM in random else next(iter(random), "")


def counting_protocols(
    blocks: Sequence[Block],
    controls: Mapping[str, str],
    asked: Asked,
    reference: str,
    options: BootstrapOptions,
) -> tuple[list[Block], list[LeftOutProtocol]]:
    """The protocols with a part in the answer, and why others have none."""
    used, refused = [], []
    for block in blocks:
        if not any(scores.method not in controls and len(scores) for scores in block.ranked):
            continue
        why = asked.silent.get((block.setting, block.protocol), "") or (
            refusal(block, reference, options) if reference else ""
        )
        if why:
            refused.append(LeftOutProtocol(block.protocol, why))
        else:
            used.append(block)
    used = [block for block in used if block.protocol not in asked.apart] or used
    questions = {block.protocol: asked.questions.get(block.protocol, OTHER) for block in used}
    if set(questions.values()) & set(PARTS_OF_BOTH):
        both = [block for block in used if questions[block.protocol] == BOTH]
        refused += [LeftOutProtocol(block.protocol, ASKED_APART) for block in both]
        used = [block for block in used if block not in both]
    return used, refused


def _why_nothing(
    methods: Sequence[str],
    used: Sequence[Block],
    refused: Sequence[LeftOutProtocol],
    reference: str,
) -> str:
    if not reference:
        return "the run has no control `random` to compare with"
    if not used:
        return refused[0].reason if refused else "no protocol ranks a method"
    if not methods:
        return "no method has a score under every protocol that ranks"
    return ""


def _judged(
    setting: SettingKey,
    names: Sequence[str],
    controls: Mapping[str, str],
    reference: str,
    sums: SettingSums,
    left_out: Sequence[LeftOutRow],
    refused: Sequence[LeftOutProtocol],
    asked: Asked,
) -> Overall:
    questions = sums.by_question()
    several = sums.fills if len(sums.fills) > 1 else []
    by_fill = {f: question_results(sums.by_question(f), sums.resampling) for f in several}
    listed = differences_from(questions, names, reference, sums.resampling)
    rows = [
        OverallRow(
            *setting,
            method=name,
            control=controls.get(name, ""),
            position=None,
            difference=listed[i].mean,
            low=known(listed[i].low) if listed[i].has_level else None,
            high=known(listed[i].high) if listed[i].has_level else None,
            unbeaten=None,
            same_as="",
            n_groups=listed[i].n_groups,
            questions=sum(is_known(one, i, reference, names) for one in questions.values()),
            protocols=protocols_behind(questions, i, reference, names),
        )
        for i, name in enumerate(names)
        if name == reference or not np.isnan(listed[i].mean)
    ]
    lost = [name for name in names if name not in {row.method for row in rows}]
    reason = f"no samples in common with the control `{reference}`"
    left_out = [*left_out, *(LeftOutRow(*setting, name, "", reason) for name in lost)]
    rows = _placed(sorted(rows, key=lambda row: (-row.difference, bool(row.control), row.method)))
    order = rows_order(rows)
    if not order:
        return Overall([], left_out, nothing_to_rank(setting, [], reason, refused))
    results = question_results(questions, sums.resampling)
    answer = answer_of(setting, order, names, controls, results, by_fill, asked.noise)
    every = {asked.fills.get(one.protocol, "") for one in refused} | set(sums.fills)
    answer = replace(
        answer,
        reference=reference,
        fills=tuple(sums.fills),
        fills_left_out=tuple(sorted(every - {"", *sums.fills})),
        protocols_left_out=tuple(refused),
        silent=_silent(setting, refused, asked) if set(questions) <= {KNOWN_TRUTH} else "",
    )
    twins, best = answer.same_as, set(answer.best)
    rows = [
        replace(
            row,
            same_as=twins.get(row.method, ""),
            unbeaten=None if row.control else (twins.get(row.method) or row.method) in best,
        )
        for row in rows
    ]
    return Overall(rows, left_out, answer)


def _silent(setting: SettingKey, refused: Sequence[LeftOutProtocol], asked: Asked) -> str:
    """Why the network's answers rank nothing, as the first protocol without a signal says."""
    reasons = (asked.silent.get((setting, one.protocol), "") for one in refused)
    return next((reason for reason in reasons if reason), "")


def rows_order(rows: Sequence[OverallRow]) -> list[str]:
    """The methods in the order of the list, without the controls."""
    return [row.method for row in rows if not row.control]


def _placed(rows: Sequence[OverallRow]) -> list[OverallRow]:
    """Number the methods; controls stand between them without a number."""
    own = np.array([row.difference for row in rows if not row.control])
    places = iter(scipy.stats.rankdata(-np.round(own, 9), method="min").astype(int).tolist())
    return [row if row.control else replace(row, position=next(places)) for row in rows]


def _reasons(
    name: str, used: Sequence[Block], controls: Mapping[str, str], noise: Collection[str]
) -> list[tuple[str, str]]:
    """Say where and why a method cannot be in the list; nothing if it can."""
    if controls.get(name) == "other" and name not in noise:
        return [("", "control that is no floor")]
    if controls.get(name) == RANDOM and any(s.method == name for b in used for s in b.ranked):
        return []  # a protocol that does not rank it is left out by itself
    if not used:
        return [("", "no protocol ranks a method")]
    statuses = [
        (block.protocol, next((s.status for s in block.methods if s.method == name), "absent"))
        for block in used
    ]
    if all(status in SHOWN_ONLY for _, status in statuses):
        return statuses
    # Where a method is only shown it has no place; its other protocols decide.
    fine = ("ok", *SHOWN_ONLY)
    return [(protocol, status) for protocol, status in statuses if status not in fine]
