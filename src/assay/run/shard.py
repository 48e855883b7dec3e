"""One shard of a run: explain its samples with every method, score them under every protocol."""

import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from assay.engine.engine import Engine
from assay.engine.respondent import Counter, NetworkRespondent
from assay.methods.attribution import (
    Moments,
    explain_again,
    finish,
    forward_passes,
    other_maps,
    raw_map,
)
from assay.plan.cells import CellOutcome, stored_cell
from assay.plan.dosed import dosed_case, mixed
from assay.plan.emptied import emptied_answers, fills_of
from assay.plan.finished import Finished, ResponseShelf, maps_place
from assay.plan.plan import Plan, Shard
from assay.plan.promised import promise_gaps, promise_passes
from assay.plan.scoring import dealt, empty_maps, score_case, standing
from assay.plan.set_cells import applicable_sets
from assay.plugins.identity import canonical
from assay.run.failures import outcome_of
from assay.run.previews import summarise
from assay.run.started import Reasons, Step
from assay.run.watching import Watcher
from assay.store import StoredCell
from assay.store.pieces import ArraysPiece, CellsPiece, Put, SamplesPiece, SummaryPiece
from assay.suite.spec import Choice
from assay.types import Case

MOST_SECONDS = 5.0  # finished cells are stored at least this often, so that a kill loses few


@dataclass(frozen=True)
class ShardTask:
    """The work on one shard: what is finished, and where the results go."""

    finished: Finished
    shard: Shard
    put: Put  # receives every piece as soon as it is made
    watcher: Watcher
    keep_maps: bool = True
    given_up: Reasons = field(default_factory=dict)  # steps that ended the process before
    begin: Callable[[Step], None] = lambda step: None  # called when a step starts

    @property
    def stores_maps(self) -> bool:
        """Whether maps are stored: those that a set protocol reads always are."""
        return self.keep_maps or bool(self.finished.plan.set_protocols)


def run_shard(task: ShardTask) -> None:
    """Compute the missing cells of a shard. Finished cells are not computed again."""
    plan, shard = task.finished.plan, task.shard
    missing = task.finished.missing(shard)
    explained = task.finished.unexplained(shard, applicable_sets(plan))
    task.begin(Step())
    _put_samples(task)
    if Step() in task.given_up:
        _fail_all(task, missing, task.given_up[Step()])
        return
    if shard.split:
        explain_split(task, explained)
        return
    before, previews = task.finished.summary(shard), task.finished.state(shard).previews
    if before is not None and previews and not any(missing.values()) and not explained:
        return
    started, counter = time.monotonic(), Counter(listen=task.watcher.passes)
    with plan.models[shard.model].evaluating(), torch.no_grad():
        engine = make_engine(plan, shard, counter, ResponseShelf(task.finished, shard, task.put))
        summary = summarise(plan, shard, engine, task.put)
        if before is None:  # store the accuracy before the methods run
            task.put(SummaryPiece(shard.id, summary))
        task.watcher.looked(shard, summary)
        _put_all_absent(task, missing, engine)
        work = ShardWork(task, engine)
        for method in plan.methods:
            if _lacking(plan, method, missing) or method.label in explained:
                work.do(method, missing)
    plan.networks.shrink(shard.model, engine.model.micro_batch)
    summary = replace(
        summary,
        micro_batch=engine.model.micro_batch,
        forwards=counter.rows,
        calls=counter.calls,
        explaining=work.passes,
        seconds=time.monotonic() - started,
    )
    task.put(SummaryPiece(shard.id, summary.after(before)))


def _put_samples(task: ShardTask) -> None:
    """Store the samples of a shard with their groups, once."""
    shard = task.shard
    if not task.finished.state(shard).samples:
        groups = task.finished.plan.dataset_of(shard).groups
        own = [groups.get(sample, sample) for sample in shard.samples]
        task.put(SamplesPiece(shard.id, shard.samples, own))


def _put_all_absent(
    task: ShardTask, missing: Mapping[str, Sequence[Choice]], engine: Engine
) -> None:
    """Store the answers when everything is absent, with each fill of these cells, once."""
    plan, shard = task.finished.plan, task.shard
    protocols = [protocol for several in missing.values() for protocol in several]
    for key, fill in fills_of(plan, shard, protocols).items():
        if key not in task.finished.state(shard).absent:
            piece = emptied_answers(plan, shard, engine, fill)
            if piece is not None:
                task.put(piece)


def _fail_all(task: ShardTask, missing: Mapping[str, Sequence[Choice]], reason: str) -> None:
    """Store the missing cells of a shard as failed, without its samples and its network."""
    plan, shard, outcome = task.finished.plan, task.shard, CellOutcome("failed", reason)
    for method in plan.methods:
        lacking = _lacking(plan, method, missing)
        cells = [stored_cell(plan, shard, choice, p, outcome) for choice, p in lacking]
        if cells:
            task.put(CellsPiece(shard.id, cells))


def _lacking(
    plan: Plan, method: Choice, missing: Mapping[str, Sequence[Choice]]
) -> list[tuple[Choice, Choice]]:
    """The missing cells of a method and of its mixed maps, with their protocols."""
    choices = (method, *plan.doses.get(method.label, ()))
    return [(choice, p) for choice in choices for p in missing.get(choice.label, ())]


def explain_split(task: ShardTask, labels: Collection[str]) -> None:
    """Store the maps of these methods for samples that are not scored: the training samples."""
    plan, shard = task.finished.plan, task.shard
    with plan.models[shard.model].evaluating(), torch.no_grad():
        work = ShardWork(task, make_engine(plan, shard, Counter(listen=task.watcher.passes)))
        for method in plan.methods:
            if method.label in labels:
                work.do(method, {})


def make_engine(
    plan: Plan, shard: Shard, counter: Counter | None = None, shelf: ResponseShelf | None = None
) -> Engine:
    """The engine for a shard's samples, with the prepared network."""
    batch = plan.batch(shard)
    ready = plan.ready(shard, batch)
    respondent = NetworkRespondent(ready.model, ready.forward, counter or Counter())
    return Engine(batch, respondent, shelf, plan.networks.guard(shard.model, ready.model))


@dataclass
class ShardWork:
    """The methods and protocols of one shard, one after the other."""

    task: ShardTask
    engine: Engine
    passes: int = 0  # forward, for explaining
    _faulty: Tensor | None = None  # [B]: NaN or inf when a protocol explained again
    _raws: dict[str, Tensor | Moments] = field(default_factory=dict)  # the last method's raw maps
    _cells: list[StoredCell] = field(default_factory=list)  # finished and not stored
    _stored: float = field(default_factory=time.monotonic)  # when cells were stored

    @property
    def _plan(self) -> Plan:
        return self.task.finished.plan

    @property
    def _groups(self) -> Sequence[str]:
        return self.engine.batch.groups or self.task.shard.samples

    # --- one method ------------------------------------------------------------------------------

    def do(self, method: Choice, missing: Mapping[str, Sequence[Choice]]) -> None:
        """Explain the samples with a method, score its maps, store all.

        Args:
            method: The method.
            missing: The protocols under which maps are scored, by label: the method's own maps,
                and these mixed with maps of other samples.
        """
        try:
            self._do(method, _lacking(self._plan, method, missing))
        finally:
            self._store_cells()

    def _do(self, method: Choice, cells: Sequence[tuple[Choice, Choice]]) -> None:
        unmet = self._plan.missing(self.task.shard, method)
        if unmet:
            return self._write_all(cells, self._not_applicable(unmet))
        reason = self.task.given_up.get(Step(method.label))
        if reason is not None:
            return self._write_all(cells, CellOutcome("failed", reason))
        self.task.begin(Step(method.label))
        try:
            maps, seconds = self.maps(method)
            passes = forward_passes(self.engine.model, self.engine.batch, method)
        except BaseException as error:
            return self._write_all(cells, outcome_of(error))
        if not cells:  # only its maps are needed
            return None
        whole, broken = finite(maps)
        partner = self._partner(method, whole)
        self.engine.forget()
        case = Case(
            self.engine.batch,
            whole,
            self.engine.verb,
            self.engine.clean,
            self._explain(method),
            passes,
            partner,
        )
        for _, protocol in (cell for cell in cells if cell[0] is method):
            self._write(method, protocol, self._score(method, protocol, case, broken, seconds))
        dosed = [cell for cell in cells if cell[0] is not method]
        if dosed:
            self._do_dosed(method, dosed, case, partner, broken)

    def _do_dosed(
        self,
        method: Choice,
        cells: Sequence[tuple[Choice, Choice]],
        case: Case,
        partner: Callable[[], Tensor],
        broken: Tensor,
    ) -> None:
        """Score a method's maps mixed with its maps of other samples."""
        try:
            others = partner()
        except BaseException as error:
            return self._write_all(cells, outcome_of(error))
        for dose in self._plan.doses[method.label]:
            self.engine.forget()
            maps = mixed(case.attribution, others, case.batch, dose.dose)
            of_dose = dosed_case(case, maps, dealt(self._groups))
            for _, protocol in (cell for cell in cells if cell[0] is dose):
                self._write(dose, protocol, self._score(dose, protocol, of_dose, broken, 0.0))

    def maps(self, method: Choice) -> tuple[Tensor, float]:
        """The method's maps, from an earlier run if they are stored, and the seconds they took."""
        stored = self.task.finished.maps(self.task.shard, method)
        if stored is not None:
            return torch.from_numpy(stored[0]).to(self.engine.batch.inputs.device), stored[1]
        started = time.monotonic()
        maps = finish(self._raw(method), self.engine.batch, method)
        seconds = time.monotonic() - started
        if not self.task.shard.split:
            self._compare_with_promise(method)
        if self.task.stores_maps:
            about = {
                "samples": json.dumps(self.task.shard.samples),
                "method": method.label,
                "seconds": repr(seconds),
                "options": json.dumps(canonical(method.shown_options)),
            }
            place = maps_place(self._plan, self.task.shard, method)
            arrays = {"maps": maps.cpu().numpy()}
            self.task.put(ArraysPiece(self.task.shard.id, place, arrays, about))
        return maps, seconds

    def _raw(self, method: Choice) -> Tensor | Moments:
        """The raw maps of the formula, reused by methods that only reduce them differently."""
        key = method.formula_key
        if key not in self._raws:
            raw = raw_map(self.engine.model, self.engine.batch, method, self.engine)
            self._raws = {key: raw}
            self._count(method)
        return self._raws[key]

    def _compare_with_promise(self, method: Choice) -> None:
        """Compare fresh maps with what their formula promises, once."""
        raw = self._raws[method.formula_key]
        shard = self.task.shard
        if self.task.finished.promises(shard, method) or isinstance(raw, Moments):
            return
        gaps = promise_gaps(self._plan, shard, method, raw, self.engine)
        if gaps is not None:
            self.task.put(gaps)
        rows = promise_passes(method) * len(self.engine.batch)
        self.passes += rows
        self.task.watcher.passes(rows)

    def _explain(self, method: Choice) -> Callable[[Tensor], Tensor] | None:
        """The method for protocols that explain changed inputs. Its passes are counted too."""
        again = explain_again(self.engine, method)
        if again is None:
            return None

        def explain(inputs: Tensor) -> Tensor:
            whole, faulty = finite(again(inputs))
            self._count(method)
            self._faulty = faulty if self._faulty is None else self._faulty | faulty
            return whole

        return explain

    def _partner(self, method: Choice, mine: Tensor) -> Callable[[], Tensor]:
        """The method's maps of other samples, from this shard if all have a partner in it."""
        order = dealt(self._groups)
        if order is not None:
            return lambda: mine[order]
        computed: list[Tensor] = []

        def maps() -> Tensor:
            if not computed:
                others = other_maps(self.engine.model, self.engine.batch, method, self.engine)
                computed.append(finite(others)[0])
                self._count(method)
            return computed[0].clone()  # each protocol may change its own

        return maps

    def _count(self, method: Choice) -> None:
        """Count the passes of explaining all samples once."""
        if method.intervening:
            return  # the engine has counted its passes
        passes = method.passes_on(self.engine.model, self.engine.batch)
        size = len(self.engine.batch)
        rows = (passes.forward or 0) * size
        self.passes += rows
        self.task.watcher.passes(rows + 2 * (passes.backward or 0) * size)

    # --- one cell --------------------------------------------------------------------------------

    def _score(
        self, method: Choice, protocol: Choice, case: Case, broken: Tensor, explained: float
    ) -> CellOutcome:
        """The outcome of a method's maps under a protocol."""
        missing = self._plan.missing(self.task.shard, protocol)
        if missing:
            return self._not_applicable(missing)
        step = Step(method.label, protocol.label)
        if step in self.task.given_up:
            return CellOutcome("failed", self.task.given_up[step])
        self.task.begin(step)
        started, rows = time.monotonic(), self.engine.asked
        self._faulty = None
        try:
            scores = score_case(protocol, case, self.engine)
            whole = standing(method, protocol, case.batch)
        except BaseException as error:
            return outcome_of(error)
        if self._faulty is not None:
            broken = broken | self._faulty
        mute = self.engine.broken & ~broken
        bad, empty = (broken | mute).cpu().numpy(), empty_maps(protocol, case, scores)
        value = np.where(bad, np.nan, scores.value.numpy())
        if whole in ("upper_bound", "shown"):  # precede empty maps: no method is ranked
            empty = empty & ~np.isfinite(value)
        statuses = np.where(bad, "failed", np.where(empty, "degenerate", whole))
        metrics = {protocol.plugin.metric: value}
        for name, extra in scores.extra.items():
            metrics[name] = np.where(bad, np.nan, extra.double().cpu().numpy())
        reasons = {"maps hold NaN or inf": broken, "samples make the network give NaN or inf": mute}
        counts = {text: int(which.sum()) for text, which in reasons.items()}
        message = " ".join(f"{n} of {len(bad)} {text}." for text, n in counts.items() if n)
        status = "failed" if bad.any() else "ok"
        return CellOutcome(
            status, message, metrics, statuses, scores,
            seconds=time.monotonic() - started,
            explain_seconds=explained,
            forwards=self.engine.asked - rows,
        )  # fmt: skip

    def _not_applicable(self, missing: list[str]) -> CellOutcome:
        return CellOutcome("n/a", f"Needs {self._plan.say_missing(self.task.shard.model, missing)}")

    def _write_all(self, cells: Sequence[tuple[Choice, Choice]], outcome: CellOutcome) -> None:
        """Write one outcome for all these cells."""
        for method, protocol in cells:
            self._write(method, protocol, outcome)

    def _write(self, method: Choice, protocol: Choice, outcome: CellOutcome) -> None:
        """Keep a finished cell, to be stored with the others of its method."""
        self._cells.append(stored_cell(self._plan, self.task.shard, method, protocol, outcome))
        if time.monotonic() - self._stored > MOST_SECONDS:
            self._store_cells()

    def _store_cells(self) -> None:
        if self._cells:
            self.task.put(CellsPiece(self.task.shard.id, self._cells))
        self._cells, self._stored = [], time.monotonic()


def finite(maps: Tensor) -> tuple[Tensor, Tensor]:
    """The maps, set to zero if they hold NaN or inf, and which ones did: `[B]`."""
    broken = ~torch.isfinite(maps).flatten(1).all(1)
    return maps.masked_fill(broken.reshape(-1, *[1] * (maps.ndim - 1)), 0.0), broken
