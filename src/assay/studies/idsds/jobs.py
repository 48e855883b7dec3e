"""Score all networks of the study in several processes, then write one compact table.

    assay zoo train core placebo others vits --out ZOO --data DATA --device cuda
    python -m assay.studies.idsds.jobs --zoo ZOO --data DATA --out OUT --device cuda --processes 8
    python -m assay.studies.idsds.study --out OUT

The first command trains the networks, the second scores those it finds, the third judges the claims
from `OUT/idsds_scores.parquet`. Every job leaves a small record in `OUT/records`; finished jobs are
skipped, a failing job leaves its message in `OUT/errors`, and the others go on.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import torch
from safetensors.numpy import load_file

from assay.errors import InputError, PrerequisiteError
from assay.studies.idsds.likeness import compare
from assay.studies.idsds.paper_methods import CONVOLUTIONAL, LOOK, MASK_ONLY, PARTS
from assay.studies.idsds.runs import (
    ScoringJob,
    StoredNetwork,
    scoring_jobs,
    scoring_suites,
    stored_networks,
)
from assay.studies.idsds.score_table import NAME, ScoreTable, rows_of
from assay.studies.idsds.scoring_records import ScoringSetting, do_job, seen_file

AnyJob = ScoringJob | str
TRIES = 3  # how often processes that died are replaced
ORDER = (LOOK, "nine", "seeds", "ids", "cells", "fills", "sizes", "softmax", "smooth")


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
    place = {name: i for i, name in enumerate(ORDER)}
    jobs = [job for job in jobs if not only or _suite(job) in only]
    return sorted(jobs, key=lambda job: place.get(_suite(job), len(ORDER)))


def _suite(job: AnyJob) -> str:
    return job if isinstance(job, str) else job.suite


def _name(job: AnyJob) -> str:
    return job if isinstance(job, str) else job.name


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
    rest = {_name(job): job for job in jobs if not setting.record(_name(job)).is_file()}
    if processes <= 1:
        for job in rest.values():
            if time.monotonic() < end:
                yield do_job(job, setting)
        return
    for _ in range(TRIES):
        try:
            for result in _in_processes(list(rest.values()), setting, processes, end):
                rest.pop(result[0])
                yield result
            return
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


# --- the table ------------------------------------------------------------------------------------


def collect(setting: ScoringSetting) -> Path:
    """Write the compact table from all records in the folder."""
    rows, masks, looks = [], {}, {}
    for path in sorted((setting.out / "records").glob("*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        rows += rows_of(record)
        masks.update(record.get("masks", {}))
        looks[path.stem.removeprefix(f"{LOOK}-")] = record.get("facts", {})
    networks = stored_networks(setting.zoo)
    facts = {n.stem: {**_facts(n, setting), **looks.get(n.stem, {})} for n in networks}
    pairs = [{**pair, "overlap": _overlap(facts, pair)} for pair in _pairs(networks, setting)]
    table = ScoreTable(tuple(rows), facts, tuple(pairs), masks)
    path = setting.out / NAME
    table.write(path)
    return path


def _facts(network: StoredNetwork, setting: ScoringSetting) -> dict[str, object]:
    """The design of a network and what its training recorded."""
    design, kind = network.design, network.kind
    sidecar = setting.zoo / f"{network.stem}.json"
    trained = json.loads(sidecar.read_text(encoding="utf-8"))
    card = trained.get("card") or _card(setting.zoo / f"{network.stem}.card.json")
    return {
        "network": network.name, "seed": network.seed, "arm": network.arm, "epoch": network.epoch,
        "family": design.family, "depth": design.depth, "width": design.width,
        "norm": design.norm, "bias": design.bias, "receptive_field": design.receptive_field,
        "kind": kind.kind, "share": kind.share, "epochs": kind.epochs, "grid": kind.grid,
        "fill": kind.fill, "accuracy": trained.get("accuracy"), "card": card,
    }  # fmt: skip


def _card(path: Path) -> Mapping[str, object] | None:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def _pairs(
    networks: Sequence[StoredNetwork], setting: ScoringSetting
) -> Iterator[dict[str, object]]:
    """Pairs of networks: base and tuned, base and placebo, two seeds, two architectures."""
    seen = {(n.name, n.seed, n.arm): n for n in networks if seen_file(setting, n).is_file()}
    seen = {place: n for place, n in seen.items() if n.epoch is None}
    for (name, seed, arm), network in seen.items():
        if arm != "base":
            continue
        others = {
            "tuned": (name, seed, "tuned"),
            "placebo": (name, seed, "placebo"),
            "seed": (name, seed + 1, "base"),
        }
        if name == CONVOLUTIONAL[0]:
            others["architecture"] = (CONVOLUTIONAL[1], seed, "base")
        for kind, place in others.items():
            if place in seen:
                one, other = (load_file(seen_file(setting, n)) for n in (network, seen[place]))
                apart = compare(one, other)
                yield {"kind": kind, "network": name, "seed": seed, **apart}


def _overlap(
    networks: Mapping[str, Mapping[str, object]], pair: Mapping[str, object]
) -> object | None:
    """The overlap of the channels' top images of a pair, as the card of its network says."""
    arm = "placebo" if pair["kind"] == "placebo" else "tuned"
    card = networks.get(f"{pair['network']}-s{pair['seed']}-{arm}", {}).get("card")
    names = {"tuned": "overlap", "placebo": "overlap", "seed": "seeds_overlap"}
    name = names.get(str(pair["kind"]))
    return card.get(name) if isinstance(card, Mapping) and name else None


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
    parser.add_argument("--list", action="store_true", help="only count the jobs")
    parser.add_argument("--collect", action="store_true", help="only write the table")
    options = parser.parse_args()
    setting = ScoringSetting(
        options.zoo, options.data, options.out, options.device, options.limit, options.steps,
        options.micro_batch,
    )  # fmt: skip
    try:
        jobs = all_jobs(setting, [name for name in options.only.split(",") if name])
    except (InputError, PrerequisiteError) as error:
        parser.exit(2, f"assay: {error}\n")
    missing = [job for job in jobs if not setting.record(_name(job)).is_file()]
    print(f"{len(jobs)} jobs, {len(jobs) - len(missing)} finished", flush=True)
    if options.list:
        return
    if not options.collect:
        started = time.monotonic()
        results = run_jobs(jobs, setting, options.processes, options.minutes)
        for number, (name, seconds, message) in enumerate(results, 1):
            state = f"failed: {message[:200]}" if message else f"{seconds:.1f} s"
            elapsed = time.monotonic() - started
            print(f"[{number}/{len(missing)}, {elapsed:.0f} s] {name}: {state}", flush=True)
    print(f"The table: {collect(setting)}", flush=True)


if __name__ == "__main__":
    main()
