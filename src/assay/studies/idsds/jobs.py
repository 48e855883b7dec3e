"""Score all networks of the study in several processes, then write one compact table.

    assay zoo train core placebo others vits --out ZOO --data DATA --device cuda
    python -m assay.studies.idsds.jobs --zoo ZOO --data DATA --out OUT --device cuda --processes 8
    python -m assay.studies.idsds.study --out OUT

The first command trains the networks, the second scores those it finds, the third judges the claims
from `OUT/idsds_scores.parquet`. Every job leaves a small record in `OUT/records`; finished jobs are
skipped, a failing job leaves its message in `OUT/errors`, and the others go on. The second command
can run while networks are still being trained: called again, it scores what is new or has other
weights. `--with OLD.parquet` completes the table by networks of an older one that lack scores here.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import torch

from assay.errors import InputError, PrerequisiteError
from assay.studies.idsds.paper_methods import LOOK, MASK_ONLY, PARTS
from assay.studies.idsds.runs import (
    PLACEBO,
    ScoringJob,
    passes,
    scoring_jobs,
    scoring_suites,
    stored_networks,
)
from assay.studies.idsds.score_collecting import collect
from assay.studies.idsds.score_table import read_scores
from assay.studies.idsds.scoring_records import (
    AnyJob,
    ScoringSetting,
    do_job,
    finished,
    job_name,
)
from assay.training.zoo_processes import shared_gpu

TRIES = 3  # how often processes that died are replaced
ORDER = (
    LOOK, PARTS, MASK_ONLY, "nine", "seeds", "ids", "readings", "cells", "fills", "smooth", "sizes",
    "temperature", "updated", "all",
)  # fmt: skip


def all_jobs(setting: ScoringSetting, only: Sequence[str] = ()) -> list[AnyJob]:
    """The jobs of the networks in the zoo's folder: important suites first, then the longest.

    Raises:
        PrerequisiteError: The folder holds no networks.
    """
    networks = stored_networks(setting.zoo)
    if not networks:
        raise PrerequisiteError(
            f"Expected trained networks in `{setting.zoo}`, found none. "
            f"`assay zoo train core --out {setting.zoo}` trains them."
        )
    suites = scoring_suites(setting.steps)
    looks = [ScoringJob(LOOK, n) for n in networks if n.epoch is None and "-d" not in n.arm]
    jobs: list[AnyJob] = [*looks, *scoring_jobs(networks, suites), PARTS, MASK_ONLY]
    names = [LOOK, PARTS, MASK_ONLY, *suites]
    for name in only:
        if name not in names:
            raise InputError(f"Expected suites among {', '.join(names)}, got `{name}`.")
    return sorted((job for job in jobs if not only or _suite(job) in only), key=_place)


def _place(job: AnyJob) -> int:
    """The place of a job's suite; what no claim reads comes last."""
    spare = (
        isinstance(job, ScoringJob)
        and job.suite == "nine"
        and job.network.kind.kind == "base"
        and job.network.name not in PLACEBO
    )
    return len(ORDER) if spare else ORDER.index(_suite(job))


def _suite(job: AnyJob) -> str:
    return job if isinstance(job, str) else job.suite


def run_jobs(
    jobs: Sequence[AnyJob], setting: ScoringSetting, processes: int = 1, minutes: float = 1e9
) -> Iterator[tuple[str, float, str]]:
    """Run the jobs that have no record yet; yields name, seconds and error of each.

    Args:
        jobs: The jobs, in the order in which they are started.
        setting: Where the files are and how they run.
        processes: How many run at once; each builds its own networks.
        minutes: No job is started after this time.
    """
    end = time.monotonic() + 60 * minutes
    rest = {job_name(job): job for job in jobs if not finished(job, setting)}
    if processes <= 1:
        for job in rest.values():
            if time.monotonic() < end:
                yield do_job(job, setting)
        return
    failed: set[str] = set()
    for _ in range(TRIES):
        left = list(rest.values())
        if not left:
            return
        try:
            for name, seconds, message in _in_processes(left, setting, processes, end):
                # An error on a GPU may break all that follow in its process: once more in another.
                if not message or name in failed or not setting.on_gpu:
                    rest.pop(name)
                failed |= {name} if message else set()
                yield name, seconds, message
        except BrokenProcessPool:  # a process was killed, perhaps for its memory
            continue


def _in_processes(
    jobs: Sequence[AnyJob], setting: ScoringSetting, processes: int, end: float
) -> Iterator[tuple[str, float, str]]:
    context = multiprocessing.get_context("spawn")
    waiting = list(reversed(jobs))
    running: set[Future[tuple[str, float, str]]] = set()
    with ProcessPoolExecutor(min(processes, len(jobs) or 1), context, _start) as pool:
        while waiting or running:
            while waiting and len(running) < processes and time.monotonic() < end:
                running.add(pool.submit(do_job, waiting.pop(), setting))
            if not running:
                return
            done = next(as_completed(running))
            running.remove(done)
            yield done.result()


def _start() -> None:
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    torch.set_num_threads(1)


def costs(jobs: Sequence[AnyJob], setting: ScoringSetting) -> Iterator[str]:
    """How much each suite has to do, in forward passes of a ResNet-20."""
    suites = scoring_suites(setting.steps)
    found: dict[str, list[float]] = {}
    for job in jobs:
        of = found.setdefault(_suite(job), [])
        if isinstance(job, ScoringJob) and job.suite in suites:
            of.append(passes(job, suites[job.suite], setting.limit))
        else:
            of.append(0.0)
    for name, of in found.items():
        yield f"{name}: {len(of)} jobs, about {sum(of) / 1e6:.1f} million passes"


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Score the networks of the IDSDS study.")
    parser.add_argument("--zoo", type=Path, required=True, help="the trained networks")
    parser.add_argument("--data", type=Path, required=True, help="holds cifar10/")
    parser.add_argument("--out", type=Path, required=True, help="records and table; continued")
    parser.add_argument("--device", help="e.g. cuda")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--only", default="", help="suites, e.g. look,nine,seeds")
    parser.add_argument("--limit", type=int, help="the most images of any suite")
    parser.add_argument("--steps", type=int, default=16, help="of integrated gradients")
    parser.add_argument("--micro-batch", type=int, default=500)
    parser.add_argument("--minutes", type=float, default=1e9, help="start no job after this time")
    parser.add_argument("--mps", action="store_true", help="let processes share a GPU at once")
    parser.add_argument("--with", dest="older", type=Path, help="an older table to complete")
    parser.add_argument("--list", action="store_true", help="only count the jobs")
    parser.add_argument("--collect", action="store_true", help="only write the table")
    options = parser.parse_args()
    setting = ScoringSetting(
        options.zoo, options.data, options.out, options.device, options.limit, options.steps,
        options.micro_batch,
    )  # fmt: skip
    try:
        left = _run(options, setting)
    except (InputError, PrerequisiteError) as error:
        parser.exit(2, f"assay: {error}\n")
    if left:
        parser.exit(
            1,
            f"assay: {len(left)} jobs are not finished, e.g. {', '.join(left[:3])}. "
            f"Messages are in {setting.out / 'errors'}; the same command goes on.\n",
        )


def _run(options: argparse.Namespace, setting: ScoringSetting) -> list[str]:
    """Do what the command asks for; gives the names of the jobs that should have finished."""
    jobs = all_jobs(setting, [name for name in options.only.split(",") if name])
    if options.older is not None:
        read_scores(options.older)  # before hours of work
    missing = [job for job in jobs if not finished(job, setting)]
    print(f"{len(jobs)} jobs, {len(jobs) - len(missing)} finished", flush=True)
    if options.list:
        print("\n".join(costs(missing, setting)), flush=True)
        return []
    if not options.collect:
        started = time.monotonic()
        with shared_gpu(options.mps):
            results = run_jobs(missing, setting, options.processes, options.minutes)
            for number, (name, seconds, message) in enumerate(results, 1):
                state = f"failed: {message[:200]}" if message else f"{seconds:.1f} s"
                elapsed = time.monotonic() - started
                print(f"[{number}/{len(missing)}, {elapsed:.0f} s] {name}: {state}", flush=True)
    path, notes = collect(setting, options.older)
    print("\n".join([*notes, f"The table: {path}"]), flush=True)
    return [] if options.collect else [job_name(j) for j in jobs if not finished(j, setting)]


if __name__ == "__main__":
    main()
