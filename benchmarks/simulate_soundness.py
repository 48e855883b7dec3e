"""How often intervals of soundness cover: sets of images with known curves, in `make simulate`.

The accuracy of a set rises along a sweep of 1 % steps; soundness decides at every step whether it
rose steeply enough. The truth is the number of 100,000 images. Maps of equal methods have the same
distribution, and their images rise at the same places in part.
"""

import argparse
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from assay.ranking.reduce_soundness import soundness
from assay.ranking.set_intervals import set_differences, set_interval

Floats = NDArray[np.float64]
X = np.r_[0.0, np.arange(2, 98) / 100, 1.0]
LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9)
NUMBERS = (25, 100, 400, 1000, 2000)
EQUAL, MANY, RESAMPLES = 4, 100_000, 300
_KEPT = 0.95  # correlation of an image's noise at neighbouring steps

# Where accuracy rises, as a shift of the images' margins; and how concentrated the maps are.
RISES: dict[str, tuple[Callable[[Floats], Floats], float]] = {
    "early rise": (lambda x: 3.3 * (1 - np.exp(-6.0 * x)) / (1 - np.exp(-6.0)) - 1.3, 6.0),
    "long rise": (lambda x: 3.3 * (1 - np.exp(-2.5 * x)) / (1 - np.exp(-2.5)) - 1.3, 3.0),
    "late rise": (lambda x: 4.5 * x**1.5 - 2.2, 2.0),
}


def main() -> None:
    """Print a row per rise and number of images."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100, help="simulated sets of each row")
    runs = parser.parse_args().runs
    print(f"\n{runs} sets a row, {RESAMPLES} resamples. Family: sets in which any of 6 pairs of 4")
    print("equal methods is resolved.\n")
    print("| accuracy | images | true | mean | covered | family error |")
    print("|---|---|---|---|---|---|")
    for name in RISES:
        true = _number(*_draw(np.random.default_rng(1), MANY, 1, name), np.ones((1, MANY)))[0, 0]
        for images in NUMBERS:
            print(
                f"| {name} | {images} | {true:.3f} | {_row(name, images, runs, true)} |", flush=True
            )


def _row(name: str, images: int, runs: int, true: float) -> str:
    generator = np.random.default_rng(images)
    covered, family, values = 0, 0, []
    for _ in range(runs):
        correct, mass = _draw(generator, images, EQUAL, name)

        def all_methods(weights: Floats, correct: Floats = correct, mass: Floats = mass) -> Floats:
            return _number(correct, mass, weights)

        def first(weights: Floats, correct: Floats = correct, mass: Floats = mass) -> Floats:
            return _number(correct[:1], mass[:1], weights)

        one = set_interval(first, np.arange(images), resamples=RESAMPLES).within(0.0, 1.0)
        apart = set_differences(all_methods, np.arange(images), resamples=RESAMPLES)
        values.append(one.mean)
        covered += one.low <= true <= one.high
        family += bool((apart.low > 0).any())
    shares = f"{100 * covered / runs:.1f} % | {100 * family / runs:.1f} %"
    return f"{np.mean(values):.3f} | {shares}"


def _number(correct: Floats, mass: Floats, weights: Floats) -> Floats:  # [b, m]
    return np.stack(
        [
            soundness({"correct": right, "mass": on}, X, weights, levels=LEVELS)
            for right, on in zip(correct, mass, strict=True)
        ],
        axis=1,
    )


def _draw(
    generator: np.random.Generator, images: int, methods: int, name: str
) -> tuple[Floats, Floats]:  # [m, n, K] each
    rise, concentration = RISES[name]
    image = generator.standard_normal((1, images, 1))  # what makes it easy for all methods
    noise = generator.standard_normal((methods, images, len(X)))
    for step in range(1, len(X)):
        fresh = np.sqrt(1 - _KEPT**2) * noise[..., step]
        noise[..., step] = _KEPT * noise[..., step - 1] + fresh
    correct = (rise(X) + 0.8 * image + 0.5 * noise > 0).astype(np.float64)
    spread = 0.4 * generator.standard_normal((methods, images, 1))
    mass = 1 - np.exp(-concentration * np.exp(spread) * X)
    return correct, mass


if __name__ == "__main__":
    main()
