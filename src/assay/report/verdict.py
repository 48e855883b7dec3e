"""The answer of the page in plain words."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from assay.ranking import answer_words as words
from assay.ranking.answer import Answer
from assay.report.board import Board
from assay.store import MethodEntry


@dataclass(frozen=True)
class Verdict:
    """The answer for one setting, in sentences.

    Attributes:
        first: The methods that no other one beats; none where nothing can be ranked.
        answer: Which these are, and where they differ.
        certainty: Controls that are better, and whether the answer stays without a question or
            with another fill.
        below: The methods that are not above the controls.
        left_out: Methods and protocols without a part in the answer.
        few: Warnings: a network that is mostly wrong.
    """

    first: tuple[str, ...]
    answer: Markup
    certainty: str
    below: str
    left_out: str
    few: str


def setting_name(board: Board, several_checkpoints: bool = False) -> str:
    """The name of a setting on the page."""
    dataset, model, checkpoint = board.setting
    if board.environment:
        return dataset
    tail = f" ({checkpoint})" if several_checkpoints and checkpoint else ""
    return f"{dataset} · {model}{tail}"


def names(items: Sequence[str]) -> Markup:
    """A list of names in bold, joined as in a sentence."""
    bold = [Markup("<b>{}</b>").format(item) for item in items]
    if len(bold) < 2:
        return Markup("").join(bold)
    return Markup("{} and {}").format(Markup(", ").join(bold[:-1]), bold[-1])


def judge(
    board: Board, answer: Answer, methods: Mapping[str, MethodEntry], accuracy: float | None = None
) -> Verdict:
    """The verdict of one setting.

    Args:
        board: Its board.
        answer: Which methods are not beaten.
        methods: The methods of the run by label, in the suite's order.
        accuracy: The network's accuracy on the unchanged samples, where labels are known.
    """
    few = ""
    if accuracy is not None and accuracy < 0.5:
        few = f"The network is right on only {accuracy:.0%} of these samples."
    left_out = " ".join(text for text in (_left_out(board, methods), _silent(answer)) if text)
    sure = answer.enough and not answer.nothing
    first = [words.who(answer), words.differ(answer) if sure else ""]
    rest = [words.warnings(answer), words.robust(answer), words.twins(answer)] if sure else []
    return Verdict(
        answer.best if sure else (),
        bold(" ".join(text for text in first if text), answer.methods),
        " ".join(text for text in rest if text),
        words.floor(answer) if sure else "",
        left_out,
        few,
    )


def bold(text: str, methods: Collection[str]) -> Markup:
    """A sentence with the names of methods in bold."""
    longest_first = sorted(map(re.escape, methods), key=len, reverse=True)
    if not longest_first:
        return Markup("{}").format(text)
    pattern = rf"(?<![\w\]])({'|'.join(longest_first)})(?![\w\[])"
    parts = re.split(pattern, text)
    marked = [Markup("<b>{}</b>").format(p) if i % 2 else escape(p) for i, p in enumerate(parts)]
    return Markup("").join(marked)


def _silent(answer: Answer) -> str:
    """Which protocols have no part in the answer, and why."""
    if answer.nothing:
        return ""
    by_reason: dict[str, list[str]] = {}
    for one in answer.protocols_left_out:
        by_reason.setdefault(one.reason, []).append(one.protocol)
    parts = [f"{_protocols(which)} ({reason})" for reason, which in by_reason.items()]
    return f"No part in the answer: {', '.join(parts)}." if parts else ""


def _left_out(board: Board, methods: Mapping[str, MethodEntry]) -> str:
    """Which methods have no overall place, and why."""
    reasons: dict[str, dict[str, list[str]]] = {}
    for row in board.left_out:
        if not methods[row.method].control:
            by_reason = reasons.setdefault(row.method, {})
            by_reason.setdefault(row.reason, []).append(row.protocol)
    parts = []
    for method, by_reason in reasons.items():
        every = [
            f"{reason} under {_protocols(where)}" if any(where) else reason
            for reason, where in by_reason.items()
        ]
        parts.append(f"{method} ({', '.join(every)})")
    return f"Without an overall place: {', '.join(parts)}." if parts else ""


def _protocols(where: Sequence[str]) -> str:
    return " and ".join(where) if len(where) < 3 else f"{len(where)} protocols"
