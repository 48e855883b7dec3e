"""A small network, its data, and methods that end their process, all read by address."""

import os
import signal
import sys
import time
from pathlib import Path

import torch

from assay.conformance.worlds import make_images, make_net
from assay.models.wrap import model
from assay.types import Batch, Dataset, Model, Sample

ONCE = "ASSAY_TEST_ONCE"  # the environment variable that names a file: absent, `once` kills


def images(*, samples: int = 16) -> Dataset:
    """Random images: two shards."""
    x, y = make_images(samples)

    def fetch(sample: str) -> Sample:
        return Sample(x[int(sample)], int(y[int(sample)]))

    ids = tuple(f"{i:03d}" for i in range(samples))
    return Dataset("images", "image", ids, fetch, fingerprint=f"images {samples}")


def net() -> Model:
    """A small network."""
    return model(make_net(), name="net")


class Rude(Exception):
    """An exception without a readable text."""

    def __str__(self) -> str:
        raise ValueError("no text")


def leaves(net: Model, batch: Batch) -> torch.Tensor:
    exit()


def leaves_with_success(net: Model, batch: Batch) -> torch.Tensor:
    sys.exit(0)


def raises_system_exit(net: Model, batch: Batch) -> torch.Tensor:
    raise SystemExit(0)


def vanishes(net: Model, batch: Batch) -> torch.Tensor:
    os._exit(0)


def vanishes_with_nine(net: Model, batch: Batch) -> torch.Tensor:
    os._exit(9)


def interrupts(net: Model, batch: Batch) -> torch.Tensor:
    raise KeyboardInterrupt


def rude(net: Model, batch: Batch) -> torch.Tensor:
    raise Rude


def hangs(net: Model, batch: Batch) -> torch.Tensor:
    time.sleep(600)


def killed(net: Model, batch: Batch) -> torch.Tensor:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)


def killed_once(net: Model, batch: Batch) -> torch.Tensor:
    """Noise; the first call of all processes does not return."""
    mark = Path(os.environ[ONCE])
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(600)
    return noise(net, batch)


def kills_at(net: Model, batch: Batch, *, sample: str) -> torch.Tensor:
    """Noise; the process ends where this sample is explained."""
    if sample in batch.ids:
        os.kill(os.getpid(), signal.SIGKILL)
    return noise(net, batch)


def kills_model(net: Model, batch: Batch, *, name: str) -> torch.Tensor:
    """Noise; the process ends where this model is explained."""
    if net.name == name:
        os.kill(os.getpid(), signal.SIGKILL)
    return noise(net, batch)


def slow(net: Model, batch: Batch, *, pause: float = 0.05) -> torch.Tensor:
    """Noise that takes its time."""
    time.sleep(pause)
    return noise(net, batch)


def noise(net: Model, batch: Batch) -> torch.Tensor:
    """Noise."""
    return batch.draw("noise", batch.map_shape)


def deletes_the_run(net: Model, batch: Batch) -> torch.Tensor:
    """Noise; deletes the scores of the run that is named by the variable."""
    for path in Path(os.environ[ONCE]).glob("shards/*.log"):
        path.unlink()
    return noise(net, batch)
