"""A comparison of models in sentences, the same on the terminal and on the page."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from assay.ranking.common_ground import some
from assay.ranking.model_rows import (
    Bounded,
    ModelComparison,
    PairRow,
    by_reason,
    in_text,
)

RULES = (
    "The score of a model is that of the best of the common methods. It is chosen on one half of "
    "the samples and scored on the other.",
    "Intervals are at 95 %, over samples; those of architectures are over their models, too.",
    "The lead of the first is how much better it scores than the model. These intervals hold for "
    "all pairs at once.",
    "Models are listed by score. Models that are not clearly worse than the first of their group "
    "share its rank.",
)
CEILING = "Accuracy, and the ceiling: how far a network repeats its own order of the cells"


def answer(one: ModelComparison) -> str:
    """Which architecture and which network can be explained best, in words."""
    weak = {row.model for row in one.models if row.weak}
    networks = [(row.model, row.rank) for row in one.models]
    if len(one.architectures) < 2:
        return _first(networks, "network", weak)
    architectures = [(row.architecture, row.rank) for row in one.architectures]
    of_networks = _first(networks, "single network", weak)
    return f"{_first(architectures, 'architecture', set())} {of_networks}"


def _first(ranks: Sequence[tuple[str, int | None]], kind: str, weak: Collection[str]) -> str:
    """Which of these comes first; a tie of all is no order."""
    first = [name for name, rank in ranks if rank == 1]
    if not first:
        return f"There are too few samples to tell which {kind} can be explained best."
    if len(first) == len(ranks):
        return f"No {kind} can clearly be explained better than another."
    if len(first) == 1:
        but = ", but it is hardly right more often than by chance" if first[0] in weak else ""
        return f"The {kind} that can be explained best is {first[0]}{but}."
    if len(first) > 3:
        return f"{len(first)} of {len(ranks)} {kind}s tie for the best explained."
    return f"The {kind}s {', '.join(first[:-1])} and {first[-1]} tie for the best explained."


def heading(one: ModelComparison) -> str:
    """What is compared, by what, and on how many samples."""
    direction = "higher" if one.higher_is_better else "lower"
    n = one.models[0].n
    return f"{one.dataset}: models by {one.protocol}, {direction} is better, {n} samples"


def lead(pairs: Sequence[PairRow], first: str, other: str) -> Bounded:
    """How far one model or architecture is ahead of another; unknown for itself."""
    for row in pairs:
        if (row.first, row.second) == (first, other):
            return Bounded(row.difference, row.low, row.high, row.n)
        if (row.first, row.second) == (other, first):
            low = None if row.high is None else -row.high
            high = None if row.low is None else -row.low
            return Bounded(-row.difference, low, high, row.n)
    return Bounded()


def architecture_leads(one: ModelComparison) -> list[str]:
    """How far the architecture listed first is ahead of each other one."""
    lines = []
    for row in one.architectures[1:]:
        first = one.architectures[0].architecture
        number = lead(one.architecture_pairs, first, row.architecture)
        clear = number.low is not None and number.low > 0 and row.rank is not None
        verdict = "clear" if clear else "not clear"
        lines.append(f"{first} is ahead of {row.architecture} by {in_text(number)}: {verdict}.")
    return lines


def with_n(number: Bounded, n: int, digits: int = 3) -> str:
    """A number and its interval, and its own count of samples where that is not `n`."""
    text = in_text(number, digits)
    return f"{text} (n = {number.n})" if text and number.n and number.n != n else text


def remarks(one: ModelComparison) -> list[str]:
    """Which methods count and what limits the comparison, in one sentence or two each."""
    lines = [f"Common methods: {', '.join(one.methods)}.", *_chosen(one)]
    for names, reason in by_reason(one.methods_left_out):
        lines.append(f"Not common to all models: {names}. {reason}")
    if one.intrinsic:
        maps = [f"{r.model} {r.method} {in_text(r.score)}, n = {r.n}" for r in one.intrinsic]
        lines.append(
            f"Maps of the networks themselves are near-circular and not compared: "
            f"{'; '.join(maps)}."
        )
    if found := one.correlation:
        value = in_text(Bounded(found.value, found.low, found.high), 2)
        lines.append(f"Rank correlation of score and accuracy: {value}, {found.n} {found.over}.")
    return [*lines, *one.notes]


def _chosen(one: ModelComparison) -> list[str]:
    """Which method was the best, and on which models."""
    methods = [" or ".join(dict.fromkeys(row.chosen)) for row in one.models]
    if len(set(methods)) == 1 and len(set(one.models[0].chosen)) == 1:
        return [f"The best method on both halves and all models: {methods[0]}."]
    models: dict[str, list[str]] = {}
    for method, row in zip(methods, one.models, strict=True):
        models.setdefault(method, []).append(row.model)
    listed = [f"{method} ({some(names)})" for method, names in models.items()]
    return [f"The best method on one half or the other: {'; '.join(listed)}."]
