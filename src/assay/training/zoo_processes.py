"""Training many networks of the zoo at once, by several processes on one device."""

import multiprocessing
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

import torch

from assay.errors import PrerequisiteError
from assay.training.zoo import Job, zoo_model, zoo_network
from assay.training.zoo_jobs import Trained, stored_job, train_job
from assay.training.zoo_pixels import PixelFacts, ZooPixels, cache_pixels, read_pixel_facts
from assay.training.zoo_training import Workshop
from assay.types.model import usable_device

MPS = "nvidia-cuda-mps-control"
QUIT = 10  # seconds that its service may take to end
TUNING = 0.5  # what a fine-tuned arm costs, as a share of the base training


def train_zoo(
    jobs: Sequence[Job],
    data: Path,
    out: Path,
    *,
    device: str = "cpu",
    processes: int = 1,
    epochs: int | None = None,
    tuning_epochs: int | None = None,
    limit: int | None = None,
    mps: bool = False,
    say: Callable[[str], None] = print,
) -> list[Trained]:
    """Train networks of the zoo and store each beside a JSON file of facts.

    Networks that are already stored are not trained again; one that was stored with other settings
    is an error and is kept. An arm that fails leaves its error in a file and does not stop the
    others; a process that dies is replaced.

    Args:
        jobs: What to train; the longest jobs start first.
        data: The folder that holds `cifar10/` with lossless parquet files.
        out: The folder of the networks and of the decoded pixels.
        device: Where to train.
        processes: How many networks are trained at a time.
        epochs: Epochs of every base training instead of the recipe's, for a quick try.
        tuning_epochs: The same for every fine-tuning.
        limit: Only so many images, for a quick try.
        mps: Whether to start NVIDIA's service that lets processes share a GPU at the same time.
        say: Receives one line per finished network.
    """
    out.mkdir(parents=True, exist_ok=True)
    pixels = cache_pixels(data, out)
    shop = Workshop(out, device, epochs, tuning_epochs, limit)
    ordered = sorted(jobs, key=_cost, reverse=True)
    tally = _Tally(sum(map(_cost, ordered)), sum(len(job.arms) for job in ordered), say)
    ordered = _unfinished(ordered, shop, read_pixel_facts(pixels, limit), tally)
    if not ordered:
        return tally.outcomes
    with shared_gpu(mps):
        usable_device(device)
        if processes == 1:
            loaded = ZooPixels.load(pixels, device, limit)
            for job in ordered:
                for outcome in train_job(job, loaded, shop):
                    tally.add(outcome, _cost(job) / len(job.arms))
        else:
            _share_out(ordered, processes, (pixels, shop, limit), tally)
    return tally.outcomes


def _unfinished(jobs: list[Job], shop: Workshop, pixels: PixelFacts, tally: "_Tally") -> list[Job]:
    """The jobs that are not stored; the others are counted."""
    left = []
    for job in jobs:
        stored = stored_job(job, shop, pixels)
        if stored is None:
            left.append(job)
        for outcome in stored or ():
            tally.add(outcome, _cost(job) / len(job.arms))
    return left


@dataclass
class _Tally:
    """What has been trained, and how long the rest will take."""

    cost: float
    arms: int
    say: Callable[[str], None]
    outcomes: list[Trained] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)
    done: float = 0.0
    skipped: float = 0.0

    def add(self, outcome: Trained, cost: float) -> None:
        """Count an arm and print its line."""
        self.outcomes.append(outcome)
        self.done += cost
        if outcome.skipped or outcome.error:
            self.skipped += cost
        if outcome.error:
            what = f"failed: {outcome.error}"
        else:
            what = f"accuracy {outcome.accuracy:.2%}"
            what += ", under-trained" if outcome.under_trained else ""
            what += ", already there" if outcome.skipped else f", {outcome.seconds:.0f} s"
        worked = self.done - self.skipped
        left = ""
        if worked and self.done < self.cost:
            seconds = (time.monotonic() - self.started) * (self.cost - self.done) / worked
            left = f", about {seconds / 60:.1f} min left"
        self.say(f"{outcome.file}: {what} ({len(self.outcomes)} of {self.arms}{left})")


def _cost(job: Job) -> float:
    """A job's length: on a GPU the calls of layers count, hardly their sizes."""
    network = zoo_network(job.name)
    with torch.device("meta"):  # without weights
        net = zoo_model(job.name).net
    leaves = sum(not list(m.children()) for m in net.modules())
    epochs = network.recipe.epochs + network.pretraining
    arms = sum(1.0 if arm.startswith("base") else TUNING for arm in job.arms)
    return leaves * epochs / network.recipe.batch * arms


@dataclass
class _Worker:
    """A process that trains one job after another."""

    process: SpawnProcess
    connection: Connection
    job: Job
    left: int  # arms of the job that have not been reported


Shared = tuple[Path, Workshop, int | None]  # pixels, workshop, limit


def _share_out(jobs: list[Job], processes: int, shared: Shared, tally: _Tally) -> None:
    """Hand the jobs to processes until all are reported."""
    waiting = list(jobs)
    workers: list[_Worker] = []
    try:
        while waiting and len(workers) < processes:
            workers.append(_start(waiting.pop(0), shared))
        while workers:
            for ready in wait([worker.connection for worker in workers]):
                worker = next(w for w in workers if w.connection is ready)
                if not _listen(worker, tally):
                    continue
                workers.remove(worker)
                if waiting:
                    workers.append(_next(worker, waiting.pop(0), shared))
                else:
                    _dismiss(worker)
    finally:
        for worker in workers:
            worker.process.terminate()
            worker.process.join()


def _start(job: Job, shared: Shared) -> _Worker:
    context = multiprocessing.get_context("spawn")
    connection, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, shared), daemon=True)
    process.start()
    theirs.close()
    connection.send(job)
    return _Worker(process, connection, job, len(job.arms))


def _listen(worker: _Worker, tally: _Tally) -> bool:
    """Take one message; gives whether the worker is done with its job, or dead."""
    cost = _cost(worker.job) / len(worker.job.arms)
    try:
        outcome: Trained | None = worker.connection.recv()
    except (EOFError, OSError):
        worker.process.join()
        for arm in worker.job.arms[len(worker.job.arms) - worker.left :]:
            name = f"{worker.job.name}-s{worker.job.seed}-{arm}"
            error = f"the process ended with code {worker.process.exitcode}; run the command again"
            tally.add(Trained(name, error=error), cost)
        return True
    if outcome is None:
        return True
    worker.left -= 1
    tally.add(outcome, cost)
    return False


def _next(worker: _Worker, job: Job, shared: Shared) -> _Worker:
    """The next job for a worker; one that has ended is replaced."""
    try:
        worker.connection.send(job)
    except OSError:
        _dismiss(worker)
        return _start(job, shared)
    return _Worker(worker.process, worker.connection, job, len(job.arms))


def _dismiss(worker: _Worker) -> None:
    with suppress(OSError):  # it may have ended by itself
        worker.connection.send(None)
    worker.process.join()
    worker.connection.close()


def _work(connection: Connection, shared: Shared) -> None:
    """The process: load the pixels once, train what comes."""
    path, shop, limit = shared
    torch.set_num_threads(1)
    pixels = ZooPixels.load(path, shop.device, limit)
    while True:
        job: Job | None = connection.recv()
        if job is None:
            return
        failed = False
        for outcome in train_job(job, pixels, shop):
            connection.send(outcome)
            failed = failed or bool(outcome.error)
        if failed and shop.device != "cpu":
            connection.close()  # an error on a GPU may break all that follow: a fresh process
            return
        connection.send(None)


@contextmanager
def shared_gpu(start: bool) -> Iterator[None]:
    """Run NVIDIA's multi-process service inside, if asked for: processes compute at once."""
    if not start:
        yield
        return
    if shutil.which(MPS) is None:
        raise PrerequisiteError(
            f"Expected the program `{MPS}` for `--mps`, found none. Leave `--mps` out."
        )
    subprocess.run([MPS, "-d"], check=True)
    try:
        yield
    finally:
        with suppress(subprocess.TimeoutExpired):  # it may wait for processes that have ended
            subprocess.run([MPS], input="quit\n", text=True, check=False, timeout=QUIT)
