"""Bookkeeping of long runs: `make long-run`.

The network and its inputs are so small that everything around the passes shows. At each size a
run of 4 methods and 4 protocols is made in a process of its own. *Bookkeeping* is its CPU time
without the time inside methods and protocols, divided by cells and shards. The last line is the
time until the first shard begins at 50 methods and 30 protocols; that run is stopped there.

    python -m benchmarks.long_run --samples 20000 50000 --start 50000
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
from torch import nn

import assay
from assay.run import executors, shard

METHODS = ["saliency", "input_x_gradient", {"integrated_gradients": {"steps": 4}}, "random"]
PROTOCOLS = [
    {"deletion": {"steps": 4}},
    {"single_deletion": {"units": "elements"}},
    {"sensitivity_n": {"subsets": 5}},
    {"infidelity": {"subsets": 5}},
]
MANY_METHODS = [
    "saliency",
    "random",
    *({"integrated_gradients": {"steps": steps}} for steps in range(2, 26)),
    *({"integrated_gradients_uniform": {"steps": steps}} for steps in range(2, 26)),
]
MANY_PROTOCOLS = [
    *({"deletion": {"steps": steps}} for steps in range(2, 12)),
    *({"sensitivity_n": {"subsets": n}} for n in range(3, 13)),
    *({"infidelity": {"subsets": n}} for n in range(3, 13)),
]


class Started(BaseException):
    """The first shard begins."""


def small_net() -> nn.Module:
    """A network whose passes cost next to nothing."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))


def vectors(samples: int, net: nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
    """Random samples, labelled by the network."""
    inputs = torch.randn(samples, 16)
    return inputs, net(inputs).argmax(1)


def whole_run(samples: int) -> dict[str, float]:
    """Make a run, and say what it cost."""
    inside = 0.0

    def timed(function: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **options: object) -> object:
            nonlocal inside
            began = time.process_time()
            try:
                return function(*args, **options)
            finally:
                inside += time.process_time() - began

        return call

    shard.raw_map, shard.score_case = timed(shard.raw_map), timed(shard.score_case)
    net = small_net()
    data = vectors(samples, net)
    with tempfile.TemporaryDirectory(prefix="assay-long-") as folder:
        began = time.process_time()
        results = assay.benchmark(net, data, METHODS, PROTOCOLS, out=folder, progress=False)
        seconds = time.process_time() - began
        files = sum(path.is_file() for path in Path(folder).rglob("*"))
    units = len(results.manifest["shards"]) * len(METHODS) * len(PROTOCOLS)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {
        "seconds": seconds, "inside": inside, "files": files, "peak": peak,
        "bookkeeping": 1000 * (seconds - inside) / units,
    }  # fmt: skip


def start(samples: int) -> dict[str, float]:
    """Begin a run with many methods and protocols; the seconds until its first shard."""

    def stop(task: object) -> None:
        raise Started

    executors.run_shard = stop
    net = small_net()
    data = vectors(samples, net)
    with tempfile.TemporaryDirectory(prefix="assay-long-") as folder:
        began = time.perf_counter()
        try:
            assay.benchmark(net, data, MANY_METHODS, MANY_PROTOCOLS, out=folder, progress=False)
        except Started:
            return {"seconds": time.perf_counter() - began}
    raise RuntimeError("The run ended before its first shard.")


def apart(what: str, samples: int) -> dict[str, float]:
    """The same in a process of its own."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.long_run"]
    done = subprocess.run([*command, "--only", what, str(samples)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return measured


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, nargs="+", default=[5000, 20000])
    parser.add_argument("--start", type=int, default=50000)
    parser.add_argument("--only", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only:
        measure = {"whole": whole_run, "start": start}[given.only[0]]
        print(json.dumps(measure(int(given.only[1]))))
        return
    print(f"{len(METHODS)} methods x {len(PROTOCOLS)} protocols, vectors of 16 numbers")
    print("samples   CPU s  inside  us/sample  bookkeeping ms  files  peak GB")
    runs = {}
    for samples in sorted(given.samples):
        run = runs[samples] = apart("whole", samples)
        each = 1e6 * run["seconds"] / samples
        print(
            f"{samples:7} {run['seconds']:7.1f} {run['inside']:7.1f} {each:10.0f} "
            f"{run['bookkeeping']:15.2f} {run['files']:6.0f} {run['peak']:8.2f}"
        )
    if len(runs) > 1:
        few, many = min(runs), max(runs)
        slope = (runs[many]["seconds"] - runs[few]["seconds"]) / (many - few)
        print(f"fixed cost: {runs[few]['seconds'] - slope * few:.1f} CPU s")
    seconds = apart("start", given.start)["seconds"]
    sizes = f"{given.start} samples x {len(MANY_METHODS)} methods x {len(MANY_PROTOCOLS)} protocols"
    print(f"{sizes}: the first shard begins after {seconds:.1f} s")


if __name__ == "__main__":
    main()
