"""The engine: the only place where a protocol makes the model run.

Every protocol asks what the model answers when some units are absent. Rows (one sample without one
set of units) are remembered by what the set is, so whatever does not depend on an attribution is
computed once for all methods, and kept on disk for the next run.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from assay.errors import InputError
from assay.models.prepare import runner
from assay.removal import FillChoice, Removal, fill_key, make_removal
from assay.types import Batch, Model, Response
from assay.units.absent import Absent
from assay.units.features import Features, make_units

Columns = tuple[Tensor, Tensor, Tensor]  # logit, log-probability, predicted class: each [B]
Arrays = dict[str, np.ndarray[Any, Any]]


@dataclass
class Counter:
    """Forward rows asked of the network, calls made for them, and who wants to know."""

    rows: int = 0
    calls: int = 0
    listen: Callable[[int], None] = lambda rows: None

    def add(self, rows: int) -> None:
        """One call with this many rows that were asked for (padding not counted)."""
        self.rows += rows
        self.calls += 1
        self.listen(rows)


def micro_batches(
    samples: int, rows: int, size: int, device: torch.device, valid: Tensor | None = None
) -> Iterator[tuple[Tensor, Tensor, int]]:
    """All (sample, row) pairs in chunks of one fixed size; a short tail repeats its last pair.

    A fixed size makes an answer independent of what else is computed beside it. `valid`
    `[samples, rows]` leaves out the pairs that do not exist.
    """
    existing = None if valid is None else valid.flatten().nonzero().flatten()
    total = samples * rows if existing is None else len(existing)
    for start in range(0, total, size):
        pairs = torch.arange(start, start + size, device=device).clamp(max=total - 1)
        pairs = pairs if existing is None else existing[pairs]
        yield pairs // rows, pairs % rows, min(size, total - start)


class Shelf(Protocol):
    """Where answers that do not depend on an attribution are kept between runs."""

    def load(self, group: str) -> tuple[Arrays, dict[str, str]] | None:
        """The arrays and their description, or None."""
        ...

    def save(self, group: str, arrays: Arrays, about: dict[str, str]) -> None:
        """Keep them."""
        ...


@dataclass
class Engine:
    """Answers for one batch: `respond` is the verb, `clean` what the model says untouched."""

    model: Model
    batch: Batch
    forward: Callable[[Tensor], Tensor]  # inputs -> logits
    counter: Counter = field(default_factory=Counter)
    shelf: Shelf | None = None

    def __post_init__(self) -> None:
        """Ask for the clean answers first: where nobody gave targets, they are the targets."""
        self.memory: dict[str, dict[str, Columns]] = {}
        self._shared = {"clean"}
        self._removals: dict[str, Removal] = {}
        self._values: list[Tensor] = []
        self._always_broken = torch.zeros(len(self.batch), dtype=torch.bool, device=self._device)
        self.broken = self._always_broken.clone()  # [B]: the network gave NaN or inf somewhere
        self._recall("clean")
        if "clean" not in self.memory:
            (column,) = self._ask(1, lambda samples, rows: self.batch.inputs[samples])
            self._remember("clean", "none", column)
            self._keep("clean")
        if bool((self.batch.targets < 0).any()):
            self.batch = replace(self.batch, targets=self.memory["clean"]["none"][2])

    @property
    def clean(self) -> Response:  # [B, 1]
        """The answers to the untouched inputs."""
        return _stack([self.memory["clean"]["none"]])

    def forget(self) -> None:
        """Drop what depended on an attribution: the next one begins."""
        self._values.clear()
        self.broken = self._always_broken.clone()
        self.memory = {group: rows for group, rows in self.memory.items() if group in self._shared}

    def respond(self, features: Features, absent: Absent, fill: FillChoice) -> Response:
        """The model's answers, `[B, K]`, when the units of each of K sets are absent."""
        name = fill_key(self.batch, fill)
        grouped = {row: self._group(features, absent, row, name) for row in _kinds(absent.rows)}
        groups = [grouped.get(row) or grouped["other"] for row in absent.rows]
        for group in dict.fromkeys(groups):
            self._recall(group)
        wanted = [
            k
            for k, (group, row) in enumerate(zip(groups, absent.rows, strict=True))
            if row not in self.memory.get(group, {})
        ]
        if wanted:
            if name not in self._removals:
                self._removals[name] = make_removal(self.batch, fill)
            removal, index = self._removals[name], torch.tensor(wanted, device=self._device)

            def make(samples: Tensor, rows: Tensor) -> Tensor:
                return removal(features, absent.make(samples, index[rows]), samples)

            valid = None if absent.valid is None else absent.valid[:, index]
            for k, column in zip(wanted, self._ask(len(wanted), make, valid), strict=True):
                self._remember(groups[k], absent.rows[k], column)
            for group in dict.fromkeys(groups[k] for k in wanted):
                self._keep(group)
        return _stack([self.memory[g][r] for g, r in zip(groups, absent.rows, strict=True)])

    def answers(self, rows: int, make: Callable[[Tensor, Tensor], Tensor]) -> Response:
        """The model's answers, `[B, rows]`, to inputs made by `make(samples, rows)`; not kept."""
        return _stack(self._ask(rows, make))

    def fork(self, batch: Batch) -> "Engine":
        """An engine for other inputs; what it asks counts here."""
        return Engine(self.model, batch, self.forward, self.counter)

    def count(self, rows: int) -> None:
        """One call with so many rows that a method made beside this engine."""
        self.counter.add(rows)

    def lent(self) -> Batch:
        """The batch as methods get it: those that intervene find this engine by it."""
        return replace(self.batch, extra={**self.batch.extra, "engine": self})

    @property
    def _device(self) -> torch.device:
        return self.batch.inputs.device

    def _group(self, features: Features, absent: Absent, row: str, fill: str) -> str:
        """Where a row is remembered: by what is gone, not by who asked."""
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
        """Which of the values seen since the last `forget` these are."""
        for number, seen in enumerate(self._values):
            if seen.shape == values.shape and torch.equal(seen, values):
                return number
        self._values.append(values)
        return len(self._values) - 1

    def _ask(
        self, rows: int, make: Callable[[Tensor, Tensor], Tensor], valid: Tensor | None = None
    ) -> list[Columns]:
        """Run the network on every (sample, row) that exists; keep the three numbers of each."""
        size, everyone = self.model.micro_batch, len(self.batch)
        answers: list[Columns] = []
        full = False
        try:
            for samples, row, asked in micro_batches(everyone, rows, size, self._device, valid):
                logits = self.forward(make(samples, row))
                answers.append(self._read(logits[:asked], samples[:asked]))
                self.counter.add(asked)
        except torch.cuda.OutOfMemoryError:
            if size == 1:
                raise
            full = True
        if full:  # outside the handler, which holds on to what did not fit
            torch.cuda.empty_cache()
            self.model.micro_batch = size // 2
            return self._ask(rows, make, valid)
        if valid is None:
            whole = [torch.cat(part).reshape(-1, rows) for part in zip(*answers, strict=True)]
        else:  # where there is nobody to remove, nothing changes
            whole = [c[:, None].repeat(1, rows) for c in self.memory["clean"]["none"]]
            for columns, part in zip(whole, zip(*answers, strict=True), strict=False):
                columns[valid] = torch.cat(part)
        return [(a, b, c) for a, b, c in zip(*(w.unbind(1) for w in whole), strict=True)]

    def _read(self, logits: Tensor, samples: Tensor) -> Columns:
        predicted = logits.argmax(1)
        targets = self.batch.targets[samples]
        if bool((targets >= logits.shape[1]).any()):
            worst = int(targets.argmax())
            raise InputError(
                f"Expected labels below {logits.shape[1]}, the number of classes of model "
                f"`{self.model.name}`, got {int(targets[worst])} for sample "
                f"`{self.batch.ids[int(samples[worst])]}`. Labels are class numbers from 0."
            )
        column = torch.where(targets < 0, predicted, targets)[:, None]
        log_probs = self.model.log_probs(logits.double())  # so that log-odds do not saturate
        logits = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
        return logits.gather(1, column)[:, 0], log_probs.gather(1, column)[:, 0], predicted

    def _recall(self, group: str) -> None:
        """Read a shared group from the shelf, once."""
        if self.shelf is None or group in self.memory or group not in self._shared:
            return
        found = self.shelf.load(group)
        if found is not None:
            arrays, about = found
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

    def _keep(self, group: str) -> None:
        if self.shelf is None or group not in self._shared:
            return
        rows = self.memory[group]
        answer = _stack(list(rows.values()))
        arrays = {n: getattr(answer, n).cpu().numpy() for n in Response.__dataclass_fields__}
        self.shelf.save(group, arrays, {"rows": json.dumps(list(rows)), "group": group})


def engine_of(model: Model, batch: Batch) -> Engine:
    """The engine that lent this batch, so that its answers are shared; else one of its own."""
    lender: Engine | None = batch.extra.get("engine")
    if lender is None:
        return Engine(model, batch, runner(model, batch.inputs[:1]))
    return lender if lender.batch.inputs is batch.inputs else lender.fork(batch)


def counter_of(batch: Batch) -> Callable[[int], None]:
    """Told of passes that no method declares, it counts them in the run that lent the batch."""
    lender: Engine | None = batch.extra.get("engine")
    return (lambda rows: None) if lender is None else lender.count


def intervention(
    batch: Batch, units: Any, fill: FillChoice, output: str, how: str = "alone"
) -> tuple[str, ...]:
    """How units are removed, which, what stands there and what is read, in comparable words.

    `how` is `alone` for one unit at a time, `sets` for random sets of them.
    """
    return how, make_units(batch, units).key, fill_key(batch, fill), output


def _kinds(rows: tuple[str, ...]) -> list[str]:
    """One row of each kind: nothing absent, everything absent, any other."""
    return list(dict.fromkeys(r if r in ("none", "all") else "other" for r in rows))


def _stack(columns: list[Columns]) -> Response:
    logit, log_prob, predicted = (torch.stack(part, 1) for part in zip(*columns, strict=True))
    return Response(logit, log_prob, predicted)
