"""A log of the steps that this process started, by which a later run knows what ended it."""

import contextlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from assay.errors import CannotWrite
from assay.plan.plan import Shard
from assay.store import Store

ENDS = 2  # starts of a step that ended the process: the next start at that shard fails
NEWLINE = b"\n"


class Step(NamedTuple):
    """What a shard does at a time: explain with a method, or score its maps under a protocol.

    Without a protocol it is explaining, without a method it is preparing the network.
    """

    method: str = ""
    protocol: str = ""


class StartedStep(NamedTuple):
    """A step at a shard; the steps of set protocols, which name their samples, have no shard."""

    dataset: str = ""
    model: str = ""
    shard: str = ""
    method: str = ""
    protocol: str = ""

    @property
    def step(self) -> Step:
        """The step alone."""
        return Step(self.method, self.protocol)

    @property
    def cause(self) -> tuple[str, str, Step]:
        """What may end the process at any shard of a dataset and model."""
        return self.dataset, self.model, self.step


def start_of(shard: Shard | None, step: Step) -> StartedStep:
    """The start of a step at a shard; None: of a step of set protocols."""
    return (
        StartedStep("", "", "", *step)
        if shard is None
        else StartedStep(shard.dataset, shard.model, shard.id, *step)
    )


Reasons = dict[Step, str]  # the steps of a shard that are not tried again, and why


@dataclass
class StartedLog:
    """The file that names the step which is running, after those in which the process ended.

    A process that ends in the middle of a step, by `kill -9` or because its memory ran out, leaves
    that step as the last line. Lines of steps that have ended are removed with every shard, so the
    file is never longer than the steps of one shard.
    """

    path: Path
    _ends: Counter[StartedStep] = field(default_factory=Counter)
    _length: int = 0  # bytes of the lines of the steps that ended a process

    def resume(self) -> None:
        """Read which steps ended the process before. Call it before the first step."""
        starts = self._read()
        self._ends = Counter(start for start, ended in starts if ended)
        if starts and not starts[-1][1]:  # the process ended before it wrote another line
            self._ends[starts[-1][0]] += 1
        lines = b"".join(_line(start, True) for start in self._ends.elements())
        self._length = len(lines)
        if lines:
            with contextlib.suppress(CannotWrite):
                Store(self.path.parent).write_bytes(self.path, lines)

    def begin(self, shard: Shard | None, step: Step) -> None:
        """Record that a step starts; the one before has ended."""
        with contextlib.suppress(OSError):  # the folder is gone: nothing can be resumed in it
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                file.write(_line(start_of(shard, step), False))

    def stop(self) -> None:
        """Record that no step is running, though the work is not done."""
        with contextlib.suppress(OSError), self.path.open("r+b") as file:
            file.truncate(self._length)

    def given_up(self, shard: Shard | None) -> Reasons:
        """The steps that are not tried again at a shard.

        A step is given up at the shard at which the process ended twice in it. At other shards of
        the same dataset and model it is then given up after one end: it was seen to be deadly.
        """
        deadly = {start.cause for start, count in self._ends.items() if count >= ENDS}
        place = start_of(shard, Step()).shard
        return {
            start.step: f"The process ended {_times(count)} while it was running this: it was "
            f"killed, its memory ran out, or this code ended it. The next run tries it once more."
            for start, count in self._ends.items()
            if start.shard == place and (count >= ENDS or start.cause in deadly)
        }

    def clear(self) -> None:
        """The work is done."""
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)

    def _read(self) -> list[tuple[StartedStep, bool]]:
        """The lines: a step, and whether it is known to have ended the process."""
        try:
            written = self.path.read_bytes().split(NEWLINE)[:-1]
            lines = [json.loads(line) for line in written]
            return [(StartedStep(*map(str, names)), bool(ended)) for names, ended in lines]
        except (OSError, ValueError, TypeError):
            return []


def _line(start: StartedStep, ended: bool) -> bytes:
    return json.dumps([start, ended]).encode() + NEWLINE


def _times(count: int) -> str:
    return "once, as it had at other samples before," if count == 1 else f"{count} times"


@contextlib.contextmanager
def started(store: Store, name: str) -> Iterator[StartedLog]:
    """The log of what starts inside. Only an end of the process inside leaves a step in it."""
    log = StartedLog(store.path("started", f"{name}.jsonl"))
    log.resume()
    try:
        yield log
    except BaseException:
        log.stop()
        raise
    log.clear()
