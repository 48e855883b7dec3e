"""The answer in plain words: who comes first, how surely, and who is no better than a control."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from assay.report.board import Board, number, percent


@dataclass(frozen=True)
class Verdict:
    """What a reader takes away from one section."""

    first: tuple[str, ...]  # the methods in first place
    answer: Markup
    certainty: str
    ties: str
    below: Markup
    left_out: str
    few: str


def setting(board: Board, several_checkpoints: bool = False) -> str:
    """The name of a section."""
    dataset, model, checkpoint = board.key
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
    board: Board, methods: Mapping[str, Mapping[str, Any]], accuracy: float | None = None
) -> Verdict:
    """The verdict of one section; `accuracy` is the network's on the untouched samples."""

    def control(entry: Mapping[str, Any]) -> bool:
        return bool(methods.get(entry["method"], {}).get("control"))

    placed = [o for o in board.overall if o["position"] is not None]
    contenders = [o for o in placed if not control(o)]
    below, left_out = _below(board, methods), _left_out(board, methods)
    few = ""
    if board.groups and not board.ties_broken:
        few = (
            f"Only {_count(board.groups, 'independent group')} of samples: too few to tell methods "
            "apart, so no tie is broken. Read the order as a hint."
        )
    if accuracy is not None and accuracy < 0.5:
        few = f"The network is right on only {accuracy:.0%} of these samples. {few}".strip()
    if not contenders:
        return Verdict((), Markup("No method could be ranked here."), "", "", below, left_out, few)
    best = contenders[0]["position"]
    first = [o for o in contenders if o["position"] == best]
    leader = first[0]
    over = f"over {_count(leader['protocols'], 'protocol')}"
    rank = f"mean rank by score {number(leader['mean_rank']):.1f}"
    span = _span(leader)
    if len(first) > 1:
        answer = Markup("{} share first place {} ({}).").format(
            names([o["method"] for o in first]), over, rank
        )
    elif len(contenders) == 1:
        answer = Markup("{} is the only method that could be placed {}: {}.").format(
            names([leader["method"]]), over, rank
        )
    else:
        answer = Markup("{} comes first {}: {}{}.").format(
            names([leader["method"]]), over, rank, span
        )
    ahead = [o["method"] for o in placed if control(o) and o["position"] < best]
    if ahead:
        answer += Markup(" But {} {} ahead of every method.").format(
            names(ahead), "is a control and" if len(ahead) == 1 else "are controls and"
        )
    return Verdict(
        tuple(o["method"] for o in first),
        answer,
        _certainty(
            first,
            [{**o, "control": control(o)} for o in placed],
            unresolved=not board.ties_broken or not _alone(board, leader["method"]),
        ),
        _ties(board, leader["method"]) if board.ties_broken else "",
        below,
        left_out,
        few,
    )


def _span(entry: Mapping[str, Any]) -> str:
    low, high = number(entry["low"]), number(entry["high"])
    known = math.isfinite(low) and math.isfinite(high)
    return f" (95 % interval {low:.1f} to {high:.1f})" if known else ""


def overview(
    firsts: Sequence[tuple[str, Sequence[str]]], environments: int = 0, by: str = ""
) -> Markup:
    """One sentence over several sections.

    Args:
        firsts: The methods in first place of each section.
        environments: So many of them beside these are not meant.
        by: How the sentence begins.
    """
    aside = f", the environment{'' if environments == 1 else 's'} aside" if environments else ""
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
            where_to.get(most, f"in all {most} settings"), aside,
        )  # fmt: skip
    depends = Markup("{} answer depends on the setting{}: ").format(
        f"{by}the" if by else "The", aside
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
    first: Sequence[Mapping[str, Any]], everyone: Sequence[Mapping[str, Any]], unresolved: bool
) -> str:
    share = number(first[0].get("first_share"))
    leaders = {o["method"] for o in first}
    others = [o for o in everyone if o["method"] not in leaders]
    if math.isnan(share) or (not others and len(first) == 1):
        return ""
    held = f"stays first in {percent(share)} of the resamples of the data"
    if len(first) > 1:
        return f"Their order is not settled: {first[0]['method']} {held}."
    closest = max(others, key=lambda o: number(o.get("first_share") or 0.0))
    other = number(closest.get("first_share") or 0.0)
    who = f"{'the control ' if closest['control'] else ''}{closest['method']}"
    rival = f"; next is {who} with {percent(other)}"
    if other > share:
        rival = f", and {who} comes first more often, in {percent(other)}"
    if unresolved:
        return f"It {held}{rival}."
    if share >= 0.95:
        return f"The lead is clear: it {held}."
    if share >= 0.75:
        return f"The lead is likely but not certain: it {held}{rival}."
    return f"The lead is not secure: it {held}{rival}."


def _alone(board: Board, leader: str) -> set[str]:
    """The protocols under which the leader holds rank 1 alone."""
    best = [r for r in board.rows if r["rank"] == 1]
    held = {r["protocol"] for r in best if r["method"] == leader}
    return held - {r["protocol"] for r in best if r["method"] != leader}


def _ties(board: Board, leader: str) -> str:
    """Under how many protocols the leader holds rank 1, and under how many alone."""
    ranks = {r["protocol"]: r["rank"] for r in board.rows
             if r["method"] == leader and r["rank"] is not None}  # fmt: skip
    if all(r["rank"] in (None, 1) for r in board.rows):
        return "But no protocol tells any two methods apart on these data: every rank is shared."
    held, alone = list(ranks.values()).count(1), len(_alone(board, leader))
    tail = "but never alone" if held and not alone else f"alone in {alone}"
    found = {p: {r["rank"] for r in board.rows if r["protocol"] == p} - {None} for p in ranks}
    mute = sum(each == {1} for each in found.values())
    said = f"Protocol by protocol, {leader} holds rank 1 in {held} of {len(ranks)}, {tail}."
    return f"{said} {mute} of {len(ranks)} protocols tell no two methods apart." if mute else said


def _below(board: Board, methods: Mapping[str, Mapping[str, Any]]) -> Markup:
    """Which methods fall below the best model-free control, worst first."""
    if not any(r.get("best_control") for r in board.rows):
        return Markup("No model-free control was run, so there is no floor to compare with.")
    found = []
    for method, about in methods.items():
        if about.get("control"):
            continue
        mine = [r for r in board.rows if r["method"] == method and r["rank"] is not None]
        below = sum(bool(r.get("below_control")) for r in mine)
        clearly = sum(bool(r.get("clearly_below")) for r in mine)
        if below:
            found.append((clearly, below, len(mine), method))
    if not found:
        return Markup("Every method scores above the best model-free control under every protocol.")
    found.sort(key=lambda f: (-f[0], -f[1]))
    sentences = []
    clear = [(m, c, n) for c, _, n, m in found if c]
    unclear = [(m, b, n) for c, b, n, m in found if not c]
    if clear:
        sentences.append(
            Markup("Clearly below the best model-free control: {}.").format(_of(clear))
        )
    if unclear:
        start = "Below it" if clear else "Below the best model-free control"
        sentences.append(Markup("{}, though not clearly: {}.").format(start, _of(unclear)))
    return Markup(" ").join(sentences)


def _of(found: Sequence[tuple[str, int, int]]) -> Markup:
    """Names with the number of protocols each is true of."""
    parts = [
        Markup("{} ({} of {}{})").format(names([m]), k, n, " protocols" if i == 0 else "")
        for i, (m, k, n) in enumerate(found)
    ]
    return Markup(", ").join(parts)


def _left_out(board: Board, methods: Mapping[str, Mapping[str, Any]]) -> str:
    """Which methods have no overall place, and why."""
    reasons: dict[str, dict[str, list[str]]] = {}
    for entry in board.left_out:
        if not methods.get(entry["method"], {}).get("control"):
            by_reason = reasons.setdefault(entry["method"], {})
            by_reason.setdefault(entry["reason"], []).append(entry["protocol"])
    parts = []
    for method, found in reasons.items():
        every = [
            f"{reason} under {_protocols(where)}" if any(where) else reason
            for reason, where in found.items()
        ]
        parts.append(f"{method} ({', '.join(every)})")
    return f"Without an overall place: {', '.join(parts)}." if parts else ""


def _protocols(where: Sequence[str]) -> str:
    return " and ".join(where) if len(where) < 3 else f"{len(where)} protocols"


def _count(number_of: int, noun: str) -> str:
    return f"{number_of} {noun}{'' if number_of == 1 else 's'}"
