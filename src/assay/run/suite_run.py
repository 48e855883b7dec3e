"""A run from suite to results: planned, resumed, executed, described."""

import time
from collections.abc import Callable
from pathlib import Path

from assay.data.classes import check_labels, check_target
from assay.errors import InputError, PrerequisiteError
from assay.models.prepare import choose_micro_batch
from assay.plan.cells import Cell
from assay.plan.forecast import Forecast, forecast
from assay.plan.kept_promises import is_checked
from assay.plan.kept_responses import ResponseShelf
from assay.plan.plan import Plan, Shard, resolve
from assay.plan.timing import Seconds, measure
from assay.progress import bar
from assay.results import Results
from assay.run.executors import (
    Settings,
    apply,
    measure_in_processes,
    run_in_processes,
    run_serially,
    threads,
)
from assay.run.manifest import write_manifest
from assay.run.shard import ShardRun, look
from assay.store import NOWHERE, Manifest, ModelEntry, Store, read_manifest
from assay.suite.spec import Choice, Spec
from assay.training.supervised import know, packed
from assay.types.model import usable_device

Timings = dict[str, Seconds]  # by model
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
    clean: Callable[[Manifest], None] = lambda manifest: None,
    keep: object = None,
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
        clean: Called with the manifest once each model's accuracy is known.
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
    unfinished = _unfinished(plan, store)
    _check_classes(plan, unfinished)
    store.create()
    _keep_trained(plan, store)
    write_manifest(plan, settings, store, None)
    expected = _forecast(plan, store, unfinished, workers)
    with bar("network passes", expected.work, progress and bool(unfinished)) as listen:
        with threads(1 if one_thread else None):
            for shard in unfinished:
                ShardRun(plan, shard, store, listen).look()
        clean(write_manifest(plan, settings, store, None))
        if workers > 1 and len(unfinished) > 1:
            run_in_processes(plan, settings, unfinished, min(workers, len(unfinished)), listen)
        else:
            with threads(1 if one_thread else None):
                run_serially(plan, settings, unfinished, listen)
    seconds = time.monotonic() - started if unfinished else None
    write_manifest(plan, settings, store, seconds, finished=True)
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
    times = timings(plan, store, settings, workers) if time_it else {}
    return estimate(plan, store, workers, times)


def timings(plan: Plan, store: Store, settings: Settings, workers: int) -> Timings:
    """Seconds of an engine call and of a gradient call of each model, measured; none if done."""
    unfinished = _unfinished(plan, store)
    busy = min(workers, len(unfinished))
    if busy > 1:
        return measure_in_processes(plan, settings, busy)
    with threads(1):
        return {name: measure(plan, name) for name in plan.models} if unfinished else {}


def estimate(plan: Plan, store: Store, workers: int, times: Timings) -> Forecast:
    """What is missing of a run: its forward passes, and its seconds where timings are known."""
    unfinished = _unfinished(plan, store)
    found = _forecast(plan, store, unfinished, workers)
    busy = max(1, min(workers, len(unfinished)))
    processes = busy + (busy > 1)  # the workers, and this one
    found.looks = processes * len({s.model for s in unfinished})
    if times and unfinished:
        seconds = sum(one.of(name, found) for name, one in times.items())
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
    _know_trained(store)
    plan = resolve(spec, device)
    earlier = read_manifest(store) or Manifest()
    _check_unchanged(plan, earlier, store)
    sizes = {}
    for name, model in plan.models.items():
        model.prepared = None  # its weights may have changed since another run
        known = earlier.models.get(name, ModelEntry()).micro_batch
        shard = next(s for s in plan.shards if s.model == name)
        sizes[name] = (
            micro_batch or known or choose_micro_batch(plan.batch(shard, shard.samples[:1]).inputs)
        )
    settings = Settings(str(store.folder), device, keep_maps, sizes)
    return apply(plan, settings), settings


def _know_trained(store: Store) -> None:
    """What an earlier run in this folder trained is not trained again: it might come out other."""
    files = store.path("trained").glob("*.safetensors")
    know({file.stem: file.read_bytes() for file in files})


def _keep_trained(plan: Plan, store: Store) -> None:
    for key, weights in packed(plan.trained).items():
        path = store.path("trained", f"{key}.safetensors")
        store.write_bytes(path, weights)


def _check_settings(device: str | None, micro_batch: int | None) -> None:
    if micro_batch is not None and micro_batch < 1:
        raise InputError(f"Expected `micro_batch` to be at least 1, got {micro_batch}.")
    usable_device(device)


def _check_unchanged(plan: Plan, earlier: Manifest, store: Store) -> None:
    """Refuse a run whose model or dataset has an earlier one's name and other content."""
    weights = {name: entry.weights_hash for name, entry in earlier.models.items()}
    data = {name: entry.fingerprint for name, entry in earlier.datasets.items()}
    for name, model in plan.models.items():
        _check_same("weights of model", name, weights.get(name), model.weights_hash, store)
    for name, dataset in plan.datasets.items():
        _check_same("data of dataset", name, data.get(name), dataset.fingerprint, store)


def _check_same(what: str, name: str, before: str | None, now: str, store: Store) -> None:
    if before and before != now:
        raise InputError(
            f"The {what} `{name}` changed since the run in `{store.folder}` began "
            f"(expected {before}, got {now}). "
            f"Use another folder, or another name (`label:` in a suite, `name=` in `assay.model`)."
        )


def _check_classes(plan: Plan, shards: list[Shard]) -> None:
    """Every label has an output: said after one look at each network, before anything is written.

    A label can be right only where the model has such a class, so this holds whatever is explained.
    """
    firsts = {(s.dataset, s.model): s for s in reversed(shards)}
    for (dataset, model), shard in firsts.items():
        look(plan, shard, plan.batch(shard, shard.samples[:1]))
        check_target(plan.target(dataset, model), model, plan.models[model].outputs)
        check_labels(plan.datasets[dataset], model, plan.models[model].outputs)


def _unfinished(plan: Plan, store: Store) -> list[Shard]:
    return [shard for shard in plan.shards if not _finished(plan, shard, store)]


def _finished(plan: Plan, shard: Shard, store: Store) -> bool:
    summary = store.path("shards", f"{shard.id}.json").exists()
    return summary and all(
        Cell(plan, shard, store, m, p).done for m in plan.methods for p in plan.protocols
    )


def _forecast(plan: Plan, store: Store, shards: list[Shard], workers: int) -> Forecast:
    def explained(shard: Shard, method: Choice) -> bool:
        key = plan.maps_key(shard, method)
        return (
            Store.read_arrays(store.path("attributions", key, f"{shard.id}.safetensors"))
            is not None
        )

    return forecast(
        plan,
        shards,
        lambda shard, m, p: Cell(plan, shard, store, m, p).done,
        explained,
        lambda shard, m: is_checked(plan, shard, store, m),
        lambda shard: ResponseShelf(plan, shard, store),
        max(1, workers),
    )
