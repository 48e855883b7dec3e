"""Ten methods under ROAD, soundness and completeness: ResNet-20 on CIFAR-10, and what it costs.

    python -m benchmarks.value --data ../shared/data --out value-run

The data folder is that of `benchmarks.cifar`. Beside the scores it prints the seconds it took and
an estimate for the published code: its forward passes, and a sparse solve for each imputed image.
"""

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from assay.models.cifar_resnet import CifarResNet
from assay.results import Results
from assay.run import run
from assay.suite.spec import Spec, make_suite
from benchmarks import cifar, imputation

METHODS = (
    "saliency", "input_x_gradient", "integrated_gradients", "smoothgrad", "ixg_sg",
    "gradcam", "gradcam_pp", "layercam", "occlusion", "random",
)  # fmt: skip
PROTOCOLS = ("road_morf", "road_lerf", "soundness", "completeness")

# Images imputed and seen by the network, for one image and method, in the published code: 96 levels
# of soundness, 9 of completeness and of ROAD in both orders, these with the clean image each time.
LEVELS, AGAIN = 96 + 9 + 9 + 9, 9 + 9 + 9


def suite(data: Path, limit: int) -> Spec:
    """Ten methods, one of them random, under the protocols that impute."""
    every = cifar.suite(data, limit)
    return make_suite(
        {
            "title": "ROAD, soundness and completeness: ResNet-20 on CIFAR-10",
            "datasets": every.datasets,
            "models": every.models,
            "methods": list(METHODS),
            "protocols": list(PROTOCOLS),
            "limit": limit,
        }
    )


def published_seconds(images: int, methods: int) -> float:
    """What the published code would take on one core here, explaining not counted."""
    solve = statistics.mean(row["theirs_ms"] for row in imputation.measure(32, rounds=1)) / 1e3
    net, batch = CifarResNet(20).eval(), torch.randn(128, 3, 32, 32)
    with torch.no_grad():
        net(batch)
        started = time.process_time()
        net(batch)
        forward = (time.process_time() - started) / len(batch)
    return images * methods * (LEVELS * (solve + forward) + AGAIN * forward)


def table(results: Results) -> str:
    """Every method's score with its interval and rank under each protocol, as Markdown."""
    board = results.leaderboard()
    found = {(row["method"], row["protocol"]): row for row in board}
    lines = [f"| method | {' | '.join(PROTOCOLS)} |", f"|---|{'---|' * len(PROTOCOLS)}"]
    for method in METHODS:
        cells = [_cell(found[method, protocol]) for protocol in PROTOCOLS]
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(row: dict[str, Any]) -> str:
    return f"{row['mean']:.3f} [{row['low']:.3f}, {row['high']:.3f}] ({row['rank']})"


def main() -> None:
    """Run, and print scores and time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("value-run"))
    parser.add_argument("--limit", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    started = time.monotonic()
    results = run(suite(given.data, given.limit), given.out, workers=given.workers)
    took = time.monotonic() - started
    torch.set_num_threads(1)
    published = published_seconds(given.limit, len(METHODS))
    text = (
        f"{given.limit} images, {len(METHODS)} methods, {given.workers} processes: "
        f"{took / 60:.1f} minutes. The published code would take about "
        f"{published / 60 / given.workers:.0f} minutes on as many cores, explaining not counted.\n"
    )
    text = f"{table(results)}\n\n{text}"
    (given.out / "value.md").write_text(text, encoding="utf-8")
    print(text)
    print(f"The page: {results.report()}")


if __name__ == "__main__":
    main()
