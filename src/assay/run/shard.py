"""One shard of a run: explain its samples with every method, score them under every protocol."""

import contextlib
import functools
import json
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from assay.engine.engine import Counter, Engine, Shelf
from assay.errors import InputError, NotApplicable, PrerequisiteError
from assay.methods.attribution import (
    Moments,
    explain_again,
    finish,
    forward_passes,
    other_maps,
    raw_map,
)
from assay.models.prepare import runner
from assay.plan.cells import Cell
from assay.plan.kept_promises import check_passes, is_checked, write_check
from assay.plan.kept_responses import ResponseShelf
from assay.plan.plan import Plan, Shard
from assay.plan.scoring import dealt, empty_maps, score_case, standing
from assay.plugins import registry
from assay.plugins.needs import say_missing
from assay.run.previews import summarise
from assay.store import ShardSummary, Store
from assay.suite.spec import Choice
from assay.types import Batch, Case, Model


@dataclass
class ShardRun:
    """The work on one shard; nothing that is finished is done again."""

    plan: Plan
    shard: Shard
    store: Store
    listen: Callable[[int], None] = lambda rows: None
    keep_maps: bool = True
    _passes: int = 0  # forward, for explaining
    _faulty: Tensor | None = None  # [B]: who got NaN or inf when a protocol explained anew
    _raws: dict[str, Tensor | Moments] = field(default_factory=dict)  # the last method's raw maps

    def __call__(self) -> None:
        """Do what is missing."""
        wanted = {
            m.label: [p for p in self.plan.protocols if not self._cell(m, p).done]
            for m in self.plan.methods
        }
        if not any(wanted.values()) and self._path.exists():
            return
        with self._engine():
            for method in self.plan.methods:
                if wanted[method.label]:
                    self._method(method, wanted[method.label])

    def look(self) -> None:
        """Ask for the clean answers and note how often the model is right, before all else."""
        if not self._path.exists():
            with self._engine():
                pass

    @contextlib.contextmanager
    def _engine(self) -> Iterator[None]:
        """The engine while work is done; what was found and spent is written down afterwards."""
        model, counter = self._model, Counter(listen=self.listen)
        started = time.monotonic()
        with model.evaluating(), torch.no_grad():
            shelf = ResponseShelf(self.plan, self.shard, self.store)
            self.engine = make_engine(self.plan, self.shard, counter, shelf)
            yield
            summary = summarise(self.plan, self.shard, self.engine, self.store)
        summary = replace(
            summary,
            forwards=counter.rows,
            calls=counter.calls,
            explaining=self._passes,
            seconds=time.monotonic() - started,
        )
        stored = Store.read_json(self._path)
        earlier = None if stored is None else ShardSummary.from_json(stored)
        self.store.write_json(self._path, summary.after(earlier).to_json())

    @property
    def _path(self) -> Path:
        return self.store.path("shards", f"{self.shard.id}.json")

    @property
    def _model(self) -> Model:
        return self.plan.models[self.shard.model]

    def _cell(self, method: Choice, protocol: Choice) -> Cell:
        return Cell(self.plan, self.shard, self.store, method, protocol)

    def _lacks(self, missing: list[str]) -> str:
        return f"Needs {say_missing(self.shard.model, missing)}"

    # --- one method ------------------------------------------------------------------------------

    def _method(self, method: Choice, protocols: list[Choice]) -> None:
        missing = self.plan.missing(self.shard, method)
        if missing:
            return self._all(method, protocols, "n/a", self._lacks(missing))
        try:
            maps, seconds = self._maps(method)
        except NotApplicable as reason:
            return self._all(method, protocols, "n/a", str(reason))
        except PrerequisiteError:
            raise
        except Exception as error:
            return self._all(method, protocols, "failed", _explain(error))
        whole, broken = _finite(maps)
        self.engine.forget()
        case = Case(
            self.engine.batch,
            whole,
            self.engine.respond,
            self.engine.clean,
            self._explain(method),
            forward_passes(self._model, self.engine.batch, method),
            self._partner(method, whole),
        )
        for protocol in protocols:
            self._score(method, protocol, case, broken, seconds)

    def _maps(self, method: Choice) -> tuple[Tensor, float]:
        """The method's maps, from an earlier run where they are whole."""
        key = self.plan.maps_key(self.shard, method)
        path = self.store.path("attributions", key, f"{self.shard.id}.safetensors")
        read = Store.read_arrays(path)
        if read is not None and json.loads(read[1]["samples"]) == list(self.shard.samples):
            return torch.from_numpy(read[0]["maps"]).to(self.engine.batch.inputs.device), float(
                read[1]["seconds"]
            )
        started = time.monotonic()
        maps = finish(self._raw(method), self.engine.batch, method)
        seconds = time.monotonic() - started
        self._check(method)
        if self.keep_maps:
            about = {
                "samples": json.dumps(self.shard.samples),
                "method": method.label,
                "seconds": repr(seconds),
                "options": json.dumps(registry.canonical(method.shown_options)),
            }
            self.store.write_arrays(path, {"maps": maps.cpu().numpy()}, about)
        return maps, seconds

    def _raw(self, method: Choice) -> Tensor | Moments:
        """What the formula gives; kept while another choice only reduces it differently."""
        key = method.formula_key
        if key not in self._raws:
            batch = self.engine.lent()
            self._raws = {key: raw_map(self._model, batch, method)}
            self._count(method)
        return self._raws[key]

    def _check(self, method: Choice) -> None:
        """Hold fresh maps against what their formula promises, once; the maps are kept after."""
        raw = self._raws[method.formula_key]
        if is_checked(self.plan, self.shard, self.store, method) or isinstance(raw, Moments):
            return
        write_check(self.plan, self.shard, self.store, method, raw, self.engine.batch)
        rows = check_passes(method) * len(self.engine.batch)
        self._passes += rows
        self.listen(rows)

    def _explain(self, method: Choice) -> Callable[[Tensor], Tensor] | None:
        """The method for protocols that explain changed inputs; its passes are counted too."""
        again = explain_again(self._model, self.engine.lent(), method)
        if again is None:
            return None

        def explain(inputs: Tensor) -> Tensor:
            whole, faulty = _finite(again(inputs))
            self._count(method)
            self._faulty = faulty if self._faulty is None else self._faulty | faulty
            return whole

        return explain

    def _partner(self, method: Choice, mine: Tensor) -> Callable[[], Tensor]:
        """The method's maps of other samples: of this shard, where all have a partner in it."""
        order = dealt(self._groups)
        if order is not None:
            return lambda: mine[order]

        @functools.cache
        def maps() -> Tensor:
            whole, _ = _finite(other_maps(self._model, self.engine.lent(), method))
            self._count(method)
            return whole

        return maps

    def _count(self, method: Choice) -> None:
        """All samples were explained once."""
        if method.intervening:
            return  # the engine has counted
        passes = method.passes_on(self._model, self.engine.batch)
        size = len(self.engine.batch)
        rows = (passes.forward or 0) * size
        self._passes += rows
        self.listen(rows + 2 * (passes.backward or 0) * size)

    # --- one cell --------------------------------------------------------------------------------

    def _score(
        self, method: Choice, protocol: Choice, case: Case, broken: Tensor, explained: float
    ) -> None:
        missing = self.plan.missing(self.shard, protocol)
        if missing:
            return self._all(method, [protocol], "n/a", self._lacks(missing))
        started, rows = time.monotonic(), self.engine.counter.rows
        self._faulty = None
        try:
            scores = score_case(protocol, case)
            whole = standing(method, protocol, case.batch)
        except NotApplicable as reason:
            return self._all(method, [protocol], "n/a", str(reason))
        except PrerequisiteError:
            raise
        except Exception as error:
            return self._all(method, [protocol], "failed", _explain(error))
        if self._faulty is not None:
            broken = broken | self._faulty
        mute = self.engine.broken & ~broken
        bad, empty = (broken | mute).cpu().numpy(), empty_maps(protocol, case, scores)
        value = np.where(bad, np.nan, scores.value.numpy())
        if whole == "upper_bound":  # says more than that a map is empty: nobody is ranked here
            empty = empty & ~np.isfinite(value)
        status = np.where(bad, "failed", np.where(empty, "degenerate", whole))
        metrics = {protocol.plugin.metric: value}
        for name, extra in scores.extra.items():
            metrics[name] = np.where(bad, np.nan, extra.double().cpu().numpy())
        about = {
            "seconds": time.monotonic() - started,
            "explain_seconds": explained,
            "forwards": self.engine.counter.rows - rows,
        }
        why = {"maps hold NaN or inf": broken, "samples make the network give NaN or inf": mute}
        counts = {text: int(which.sum()) for text, which in why.items()}
        failed = " ".join(f"{n} of {len(bad)} {text}." for text, n in counts.items() if n)
        self._cell(method, protocol).write(
            self._groups, "failed" if bad.any() else "ok", failed, metrics, status, scores, about
        )

    def _all(self, method: Choice, protocols: list[Choice], status: str, message: str) -> None:
        """The same word for every sample of whole cells."""
        for protocol in protocols:
            self._cell(method, protocol).write_word(self._groups, status, message)

    @property
    def _groups(self) -> Sequence[str]:
        return self.engine.batch.groups or self.shard.samples


def _finite(maps: Tensor) -> tuple[Tensor, Tensor]:
    """The maps, zero where they hold NaN or inf, and which did: `[B]`."""
    broken = ~torch.isfinite(maps).flatten(1).all(1)
    return maps.masked_fill(broken.reshape(-1, *[1] * (maps.ndim - 1)), 0.0), broken


def make_engine(
    plan: Plan, shard: Shard, counter: Counter | None = None, shelf: Shelf | None = None
) -> Engine:
    """The engine for a shard's samples, on the network as it is run."""
    model, batch = plan.models[shard.model], plan.batch(shard)
    forward = look(plan, shard, batch)
    return Engine(model, batch, forward, counter or Counter(), shelf)


def look(plan: Plan, shard: Shard, batch: Batch) -> Callable[[Tensor], Tensor]:
    """The network as it is run, looked at once with the first sample.

    Raises:
        InputError: It cannot run on such inputs.
    """
    model = plan.models[shard.model]
    try:
        with model.evaluating(), torch.no_grad():
            return runner(model, batch.inputs[:1])
    except RuntimeError as error:
        raise InputError(
            f"Model `{shard.model}` cannot run on inputs of shape {tuple(batch.inputs.shape[1:])} "
            f"from `{shard.dataset}`: {error}"
        ) from error


def _explain(error: Exception) -> str:
    """The message of an error, and where it came from."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({last.filename.rsplit('/', 1)[-1]}:{last.lineno})"
