"""The engine and the methods without a network: answers and maps are made up, rows are counted."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

from assay.engine.engine import Arrays, Columns, Engine, Shelf
from assay.errors import InputError
from assay.methods.attribution import other_maps, raw_map
from assay.plugins.registry import canonical, identity
from assay.removal import FillChoice, imputes
from assay.suite.spec import Choice
from assay.types import Batch, Model, Response
from assay.units.absent import Absent
from assay.units.features import Features


class Rehearsal(Engine):
    """The engine without a network: answers are made up, rows are counted."""

    def __post_init__(self) -> None:
        """Begin with nothing asked."""
        self.asked: list[int] = []  # forward passes, question by question
        self.imputed: list[int] = []  # of these, whose inputs are solved for
        self.made: list[int] = []  # passes that were really made, to see how large a layer is
        self.shared = 0  # of all of them, what serves all methods
        self.ragged = False  # whether one sample cannot stand for the others
        self._costs: list[int] = []  # of rows that are asked but not remembered yet
        super().__post_init__()

    def respond(self, features: Features, absent: Absent, fill: FillChoice) -> Response:
        """Answers as the engine's, made up."""
        self.ragged = self.ragged or features.ragged
        before = len(self.asked)
        made_up = super().respond(features, absent, fill)
        self.imputed += self.asked[before:] if imputes(fill) else []
        return made_up

    def answers(self, rows: int, make: Callable[[Tensor, Tensor], Tensor]) -> Response:
        """Answers that nobody remembers."""
        made_up = super().answers(rows, make)
        self._costs = []
        return made_up

    def count(self, rows: int) -> None:
        """Passes beside the engine count as if asked for; even here they were really made."""
        self.asked.append(rows)
        self.made.append(rows)

    def fork(self, batch: Batch) -> "Rehearsal":
        """A rehearsal on other inputs; what it asks counts here."""
        other = Rehearsal(self.model, batch, self.forward, self.counter)
        self.asked += other.asked
        other.asked, other.imputed, other.made = self.asked, self.imputed, self.made
        return other

    def _ask(
        self, rows: int, make: Callable[[Tensor, Tensor], Tensor], valid: Tensor | None = None
    ) -> list[Columns]:
        everyone = [len(self.batch)] * rows
        self._costs = everyone if valid is None else valid.sum(0).tolist()
        self.asked.append(sum(self._costs))
        made_up = self.batch.draw(f"rehearsal {len(self.asked)}", [rows]).double()  # [B, K]
        classes = torch.zeros(len(self.batch), dtype=torch.long, device=self._device)
        return [(column, -column, classes) for column in made_up.unbind(1)]

    def _remember(self, group: str, row: str, column: Columns) -> None:
        super()._remember(group, row, column)
        cost = self._costs.pop(0) if self._costs else 0  # from the shelf it costs nothing
        self.shared += cost if group in self._shared else 0


@dataclass(frozen=True)
class FirstOf:
    """The first samples' part of what is on a shelf; nothing is put there."""

    shelf: Shelf
    samples: int

    def load(self, group: str) -> tuple[Arrays, dict[str, str]] | None:
        """Of the samples that stand for all."""
        found = self.shelf.load(group)
        return found and ({name: a[: self.samples] for name, a in found[0].items()}, found[1])

    def save(self, group: str, arrays: Arrays, about: dict[str, str]) -> None:
        """What is made up is not kept."""


@dataclass(frozen=True)
class Again:
    """A method without a network, for protocols that explain changed inputs: it only counts."""

    engine: Rehearsal
    model: Model
    method: Choice
    count: Callable[[], None]

    def __call__(self, inputs: Tensor) -> Tensor:
        """A map that is made up, the same for the same inputs: rows are shared by their maps."""
        batch = self.engine.lent()
        if self.method.intervening:
            raw_map(self.model, replace(batch, inputs=inputs), self.method)
        else:
            self.count()
        return batch.draw(f"map {identity(canonical(inputs))}", batch.map_shape)


def made_up_partner(
    engine: Rehearsal, model: Model, method: Choice, count: Callable[[], None] | None
) -> Callable[[], Tensor]:
    """A method without a network, for protocols that ask for maps of other samples, once.

    Without a `count` they are at hand.
    """

    @cache
    def maps() -> Tensor:
        batch = engine.lent()
        if count is not None and method.intervening:
            other_maps(model, batch, method)
        elif count is not None:
            count()
        return batch.draw("partner map", batch.map_shape)

    return maps


def no_network(inputs: Tensor) -> Tensor:
    """Where the engine has its network, a rehearsal has none."""
    raise InputError("A rehearsal has no network.")
