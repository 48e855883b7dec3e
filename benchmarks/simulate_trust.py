"""How often intervals of `assay trust` contain the correlation over all methods, by simulation.

    python -m benchmarks.simulate_trust --runs 250

Methods are drawn from a normal population in which truth and protocol have a known correlation;
their scores on 100 samples have noise of the given share of the spread between methods. With noise,
the correlation to expect at so many samples is lower, and that is what should be covered.
"""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray

from assay.ranking.blocks import Block, MethodScores
from assay.ranking.trust_draws import Compared, TrustSide, agreement

Floats = NDArray[np.float64]
METHODS, CORRELATIONS, NOISE = (6, 10, 16, 30), (0.0, 0.5, 0.9), (0.05, 3.0)
SAMPLES = 100
GOAL = 0.92


def coverage(
    methods: int, correlation: float, noise: float, runs: int, resamples: int = 1000
) -> float:
    """The share of intervals that contain the rank correlation of the population."""
    pearson = 2 * np.sin(np.pi * correlation / 6)
    generator = np.random.default_rng([methods, round(100 * correlation), round(100 * noise)])
    covered = 0
    for _ in range(runs):
        means = generator.multivariate_normal([0, 0], [[1, pearson], [pearson, 1]], methods).T
        scores = means[:, None] + generator.normal(0, noise, (2, SAMPLES, methods))
        _, ends, _ = agreement(compared(scores, resamples))
        covered += ends is not None and ends[0] <= _expected(pearson, noise) <= ends[1]
    return covered / runs


def compared(scores: Floats, resamples: int) -> Compared:  # [2, n, m]
    """A comparison of two simulated protocols."""
    judged, truth = (_side(values) for values in scores)
    return Compared(judged, truth, 0.95, resamples, 0)


def _expected(pearson: float, noise: float) -> float:
    """The rank correlation of means over the samples, in the population of methods."""
    return float(6 / np.pi * np.arcsin(pearson / (1 + noise**2 / SAMPLES) / 2))


def _side(values: Floats) -> TrustSide:
    samples = [f"{i:04d}" for i in range(len(values))]
    methods = [
        MethodScores(f"m{i:02d}", "{}", "ok", samples, column, 0, 0)
        for i, column in enumerate(values.T)
    ]
    block = Block(
        *("simulated", "none", "", "scores", "{}", "score"),
        higher_is_better=True,
        samples=samples,
        sample_groups=samples,
        methods=methods,
    )
    return TrustSide(block, methods, np.arange(len(samples)))


def main() -> None:
    """Print a table, and whether the goal is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=250)
    runs = parser.parse_args().runs
    print(f"{runs} runs a row; the goal is at least {GOAL:.0%}.\n")
    print("| methods | correlation | noise of a sample | covered |\n|---|---|---|---|")
    for methods in METHODS:
        for correlation in CORRELATIONS:
            for noise in NOISE:
                share = coverage(methods, correlation, noise, runs)
                mark = "" if share >= GOAL else " (below the goal)"
                row = f"| {methods} | {correlation:g} | {noise:g} | {share:.1%}{mark} |"
                print(row, flush=True)


if __name__ == "__main__":
    main()
