"""A log of the cells that this process started, by which a later run knows what ended it."""

import contextlib
import itertools
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from assay.store import Store

ENDS = 2  # starts of a cell that ended the process: the next start does not try it again
END = b"\n"


class Step(NamedTuple):
    """What a shard does at a time: explain with a method, or score its maps under a protocol.

    Without a protocol it is explaining, without a method it is preparing the network.
    """

    method: str = ""
    protocol: str = ""


Reasons = dict[Step, str]  # the steps that are not tried again, and why


@dataclass(frozen=True)
class StartedLog:
    """The steps of a model on a dataset, or of set protocols, in the order in which they started.

    A process that ends in the middle of a step, by `kill -9` or because its memory ran out, leaves
    that step as the last line. A run that ends in order leaves no such line.
    """

    store: Store
    name: str

    @property
    def _path(self) -> Path:
        return self.store.path("started", f"{self.name}.jsonl")

    def begin(self, step: Step) -> None:
        """Record that a step starts; the one before has ended."""
        self._append(step)

    def stop(self) -> None:
        """Record that no step is running, though the work is not done."""
        self._append(None)

    def resume(self) -> Reasons:
        """The steps that ended this process before, twice each. Call it before the first step."""
        lines = self._lines()
        if lines and lines[-1] is not None:
            self._append(False)  # the process that wrote the last line ended there
            lines.append(False)
        ends = Counter(
            Step(*step)
            for step, following in itertools.pairwise(lines)
            if following is False and isinstance(step, list)
        )
        return {
            step: f"The process ended {count} times while it was running this: it was killed, its "
            f"memory ran out, or this code ended it. The next run tries it once more."
            for step, count in ends.items()
            if count >= ENDS
        }

    def clear(self) -> None:
        """The work is done."""
        self._path.unlink(missing_ok=True)

    def _append(self, line: object) -> None:
        with contextlib.suppress(OSError):  # the folder is gone: nothing can be resumed in it
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab") as file:
                file.write(json.dumps(line).encode() + END)

    def _lines(self) -> list[object]:
        try:
            written = self._path.read_bytes().split(END)[:-1]
            return [json.loads(line) for line in written]
        except (OSError, ValueError):
            return []


@contextlib.contextmanager
def started(store: Store, name: str) -> Iterator[StartedLog]:
    """The log of what starts inside. Only an end of the process inside leaves a step in it."""
    log = StartedLog(store, name)
    try:
        yield log
    except BaseException:
        log.stop()
        raise
    log.clear()
