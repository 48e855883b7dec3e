"""Execute shards in this process or in several, which share only files."""

import contextlib
import ctypes
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from typing import NamedTuple

import torch

from assay.errors import PrerequisiteError
from assay.plan.finished import Finished
from assay.plan.plan import Plan, Shard
from assay.plan.resolving import resolve
from assay.plan.set_cells import reads_maps, set_cells
from assay.plan.timing import Seconds, measure
from assay.processes import Worker, without_exit
from assay.run.set_stage import run_sets, step_of
from assay.run.settings import Settings
from assay.run.shard import ShardTask, run_shard
from assay.run.started import Reasons, Step, started
from assay.run.watching import Watcher
from assay.run.workers import SETS, Crew, PipeWatcher, ShardJob, errors_sent, serve
from assay.store import Store
from assay.store.data_facts import DataFacts, knowing
from assay.suite.spec import Spec
from assay.training.trained_weights import TrainedWeights

ShardReasons = Mapping[str, Reasons]  # by the id of a shard


class Known(NamedTuple):
    """What workers are given so that they neither train nor read all data again."""

    weights: dict[str, bytes]  # that this process trained
    facts: DataFacts


@contextlib.contextmanager
def threads(number: int | None) -> Iterator[None]:
    """Set the number of torch threads inside the context, and restore it afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def keep_freed_memory() -> None:
    """Let the C library keep freed memory, so that large batches need no new pages each time.

    On Linux a forward pass at 224 pixels takes up to twice as long without this.
    """
    with contextlib.suppress(OSError, AttributeError):  # another C library without this setting
        library = ctypes.CDLL(None)
        library.mallopt(-3, 1 << 30)  # M_MMAP_THRESHOLD
        library.mallopt(-1, (1 << 31) - 1)  # M_TRIM_THRESHOLD


def apply(plan: Plan, settings: Settings) -> Plan:
    """The plan with the micro-batch sizes of the run."""
    sizes = settings.micro_batch
    models = {
        name: replace(model, micro_batch=sizes.get(name, model.micro_batch))
        for name, model in plan.models.items()
    }
    return replace(plan, models=models)


def shard_task(finished: Finished, settings: Settings, shard: Shard, watcher: Watcher) -> ShardTask:
    """The work on a shard, whose pieces are written to the run folder as they are made."""
    store = finished.store
    return ShardTask(finished, shard, lambda piece: piece.write(store), watcher, settings.keep_maps)


def run_serially(
    plan: Plan, settings: Settings, shards: Sequence[Shard], watcher: Watcher
) -> ShardReasons:
    """Run one shard after the other in this process; the result is what was not tried again."""
    keep_freed_memory()
    reasons: dict[str, Reasons] = {}
    finished = Finished(plan, Store(settings.folder))
    with started(finished.store, "shards") as log:
        for shard in shards:
            given_up = reasons[shard.id] = log.given_up(shard)
            task = shard_task(finished, settings, shard, watcher)
            run_shard(replace(task, given_up=given_up, begin=partial(log.begin, shard)))
            log.stop()
    return reasons


def run_in_processes(
    plan: Plan, settings: Settings, shards: Sequence[Shard], workers: int, watcher: Watcher,
    timeout: float | None = None,
) -> ShardReasons:  # fmt: skip
    """Run several shards at once; the result is what was not tried again.

    Every worker builds its own objects from the suite. Workers get the weights that this process
    trained and the facts that it found about the data, so that none of them does that again.
    """
    known = Known(plan.trained.packed(), plan.facts)
    crew = Crew(lambda: Worker(_work, plan.spec, settings, known), watcher, timeout)
    with started(Store(settings.folder), "shards"):  # an earlier run may have left its log
        crew.run(shards, min(workers, len(shards)))
    return crew.reasons


def run_sets_serially(
    plan: Plan, settings: Settings, watcher: Watcher, reasons: ShardReasons, progress: bool
) -> None:
    """Run the set protocols in this process, on all cores.

    Methods whose maps could not be computed at a shard, for these reasons, are not tried again for
    the cells that read those maps.
    """
    finished = Finished(plan, Store(settings.folder))
    with started(finished.store, "sets") as log:
        task = shard_task(finished, settings, plan.shards[0], watcher)
        given_up = log.given_up(None) | unexplained(plan, reasons)
        run_sets(replace(task, given_up=given_up, begin=partial(log.begin, None)), progress)


def run_sets_apart(
    plan: Plan, settings: Settings, watcher: Watcher, reasons: ShardReasons, timeout: float
) -> None:
    """The same in one worker process, which a cell that takes too long does not survive."""
    known = Known(plan.trained.packed(), plan.facts)
    crew = Crew(lambda: Worker(_work, plan.spec, settings, known), watcher, timeout)
    crew.reasons[SETS] = unexplained(plan, reasons)
    crew.run([None], 1)


def unexplained(plan: Plan, reasons: ShardReasons) -> Reasons:
    """The set cells that need maps of a shard at which their method was given up, and why."""
    given_up: Reasons = {}
    for shard in (*plan.shards, *plan.train_shards):
        known = reasons.get(shard.id, {})
        for cell in set_cells(plan) if known else ():
            reason = known.get(Step(cell.method.label), known.get(Step()))
            if reason is not None and reads_maps(plan, cell, shard):
                given_up[step_of(cell)] = reason
    return given_up


def measure_in_processes(plan: Plan, settings: Settings, workers: int) -> dict[str, Seconds]:
    """Seconds per engine and gradient call of each model, with all workers busy at once."""
    known = Known(plan.trained.packed(), plan.facts)
    crew: list[Worker[None]] = []
    try:
        crew += [Worker(_measure, plan.spec, settings, known) for _ in range(workers)]
        measured: list[dict[str, Seconds]] = [_answer(worker) for worker in crew]
    finally:
        for worker in crew:
            worker.kill()
    return {name: Seconds.mean([times[name] for times in measured]) for name in measured[0]}


def _answer(worker: Worker[None]) -> dict[str, Seconds]:
    try:
        answer: dict[str, Seconds] | BaseException = worker.connection.recv()
    except (EOFError, OSError):
        raise PrerequisiteError(
            f"A worker process ended while it measured the networks ({worker.fate})."
        ) from None
    if isinstance(answer, BaseException):
        raise answer
    return answer


def _measure(connection: Connection, spec: Spec, settings: Settings, known: Known) -> None:
    """The process of a worker that measures the networks once."""
    with errors_sent(connection), without_exit():
        plan = _build(spec, settings, known)
        connection.send({name: measure(plan, name) for name in plan.models})


def _work(connection: Connection, spec: Spec, settings: Settings, known: Known) -> None:
    """The process of a worker."""

    def work(job: ShardJob) -> None:
        shard, given_up = job
        task = shard_task(finished, settings, shard or plan.shards[0], PipeWatcher(connection))
        task = replace(task, given_up=given_up, begin=connection.send)
        if shard is not None:
            return run_shard(task)
        with threads(cores):
            return run_sets(task, progress=False)

    cores = torch.get_num_threads()
    with errors_sent(connection), without_exit():
        plan = _build(spec, settings, known)
        finished = Finished(plan, Store(settings.folder))
        serve(connection, work)


def _build(spec: Spec, settings: Settings, known: Known) -> Plan:
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    torch.set_num_threads(1)
    keep_freed_memory()
    with knowing(replace(known.facts, progress=False)):
        plan = resolve(spec, settings.device, TrainedWeights(known.weights), settings.identity)
    return apply(plan, settings)
