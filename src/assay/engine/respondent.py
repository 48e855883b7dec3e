"""Respondents answer the engine's questions: a network, run in micro-batches of fixed size."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
from torch import Tensor

from assay.errors import InputError, NotApplicable, PrerequisiteError
from assay.removal import FillChoice
from assay.types import Batch, Model
from assay.units.features import Features

Columns = tuple[Tensor, Tensor, Tensor]  # logit, log-probability, predicted class: each [n]
MakeInputs = Callable[[Tensor, Tensor], Tensor]  # (samples [n], rows [n]) -> inputs [n, ...]


@dataclass(frozen=True)
class Question:
    """A request for the outputs of some rows (sets of absent units) of every sample of a batch."""

    batch: Batch
    rows: int
    make: MakeInputs
    valid: Tensor | None = None  # [B, rows]: the pairs that exist; None = all
    shared: tuple[bool, ...] = ()  # for each row: whether all methods share its responses
    features: Features | None = None  # the units that are absent, if any
    fill: FillChoice = None

    @property
    def asked(self) -> list[int]:
        """For each row, how many samples have it."""
        if self.valid is None:
            return [len(self.batch)] * self.rows
        counts: list[int] = self.valid.sum(0).tolist()
        return counts


class Respondent(Protocol):
    """Answers questions: a network in a run, placeholder numbers in a rehearsal."""

    @property
    def model(self) -> Model:
        """The model, with the micro-batch in use."""
        ...

    @property
    def rows(self) -> int:
        """Forward passes asked for so far."""
        ...

    def answer(self, question: Question) -> Columns:
        """The three numbers of every (sample, row) that exists, sample by sample."""
        ...

    def count(self, rows: int) -> None:
        """Count one call with this many rows that a method made itself."""
        ...

    def shrink(self) -> None:
        """Halve the micro-batch: memory ran out."""
        ...


@dataclass
class Counter:
    """Forward passes and calls of the network, and a callback for each call."""

    rows: int = 0
    calls: int = 0
    listen: Callable[[int], None] = lambda rows: None

    def add(self, rows: int) -> None:
        """Count one call with this many requested rows (without padding)."""
        self.rows += rows
        self.calls += 1
        self.listen(rows)


def micro_batches(
    samples: int, rows: int, size: int, device: torch.device, valid: Tensor | None = None
) -> Iterator[tuple[Tensor, Tensor, int]]:
    """All (sample, row) pairs in chunks of one fixed size; a short tail repeats its last pair.

    With a fixed size, a response does not depend on what else is computed. `valid`
    `[samples, rows]` leaves out the pairs that do not exist.
    """
    existing = None if valid is None else valid.flatten().nonzero().flatten()
    total = samples * rows if existing is None else len(existing)
    for start in range(0, total, size):
        pairs = torch.arange(start, start + size, device=device).clamp(max=total - 1)
        pairs = pairs if existing is None else existing[pairs]
        yield pairs // rows, pairs % rows, min(size, total - start)


def ask(forward: Callable[[Tensor], Tensor], inputs: Tensor, model: str) -> Tensor:
    """The outputs of the user's network, which may fail on more inputs than were tried.

    Raises:
        InputError: The network fails.
    """
    try:
        return forward(inputs)
    except (InputError, PrerequisiteError, NotApplicable, torch.cuda.OutOfMemoryError):
        raise
    except Exception as error:  # of the user's network
        raise InputError(
            f"Model `{model}` fails on {len(inputs)} inputs of shape {tuple(inputs.shape[1:])} at "
            f"once: {type(error).__name__}: {' '.join(str(error).split())}. Where it takes fewer, "
            f"set `micro_batch`."
        ) from error


@dataclass
class NetworkRespondent:
    """A network that answers: its forward passes are counted, its micro-batch may shrink."""

    model: Model
    forward: Callable[[Tensor], Tensor]  # inputs -> logits
    counter: Counter = field(default_factory=Counter)

    @property
    def rows(self) -> int:
        """Forward passes asked for so far."""
        return self.counter.rows

    def answer(self, question: Question) -> Columns:
        """Run the network on every (sample, row) that exists; return three numbers for each."""
        while True:
            try:
                return self._run(question)
            except torch.cuda.OutOfMemoryError:
                if self.model.micro_batch == 1:
                    raise
            self.shrink()  # outside the handler, which still references the tensors

    def count(self, rows: int) -> None:
        """Count one call with this many rows that a method made itself."""
        self.counter.add(rows)

    def shrink(self) -> None:
        """Halve the micro-batch: memory ran out."""
        torch.cuda.empty_cache()
        self.model = replace(self.model, micro_batch=self.model.micro_batch // 2)

    def _run(self, question: Question) -> Columns:
        batch = question.batch
        parts: list[Columns] = []
        pairs = micro_batches(
            len(batch),
            question.rows,
            self.model.micro_batch,
            batch.inputs.device,
            question.valid,
        )
        for samples, row, asked in pairs:
            logits = ask(self.forward, question.make(samples, row), self.model.name)
            parts.append(self._read(logits[:asked], samples[:asked], batch))
            self.counter.add(asked)
        if not parts:
            nothing = batch.inputs.new_zeros(0, dtype=torch.float64)
            return nothing, nothing, nothing.long()
        logit, log_prob, predicted = (torch.cat(part) for part in zip(*parts, strict=True))
        return logit, log_prob, predicted

    def _read(self, logits: Tensor, samples: Tensor, batch: Batch) -> Columns:
        predicted = logits.argmax(1)
        targets = batch.targets[samples]
        if bool((targets >= logits.shape[1]).any()):
            worst = int(targets.argmax())
            raise InputError(
                f"Expected labels below {logits.shape[1]}, the number of classes of model "
                f"`{self.model.name}`, got {int(targets[worst])} for sample "
                f"`{batch.ids[int(samples[worst])]}`. Labels are class numbers from 0."
            )
        column = torch.where(targets < 0, predicted, targets)[:, None]
        log_probs = self.model.log_probs(logits.double())  # so that log-odds do not saturate
        logits = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
        return logits.gather(1, column)[:, 0], log_probs.gather(1, column)[:, 0], predicted
