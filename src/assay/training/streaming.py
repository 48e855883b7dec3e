"""Samples that do not fit in memory: read from their dataset batch by batch, one batch ahead."""

import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock

import torch
from torch import Tensor

from assay.data.sample_hashes import hash_inputs
from assay.types import Dataset, Model

SHARE = 0.25  # of the free memory that samples may take: a part of them is copied, to hold it out
AHEAD = 1  # batches that are read while the network is trained on the one before
CGROUP = Path("/sys/fs/cgroup")  # where Linux says how much memory a container may take


@dataclass(frozen=True, eq=False)
class StreamedInputs:
    """Inputs `[N, ...]` that are read when they are indexed, like a tensor on the CPU."""

    dataset: Dataset
    ids: tuple[str, ...]
    model: Model
    hashes: Tensor  # [N] of the samples
    size: tuple[int, ...]  # of one sample
    _lock: Lock = field(default_factory=Lock, repr=False)  # datasets are read by one thread

    device = torch.device("cpu")
    dtype = torch.float32

    def __len__(self) -> int:
        """The number of samples."""
        return len(self.ids)

    @property
    def shape(self) -> tuple[int, ...]:
        """As that of a tensor."""
        return (len(self), *self.size)

    @property
    def ndim(self) -> int:
        """As that of a tensor."""
        return 1 + len(self.size)

    def __getitem__(self, rows: Tensor | slice) -> Tensor:
        """Read the samples at these positions."""
        ids = self.ids[rows] if isinstance(rows, slice) else [self.ids[r] for r in rows.tolist()]
        with self._lock:
            return self.dataset.batch(ids, self.model.prepare, pixels=self.model.pixels).inputs

    def select(self, rows: Tensor) -> "StreamedInputs":
        """The samples at these positions, still to be read."""
        ids = tuple(self.ids[row] for row in rows.tolist())
        return replace(self, ids=ids, hashes=self.hashes[rows])


Inputs = Tensor | StreamedInputs


def select_inputs(inputs: Inputs, rows: Tensor) -> Inputs:
    """The inputs at these positions; streamed ones are not read."""
    return inputs[rows] if isinstance(inputs, Tensor) else inputs.select(rows)


def inputs_hashes(inputs: Inputs, model: Model) -> Tensor:  # [N] int64
    """The hash of each sample, the same in memory and streamed."""
    return hash_inputs(inputs, model.pixels) if isinstance(inputs, Tensor) else inputs.hashes


def in_batches(inputs: Inputs, batches: Iterable[Tensor]) -> Iterator[Tensor]:
    """The inputs at these positions, batch after batch; the next streamed batch is read ahead."""
    if isinstance(inputs, Tensor):
        for rows in batches:
            yield inputs[rows.to(inputs.device)]
        return
    with ThreadPoolExecutor(1) as reader:
        ahead: deque[Future[Tensor]] = deque()
        for rows in batches:
            ahead.append(reader.submit(inputs.__getitem__, rows.cpu()))
            if len(ahead) > AHEAD:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


def room() -> float:
    """The bytes that the samples of one dataset may take; infinite where nothing is known."""
    return SHARE * free_memory()


def free_memory() -> float:
    """The bytes of memory that this process can still take; infinite where nothing says it."""
    free = float("inf")
    try:
        free = float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        lines = Path("/proc/meminfo").read_text().splitlines()  # counts what the system can drop
        free = next(1024.0 * int(x.split()[1]) for x in lines if x.startswith("MemAvailable"))
    except (AttributeError, OSError, StopIteration, ValueError):
        pass
    try:
        limit, used = (int((CGROUP / f"memory.{name}").read_text()) for name in ("max", "current"))
        stat = dict(map(str.split, (CGROUP / "memory.stat").read_text().splitlines()))
        return min(free, limit - used + float(stat["file"]))  # files in memory can be dropped
    except (KeyError, OSError, ValueError):  # no container, or one without a limit (`max`)
        return free
