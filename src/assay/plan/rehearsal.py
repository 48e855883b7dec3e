"""A run without its network: answers and maps are random, forward passes are counted."""

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
    """Answer the engine in place of a network: answers are random, questions are counted."""

    model: Model
    asked: list[int] = field(default_factory=list)  # forward passes of each question
    imputed: list[int] = field(default_factory=list)  # of these, those with imputed inputs
    made: list[int] = field(default_factory=list)  # passes through the network, for layer sizes
    shared: int = 0  # of the passes, those shared by all methods
    ragged: bool = False  # whether one sample cannot represent the others

    @property
    def rows(self) -> int:
        """Forward passes asked for so far."""
        return sum(self.asked)

    def answer(self, question: Question) -> Columns:
        """Count a question and return random answers to it."""
        costs = question.asked
        self.asked.append(sum(costs))
        self.shared += sum(c for c, one in zip(costs, question.shared, strict=False) if one)
        if question.features is not None:
            self.ragged = self.ragged or question.features.ragged
            self.imputed += [sum(costs)] if imputes(question.batch, question.fill) else []
        drawn = question.batch.draw(f"rehearsal {len(self.asked)}", [question.rows]).double()
        column = drawn.flatten() if question.valid is None else drawn[question.valid]
        return column, -column, torch.zeros_like(column, dtype=torch.long)

    def take(self) -> tuple[list[int], list[int], int]:
        """The passes of each question since the last call, those that impute, and those shared."""
        taken = self.asked, self.imputed, self.shared
        self.asked, self.imputed, self.shared = [], [], 0
        return taken

    def count(self, rows: int) -> None:
        """Count passes that a method makes with the network itself, also in a rehearsal."""
        self.asked.append(rows)
        self.made.append(rows)

    def shrink(self) -> None:
        """Raise an error: without a network, memory cannot run out.

        Raises:
            InputError: Always.
        """
        raise InputError("A rehearsal has no micro-batch to halve.")


@dataclass(frozen=True)
class FirstOf:
    """The first samples of the stored answers. Nothing is stored."""

    shelf: Shelf
    samples: int

    def load(self, group: str) -> tuple[Arrays, dict[str, str]] | None:
        """The stored answers of the samples that represent all."""
        stored = self.shelf.load(group)
        return stored and ({name: a[: self.samples] for name, a in stored[0].items()}, stored[1])

    def save(self, group: str, arrays: Arrays, about: dict[str, str]) -> None:
        """Do nothing: random answers are not stored."""


def explains_again(
    engine: Engine, method: Choice, count: Callable[[], None]
) -> Callable[[Tensor], Tensor]:
    """A method without a network, for protocols that explain changed inputs. It only counts.

    Its maps are random, and equal for equal inputs, because rows are shared by their maps.
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
    """A method without a network, for protocols that request maps of other samples.

    The maps are counted once, or not at all if `count` is None.
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
