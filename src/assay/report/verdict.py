"""The answer in plain words: which method is first, how certain, and which are below a control."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from assay.ranking.overall import OverallRow
from assay.report.board import Board
from assay.report.row_texts import number, percent
from assay.store import MethodEntry


@dataclass(frozen=True)
class Verdict:
    """The answer for one setting, in sentences."""

    first: tuple[str, ...]  # the methods in first place
    answer: Markup
    certainty: str
    ties: str
    below: Markup
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
    board: Board, methods: Mapping[str, MethodEntry], accuracy: float | None = None
) -> Verdict:
    """The verdict of one setting.

    Args:
        board: Its board.
        methods: The methods of the run by label, in the suite's order.
        accuracy: The network's accuracy on the unchanged samples, where labels are known.
    """
    below, left_out = _below(board, methods), _left_out(board, methods)
    few = _few(board, accuracy)
    contenders = [row for row in board.overall if not row.control]
    if not contenders:
        return Verdict((), Markup("No method could be ranked here."), "", "", below, left_out, few)
    first = [row for row in contenders if row.position == contenders[0].position]
    leader = first[0].method
    unresolved = not board.ties_broken or not _alone(board, leader)
    return Verdict(
        tuple(row.method for row in first),
        _answer(first, contenders) + _controls_ahead(board, first[0].position),
        _certainty(first, board.overall, unresolved),
        _ties(board, leader) if board.ties_broken else "",
        below,
        left_out,
        few,
    )


def _few(board: Board, accuracy: float | None) -> str:
    """Warnings: too few groups to separate methods, a network that is mostly wrong."""
    sentences = []
    if accuracy is not None and accuracy < 0.5:
        sentences.append(f"The network is right on only {accuracy:.0%} of these samples.")
    if board.groups and not board.ties_broken:
        sentences.append(
            f"Only {_count(board.groups, 'independent group')} of samples: too few to separate "
            "methods, so no tie is broken. Read the order as a hint."
        )
    return " ".join(sentences)


def _answer(first: Sequence[OverallRow], contenders: Sequence[OverallRow]) -> Markup:
    leader = first[0]
    over = f"over {_count(leader.protocols, 'protocol')}"
    rank = f"mean rank by score {leader.mean_rank:.1f}"
    if len(first) > 1:
        return Markup("{} share first place {} ({}).").format(
            names([row.method for row in first]), over, rank
        )
    if len(contenders) == 1:
        return Markup("{} is the only method that could be placed {}: {}.").format(
            names([leader.method]), over, rank
        )
    return Markup("{} comes first {}: {}{}.").format(
        names([leader.method]), over, rank, _interval(leader)
    )


def _interval(row: OverallRow) -> str:
    low, high = number(row.low), number(row.high)
    known = math.isfinite(low) and math.isfinite(high)
    return f" (95 % interval {low:.1f} to {high:.1f})" if known else ""


def _controls_ahead(board: Board, best: int) -> Markup:
    """A warning where controls come before every method."""
    ahead = [row.method for row in board.overall if row.control and row.position < best]
    if not ahead:
        return Markup("")
    return Markup(" But {} {} ahead of every method.").format(
        names(ahead), "is a control and" if len(ahead) == 1 else "are controls and"
    )


def overview(
    firsts: Sequence[tuple[str, Sequence[str]]], environments: int = 0, by: str = ""
) -> Markup:
    """One sentence over several settings.

    Args:
        firsts: The methods in first place of each setting.
        environments: Number of environments of the run that are not counted.
        by: How the sentence begins.
    """
    plural = "" if environments == 1 else "s"
    uncounted = f", not counting the environment{plural}" if environments else ""
    wins: dict[str, list[str]] = {}
    for where, first in firsts:
        for method in first:
            wins.setdefault(method, []).append(where)
    if not wins:
        return Markup("No method could be ranked.")
    most = max(len(where) for where in wins.values())
    best = [m for m, where in wins.items() if len(where) == most]
    if most == len(firsts):
        where_to = {1: f"on {firsts[0][0]}", 2: "in both settings"}
        return Markup("{}{} {} first {}{}.").format(
            by, names(best), "comes" if len(best) == 1 else "come",
            where_to.get(most, f"in all {most} settings"), uncounted,
        )  # fmt: skip
    depends = Markup("{} answer depends on the setting{}: ").format(
        f"{by}the" if by else "The", uncounted
    )
    if most == 1 and len(firsts) > 3:
        return depends + f"no method comes first in more than one of {len(firsts)}."
    if most == 1:
        parts = [Markup("{} comes first on {}").format(names([m]), w[0]) for m, w in wins.items()]
        return depends + Markup(", ").join(parts) + "."
    return depends + Markup("{} {} first in {} of {}.").format(
        names(best), "comes" if len(best) == 1 else "come", most, len(firsts)
    )


def _certainty(
    first: Sequence[OverallRow], everyone: Sequence[OverallRow], unresolved: bool
) -> str:
    share = number(first[0].first_share)
    leaders = {row.method for row in first}
    others = [row for row in everyone if row.method not in leaders]
    if math.isnan(share) or (not others and len(first) == 1):
        return ""
    stays = f"stays first in {percent(share)} of the resamples of the data"
    if len(first) > 1:
        return f"Their order is not settled: {first[0].method} {stays}."
    rival = _rival(others, share)
    if unresolved:
        return f"It {stays}{rival}."
    if share >= 0.95:
        return f"The lead is clear: it {stays}."
    if share >= 0.75:
        return f"The lead is likely but not certain: it {stays}{rival}."
    return f"The lead is not secure: it {stays}{rival}."


def _rival(others: Sequence[OverallRow], share: float) -> str:
    """The other method that comes first most often."""
    closest = max(others, key=lambda row: row.first_share or 0.0)
    other = closest.first_share or 0.0
    name = f"{'the control ' if closest.control else ''}{closest.method}"
    if other > share:
        return f", and {name} comes first more often, in {percent(other)}"
    return f"; next is {name} with {percent(other)}"


def _alone(board: Board, leader: str) -> set[str]:
    """The protocols under which the leader has rank 1 alone."""
    best = [row for row in board.rows if row.rank == 1]
    mine = {row.protocol for row in best if row.method == leader}
    return mine - {row.protocol for row in best if row.method != leader}


def _ties(board: Board, leader: str) -> str:
    """Under how many protocols the leader has rank 1, and under how many alone."""
    ranked = [row for row in board.rows if row.rank is not None]
    if all(row.rank == 1 for row in ranked):
        return "But no protocol separates any two methods on these data: every rank is shared."
    own = {row.protocol: row.rank for row in ranked if row.method == leader}
    first, alone = list(own.values()).count(1), len(_alone(board, leader))
    tail = "but never alone" if first and not alone else f"alone in {alone}"
    ranks = [{row.rank for row in ranked if row.protocol == protocol} for protocol in own]
    unable = sum(each == {1} for each in ranks)
    sentence = f"Protocol by protocol, {leader} has rank 1 in {first} of {len(own)}, {tail}."
    if not unable:
        return sentence
    return f"{sentence} {unable} of {len(own)} protocols cannot separate any two methods."


def _below(board: Board, methods: Mapping[str, MethodEntry]) -> Markup:
    """Which methods are below the best model-free control, worst first."""
    if not any(row.best_control for row in board.rows):
        return Markup("No model-free control was run, so there is no floor to compare with.")
    counts = []  # (clearly below, below, ranked, method)
    for method in methods:
        mine = [r for r in board.rows if r.method == method and r.rank is not None]
        below = sum(bool(row.below_control) for row in mine)
        if below:
            clearly = sum(bool(row.clearly_below) for row in mine)
            counts.append((clearly, below, len(mine), method))
    if not counts:
        return Markup("Every method scores above the best model-free control under every protocol.")
    counts.sort(key=lambda count: (-count[0], -count[1]))
    clear = [(method, clearly, n) for clearly, _, n, method in counts if clearly]
    unclear = [(method, below, n) for clearly, below, n, method in counts if not clearly]
    sentences = []
    if clear:
        sentences.append(
            Markup("Clearly below the best model-free control: {}.").format(_with_counts(clear))
        )
    if unclear:
        start = "Below it" if clear else "Below the best model-free control"
        sentences.append(Markup("{}, but not clearly: {}.").format(start, _with_counts(unclear)))
    return Markup(" ").join(sentences)


def _with_counts(counts: Sequence[tuple[str, int, int]]) -> Markup:
    """Names with the number of protocols each is true of."""
    parts = [
        Markup("{} ({} of {}{})").format(names([m]), k, n, " protocols" if i == 0 else "")
        for i, (m, k, n) in enumerate(counts)
    ]
    return Markup(", ").join(parts)


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


def _count(number_of: int, noun: str) -> str:
    return f"{number_of} {noun}{'' if number_of == 1 else 's'}"
