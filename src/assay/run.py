"""A run from suite to results: planned, resumed, executed, described."""

import datetime
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from assay import registry
from assay.data.classes import check_labels
from assay.errors import InputError, PrerequisiteError
from assay.executors import (
    Settings,
    apply,
    measure_in_processes,
    run_in_processes,
    run_serially,
    threads,
)
from assay.forecast import Forecast, forecast, measure
from assay.models.prepare import choose_micro_batch
from assay.plan import Plan, Shard, resolve
from assay.results import Results
from assay.shard import ResponseShelf, ShardRun, look
from assay.spec import Choice, Spec
from assay.store import NOWHERE, Store, file_name

STARTUP = 6.0  # seconds a worker takes to import and build, for the forecast


def run(
    spec: Spec,
    out: str | Path,
    *,
    workers: int = 1,
    device: str | None = None,
    micro_batch: int | None = None,
    keep_maps: bool = True,
    one_thread: bool = True,
    progress: bool = True,
    keep: Any = None,
) -> Results:
    """Do what is missing of a suite in a folder and read back the results.

    Args:
        spec: The suite.
        out: The folder; one that holds an earlier run is continued.
        workers: Processes; each uses one thread.
        device: Where the models run, and are moved to; where they are by default.
        micro_batch: Rows per call of a network; chosen once per model and kept by default.
        keep_maps: Whether the maps are stored; without them a later protocol explains again.
        one_thread: Whether to compute with one thread, so that tables are equal bit for bit
            whatever the number of workers.
        progress: Whether to show a bar.
        keep: Held as long as the results are.
    """
    store = Store(out)
    plan, settings = prepare(spec, store, device, micro_batch, keep_maps)
    if workers > 1 and plan.live:
        raise PrerequisiteError(
            f"Several workers build everything anew, but {', '.join(f'`{n}`' for n in plan.live)} "
            f"live in this process only. Use `workers=1`, or name them in a suite."
        )
    started = time.monotonic()
    unfinished = [s for s in plan.shards if not _finished(plan, s, store)]
    _check_classes(plan, unfinished)
    store.create()
    _write_manifest(plan, settings, store, None)
    expected = _forecast(plan, store, unfinished)
    with _bar(expected.work, progress and bool(unfinished)) as listen:
        if workers > 1 and len(unfinished) > 1:
            run_in_processes(spec, settings, unfinished, min(workers, len(unfinished)), listen)
        else:
            with threads(1 if one_thread else None):
                run_serially(plan, settings, unfinished, listen)
    seconds = time.monotonic() - started if unfinished else None
    _write_manifest(plan, settings, store, seconds, finished=True)
    return Results(store.folder, keep)


def dry_run(
    spec: Spec,
    out: str | Path | None = None,
    *,
    workers: int = 1,
    device: str | None = None,
    micro_batch: int | None = None,
    time_it: bool = True,
) -> Forecast:
    """Count every forward pass a run would make and estimate its time; nothing is written."""
    store = Store(out) if out else NOWHERE
    plan, settings = prepare(spec, store, device, micro_batch, True)
    unfinished = [s for s in plan.shards if not _finished(plan, s, store)]
    found = _forecast(plan, store, unfinished)
    busy = max(1, min(workers, len(unfinished)))
    processes = busy + (busy > 1)  # the workers, and this one
    found.looks = processes * len({s.model for s in unfinished})
    if time_it and unfinished:
        if busy > 1:
            times = measure_in_processes(spec, settings, busy)
        else:
            with threads(1):
                times = {name: measure(plan, name) for name in plan.models}
        seconds = sum(
            found.forward_calls.get(name, 0) * forward
            + found.gradient_calls.get(name, 0) * gradient
            for name, (forward, gradient) in times.items()
        )
        found.seconds = seconds * _imbalance(unfinished, busy) / busy + STARTUP * (busy > 1)
    return found


def _imbalance(shards: list[Shard], workers: int) -> float:
    """How much longer the busiest worker works than all would on average."""
    loads = [0] * workers
    for shard in sorted(shards, key=lambda s: -len(s.samples)):
        loads[loads.index(min(loads))] += len(shard.samples)
    return max(loads) * workers / sum(loads)


def prepare(
    spec: Spec,
    store: Store,
    device: str | None = None,
    micro_batch: int | None = None,
    keep_maps: bool = True,
) -> tuple[Plan, Settings]:
    """Resolve a suite for a folder: nothing may have changed, the micro-batch is kept or chosen."""
    _check_settings(device, micro_batch)
    plan = resolve(spec, device)
    earlier = store.read_json(store.path("manifest.json")) or {}
    _check_unchanged(plan, earlier, store)
    sizes = {}
    for name, model in plan.models.items():
        model.prepared = None  # its weights may have changed since another run
        known = earlier.get("models", {}).get(name, {}).get("micro_batch")
        shard = next(s for s in plan.shards if s.model == name)
        sizes[name] = (
            micro_batch or known or choose_micro_batch(plan.batch(shard, shard.samples[:1]).inputs)
        )
    settings = Settings(str(store.folder), device, keep_maps, sizes)
    return apply(plan, settings), settings


def _check_settings(device: str | None, micro_batch: int | None) -> None:
    if micro_batch is not None and micro_batch < 1:
        raise InputError(f"Expected `micro_batch` to be at least 1, got {micro_batch}.")
    try:
        wanted = torch.device(device or "cpu")
    except RuntimeError:
        raise InputError(f"Expected `device` to be `cpu` or `cuda`, got {device!r}.") from None
    if wanted.type == "cuda" and not torch.cuda.is_available():
        raise PrerequisiteError(f"Expected a CUDA device for `{device}`, but torch finds none.")


def _check_unchanged(plan: Plan, earlier: dict[str, Any], store: Store) -> None:
    """A name is not a model: the same name with other content stops the run."""
    now = {
        "models": {n: m.weights_hash for n, m in plan.models.items()},
        "datasets": {n: d.fingerprint for n, d in plan.datasets.items()},
    }
    words = {
        "models": ("weights_hash", "weights of model"),
        "datasets": ("fingerprint", "data of dataset"),
    }
    for kind, (field, what) in words.items():
        for name, content in now[kind].items():
            before = earlier.get(kind, {}).get(name, {}).get(field, content)
            if before != content:
                raise InputError(
                    f"The {what} `{name}` changed since the run in `{store.folder}` began "
                    f"(expected {before}, got {content}). "
                    f"Use another folder, or another name (`label:` in a suite, `name=` in "
                    f"`assay.model`)."
                )


def _check_classes(plan: Plan, shards: list[Shard]) -> None:
    """Every label has an output: said after one look at each network, before anything is written.

    A label can be right only where the model has such a class, so this holds whatever is explained.
    """
    firsts = {(s.dataset, s.model): s for s in reversed(shards)}
    for (dataset, model), shard in firsts.items():
        look(plan, shard, plan.batch(shard, shard.samples[:1]))
        check_labels(plan.datasets[dataset], model, plan.models[model].outputs)


def _finished(plan: Plan, shard: Shard, store: Store) -> bool:
    done = ShardRun(plan, shard, store).done
    summary = store.path("shards", f"{shard.id}.json").exists()
    return summary and all(done(m, p) for m in plan.methods for p in plan.protocols)


def _forecast(plan: Plan, store: Store, shards: list[Shard]) -> Forecast:
    def explained(shard: Shard, method: Choice) -> bool:
        key = plan.maps_key(shard, method)
        return (
            Store.read_arrays(store.path("attributions", key, f"{shard.id}.safetensors"))
            is not None
        )

    return forecast(
        plan,
        shards,
        lambda shard, m, p: ShardRun(plan, shard, store).done(m, p),
        explained,
        lambda shard: ResponseShelf(plan, shard, store),
    )


@contextmanager
def _bar(total: int, show: bool) -> Iterator[Callable[[int], None]]:
    if not show or not total:
        yield lambda rows: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(elapsed_when_finished=False),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("network passes", total=total)
        yield lambda rows: bar.advance(task, rows)


# --- the manifest --------------------------------------------------------------------------------


def _write_manifest(
    plan: Plan, settings: Settings, store: Store, seconds: float | None, finished: bool = False
) -> None:
    earlier = store.read_json(store.path("manifest.json")) or {}
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    summaries = [store.read_json(store.path("shards", f"{s.id}.json")) for s in plan.shards]
    known = [s for s in summaries if s is not None]
    manifest = {
        "assay": _version("assay"),
        "created": earlier.get("created", now),
        "finished": now if finished else None,
        "seconds": round(earlier.get("seconds", 0.0) + (seconds or 0.0), 3),
        "title": plan.spec.title,
        "notes": plan.spec.notes,
        "target": plan.spec.target,
        "seeds": plan.spec.seeds,
        "versions": {n: _version(n) for n in ("torch", "numpy", "scipy", "pyarrow", "pydantic")}
        | {"python": platform.python_version()},
        "hardware": _hardware(settings),
        "models": {name: _describe_model(plan, name, settings, known) for name in plan.models},
        "datasets": {
            name: {
                "fingerprint": d.fingerprint,
                "n": len(plan.samples(name)),
                "modality": d.modality,
                "note": d.note,
            }
            for name, d in plan.datasets.items()
        },
        "clean": _clean(plan, known),
        "forwards": sum(s["forwards"] + s["explaining"] for s in known),
        "methods": {c.label: _describe_method(c) for c in plan.methods},
        "protocols": {c.label: _describe_protocol(c) for c in plan.protocols},
        "shards": [_describe_shard(plan, s) for s in plan.shards],
    }
    store.write(store.path("spec.yaml"), lambda p: p.write_text(plan.spec.dump()))
    store.write_json(store.path("manifest.json"), manifest)
    for name in plan.datasets:
        shown = [p for s in known if s["dataset"] == name for p in s["previews"]]
        if shown:
            store.write_json(store.path("previews", f"{file_name(name)}.json"), shown)


def _describe_shard(plan: Plan, shard: Shard) -> dict[str, Any]:
    return {
        "id": shard.id,
        "dataset": shard.dataset,
        "model": shard.model,
        "checkpoint": plan.models[shard.model].checkpoint,
        "seed": shard.seed,
        "samples": list(shard.samples),
        "maps": {m.label: plan.maps_key(shard, m) for m in plan.methods},
        "cells": [plan.cell(shard, m, p) for p in plan.protocols for m in plan.methods],
    }


def _describe_model(
    plan: Plan, name: str, settings: Settings, shards: list[dict[str, Any]]
) -> dict[str, Any]:
    model = plan.models[name]
    halved = [s["micro_batch"] for s in shards if s["model"] == name]  # where memory ran out
    prepared = getattr(model.prepared, "done", ())
    return {
        "checkpoint": model.checkpoint,
        "weights_hash": model.weights_hash,
        "micro_batch": min([settings.micro_batch[name], *halved]),
        "prepared": ", ".join(prepared),
        "parameters": sum(p.numel() for p in model.net.parameters()),
        "device": str(model.device),
        **({"card": dict(model.card)} if model.card else {}),
    }


def _describe_method(choice: Choice) -> dict[str, Any]:
    passes = choice.passes
    return {
        **_describe(choice), "control": choice.plugin.control,
        "forward": passes.forward, "backward": passes.backward,
    }  # fmt: skip


def _describe_protocol(choice: Choice) -> dict[str, Any]:
    p = choice.plugin
    return {
        **_describe(choice), "metric": p.metric, "higher_is_better": p.higher_is_better,
        "range": [None if abs(v) == float("inf") else v for v in p.range], "chance": p.chance,
        "uses": p.uses, "sign_sensitive": p.sign_sensitive,
    }  # fmt: skip


def _describe(choice: Choice) -> dict[str, Any]:
    p = choice.plugin
    return {
        "name": p.name, "title": p.title or p.name, "family": p.family, "cite": p.cite,
        "summary": p.summary, "version": p.version,
        "options": registry.canonical(choice.shown_options),
    }  # fmt: skip


def _clean(plan: Plan, summaries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """How often each model is right on each dataset, before anything is removed."""
    rows = []
    for dataset in plan.datasets:
        for model in plan.models:
            mine = [s for s in summaries if (s["dataset"], s["model"]) == (dataset, model)]
            if mine and all(s["correct"] is not None for s in mine):
                n = sum(s["n"] for s in mine)
                rows.append(
                    {
                        "dataset": dataset,
                        "model": model,
                        "n": n,
                        "accuracy": sum(s["correct"] for s in mine) / n,
                        "chance": 1 / max(s["classes"] for s in mine),
                    }
                )
    return rows


def _hardware(settings: Settings) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "platform": platform.platform(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
    }
    if settings.device is not None and settings.device.startswith("cuda"):
        facts["gpu"] = torch.cuda.get_device_name()
    return facts


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
