"""Which models of an architecture are independent replicates of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from assay.ranking.candidates import Candidate
from assay.ranking.common_ground import some
from assay.ranking.resampling import Floats


@dataclass(frozen=True)
class IndependentModels:
    """The places of independent models by architecture, and notes on models that are not."""

    places: Mapping[str, Sequence[int]]
    notes: Sequence[str]


def independent_replicates(
    candidates: Sequence[Candidate], tables: Sequence[Floats]
) -> IndependentModels:
    """Count models with equal weights, or equal scores on every sample, as one replicate.

    Equal scores show networks that are the same up to the names of their layers or the scale of
    their outputs, whose hashes differ.

    Args:
        candidates: The models.
        tables: The scores of each model [n, methods].
    """
    places: dict[str, list[int]] = {}
    notes: list[str] = []
    for place, one in enumerate(candidates):
        mine = places.setdefault(one.architecture, [])
        same = next((i for i in mine if _same(candidates, tables, i, place)), None)
        if same is None:
            mine.append(place)
        else:
            notes.append(
                f"{one.model} and {candidates[same].model} have equal weights or equal scores on "
                f"every sample: they count as one replicate."
            )
    for name, mine in places.items():
        bases = [candidates[i].base for i in mine]
        if len(bases) > 1 and "" not in bases and len(set(bases)) < len(bases):
            names = some([candidates[i].model for i in mine])
            notes.append(
                f"Some models of {name} were fine-tuned from the same weights, so they show less "
                f"than the spread of trainings: {names}."
            )
    return IndependentModels(places, notes)


def origins(candidates: Sequence[Candidate]) -> dict[str, str]:
    """The architecture that each model stems from, by its name.

    A fine-tuned network, or its placebo, is no new architecture: it stems from the one whose
    weights it was made from.
    """
    known: dict[str, str] = {}  # the architecture of weights
    for one in candidates:
        if not one.base:
            known[one.entry.weights_hash] = one.architecture
    return {
        one.model: known.setdefault(one.base, one.architecture) if one.base else one.architecture
        for one in candidates
    }


def _same(candidates: Sequence[Candidate], tables: Sequence[Floats], one: int, other: int) -> bool:
    first, second = (candidates[i].entry.weights_hash for i in (one, other))
    if first and first == second:
        return True
    # Equal constants are no evidence: every linear network has perfect maps.
    return np.array_equal(tables[one], tables[other]) and float(np.ptp(tables[one])) > 0
