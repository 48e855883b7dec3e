"""Time of Kemeny's rule: 40 methods and 30 settings around one order, from alike to noisy.

Settings are drawn from Mallows' model by repeated insertion. With `phi` near 1 they hardly agree.
"""

import argparse
import time

import numpy as np
from numpy.typing import NDArray

from assay.aggregation.kemeny import SECONDS, best_order
from assay.aggregation.wins import count_wins

METHODS, SETTINGS = 40, 30


def mallows(
    generator: np.random.Generator, methods: int, settings: int, phi: float
) -> NDArray[np.float64]:
    """Draw scores [settings, methods] whose orders have probability ~ phi^(Kendall's distance)."""
    scores = np.empty((settings, methods))
    for row in scores:
        order: list[int] = []
        for method in range(methods):
            chance = phi ** np.arange(method, -1, -1)  # to be inserted at place 0, 1, ..., method
            order.insert(int(generator.choice(method + 1, p=chance / chance.sum())), method)
        row[order] = np.arange(methods, 0, -1)
    return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--phi", type=float, nargs="+", default=[0.5, 0.9, 0.95, 0.97])
    parser.add_argument("--methods", type=int, default=METHODS)
    parser.add_argument("--settings", type=int, default=SETTINGS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    options = parser.parse_args()
    print(f"{options.methods} methods, {options.settings} settings, limit {options.seconds:g} s")
    print("  phi  seed  seconds     cost      gap  undecided  checked")
    for phi in options.phi:
        for seed in range(options.seeds):
            generator = np.random.default_rng(seed)
            scores = mallows(generator, options.methods, options.settings, phi)
            weights = np.ones(options.settings)
            start = time.perf_counter()
            best = best_order(count_wins(scores, weights), seconds=options.seconds)
            seconds = time.perf_counter() - start
            print(
                f"{phi:5.2f} {seed:5d} {seconds:8.2f} {best.cost:8.0f} "
                f"{1 - best.bound / best.cost:8.4f} {np.triu(best.undecided).sum():10d} "
                f"{'yes' if best.checked else 'no':>8}"
            )


if __name__ == "__main__":
    main()
