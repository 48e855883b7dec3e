"""A guard around methods and protocols: what they change that is not theirs is named and undone."""

import contextlib
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.modules import module as every_module

from assay.errors import HarmError, SharedNumbersWarning, warn
from assay.models.network_state import (
    HOOKS,
    Copied,
    SideEffect,
    Structure,
    copied,
    copied_weights,
    rewritten,
)
from assay.models.prepare import DRAWS, INPUT
from assay.types import Batch, Model

CLONE = "Work on a clone of it, such as `batch.inputs.clone()`."
SETTINGS = "Set it back in a `finally`."


@dataclass
class Guard:
    """Compares a network, a batch and the settings of the process before and after a plug-in.

    The copies by which numbers are compared and restored are made once per network and batch, and
    only for code of users: they take as much memory as the weights and the batch.
    """

    net: nn.Module
    drawn: dict[str, list[str]] = field(default_factory=dict)  # by label: shared random numbers
    _weights: list[Copied] = field(default_factory=list)
    _batch: Batch | None = None
    _samples: list[Copied] = field(default_factory=list)

    @contextlib.contextmanager
    def watch(
        self, model: Model, batch: Batch, label: str, *, numbers: bool, result: str = "map",
        more: Sequence[Copied] = (),
    ) -> Iterator[None]:  # fmt: skip
        """Run a method or protocol inside. Its samples determine the random numbers it starts with.

        Args:
            model: The model that it explains.
            batch: The samples.
            label: Its label, for messages.
            numbers: Whether to compare all weights and samples bit by bit, too.
            result: What it gives for each sample, for messages.
            more: Other tensors that it was given.

        Raises:
            HarmError: It changed something, which is as before.
        """
        copies = [*(self._copies(batch) if numbers else ()), *more]
        structure, settings = Structure(self.net), _settings()
        streams = _Streams(batch)
        failed = True
        try:
            yield
            failed = False
        finally:
            drawn = streams.restore()
            changes = [*structure.changed(), *_set(settings), *rewritten(copies)]
            by_itself = frozenset() if model.observed is None else model.observed.changes
            changes = [change for change in changes if change.what not in by_itself]
            for change in changes:
                change.undo()
            if INPUT in by_itself:
                changes = [change for change in changes if change.what != "`batch.inputs`"]
        if changes and not failed:
            raise _harm(label, changes, result)
        if drawn and DRAWS not in by_itself and label not in self.drawn:
            self.drawn[label] = drawn
            warn(
                f"`{label}` uses {' and '.join(drawn)}, which all methods share. Draw with "
                f"`batch.draw(purpose, shape)`: then its {result}s do not depend on what else "
                f"runs. The shared numbers were seeded before it and are set back.",
                SharedNumbersWarning,
            )

    def _copies(self, batch: Batch) -> list[Copied]:
        if not self._weights:
            self._weights = copied_weights(self.net)
        if batch is not self._batch:
            self._batch = batch
            self._samples = [
                one
                for name in ("inputs", "targets", "labels", "truth", "baseline", "noise")
                if (tensor := getattr(batch, name)) is not None
                for one in copied(f"`batch.{name}`", tensor, CLONE)
            ]
        return [*self._weights, *self._samples]


def _harm(label: str, changes: list[SideEffect], result: str) -> HarmError:
    more = f" and {len(changes) - 1} more" if len(changes) > 1 else ""
    return HarmError(
        f"`{label}` changed {changes[0].what}{more}, which would change the results of other "
        f"methods and protocols. All of it is set back, and the {result}s of `{label}` are not "
        f"used. "
        f"{changes[0].cure}"
    )


# --- settings of the process -------------------------------------------------------------------


def _default_device(device: torch.device) -> None:
    torch.set_default_device(None if device.type == "cpu" else device)


def _working_folder() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was deleted
        return ""


def _return_to(folder: str) -> None:
    with contextlib.suppress(OSError):  # it was deleted, before or meanwhile
        os.chdir(folder)


_CUDNN: Any = torch.backends.cudnn
_MATMUL: Any = torch.backends.cuda.matmul
PROCESS: Mapping[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "the default number type of torch": (torch.get_default_dtype, torch.set_default_dtype),
    "the default device of torch": (torch.get_default_device, _default_device),
    "the number of threads of torch": (torch.get_num_threads, torch.set_num_threads),
    "`torch.use_deterministic_algorithms`": (
        torch.are_deterministic_algorithms_enabled,
        torch.use_deterministic_algorithms,
    ),
    "the working folder": (_working_folder, _return_to),
    "the gradient mode of torch": (torch.is_grad_enabled, torch.set_grad_enabled),
    **{
        f"the autocast mode of torch on {device}": (
            partial(torch.is_autocast_enabled, device),
            partial(torch.set_autocast_enabled, device),
        )
        for device in ("cpu", "cuda")
    },
    "the anomaly mode of torch": (
        torch.is_anomaly_enabled,
        torch.autograd.set_detect_anomaly,
    ),
    "`torch.backends.cuda.matmul.allow_tf32`": (
        lambda: _MATMUL.allow_tf32,
        partial(setattr, _MATMUL, "allow_tf32"),
    ),
    **{
        f"`torch.backends.cudnn.{flag}`": (
            partial(getattr, _CUDNN, flag),
            partial(setattr, _CUDNN, flag),
        )
        for flag in ("enabled", "benchmark", "deterministic", "allow_tf32")
    },
}
GLOBAL_HOOKS = [
    table
    for name in HOOKS
    if isinstance(table := getattr(every_module, f"_global{name}", None), dict)
]


def _settings() -> tuple[dict[str, Any], list[dict[int, Any]]]:
    values = {what: read() for what, (read, _) in PROCESS.items()}
    return values, [dict(table) for table in GLOBAL_HOOKS]


def _set(before: tuple[dict[str, Any], list[dict[int, Any]]]) -> Iterator[SideEffect]:
    """The settings that differ from these."""
    values, tables = before
    for what, value in values.items():
        read, write = PROCESS[what]
        if read() != value:
            yield SideEffect(what, SETTINGS, partial(write, value))
    for table, hooks in zip(GLOBAL_HOOKS, tables, strict=True):
        if table != hooks:
            added = [key for key in table if key not in hooks]
            undo = partial(_replace, table, hooks)
            yield SideEffect(f"the hooks of all modules ({len(added)} added)", SETTINGS, undo)


def _replace(table: dict[int, Any], hooks: dict[int, Any]) -> None:
    table.clear()
    table.update(hooks)


# --- random numbers ------------------------------------------------------------------------------


class _Streams:
    """The random numbers that all code of the process shares, seeded by the samples of a batch.

    A method that draws from them gets the same numbers whatever ran before it.
    """

    def __init__(self, batch: Batch) -> None:
        """Remember the state of the streams and seed them."""
        self._torch, self._numpy = torch.get_rng_state(), np.random.get_state()
        self._python = random.getstate()
        self._gpu = torch.cuda.get_rng_state_all() if _on_gpu() else []
        seed = batch.stream(0, "shared random numbers").seed
        torch.default_generator.manual_seed(seed)  # `torch.manual_seed` is slow without a GPU
        if self._gpu:
            torch.cuda.manual_seed_all(seed)
        np.random.seed(seed % 2**32)
        random.seed(seed)
        self._seeded = _states()

    def restore(self) -> list[str]:
        """Set the streams back; return the names of those that were used."""
        now = _states()
        torch.set_rng_state(self._torch)
        np.random.set_state(self._numpy)
        random.setstate(self._python)
        if self._gpu:
            torch.cuda.set_rng_state_all(self._gpu)
        return [name for name, state in self._seeded.items() if now[name] != state]


def _on_gpu() -> bool:
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def _states() -> dict[str, object]:
    """The states of the streams, comparable."""
    gpu = [state.numpy().tobytes() for state in torch.cuda.get_rng_state_all()] if _on_gpu() else []
    name, keys, *rest = np.random.get_state()
    return {
        "the random numbers of torch": (torch.get_rng_state().numpy().tobytes(), gpu),
        "the random numbers of `numpy.random`": (name, np.asarray(keys).tobytes(), *rest),
        "the random numbers of `random`": random.getstate(),
    }
