"""Maps mixed with shuffled ones: the doses of `validate`, scored beside the methods of a run."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from assay.suite.spec import Choice
from assay.types import Batch, Case

DOSES = (0.25, 0.5, 0.75, 1.0)  # shares of another sample's map; 0 is the method itself
MIXING = 1  # the version of `mixed`: raise it when its numbers change


@dataclass(frozen=True)
class DosedChoice(Choice):
    """A method whose maps are mixed with its own maps of other samples."""

    dose: float = 1.0

    @functools.cached_property
    def key(self) -> dict[str, Any]:
        """What identifies its results: the method, the dose and how maps are mixed."""
        return {**super().key, "dose": self.dose, "mixing": MIXING}


def doses_of(method: Choice) -> tuple[DosedChoice, ...]:
    """A method at every dose, except 0."""
    return tuple(
        DosedChoice(
            f"{method.label}, dose {dose:g}",
            method.plugin,
            method.options,
            method.reduction,
            method.noise,
            dose,
        )
        for dose in DOSES
    )


def mixed(own: Tensor, others: Tensor, batch: Batch, dose: float) -> Tensor:  # [B, *map_shape]
    """A share of each map replaced by that share of another map, which is scaled to its length.

    Formula: (1 - dose) a + dose b |a| / |b|, with the Euclidean lengths over what can be removed.
    Dose 0 is the map itself, dose 1 another sample's map; both have the same length.
    """
    able = batch.removable
    if able is not None:
        able = able.reshape(own.shape)
        own, others = own.masked_fill(~able, 0.0), others.masked_fill(~able, 0.0)
    length, other = _length(own), _length(others)
    scale = torch.where(other > 0, length / torch.where(other > 0, other, 1.0), 0.0)
    both = (1 - dose) * own.double() + dose * scale * others.double()
    return both.to(own.dtype)


def dosed_case(case: Case, maps: Tensor, order: Sequence[int] | None) -> Case:
    """What a protocol sees of mixed maps. No method makes them, so none can explain again.

    Args:
        case: The case of the method.
        maps: The mixed maps.
        order: The sample whose map each sample gets, where all have a partner in the batch.
    """
    partner = None if order is None else lambda: maps[list(order)]
    return replace(case, attribution=maps, explain=None, explain_passes=0, partner=partner)


def _length(maps: Tensor) -> Tensor:  # [B, 1, ...]
    lengths = maps.double().flatten(1).square().sum(1).sqrt()
    return lengths.reshape(-1, *[1] * (maps.ndim - 1))


def validated(methods: Sequence[Choice]) -> dict[str, tuple[DosedChoice, ...]]:
    """The doses of each method that is no control, by its label."""
    return {m.label: doses_of(m) for m in methods if not m.plugin.control}
