"""Which models can be compared with each other: those that share methods and samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from assay.ranking.candidates import Candidate
from assay.ranking.model_rows import LeftOut
from assay.ranking.orders import FEWEST_GROUPS
from assay.ranking.same_plugins import difference, signatures

SOME = 6  # names that a sentence lists


@dataclass(frozen=True)
class CommonGround:
    """The models that are compared, and what is left out.

    Attributes:
        candidates: The largest set of models that share methods and samples.
        methods: The methods that all of them have.
        left_out: The other models.
        methods_left_out: Methods that some of the compared models have, but not all.
    """

    candidates: Sequence[Candidate] = ()
    methods: Sequence[str] = ()
    left_out: Sequence[LeftOut] = field(default=())
    methods_left_out: Sequence[LeftOut] = field(default=())


def common_ground(candidates: Sequence[Candidate]) -> CommonGround:
    """The largest set of models that can be compared.

    Where models do not fit together, leaving some out is better than an order on what is left in
    common: sets that share enough samples for an order come first, then larger ones.
    """
    kinds = _kinds(candidates)
    group = _largest(candidates, kinds)
    if not group:
        nearest = {
            c.model: [other for other in candidates if other is not c][:1] for c in candidates
        }
        lonely = [LeftOut(c.model, _why(c, nearest[c.model], kinds)) for c in candidates]
        return CommonGround(left_out=lonely)
    chosen = [candidates[i] for i in group]
    others = [one for i, one in enumerate(candidates) if i not in group]
    methods = _common(chosen, kinds)
    return CommonGround(
        chosen,
        methods,
        [LeftOut(one.model, _why(one, chosen, kinds)) for one in others],
        _not_common(chosen, methods),
    )


Kinds = Mapping[str, Mapping[str, str]]  # by model: what each of its methods computes


def _kinds(candidates: Sequence[Candidate]) -> Kinds:
    """What the eligible methods of each model compute, comparable between runs."""
    places = [(c.model, m, c.methods[m]) for c in candidates for m in c.eligible]
    kinds: dict[str, dict[str, str]] = {c.model: {} for c in candidates}
    texts = signatures([entry for *_, entry in places])
    for (model, method, _), text in zip(places, texts, strict=True):
        kinds[model][method] = text
    return kinds


def _common(candidates: Sequence[Candidate], kinds: Kinds) -> list[str]:
    """The methods that every model has in the same form."""
    first, *others = (kinds[c.model] for c in candidates)
    return [m for m, kind in first.items() if all(of.get(m) == kind for of in others)]


def _largest(candidates: Sequence[Candidate], kinds: Kinds) -> list[int]:
    """The places of the largest set that shares a method and samples; empty below two models."""
    for least in (FEWEST_GROUPS, 2):
        best: list[int] = []
        for seed in range(len(candidates)):
            group = _around(seed, candidates, kinds, least)
            if len(group) > len(best):
                best = group
            if len(best) == len(candidates):
                break
        if len(best) > 1:
            return sorted(best)
    return []


def _around(seed: int, candidates: Sequence[Candidate], kinds: Kinds, least: int) -> list[int]:
    """A model and all that fit to it and to each other, in their order."""
    group, first = [seed], candidates[seed]
    methods, samples = set(kinds[first.model].items()), first.samples
    for place, other in enumerate(candidates):
        common = methods & set(kinds[other.model].items())
        shared = samples & other.samples
        enough = len({first.block.groups[s] for s in shared}) >= least
        if place != seed and common and enough and _grouped_alike(first, other):
            group.append(place)
            methods, samples = common, shared
    return group


def _grouped_alike(one: Candidate, other: Candidate) -> bool:
    """Whether the samples of both belong together in the same way."""
    mine, theirs = one.block.groups, other.block.groups
    return all(mine[sample] == theirs[sample] for sample in one.samples & other.samples)


def _why(one: Candidate, others: Sequence[Candidate], kinds: Kinds) -> str:
    """Why a model cannot be compared with these."""
    if not others:
        return f"No other model has scores on `{one.block.dataset}`."
    first = others[0]
    methods = _common(others, kinds)
    if not any(kinds[one.model].get(m) == kinds[first.model][m] for m in methods):
        for method in (m for m in methods if m in one.eligible):
            entries = [first.methods[method], one.methods[method]]
            return difference(method, entries, [first.folder, one.folder])
        has, have = some(list(one.eligible)), some(methods)
        return f"Shares no method with the others: has {has}; they have {have}."
    if not _grouped_alike(one, first):
        return "Its samples belong together in other groups than those of the others."
    shared = one.samples.intersection(*(c.samples for c in others))
    count = len({first.block.groups[sample] for sample in shared})
    return f"Shares {count} independent samples with the others, which is too few."


def _not_common(candidates: Sequence[Candidate], methods: Sequence[str]) -> list[LeftOut]:
    """The methods that only some of the models have, or have in different forms."""
    every = dict.fromkeys(m for c in candidates for m in c.eligible)
    rows = []
    for method in (m for m in every if m not in methods):
        without = [c.model for c in candidates if method not in c.eligible]
        if without:
            reason = f"Not scored on {some(without)}."
        else:
            entries = [c.methods[method] for c in candidates]
            reason = difference(method, entries, [c.folder for c in candidates])
        rows.append(LeftOut(method, reason))
    return rows


def some(names: Sequence[str]) -> str:
    """The first of these names, and how many more there are."""
    more = f" and {len(names) - SOME} more" if len(names) > SOME else ""
    return ", ".join(names[:SOME]) + more
