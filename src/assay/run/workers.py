"""Shards in worker processes: a worker that dies, or a cell that takes too long, ends no run."""

import contextlib
import pickle
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait

from assay.errors import PrerequisiteError
from assay.plan.plan import Shard
from assay.processes import SECONDS, Worker
from assay.run.failures import error_text
from assay.run.started import Reasons, Step
from assay.run.watching import Watcher
from assay.store import ShardSummary

DEATHS = 3  # of workers at one shard, or while they start: what they did then is not tried again
SETS = "sets"  # stands where a shard's id would, for the job of all set protocols
ShardJob = tuple[Shard | None, Reasons]  # a shard, or all set protocols; and what is left out


@dataclass(frozen=True)
class Looked:
    """The message that a worker knows the summary of a shard."""

    shard: Shard
    summary: ShardSummary


class Ready:
    """The message that a worker has built its objects."""


class Done:
    """The message that a worker has finished its job."""


WorkerReport = int | Looked | Ready | Done | Step | BaseException  # an int: passes of the network


@dataclass(eq=False)
class Busy:
    """A worker, its shard, and what it does with it."""

    worker: Worker[ShardJob]
    shard: Shard | None
    ready: bool = False
    step: Step = field(default_factory=Step)
    since: float = 0.0  # when the step started; scoring starts with the explanation's time
    explaining: float = 0.0  # seconds of the explanation

    @property
    def place(self) -> str:
        """The id of the shard."""
        return id_of(self.shard)

    @property
    def cause(self) -> tuple[str, str, Step]:
        """What may end workers at any shard: the step, with the dataset and the model."""
        shard = self.shard
        return ("", "", self.step) if shard is None else (shard.dataset, shard.model, self.step)

    def start(self, step: Step) -> None:
        """Record that the worker starts a step."""
        now = time.monotonic()
        if self.step.method == step.method and not self.step.protocol:
            self.explaining = now - self.since
        elif self.step.method != step.method:
            self.explaining = 0.0
        self.step, self.since = step, now - self.explaining


def id_of(shard: Shard | None) -> str:
    """The id of a shard, or what stands for it."""
    return SETS if shard is None else shard.id


@dataclass
class Crew:
    """Workers that share out the shards of a run.

    Attributes:
        start: Starts a worker.
        watcher: Receives passes and summaries.
        timeout: The longest time of a cell, in seconds: explaining and scoring.
    """

    start: Callable[[], Worker[ShardJob]]
    watcher: Watcher
    timeout: float | None = None
    reasons: dict[str, Reasons] = field(default_factory=dict)  # by shard
    _waiting: deque[Shard | None] = field(default_factory=deque)
    _busy: list[Busy] = field(default_factory=list)
    _deaths: Counter[str] = field(default_factory=Counter)  # by shard; "": while they start
    _deadly: set[tuple[str, str, Step]] = field(default_factory=set)  # dataset, model, step

    def run(self, shards: Sequence[Shard | None], workers: int) -> None:
        """Run all shards. Cells that cannot be computed are stored as failed by their shard."""
        self._waiting.extend(shards)
        try:
            while self._waiting and len(self._busy) < workers:
                self._employ(self.start(), ready=False)
            while self._busy:
                self._listen()
        finally:
            for busy in self._busy:
                busy.worker.kill()

    def _employ(self, worker: Worker[ShardJob], ready: bool) -> None:
        """Give the next shard to a worker."""
        shard = self._waiting.popleft()
        self._busy.append(Busy(worker, shard, ready))
        worker.send((shard, self.reasons.get(id_of(shard), {})))

    def _listen(self) -> None:
        """Wait until something happens, and act on it."""
        sources = [b.worker.connection for b in self._busy]
        ends = [b.worker.process.sentinel for b in self._busy]
        happened = wait([*sources, *ends], self._patience())
        for busy in list(self._busy):
            worker = busy.worker
            if worker.connection in happened or worker.process.sentinel in happened:
                try:
                    if worker.connection.poll():
                        self._hear(busy, worker.connection.recv())
                except (EOFError, OSError):  # it ended, perhaps in the middle of a message
                    worker.process.join(SECONDS)
                    worker.kill()
                if worker.connection.closed or worker.ended:
                    self._replace(busy)
            elif self.timeout is not None and self._left(busy) <= 0:
                self._end_step(busy)

    def _hear(self, busy: Busy, message: WorkerReport) -> None:
        if isinstance(message, int):
            self.watcher.passes(message)
        elif isinstance(message, Looked):
            self.watcher.looked(message.shard, message.summary)
        elif isinstance(message, Step):
            busy.start(message)
        elif isinstance(message, Ready):
            busy.ready = True
        elif isinstance(message, BaseException):
            raise message
        else:
            self._busy.remove(busy)
            if self._waiting:
                self._employ(busy.worker, ready=True)
            else:
                busy.worker.dismiss()

    # --- ends of workers -------------------------------------------------------------------------

    def _replace(self, busy: Busy) -> None:
        """Start another worker for the shard of one that died."""
        if busy not in self._busy:
            return  # it had finished its work
        fate = busy.worker.fate
        busy.worker.kill()
        place = busy.place if busy.ready else ""
        self._deaths[place] += 1
        known = busy.step.method and busy.cause in self._deadly
        if known or self._deaths[place] >= DEATHS:
            if not busy.ready:
                raise PrerequisiteError(
                    f"Worker processes end while they start ({fate}). See what they print, or run "
                    f"with one worker to see what ends them."
                )
            what = "this" if busy.step.method else "preparing its shard"
            self._give_up(
                busy,
                f"The worker process ended ({fate}) while {what} was running, after other workers "
                f"had ended there, too. Its memory may have run out, or it was killed.",
            )
            self._deadly.add(busy.cause)
        self._again(busy)

    def _end_step(self, busy: Busy) -> None:
        """End a worker whose step takes too long, and leave that step out."""
        busy.worker.kill()
        what = "scoring" if busy.step.protocol else "explaining"
        self._give_up(busy, f"Stopped while {what}: it took longer than {self.timeout:g} s.")
        self._again(busy)

    def _give_up(self, busy: Busy, reason: str) -> None:
        self.reasons.setdefault(busy.place, {})[busy.step] = reason

    def _again(self, busy: Busy) -> None:
        self._busy.remove(busy)
        self._waiting.appendleft(busy.shard)
        self._employ(self.start(), ready=False)

    def _left(self, busy: Busy) -> float:
        """The seconds until a step takes too long. Preparing a shard may take any time."""
        if self.timeout is None or not busy.step.method:
            return float("inf")
        return busy.since + self.timeout - time.monotonic()

    def _patience(self) -> float | None:
        left = min(self._left(busy) for busy in self._busy)
        return None if left == float("inf") else max(0.0, left)


# --- in the worker -------------------------------------------------------------------------------


@dataclass(frozen=True)
class PipeWatcher:
    """The watcher of a worker: send every message to the process that started the run."""

    connection: Connection

    def passes(self, rows: int) -> None:
        """Send the number of passes."""
        self.connection.send(rows)

    def looked(self, shard: Shard, summary: ShardSummary) -> None:
        """Send the shard and its summary."""
        self.connection.send(Looked(shard, summary))


def serve(connection: Connection, work: Callable[[ShardJob], None]) -> None:
    """Do one job after another until there are no more."""
    connection.send(Ready())
    while (job := connection.recv()) is not None:
        work(job)
        connection.send(Done())


@contextlib.contextmanager
def errors_sent(connection: Connection) -> Iterator[None]:
    """Send an error inside to the process that started this one, instead of printing it."""
    try:
        yield
    except (EOFError, ConnectionError):  # that process has ended
        return
    except BaseException as error:
        with contextlib.suppress(ConnectionError):
            connection.send(_portable(error))


def _portable(error: BaseException) -> BaseException:
    """The error as it can be sent to another process, with the lines that raised it."""
    error.add_note("".join(traceback.format_exception(error)))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(error_text(error))
    return error
