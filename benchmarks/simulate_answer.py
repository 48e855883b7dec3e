"""How sure the answer is: how often a method beats an equal one over several questions.

Every simulated run has ten methods and the control `random` under four protocols, of which two ask
the same question. It goes through `rank_overall`, as a run does, with 2,000 resamples and seed 0.
The scores of a sample are correlated between methods and between protocols. Run it with
`make simulate`.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from assay.ranking.answer import Answer
from assay.ranking.blocks import Block, MethodScores
from assay.ranking.overall import Asked, rank_overall
from benchmarks.simulate_ranking import (
    METHODS,
    NORMAL_SPREAD,
    NUMBERS,
    SHAPES,
    SHIFT,
    Floats,
    draw_latent,
)

PROTOCOLS = {"deletion": "necessity", "morf": "necessity", "insertion": "sufficiency",
             "single_deletion": "effects"}  # fmt: skip
ASKED = Asked(questions=PROTOCOLS)
CONTROLS = {"random": "random"}
ALIKE = 0.5  # of the variance of a score: what the protocols have in common


def main() -> None:
    """Print a row per kind of scores and number of groups, as each is done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=4000, help="simulated runs of each row")
    parser.add_argument("--shapes", nargs="*", default=list(SHAPES), help="kinds of scores")
    chosen = parser.parse_args()
    print(
        f"{chosen.runs} runs a row, {METHODS} methods, 3 questions. False: runs in which a method"
    )
    print("beats an equal one. Found: runs in which a better method beats a given equal one.\n")
    print("| scores | groups | false | found, better in one question | in all | seconds |")
    print("|---|---|---|---|---|---|")
    for name in chosen.shapes:
        for groups in NUMBERS:
            start = time.perf_counter()
            row = simulate(name, groups, chosen.runs, seed=groups)
            print(f"| {name} | {groups} | {row} | {time.perf_counter() - start:.0f} |", flush=True)


@dataclass
class Found:
    """What was counted over the runs of one row."""

    runs: int
    false: int = 0
    in_one: int | None = None
    in_all: int | None = None

    def __str__(self) -> str:
        """Give the cells of a row of the table."""
        power = [self.in_one, self.in_all]
        shown = ["" if k is None else f"{100 * k / self.runs:.1f} %" for k in power]
        return " | ".join([f"{100 * self.false / self.runs:.2f} %", *shown])


def simulate(name: str, groups: int, runs: int, seed: int) -> Found:
    """Answer `runs` simulated runs of equal methods, and for normal scores of a better one."""
    found = Found(runs)
    found.false = sum(bool(one.beaten_by) for one in answers(name, groups, runs, seed))
    if name == "normal" and groups == max(NUMBERS):
        shift = SHIFT * NORMAL_SPREAD
        alone = answers(name, groups, runs, seed + 1, {"insertion": shift})
        found.in_one = sum("m1" in one.beaten_by for one in alone)
        every = answers(name, groups, runs, seed + 2, dict.fromkeys(PROTOCOLS, shift))
        found.in_all = sum("m1" in one.beaten_by for one in every)
    return found


def answers(
    name: str, groups: int, runs: int, seed: int, shift: dict[str, float] | None = None
) -> Iterator[Answer]:
    """Draw runs of equal methods, of which the first one may be better under some protocols."""
    generator = np.random.default_rng(seed)
    for _ in range(runs):
        blocks = draw_blocks(name, groups, generator, shift or {})
        yield rank_overall(blocks, CONTROLS, {}, ASKED).answer


def draw_blocks(
    name: str, groups: int, generator: np.random.Generator, shift: dict[str, float]
) -> list[Block]:
    """Draw the scores of one run under all protocols."""
    shape = SHAPES[name]
    sizes = generator.integers(2, 7, groups) if shape.clusters else np.ones(groups, np.int64)
    members = np.repeat(np.arange(groups), sizes)
    common = draw_latent(generator, members, shape, METHODS + 1)
    blocks = []
    for protocol in PROTOCOLS:
        own = draw_latent(generator, members, shape, METHODS + 1)
        values = shape.score(np.sqrt(ALIKE) * common + np.sqrt(1 - ALIKE) * own)
        values[:, 0] += shift.get(protocol, 0.0)
        blocks.append(replace(_block(values, members), protocol=protocol, range=shape.limits))
    return blocks


def _block(values: Floats, members: np.ndarray) -> Block:
    samples = [f"{i:04d}" for i in range(len(members))]
    names = [*(f"m{i}" for i in range(METHODS)), "random"]
    return Block(
        *("simulated", "none", "", "scores", "{}", "score"),
        higher_is_better=True,
        samples=samples,
        sample_groups=[f"{i:04d}" for i in members],
        methods=[
            MethodScores(name, "{}", "ok", samples, column, 0, 0)
            for name, column in zip(names, values.T, strict=True)
        ],
    )


if __name__ == "__main__":
    main()
