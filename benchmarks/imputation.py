"""Noisy linear imputation against the way its authors solve it, in one run and one thread.

On a GPU (`python -m benchmarks.imputation --device cuda`) there is no such way: milliseconds alone.
"""

import argparse
import itertools
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn.functional import interpolate

from assay.removal import noisy_linear
from benchmarks.sparse_imputation import impute

SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
GOAL = {224: 12.0, 32: 8.0}
IMAGES = {224: 4, 32: 64}
CHECKED = 2  # images solved the authors' way


def pictures(n: int, size: int) -> Tensor:
    """Smooth colours with texture and noise, as spread as normalised photographs."""
    generator = torch.Generator().manual_seed(0)

    def layer(side: int) -> Tensor:
        drawn = torch.randn(n, 3, side, side, generator=generator)
        return interpolate(drawn, (size, size), mode="bilinear")

    return layer(8) + 0.3 * layer(size // 4) + 0.1 * layer(size)


def random(n: int, size: int, generator: torch.Generator) -> Tensor:
    """Pixels anywhere."""
    return torch.rand(n, size, size, generator=generator)


def speckled(n: int, size: int, generator: torch.Generator) -> Tensor:
    """As gradients are: noise that is denser in some regions."""
    where = interpolate(torch.rand(n, 1, 7, 7, generator=generator), (size, size), mode="bilinear")
    return (torch.randn(n, size, size, generator=generator) * (where[:, 0] + 0.05)).abs()


def blobs(n: int, size: int, generator: torch.Generator) -> Tensor:
    """As class activation maps are: 7 x 7 numbers enlarged, 4 x 4 on small images."""
    side = 7 if size > 64 else 4
    coarse = torch.rand(n, 1, side, side, generator=generator)
    return interpolate(coarse, (size, size), mode="bilinear")[:, 0]


KINDS: tuple[Callable[[int, int, torch.Generator], Tensor], ...] = (random, speckled, blobs)


def kept(values: Tensor, share: float) -> Tensor:
    """All but the highest share."""
    flat = values.flatten(1)
    gone = flat.argsort(1, descending=True)[:, : int(share * flat.shape[1])]
    return torch.ones_like(flat, dtype=torch.bool).scatter_(1, gone, False).reshape(values.shape)


def measure(size: int, rounds: int = 3) -> list[dict[str, Any]]:
    """Milliseconds per image, ours and the authors', and the largest difference, by mask."""
    images = pictures(IMAGES[size], size)
    rows = []
    for kind, share in itertools.product(KINDS, SHARES):
        generator = torch.Generator().manual_seed(1)
        keep = kept(kind(len(images), size, generator), share)
        theirs, ours = [], []
        for _ in range(rounds):
            started = time.process_time()
            exact = [
                impute(image.double().numpy(), mask.numpy())
                for image, mask in zip(images[:CHECKED], keep[:CHECKED], strict=True)
            ]
            theirs.append((time.process_time() - started) / CHECKED)
            started = time.process_time()
            filled = noisy_linear(images, keep, noise=0)
            ours.append((time.process_time() - started) / len(images))
        error = max(
            float((found.double() - torch.from_numpy(true)).abs().max())
            for found, true in zip(filled, exact, strict=False)
        )
        rows.append(
            {
                "size": size,
                "masks": kind.__name__,
                "share": share,
                "theirs_ms": 1e3 * statistics.median(theirs),
                "ours_ms": 1e3 * statistics.median(ours),
                "error": error,
            }
        )
    return rows


def table(rows: list[dict[str, Any]]) -> Table:
    """All masks, then the means by size."""
    shown = Table(
        title="Noisy linear imputation: CPU ms an image (one thread), sparse solve over ours"
    )
    for column in ("pixels", "masks", "removed", "sparse solve", "ours", "ratio", "goal", "error"):
        shown.add_column(column, justify="left" if column == "masks" else "right")

    def add(size: int, kind: str, share: str, theirs: float, ours: float, error: float) -> None:
        goal = GOAL[size] if kind == "mean" else None
        ratio = theirs / ours
        colour = "" if goal is None else "[green]" if ratio >= goal else "[red]"
        shown.add_row(
            str(size), kind, share, f"{theirs:.2f}", f"{ours:.2f}", f"{colour}{ratio:.1f}",
            "" if goal is None else f"{goal:.0f}", f"{error:.0e}",
        )  # fmt: skip

    for size in dict.fromkeys(row["size"] for row in rows):
        mine = [row for row in rows if row["size"] == size]
        for r in mine:
            share = f"{r['share']:.0%}"
            add(size, r["masks"], share, r["theirs_ms"], r["ours_ms"], r["error"])
        theirs, ours = (statistics.mean(r[k] for r in mine) for k in ("theirs_ms", "ours_ms"))
        add(size, "mean", "", theirs, ours, max(r["error"] for r in mine))
    return shown


def on_gpu(batch: int, size: int) -> list[dict[str, Any]]:
    """Milliseconds per image on the GPU, by mask."""
    images = pictures(batch, size).cuda()
    rows = []
    for kind, share in itertools.product(KINDS, SHARES):
        keep = kept(kind(batch, size, torch.Generator().manual_seed(1)), share).cuda()
        noisy_linear(images, keep, noise=0)
        torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(5):
            filled = noisy_linear(images, keep, noise=0)
        torch.cuda.synchronize()
        seconds = (time.perf_counter() - started) / 5
        exact = noisy_linear(images[:4].double(), keep[:4], noise=0, tol=1e-9)
        error = float((filled[:4] - exact).abs().max())
        rows.append(
            {
                "size": size,
                "batch": batch,
                "masks": kind.__name__,
                "share": share,
                "ms": 1e3 * seconds / batch,
                "error": error,
            }
        )
    return rows


def main() -> None:
    """Measure the solver alone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    if given.device == "cpu":
        torch.set_num_threads(1)
        Console(width=110).print(table([row for size in GOAL for row in measure(size)]))
        return
    for batch, size in ((256, 224), (64, 224), (1024, 32)):
        for row in on_gpu(batch, size):
            print(
                " ".join(
                    f"{k}={v:.2g}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items()
                )
            )


if __name__ == "__main__":
    main()
