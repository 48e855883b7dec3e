"""Run a suite: plan it, resume an earlier run, execute, and write the manifest."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from assay.errors import CannotWrite, IncompleteRun, InputError, PrerequisiteError, warn
from assay.models.prepare import choose_micro_batch
from assay.plan.added_control import ADDED, with_random
from assay.plan.class_checks import check_classes
from assay.plan.finished import Finished
from assay.plan.forecast import Forecast, forecast
from assay.plan.plan import Plan, Shard
from assay.plan.repeats import check_repeats, first_asked, repeat_passes
from assay.plan.resolving import resolve
from assay.plan.scoring import replicates_of
from assay.plan.timing import Seconds, measure
from assay.plan.trained_on import check_train_splits, warn_of_tuned_samples
from assay.plan.trainings import training_costs
from assay.processes import stoppable, without_exit
from assay.progress import bar
from assay.ranking.reductions import own_reductions, reduction_of
from assay.ranking.stored import Recording
from assay.results import Results
from assay.run.durations import seconds_of
from assay.run.earlier_runs import check_draws, check_unchanged, identity_of
from assay.run.executors import (
    apply,
    measure_in_processes,
    run_in_processes,
    run_serially,
    run_sets_apart,
    run_sets_serially,
    threads,
)
from assay.run.manifest import write_manifest
from assay.run.settings import MOST_ROWS, MOST_WORKERS, Settings, true_or_false, whole_setting
from assay.run.watching import RunWatcher
from assay.store import NOWHERE, CleanAccuracy, Manifest, ModelEntry, Store, read_manifest
from assay.store.data_facts import DataFacts, knowing
from assay.suite.spec import Spec
from assay.training.trained_weights import TrainedWeights
from assay.types.model import usable_device

Timings = dict[str, Seconds]  # by model
STARTUP = 6.0  # seconds a worker takes to import and build, for the forecast


@contextlib.contextmanager
def ending_in_order() -> Iterator[None]:
    """Raise `Stopped` where a signal ends the run, and an error where its code would end it."""
    try:
        with stoppable(), without_exit():
            yield
    except SystemExit as error:
        raise InputError(
            f"Code of the suite or the call tried to end the program ({error}), outside of "
            f"methods and protocols of a run. Remove its `exit()`."
        ) from error


@ending_in_order()
def run_suite(
    spec: Spec,
    out: str | Path,
    *,
    workers: int = 1,
    device: str | None = None,
    micro_batch: int | None = None,
    keep_maps: bool = True,
    one_thread: bool = True,
    progress: bool = True,
    began: Callable[[Manifest], None] = lambda manifest: None,
    clean: Callable[[CleanAccuracy], None] = lambda row: None,
    keep: object = None,
    trained: TrainedWeights | None = None,
    timeout: float | str | None = None,
    trust_code: bool = False,
) -> Results:
    """Compute the missing cells of a suite in a folder and return the results.

    Args:
        spec: The suite.
        out: The folder; one that holds an earlier run is continued.
        workers: Processes; each uses one thread.
        device: The device to which the models are moved; by default they are not moved.
        micro_batch: Rows per call of a network; by default chosen once per model.
        keep_maps: Whether to store the maps; without them a protocol added later explains again.
            Maps that a set protocol reads are always stored.
        one_thread: Whether to compute with one thread, so that tables are equal bit for bit
            whatever the number of workers.
        progress: Whether to show a bar.
        began: Called with the manifest before the methods run.
        clean: Called with the accuracy of a model on a dataset, once it is known.
        keep: An object to keep alive as long as the results.
        trained: Weights that were already trained for this suite, for example by `fit`. They are
            added to those in the folder.
        trust_code: Whether to run all code that a suite read from a file names. Code that was named
            in Python is trusted anyway.
        timeout: The longest time of a cell, in seconds or such as `60s`; one that takes longer
            fails. The shards then run in worker processes, also with one worker.

    Raises:
        IncompleteRun: Files of the run were lost while it ran, or could not be written.
        Stopped: Ctrl-C or SIGTERM, as a KeyboardInterrupt. Finished work is kept.
    """
    whole_setting("workers", workers, MOST_WORKERS)
    true_or_false(
        keep_maps=keep_maps, one_thread=one_thread, progress=progress, trust_code=trust_code
    )
    limit = None if timeout is None else seconds_of(timeout, "timeout")
    spec, store = spec.trusting(trust_code), Store(out)
    plan, settings = prepare(spec, store, device, micro_batch, keep_maps, trained, progress)
    if progress and len(plan.methods) > len(spec.methods) and not store.path("spec.yaml").exists():
        print(ADDED, file=sys.stderr)
    apart = workers > 1 or timeout is not None  # shards run in other processes
    if apart and plan.live:
        raise _live_objects(plan, workers)
    started = time.monotonic()
    finished = Finished(plan, store)
    finished.mend()
    unfinished, sets = finished.unfinished(), finished.unfinished_sets()
    check_classes(plan, unfinished)
    plan.find_text_lengths([*unfinished, *((*plan.shards, *plan.train_shards) if sets else ())])
    check_train_splits(plan, (cell.dataset for cell in sets))
    warn_of_tuned_samples(plan, ((s.dataset, s.model) for s in unfinished if not s.split))
    for shard in first_asked(finished, unfinished):
        check_repeats(plan, shard)
    store.create()
    with _cut_short():
        _write_trained(plan, store)
        plan.facts.write(store)
        began(write_manifest(finished, settings, None))
        expected = forecast(finished, unfinished, max(1, workers), exact=False, users=False)
        work = None if expected.uncounted else expected.work
        with bar("network passes", work, progress and bool(unfinished)) as listen:
            watcher = RunWatcher(finished, listen, clean)
            watcher.recall()
            if apart and unfinished:
                reasons = run_in_processes(plan, settings, unfinished, workers, watcher, limit)
            else:
                with threads(1 if one_thread else None):
                    reasons = run_serially(plan, settings, unfinished, watcher)
        if sets and limit is not None:
            run_sets_apart(plan, settings, watcher, reasons, limit)
        elif sets:  # training uses all cores, whatever the number of workers
            run_sets_serially(plan, settings, watcher, reasons, progress)
        _evaluate_reductions(plan, store)
        seconds = time.monotonic() - started if unfinished or sets else None
        finished = Finished(plan, store)  # reads all logs again, to the last byte
        write_manifest(finished, settings, seconds, ended=True)
        _check_whole(finished)
    results = Results(store.folder, keep)
    if store.damaged_text(store.path("report.html")):
        results.report()
    return results


@contextlib.contextmanager
def _cut_short() -> Iterator[None]:
    """Say that a run which began is not complete, where its files cannot be written."""
    try:
        yield
    except CannotWrite as error:
        raise IncompleteRun(f"The run is not complete. {error}") from error


def _live_objects(plan: Plan, workers: int) -> PrerequisiteError:
    what, cure = f"{workers} workers", "`workers=1`"
    if workers == 1:
        what, cure = "a timeout", "no timeout"
    return PrerequisiteError(
        f"Expected a suite of names for {what}, because worker processes build their own objects, "
        f"got objects of this process: {', '.join(f'`{n}`' for n in plan.live)}. Use {cure}, or "
        f"name them in a suite."
    )


def _check_whole(finished: Finished) -> None:
    """Raise an error if cells have no whole tables at the end: files were lost during the run."""
    plan, lost = finished.plan, finished.lost()
    if lost:
        planned = len(plan.shards) * len(plan.cells)
        raise IncompleteRun(
            f"The run in `{finished.store.folder}` is not complete: {lost} of {planned} cells, "
            f"counted per shard, have no whole tables. Files were deleted or damaged while it ran. "
            f"Run it again: only these cells are computed."
        )


@ending_in_order()
def dry_run(
    spec: Spec,
    out: str | Path | None = None,
    *,
    workers: int = 1,
    device: str | None = None,
    micro_batch: int | None = None,
    time_it: bool = True,
    trained: TrainedWeights | None = None,
    trust_code: bool = False,
) -> Forecast:
    """Count every forward pass a run would make and estimate its time. Nothing is written."""
    whole_setting("workers", workers, MOST_WORKERS)
    true_or_false(time_it=time_it, trust_code=trust_code)
    spec, store = spec.trusting(trust_code), NOWHERE if out is None else Store(out)
    plan, settings = prepare(spec, store, device, micro_batch, True, trained)
    times = timings(plan, store, settings, workers) if time_it else {}
    expected = estimate(plan, store, workers, times)
    if time_it:
        cells = Finished(plan, store).computable_sets()
        expected.trainings = training_costs(plan, cells, timed=True)
    return expected


@ending_in_order()
def timings(plan: Plan, store: Store, settings: Settings, workers: int) -> Timings:
    """Measured seconds of each model's engine and gradient calls; empty if nothing is missing."""
    unfinished = Finished(plan, store).unfinished()
    check_classes(plan, unfinished)
    busy = min(workers, len(unfinished))
    if busy > 1:
        return measure_in_processes(plan, settings, busy)
    with threads(1):
        return {name: measure(plan, name) for name in plan.models} if unfinished else {}


@ending_in_order()
def estimate(
    plan: Plan, store: Store, workers: int, times: Timings, users: bool = True
) -> Forecast:
    """The forward passes of the missing part of a run, and its seconds if timings are known."""
    unfinished = Finished(plan, store).unfinished()
    expected = forecast(Finished(plan, store), unfinished, max(1, workers), users=users)
    busy = max(1, min(workers, len(unfinished)))
    apart = workers > 1 and bool(unfinished)
    processes = busy + apart  # the workers and this process
    expected.looks = processes * len({s.model for s in unfinished})
    for shard in first_asked(Finished(plan, store), unfinished):
        rows, calls = repeat_passes(shard, plan.models[shard.model].micro_batch)
        expected.repeated += rows
        expected.repeated_calls += calls
    if times and unfinished:
        seconds = sum(one.of(name, expected) for name, one in times.items())
        expected.seconds = seconds * _imbalance(unfinished, busy) / busy + STARTUP * apart
    return expected


def _imbalance(shards: list[Shard], workers: int) -> float:
    """The load of the busiest worker, divided by the mean load."""
    loads = [0] * workers
    for shard in sorted(shards, key=lambda s: -len(s.samples)):
        loads[loads.index(min(loads))] += len(shard.samples)
    return max(loads) * workers / sum(loads)


@ending_in_order()
def prepare(
    spec: Spec,
    store: Store,
    device: str | None = None,
    micro_batch: int | None = None,
    keep_maps: bool = True,
    trained: TrainedWeights | None = None,
    progress: bool = True,
) -> tuple[Plan, Settings]:
    """Resolve a suite for a folder, check that nothing changed, and set the micro-batch sizes."""
    usable_device(device)
    whole_setting("micro_batch", micro_batch, MOST_ROWS)
    trained = TrainedWeights() if trained is None else trained
    trained.add(_read_trained(store))
    stored = _earlier_manifest(store)
    earlier, identity = stored or Manifest(), identity_of(stored, store)
    with knowing(DataFacts.read(store, progress)):
        plan = with_random(resolve(spec, device, trained, identity))
    for protocol in plan.protocols:
        reduction_of(protocol)  # reports a wrong name or option before the run
        replicates_of(protocol)  # likewise
    check_unchanged(plan, earlier, store)
    if stored is not None:
        check_draws(stored, store)
    sizes = {}
    for name in plan.models:
        stored_size = earlier.models.get(name, ModelEntry()).micro_batch
        shard = next(s for s in plan.shards if s.model == name)
        sizes[name] = (
            micro_batch
            or stored_size
            or (stored is None and _used_micro_batch(plan, name, store))
            or choose_micro_batch(plan.batch(shard, shard.samples[:1]).inputs)
        )
    settings = Settings(str(store.folder), device, keep_maps, sizes, identity)
    return apply(plan, settings), settings


def _used_micro_batch(plan: Plan, model: str, store: Store) -> int | None:
    """The micro-batch of finished shards of a model, where the manifest is lost."""
    finished = Finished(plan, store)
    known = (finished.summary(shard) for shard in plan.shards if shard.model == model)
    return next((summary.micro_batch for summary in known if summary is not None), None)


def _earlier_manifest(store: Store) -> Manifest | None:
    """The manifest of the run in a folder; None where there is none that says what was run."""
    manifest, path = read_manifest(store), store.path("manifest.json")
    if manifest is not None and manifest.created:
        return manifest
    if path.exists():
        warn(f"`{path}` is damaged and is written anew. Finished cells are kept.")
    return None


def _read_trained(store: Store) -> dict[str, bytes]:
    """The weights of an earlier run in this folder: training again could give different ones."""
    files = store.path("trained").glob("*.safetensors")
    return {file.stem: file.read_bytes() for file in files}


def _write_trained(plan: Plan, store: Store) -> None:
    """Store the weights that are missing or damaged in the folder."""
    before = _read_trained(store)
    for key, weights in plan.trained.packed().items():
        if before.get(key) != weights:
            store.write_bytes(store.path("trained", f"{key}.safetensors"), weights)


def _evaluate_reductions(plan: Plan, store: Store) -> None:
    """Store the results of users' own reductions for every resample of the run's rankings.

    Readers of the run then get the same numbers and intervals without the user's code.
    """
    own = own_reductions(plan.protocols)
    if not own:
        return
    recording = Recording(own)
    results = Results(store.folder, recording=recording)
    results.leaderboard()
    for method, entry in results.entries.methods.items():
        if entry.control:
            results.against(method)
    for truth in results.entries.truth_protocols:
        results.trust(truth, quiet=True)
    recording.write(store)
