"""Execute shards in this process or in several, which share only files."""

import contextlib
import ctypes
import multiprocessing
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from typing import Any

import torch

from assay.plan.finished import Finished
from assay.plan.plan import Plan, Shard, resolve
from assay.plan.timing import Seconds, measure
from assay.run.settings import Settings
from assay.run.shard import ShardTask, run_shard
from assay.run.watching import Watcher
from assay.store import ShardSummary, Store
from assay.suite.spec import Spec
from assay.training.trained_weights import TrainedWeights


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


def shard_task(plan: Plan, settings: Settings, shard: Shard, watcher: Watcher) -> ShardTask:
    """The work on a shard, whose pieces are written to the run folder as they are made."""
    store = Store(settings.folder)
    return ShardTask(
        Finished(plan, store), shard, lambda piece: piece.write(store), watcher, settings.keep_maps
    )


def run_serially(plan: Plan, settings: Settings, shards: Sequence[Shard], watcher: Watcher) -> None:
    """Run one shard after the other in this process."""
    keep_freed_memory()
    for shard in shards:
        run_shard(shard_task(plan, settings, shard, watcher))


def run_in_processes(
    plan: Plan, settings: Settings, shards: Sequence[Shard], workers: int, watcher: Watcher
) -> None:
    """Run several shards at once. Every worker builds its own objects from the suite.

    Workers get the weights that this process trained, so that none of them trains.
    """
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()

    def forward_messages() -> None:
        while (message := queue.get()) is not None:
            if isinstance(message, int):
                watcher.passes(message)
            else:
                watcher.looked(*message)

    listener = threading.Thread(target=forward_messages, daemon=True)
    listener.start()
    try:
        arguments = (plan.spec, settings, queue, plan.trained.packed())
        with ProcessPoolExecutor(workers, context, _start, arguments) as pool:
            try:
                for future in as_completed([pool.submit(_run_shard, shard) for shard in shards]):
                    future.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    finally:
        queue.put(None)
        listener.join(timeout=5)


def measure_in_processes(plan: Plan, settings: Settings, workers: int) -> dict[str, Seconds]:
    """Seconds per engine and gradient call of each model, with all workers busy at once."""
    context = multiprocessing.get_context("spawn")
    arguments = (plan.spec, settings, None, plan.trained.packed())
    with ProcessPoolExecutor(workers, context, _start, arguments) as pool:
        measured = list(pool.map(_measure, range(workers)))
    return {name: Seconds.mean([times[name] for times in measured]) for name in measured[0]}


@dataclass(frozen=True)
class QueueWatcher:
    """The watcher of a worker: send every message to the process that started the run."""

    queue: Any

    def passes(self, rows: int) -> None:
        """Send the number of passes."""
        self.queue.put(rows)

    def looked(self, shard: Shard, summary: ShardSummary) -> None:
        """Send the shard and its summary."""
        self.queue.put((shard, summary))


_WORKER: dict[str, Any] = {}


def _start(spec: Spec, settings: Settings, queue: Any, weights: dict[str, bytes]) -> None:
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    torch.set_num_threads(1)
    keep_freed_memory()
    plan = apply(
        resolve(spec, settings.device, TrainedWeights(weights), settings.identity), settings
    )
    _WORKER.update(plan=plan, settings=settings, queue=queue)


def _run_shard(shard: Shard) -> None:
    watcher = QueueWatcher(_WORKER["queue"])
    run_shard(shard_task(_WORKER["plan"], _WORKER["settings"], shard, watcher))


def _measure(_: int) -> dict[str, Seconds]:
    plan: Plan = _WORKER["plan"]
    return {name: measure(plan, name) for name in plan.models}
