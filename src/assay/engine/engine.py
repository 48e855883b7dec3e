"""The engine: the only place where a protocol makes the model run.

Every protocol needs the model's responses when some units are absent. Rows (one sample without one
set of units) are cached by the identity of the set. Responses that do not depend on an attribution
are computed once for all methods, and stored on disk for the next run.
"""

import contextlib
import functools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
from torch import Tensor

from assay.engine.guard import Guard
from assay.engine.respondent import (
    Columns,
    Counter,
    MakeInputs,
    NetworkRespondent,
    Question,
    Respondent,
)
from assay.errors import HarmError
from assay.models.network_state import copied, rewritten
from assay.models.prepare import prepare_network
from assay.removal import FillChoice, Removal, fill_key, make_removal
from assay.store import Array
from assay.types import Batch, Model, Respond, Response
from assay.units.absent import Absent, everything
from assay.units.features import Features, UnitsChoice, elements, make_units

Arrays = dict[str, Array]


class Shelf(Protocol):
    """Storage, between runs, of responses that do not depend on an attribution."""

    def load(self, group: str) -> tuple[Arrays, dict[str, str]] | None:
        """The arrays and their description, or None."""
        ...

    def save(self, group: str, arrays: Arrays, about: dict[str, str]) -> None:
        """Store further ones."""
        ...


@dataclass
class _HeldShelf:
    """A shelf whose answers are stored later, once the method that asked for them is known."""

    shelf: Shelf
    _saves: list[tuple[str, Arrays, dict[str, str]]] = field(default_factory=list)

    def load(self, group: str) -> tuple[Arrays, dict[str, str]] | None:
        """The stored arrays."""
        return self.shelf.load(group)

    def save(self, group: str, arrays: Arrays, about: dict[str, str]) -> None:
        """Keep them."""
        self._saves.append((group, arrays, about))

    def release(self) -> None:
        """Store what was kept."""
        for group, arrays, about in self._saves:
            self.shelf.save(group, arrays, about)


@dataclass
class Engine:
    """Responses of a model for one batch: `respond` removes units, `clean` is without removal."""

    batch: Batch
    respondent: Respondent
    shelf: Shelf | None = None
    guard: Guard | None = None  # compares what methods must not change

    def __post_init__(self) -> None:
        """Without targets, explain the predicted classes: compute the clean responses first."""
        self.memory: dict[str, dict[str, Columns]] = {}
        self._shared = {"clean"}
        self._removals: dict[str, Removal] = {}
        self._values: list[Tensor] = []
        self._always_broken = torch.zeros(len(self.batch), dtype=torch.bool, device=self._device)
        self.broken = self._always_broken.clone()  # [B]: a response has NaN or inf
        if bool((self.batch.targets < 0).any()):
            self.batch = replace(self.batch, targets=self._clean[2])

    @property
    def model(self) -> Model:
        """The model that answers, with the micro-batch in use."""
        return self.respondent.model

    @property
    def asked(self) -> int:
        """Forward passes requested so far, by this engine and those derived from it."""
        return self.respondent.rows

    @property
    def clean(self) -> Response:  # [B, 1]
        """The responses to the unchanged inputs."""
        return _stack([self._clean])

    @property
    def _clean(self) -> Columns:
        self._ask_clean()
        return self.memory["clean"]["none"]

    def _ask_clean(self) -> None:
        """Compute the clean responses once, and only if they are needed."""
        self._recall("clean")
        if "clean" not in self.memory:
            batch = self.batch
            shared = (self.shelf is not None,)
            question = Question(batch, 1, lambda samples, _: batch.inputs[samples], shared=shared)
            self._remember("clean", "none", self.respondent.answer(question))
            self._keep("clean", ["none"])

    def forget(self) -> None:
        """Drop the responses that depend on an attribution, before the next one."""
        self._values.clear()
        self.broken = self._always_broken.clone()
        self.memory = {group: rows for group, rows in self.memory.items() if group in self._shared}

    @contextlib.contextmanager
    def lent(self, label: str, result: str = "map") -> Iterator[None]:
        """Lend the engine to code of a user. Its answers are stored when that code succeeds.

        Raises:
            HarmError: The code changed answers that others read. They are as before.
        """
        before, memory = dict(vars(self)), {g: dict(rows) for g, rows in self.memory.items()}
        columns = (c for rows in memory.values() for row in rows.values() for c in row)
        copies = [one for column in columns for one in copied("", column, "")]
        held = None if self.shelf is None else _HeldShelf(self.shelf)
        self.shelf = held
        whole = False
        try:
            yield
            known = ((row, self.memory.get(g, {}).get(r, row)) for g in memory
                     for r, row in memory[g].items())  # fmt: skip
            whole = all(row is now for row, now in known) and not rewritten(copies)
            whole = whole and self.batch is before["batch"]
            whole = whole and self.respondent is before["respondent"]
        finally:
            self.shelf = before["shelf"]
            if not whole:
                vars(self).update(before)
                self.memory = memory
                for one in copies:
                    one.restore()
        if not whole:
            raise HarmError(
                f"`{label}` changed the answers that the engine keeps for all methods. They are "
                f"set back, and the {result}s of `{label}` are not used. `engine.clean` and "
                f"`engine.respond` return copies: work on these."
            )
        if held is not None:
            held.release()

    def respond(self, features: Features, absent: Absent, fill: FillChoice) -> Response:
        """The model's responses, `[B, K]`, when the units of each of K sets are absent."""
        name = fill_key(self.batch, fill)
        grouped = {row: self._group(features, absent, row, name) for row in _kinds(absent.rows)}
        groups = [grouped.get(row) or grouped["other"] for row in absent.rows]
        for group in dict.fromkeys(groups):
            self._recall(group)
        if "clean" in groups:
            self._ask_clean()
        missing = [
            k
            for k, (group, row) in enumerate(zip(groups, absent.rows, strict=True))
            if row not in self.memory.get(group, {})
        ]
        if missing:
            question = self._question(features, absent, fill, missing, [groups[k] for k in missing])
            for k, column in zip(missing, self._ask(question), strict=True):
                self._remember(groups[k], absent.rows[k], column)
            for group in dict.fromkeys(groups[k] for k in missing):
                self._keep(group, [absent.rows[k] for k in missing if groups[k] == group])
        return _stack([self.memory[g][r] for g, r in zip(groups, absent.rows, strict=True)])

    def all_absent(self, fill: FillChoice) -> Response:  # [B, 1]
        """The responses when everything is absent, shared with the protocols that ask for them.

        NaN or inf in them breaks no sample yet, because a protocol may never ask for them.
        """
        features, before = elements(self.batch), (self.broken, self._always_broken)
        rows = everything(features)
        response = self.respond(features, rows, fill)
        if not bool(torch.isfinite(response.logit).all()):
            self.broken, self._always_broken = before
            self.memory.pop(self._group(features, rows, "all", fill_key(self.batch, fill)))
        return response

    @property
    def verb(self) -> Respond:
        """`respond` as a plain function, without access to the engine."""

        def respond(features: Features, absent: Absent, fill: FillChoice) -> Response:
            return self.respond(features, absent, fill)

        return respond

    def answers(self, rows: int, make: MakeInputs) -> Response:
        """The model's responses, `[B, rows]`, to inputs from `make(samples, rows)`; not cached."""
        return _stack(self._ask(Question(self.batch, rows, make)))

    def at(self, batch: Batch) -> "Engine":
        """This engine for its own inputs, else one for the other inputs; both share the counter."""
        if batch.inputs.is_set_to(self.batch.inputs):
            return self
        return Engine(batch, self.respondent, guard=self.guard)

    def count(self, rows: int) -> None:
        """Count one call with this many rows that a method made itself."""
        self.respondent.count(rows)

    @property
    def _device(self) -> torch.device:
        return self.batch.inputs.device

    def _question(
        self,
        features: Features,
        absent: Absent,
        fill: FillChoice,
        rows: list[int],
        groups: list[str],
    ) -> Question:
        """The question for rows that are not in memory."""
        name = fill_key(self.batch, fill)
        if name not in self._removals:
            self._removals[name] = make_removal(self.batch, fill)
        removal, index = self._removals[name], torch.tensor(rows, device=self._device)

        def make(samples: Tensor, row: Tensor) -> Tensor:
            return removal(features, absent.make(samples, index[row]), samples)

        valid = None if absent.valid is None else absent.valid[:, index]
        shared = tuple(self.shelf is not None and group in self._shared for group in groups)
        return Question(self.batch, len(rows), make, valid, shared, features, fill)

    def _ask(self, question: Question) -> list[Columns]:
        """The responses row by row; a row that a sample does not have gets its clean response."""
        answers = self.respondent.answer(question)
        if question.valid is None:
            whole = [part.reshape(-1, question.rows) for part in answers]
        else:
            whole = [column[:, None].repeat(1, question.rows) for column in self._clean]
            for columns, part in zip(whole, answers, strict=True):
                columns[question.valid] = part.to(columns.dtype)
        return [(a, b, c) for a, b, c in zip(*(w.unbind(1) for w in whole), strict=True)]

    def _group(self, features: Features, absent: Absent, row: str, fill: str) -> str:
        """The memory group of a row: determined by what is absent, not by the caller."""
        if row == "none":
            return "clean"
        if row != "all" and absent.values is not None:
            ranked = self._number(absent.values)
            return f"{absent.family} | values {ranked} | {features.key} | {fill}"
        what, where = ("all", features.coverage) if row == "all" else (absent.family, features.key)
        group = f"{what} | {where} | {fill}"
        self._shared.add(group)
        return group

    def _number(self, values: Tensor) -> int:
        """The number of these values among those seen since the last `forget`."""
        for number, seen in enumerate(self._values):
            if seen.shape == values.shape and torch.equal(seen, values):
                return number
        self._values.append(values)
        return len(self._values) - 1

    def _recall(self, group: str) -> None:
        """Read a shared group from the shelf, once."""
        if self.shelf is None or group in self.memory or group not in self._shared:
            return
        stored = self.shelf.load(group)
        if stored is not None:
            arrays, about = stored
            parts = [
                torch.from_numpy(arrays[n]).to(self._device) for n in Response.__dataclass_fields__
            ]
            columns = zip(*(p.unbind(1) for p in parts), strict=True)
            for row, column in zip(json.loads(about["rows"]), columns, strict=True):
                self._remember(group, row, column)

    def _remember(self, group: str, row: str, column: Columns) -> None:
        self.memory.setdefault(group, {})[row] = column
        broken = ~torch.isfinite(column[0])
        self.broken = self.broken | broken
        if group in self._shared:
            self._always_broken = self._always_broken | broken

    def _keep(self, group: str, rows: list[str]) -> None:
        """Put these new rows of a shared group on the shelf."""
        if self.shelf is None or group not in self._shared:
            return
        answer = _stack([self.memory[group][row] for row in dict.fromkeys(rows)])
        arrays = {n: getattr(answer, n).cpu().numpy() for n in Response.__dataclass_fields__}
        about = {"rows": json.dumps(list(dict.fromkeys(rows))), "group": group}
        self.shelf.save(group, arrays, about)


def network_engine(
    model: Model,
    batch: Batch,
    forward: Callable[[Tensor], Tensor] | None = None,
    *,
    counter: Counter | None = None,
    shelf: Shelf | None = None,
) -> Engine:
    """An engine that runs a network on a batch.

    Without a `forward` the network is prepared here. If it was observed before, it is prepared at
    the first forward pass: a method may use an engine only to count.
    """
    if forward is None and model.observed is None:
        prepared = prepare_network(model, batch.inputs[:1])
        model, forward = prepared.model, prepared.forward
    elif forward is None:
        forward = _prepared_later(model, batch.inputs[:1])
    return Engine(batch, NetworkRespondent(model, forward, counter or Counter()), shelf)


def _prepared_later(model: Model, example: Tensor) -> Callable[[Tensor], Tensor]:
    prepare = functools.cache(lambda: prepare_network(model, example))
    return lambda inputs: prepare().forward(inputs)


def intervention(
    batch: Batch, units: UnitsChoice, fill: FillChoice, output: str, how: str = "alone"
) -> tuple[str, ...]:
    """How units are removed, which units, the fill and the output, as comparable texts.

    `how` is `alone` for one unit at a time, `sets` for random sets of them.
    """
    return how, make_units(batch, units).key, fill_key(batch, fill), output


def _kinds(rows: tuple[str, ...]) -> list[str]:
    """One row of each kind: nothing absent, everything absent, any other."""
    return list(dict.fromkeys(r if r in ("none", "all") else "other" for r in rows))


def _stack(columns: list[Columns]) -> Response:
    logit, log_prob, predicted = (torch.stack(part, 1) for part in zip(*columns, strict=True))
    return Response(logit, log_prob, predicted)
