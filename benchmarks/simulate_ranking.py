"""How sure ranks and intervals are: scores with known means, ranked as in a run.

Every simulated run is a block of ten methods, which goes through the functions that rank a run:
`Block.intervals`, `Block.differences` and `resolved`, with 2,000 resamples and seed 0, as by
default. Scores of a sample are correlated between methods, as in a paired comparison.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from assay.ranking.blocks import UNBOUNDED, Block, MethodScores
from assay.ranking.orders import resolved
from assay.store import Limits

Floats = NDArray[np.float64]
METHODS = 10
NUMBERS = (10, 25, 100)
GOAL_ERROR, GOAL_POWER, GOAL_COVERAGE = 0.06, 0.9, (0.92, 0.98)
SHARED = 0.5  # of the variance of a score: what the methods have in common on a sample
SHIFT = 0.5  # of the better method, in standard deviations of a paired difference
NORMAL_SPREAD = np.sqrt(2 * (1 - SHARED))  # the standard deviation of a paired difference


@dataclass(frozen=True)
class Shape:
    """One kind of scores.

    Attributes:
        score: From standard normal numbers to scores.
        limits: The range of a score.
        clusters: Whether a group has two to six samples rather than one, with half of the variance.
        tails: Degrees of freedom of Student's distribution; None is the normal one.
    """

    score: Callable[[Floats], Floats]
    limits: Limits = UNBOUNDED
    clusters: bool = False
    tails: int | None = None


def _right(share: float) -> Callable[[Floats], Floats]:
    least = -float(scipy.stats.norm.ppf(share))
    return lambda z: (z > least).astype(np.float64)


SHAPES = {
    "normal": Shape(lambda z: z),
    "heavy-tailed": Shape(lambda z: z, tails=3),
    "binary, 80 % right": Shape(_right(0.8), (0, 1)),
    "binary, 95 % right": Shape(_right(0.95), (0, 1)),
    "tied (five values)": Shape(lambda z: np.clip(np.round(z), -2, 2), (-2, 2)),
    "clustered": Shape(lambda z: z, clusters=True),
    "clustered, binary": Shape(_right(0.8), (0, 1), clusters=True),
}
TRUE_MEANS = {name: 0.0 for name in SHAPES} | {
    "binary, 80 % right": 0.8,
    "binary, 95 % right": 0.95,
    "clustered, binary": 0.8,
}


def main() -> None:
    """Print a row per kind of scores and number of groups, as each is done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=4000, help="simulated runs of each row")
    parser.add_argument("--shapes", nargs="*", default=list(SHAPES), help="kinds of scores")
    chosen = parser.parse_args()
    print(
        f"{chosen.runs} runs a row, {METHODS} methods. Family: runs in which any of 45 equal pairs"
    )
    print("is resolved. Covered: intervals of means with the true mean. Power: one shifted pair.\n")
    print("| scores | groups | family error | covered | no interval | power | seconds |")
    print("|---|---|---|---|---|---|---|")
    for name in chosen.shapes:
        for groups in NUMBERS:
            start = time.perf_counter()
            cell = simulate(name, groups, chosen.runs, seed=groups)
            print(f"| {name} | {groups} | {cell} | {time.perf_counter() - start:.0f} |", flush=True)


@dataclass
class Tally:
    """What was counted over the runs of one cell."""

    runs: int = 0
    family: int = 0
    covered: int = 0
    without: int = 0
    intervals: int = 0
    powerful: int | None = None

    def __str__(self) -> str:
        """Give the cells of a row of the table."""
        known = self.intervals - self.without
        covered = f"{100 * self.covered / known:.1f} %" if known else "none"
        power = "" if self.powerful is None else f"{100 * self.powerful / self.runs:.1f} %"
        family = f"{100 * self.family / self.runs:.2f} %"
        return f"{family} | {covered} | {100 * self.without / self.intervals:.1f} % | {power}"


def simulate(name: str, groups: int, runs: int, seed: int) -> Tally:
    """Rank `runs` simulated runs of equal methods, and for normal scores of one better method."""
    tally = Tally()
    normal = name == "normal" and groups == max(NUMBERS)
    tally.powerful = 0 if normal else None
    for block in blocks(name, groups, runs, seed):
        tally.runs += 1
        tally.family += bool(better(block).any())
        for interval in block.intervals({}).values():
            tally.intervals += 1
            tally.without += np.isnan(interval.low)
            tally.covered += interval.low <= TRUE_MEANS[name] <= interval.high
    if normal:
        for block in blocks(name, groups, runs, seed + 1, shift=SHIFT * NORMAL_SPREAD):
            tally.powerful += bool(better(block)[0, 1])
    return tally


def better(block: Block) -> NDArray[np.bool_]:
    """Which methods are resolved better than which, as in a leaderboard."""
    return resolved(block.differences(block.ranked, {}), higher_is_better=True)


def blocks(name: str, groups: int, runs: int, seed: int, shift: float = 0.0) -> Iterator[Block]:
    """Draw runs of ten methods with equal means, or the first one better by a shift."""
    shape, generator = SHAPES[name], np.random.default_rng(seed)
    for _ in range(runs):
        sizes = generator.integers(2, 7, groups) if shape.clusters else np.ones(groups, np.int64)
        members = np.repeat(np.arange(groups), sizes)
        latent = draw_latent(generator, members, shape)
        values = shape.score(latent)
        values[:, 0] += shift
        samples = [f"{i:04d}" for i in range(len(members))]
        methods = [
            MethodScores(f"m{i}", "{}", "ok", samples, column, 0, 0)
            for i, column in enumerate(values.T)
        ]
        yield Block(
            *("simulated", "none", "", "scores", "{}", "score"),
            higher_is_better=True,
            samples=samples,
            sample_groups=[f"{i:04d}" for i in members],
            methods=methods,
            range=shape.limits,
            group_numbers=members,
        )


def draw_latent(
    generator: np.random.Generator, members: NDArray[np.int64], shape: Shape, methods: int = METHODS
) -> Floats:
    """Draw numbers [n, m] of variance 1 that the methods share in part, and groups too."""
    both = _drawn(generator, members, 1, shape), _drawn(generator, members, methods, shape)
    mixed: Floats = np.sqrt(SHARED) * both[0] + np.sqrt(1 - SHARED) * both[1]
    return mixed


def _drawn(
    generator: np.random.Generator, members: NDArray[np.int64], width: int, shape: Shape
) -> Floats:
    size = (len(members), width)
    if shape.tails is not None:
        return generator.standard_t(shape.tails, size)
    own = generator.standard_normal(size)
    if not shape.clusters:
        return own
    common = generator.standard_normal((members.max() + 1, width))[members]
    mixed: Floats = np.sqrt(0.5) * (own + common)
    return mixed


if __name__ == "__main__":
    main()
