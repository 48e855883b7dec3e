"""Time and memory of reading, ranking and reporting a large run: `make scale`.

The run is synthetic but stored as a real one: the store's own writer writes every cell. Two of the
protocols judge whole sets; these two and a third one have curves. Loading, the leaderboard and the
page are measured in processes of their own; the page uses the leaderboard that its process has.

    python -m benchmarks.scale --samples 50000 --methods 50 --protocols 30
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np

import assay
from assay.store import Array, Store, StoredCell
from assay.store.pieces import CellsPiece, SamplesPiece

SETS, TRACED, STEPS = 2, 3, 11
X = np.linspace(0, 1, STEPS)
# Seconds and gigabytes at 50,000 samples x 50 methods x 30 protocols.
GOALS = {"load": (5.0, 2.0), "leaderboard": (60.0, 2.0), "page": (60.0, 2.0)}
MEASURED = """
import json, resource, sys, time
import assay
started, cpu = time.perf_counter(), time.process_time()
results = assay.load(sys.argv[1])
results.entries, results.arrays, results.scores
loaded = time.perf_counter() - started
if sys.argv[2] != "load":
    len(results.leaderboard())
if sys.argv[2] == "page":
    started, cpu = time.perf_counter(), time.process_time()  # the leaderboard is known
    results.report()
seconds = loaded if sys.argv[2] == "load" else time.perf_counter() - started
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
print(json.dumps([seconds, time.process_time() - cpu, peak]))
"""


class SyntheticRun:
    """A finished run of one dataset and one model with made-up scores."""

    def __init__(
        self, folder: Path, samples: int, methods: int, protocols: int, shard: int
    ) -> None:
        """Set the sizes; nothing is written yet."""
        self.store = Store(folder)
        ids = [f"sample-{i:06d}" for i in range(samples)]
        self.shards = [ids[start : start + shard] for start in range(0, samples, shard)]
        self.methods = [f"method_{i:02d}" for i in range(methods)]
        self.protocols = [f"protocol_{i:02d}" for i in range(protocols)]

    def write(self) -> None:
        """Write every cell of every shard, and the manifest."""
        self.store.create()
        for place, samples in enumerate(self.shards):
            shard = f"s{place:05d}"
            SamplesPiece(shard, samples, samples).write(self.store)
            for m, method in enumerate(self.methods):
                cells = [
                    self._cell(place, len(samples), p, protocol, m, method)
                    for p, protocol in enumerate(self.protocols)
                ]
                CellsPiece(shard, cells).write(self.store)
        self.store.write_json(self.store.path("manifest.json"), self._manifest())
        suite = "datasets: [d]\nmodels: [m]\nmethods: [a]\nprotocols: [p]\n"
        self.store.write_text(self.store.path("spec.yaml"), suite, "# {}")

    def _cell(self, place: int, n: int, p: int, protocol: str, m: int, method: str) -> StoredCell:
        generator = np.random.default_rng((place, p, m))
        easy = np.random.default_rng((place, p)).normal(size=n)  # what all methods share
        values = 0.5 + 0.02 * m / len(self.methods) + 0.1 * (easy + generator.normal(size=n))
        return StoredCell(
            f"c{p:02d}x{m:02d}", method, protocol, "ok", seconds=0.1, explain_seconds=0.1,
            forwards=n, metrics={_metric(p): values}, statuses=np.ones(n, np.uint8), x=X,
            curves=self._curves(generator, n, p < SETS) if p < TRACED else {},
        )  # fmt: skip

    def _curves(self, generator: np.random.Generator, n: int, judged: bool) -> dict[str, Array]:
        if not judged:
            return {"probability": np.sort(generator.random((n, STEPS)), axis=1)[:, ::-1]}
        mass = np.sort(generator.random((n, STEPS)), axis=1)
        mass[:, 0], mass[:, -1] = 0, 1
        correct = generator.random((n, STEPS)) < X
        return {"correct": correct.astype(float), "mass": mass.astype(np.float32).astype(float)}

    def _manifest(self) -> dict[str, object]:
        methods = {
            name: {"name": name, "control": ["random", "model_free"][i] if i < 2 else ""}
            for i, name in enumerate(self.methods)
        }
        protocols = {
            name: {
                "name": name, "metric": _metric(p), "higher_is_better": True,
                "reduce": "soundness" if p < SETS else "mean", "options": _options(p),
            }
            for p, name in enumerate(self.protocols)
        }  # fmt: skip
        cells = [f"c{p:02d}x{m:02d}" for p in range(len(protocols)) for m in range(len(methods))]
        setting = {"dataset": "data", "model": "net", "checkpoint": "", "seed": 0}
        shards = [
            {"id": f"s{place:05d}", **setting, "samples": samples}
            for place, samples in enumerate(self.shards)
        ]
        return {
            "assay": assay.__version__, "layout": 2, "identity": 2,
            "created": "2026-01-01T00:00:00", "models": {"net": {"checkpoint": ""}},
            "datasets": {"data": {"n": sum(map(len, self.shards)), "modality": "vector"}},
            "methods": methods, "protocols": protocols, "seeds": [0], "shards": shards,
            "keys": [{**setting, "cells": cells}],
        }  # fmt: skip


def _metric(p: int) -> str:
    return "soundness" if p < SETS else "area"


def _options(p: int) -> dict[str, object]:
    return {"epsilon": 1.0, "levels": [0.9], "variant": "slope"} if p < SETS else {"steps": 10}


def measure(folder: Path, what: str) -> tuple[float, float, float]:
    """Seconds, CPU seconds and peak gigabytes of one step, in a process of its own."""
    command = [sys.executable, "-c", MEASURED, str(folder), what]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, cpu, peak = json.loads(done.stdout.splitlines()[-1])
    return seconds, cpu, peak


def main() -> None:
    """Write the run, measure, print a table, and remove the run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--methods", type=int, default=5)
    parser.add_argument("--protocols", type=int, default=4)
    parser.add_argument("--shard", type=int, default=64, help="samples of a shard")
    parser.add_argument(
        "--folder", type=Path, help="where the run is kept, and used if it is there"
    )
    parser.add_argument("--steps", nargs="+", choices=list(GOALS), default=list(GOALS))
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="assay-scale-"))
    try:
        if not (folder / "manifest.json").exists():
            started = time.perf_counter()
            run = SyntheticRun(folder, given.samples, given.methods, given.protocols, given.shard)
            run.write()
            files = sum(path.is_file() for path in folder.rglob("*"))
            print(f"written in {time.perf_counter() - started:.0f} s, {files} files")
        print(f"{given.samples} samples x {given.methods} methods x {given.protocols} protocols")
        print("step         seconds  CPU s  peak GB  (goal at 50,000 x 50 x 30)")
        for step in given.steps:
            seconds, cpu, peak = measure(folder, step)
            most, memory = GOALS[step]
            print(f"{step:12} {seconds:7.1f} {cpu:6.1f} {peak:8.2f}  ({most:g} s, {memory:g} GB)")
    finally:
        if given.folder is None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
