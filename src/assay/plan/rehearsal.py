"""A run without its network: answers and maps are made up, forward passes are counted."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache

import torch
from torch import Tensor

from assay.engine.engine import Arrays, Engine, Shelf
from assay.engine.respondent import Columns, Question
from assay.errors import InputError
from assay.methods.attribution import other_maps, raw_map
from assay.plugins.identity import canonical, identity
from assay.removal import imputes
from assay.suite.spec import Choice
from assay.types import Model


@dataclass
class Rehearsal:
    """Answers the engine in place of a network: numbers are made up, questions are counted."""

    model: Model
    asked: list[int] = field(default_factory=list)  # forward passes, question by question
    imputed: list[int] = field(default_factory=list)  # of these, whose inputs are solved for
    made: list[int] = field(default_factory=list)  # passes really made, to see a layer's size
    shared: int = 0  # of all of them, what serves all methods
    ragged: bool = False  # whether one sample cannot stand for the others

    @property
    def rows(self) -> int:
        """Forward passes asked for so far."""
        return sum(self.asked)

    def answer(self, question: Question) -> Columns:
        """Made-up answers to a question, which is counted."""
        costs = question.asked
        self.asked.append(sum(costs))
        self.shared += sum(c for c, one in zip(costs, question.shared, strict=False) if one)
        if question.features is not None:
            self.ragged = self.ragged or question.features.ragged
            self.imputed += [sum(costs)] if imputes(question.fill) else []
        drawn = question.batch.draw(f"rehearsal {len(self.asked)}", [question.rows]).double()
        column = drawn.flatten() if question.valid is None else drawn[question.valid]
        return column, -column, torch.zeros_like(column, dtype=torch.long)

    def count(self, rows: int) -> None:
        """Count passes that a method makes by itself: even here they were really made."""
        self.asked.append(rows)
        self.made.append(rows)

    def shrink(self) -> None:
        """Refuse: without a network, no memory can run out.

        Raises:
            InputError: Always.
        """
        raise InputError("A rehearsal has no micro-batch to halve.")


@dataclass(frozen=True)
class FirstOf:
    """The first samples' part of what is on a shelf; nothing is put there."""

    shelf: Shelf
    samples: int

    def load(self, group: str) -> tuple[Arrays, dict[str, str]] | None:
        """Of the samples that stand for all."""
        kept = self.shelf.load(group)
        return kept and ({name: a[: self.samples] for name, a in kept[0].items()}, kept[1])

    def save(self, group: str, arrays: Arrays, about: dict[str, str]) -> None:
        """What is made up is not kept."""


def explains_again(
    engine: Engine, method: Choice, count: Callable[[], None]
) -> Callable[[Tensor], Tensor]:
    """A method without a network, for protocols that explain changed inputs: it only counts.

    Its maps are made up, the same for the same inputs: rows are shared by their maps.
    """

    def explain(inputs: Tensor) -> Tensor:
        batch = engine.batch
        if method.intervening:
            raw_map(engine.model, replace(batch, inputs=inputs), method, engine)
        else:
            count()
        return batch.draw(f"map {identity(canonical(inputs))}", batch.map_shape)

    return explain


def made_up_partner(
    engine: Engine, method: Choice, count: Callable[[], None] | None
) -> Callable[[], Tensor]:
    """A method without a network, for protocols that ask for maps of other samples, once.

    Without a `count` they are at hand.
    """

    @cache
    def maps() -> Tensor:
        batch = engine.batch
        if count is not None and method.intervening:
            other_maps(engine.model, batch, method, engine)
        elif count is not None:
            count()
        return batch.draw("partner map", batch.map_shape)

    return maps
