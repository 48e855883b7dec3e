"""Whether checkpoints of one training run order methods more alike than those of different runs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.aggregation.image_halves import Halves, SampledScores, crossed_tau, half_signs
from assay.errors import InputError
from assay.ranking.resampling import Codes, Floats

FEWEST_PERMUTATIONS = 999
TRIVIAL = 0.95  # where ceiling and agreement of runs exceed it, all have one order
ALPHA = 0.05

TrajectoryVerdict = Literal[
    "trivially consistent",
    "trajectory effect",
    "no trajectory effect shown",
    "too few checkpoints to tell",
]


@dataclass(frozen=True, eq=False)
class CheckpointScores:
    """The scores of methods on the samples, for one checkpoint of one training run.

    Attributes:
        trajectory: The training run, such as its seed.
        time: How far the training is; runs are compared at equal times.
        values: Scores [n, N] of the same methods on the same samples; higher is better.
    """

    trajectory: str
    time: float
    values: Floats


@dataclass(frozen=True)
class TrajectoryContrast:
    """Agreement within trajectories against agreement between them, each between image halves.

    Attributes:
        within: Mean tau-b of different checkpoints of one trajectory.
        between: Mean tau-b of checkpoints of different trajectories.
        difference: `within` minus `between`.
        p: One-sided p-value of the difference, by permutation.
        ceiling: Mean tau-b between the halves of the same checkpoint.
    """

    within: float
    between: float
    difference: float
    p: float
    ceiling: float


@dataclass(frozen=True)
class TrajectoryEffect:
    """What the training run has to do with the order of methods.

    Attributes:
        overall: The contrast over all pairs of methods; the verdict is about this one.
        close: The contrast over pairs of methods that differ less than the median pair.
        permutations: How many permutations, with the observed labels.
        exhaustive: Whether these are all.
        verdict: The result in words.
    """

    overall: TrajectoryContrast
    close: TrajectoryContrast
    permutations: int
    exhaustive: bool
    verdict: TrajectoryVerdict


def trajectory_effect(
    checkpoints: Sequence[CheckpointScores],
    groups: ArrayLike | None = None,
    *,
    between: Literal["same_times", "final"] = "same_times",
    splits: int = 50,
    permutations: int = 9999,
    seed: int = 0,
) -> TrajectoryEffect:
    """Test whether an order of methods belongs to a training run, not only to the task.

    Every tau-b compares one checkpoint on half of the images with another on the other half, so
    equal errors on equal images do not look like agreement. The test permutes which trajectory
    each checkpoint belongs to, among the checkpoints of one time; the labels of the first time
    stay, because only which checkpoints belong together matters.

    Args:
        checkpoints: At least two trajectories with two common times.
        groups: A label per image; images of one label stay in the same half.
        between: What `within` is compared with. `same_times` compares different trajectories at
            the same two times; `final` compares their last common checkpoints.
        splits: Number of random splits into halves.
        permutations: Number of random permutations, at least 999; fewer where that is all.
        seed: Seed of splits and permutations.
    """
    if permutations < FEWEST_PERMUTATIONS:
        raise InputError(
            f"Expected at least {FEWEST_PERMUTATIONS} permutations, got {permutations}."
        )
    places = _places(checkpoints)
    settings = [SampledScores(checkpoint.values, groups) for checkpoint in checkpoints]
    halves = list(half_signs(settings, splits, seed))
    close = _close_pairs(settings)
    drawn = np.stack(list(_relabelled(places, permutations, seed)))  # [b, T, R]
    overall, nearest = (
        _contrast(of, drawn, between)
        for of in (halves, [(a[:, close], b[:, close]) for a, b in halves])
    )
    exhaustive = _number(places) <= permutations
    return TrajectoryEffect(overall, nearest, len(drawn), exhaustive, _verdict(overall, len(drawn)))


def _places(checkpoints: Sequence[CheckpointScores]) -> Codes:  # [T, R]
    """The place of each trajectory's checkpoint at each time; -1 for none.

    Times and trajectories that cannot be compared with another one are left out.
    """
    names = list(dict.fromkeys(one.trajectory for one in checkpoints))
    times = sorted({one.time for one in checkpoints})
    places = np.full((len(times), len(names)), -1)
    for number, one in enumerate(checkpoints):
        at = times.index(one.time), names.index(one.trajectory)
        if places[at] >= 0:
            raise InputError(
                f"Expected one checkpoint of {one.trajectory!r} at time {one.time}, got two."
            )
        places[at] = number
    places = places[(places >= 0).sum(axis=1) >= 2]
    if not any(_both(a, b).sum() >= 2 for a, b in itertools.combinations(places, 2)):
        raise InputError("Expected at least two trajectories with checkpoints at two equal times.")
    return np.asarray(places, np.int64)


def _both(first: Codes, second: Codes) -> NDArray[np.bool_]:
    """Which trajectories have checkpoints at both times [..., R]."""
    return np.asarray((first >= 0) & (second >= 0), np.bool_)


def _close_pairs(settings: Sequence[SampledScores]) -> NDArray[np.bool_]:  # [p]
    """Pairs of methods whose difference is below the median; means over all checkpoints."""
    methods, samples = zip(*(setting.counted() for setting in settings), strict=True)
    if not np.all(methods):
        raise InputError("Expected scores of every method at every checkpoint.")
    means = np.array(
        [np.mean(s.values[:, here], axis=1) for s, here in zip(settings, samples, strict=True)]
    )
    scale = np.std(means, axis=1, keepdims=True)  # checkpoints count alike
    typical = (means / np.where(scale > 0, scale, 1.0)).mean(axis=0)
    first, second = np.triu_indices(len(typical), 1)
    gaps = np.abs(typical[first] - typical[second])
    return np.asarray(gaps < np.median(gaps), np.bool_)


def _number(places: Codes) -> int:
    """How many ways there are to relabel all times but the first."""
    return math.prod(math.factorial(int((row >= 0).sum())) for row in places[1:])


def _relabelled(places: Codes, permutations: int, seed: int) -> Iterator[Codes]:
    """The places [T, R] under each permutation, first as observed: all, or so many at random."""
    present = [np.flatnonzero(row >= 0) for row in places]
    if _number(places) <= permutations:
        orders = (itertools.permutations(row.tolist()) for row in present[1:])
        chosen: Iterator[Iterable[Sequence[int]]] = itertools.product(*orders)
    else:
        generator = np.random.default_rng([seed, 1])
        yield places
        chosen = (
            [generator.permutation(row).tolist() for row in present[1:]]
            for _ in range(permutations)
        )
    for moved in chosen:
        relabelled = places.copy()
        for time, (stay, go) in enumerate(zip(present[1:], moved, strict=True), start=1):
            relabelled[time, stay] = places[time, go]
        yield relabelled


def _contrast(
    halves: Sequence[Halves], drawn: Codes, between: Literal["same_times", "final"]
) -> TrajectoryContrast:
    """Both means of tau-b, and how often permuted labels differ as much."""
    tau = crossed_tau(halves)
    used = np.unique(drawn[0][drawn[0] >= 0])
    if np.isnan(tau[np.ix_(used, used)]).any():  # no pairs of methods, or only ties
        return TrajectoryContrast(*[math.nan] * 5)
    within, across = [], []  # of each pair of times [b]
    for first, second in itertools.combinations(range(drawn.shape[1]), 2):
        one, other = drawn[:, first], drawn[:, second]  # [b, R]
        both = _both(one, other)  # the same trajectories under every permutation
        if both[0].sum() < 2:
            continue
        own = np.where(both, tau[one, other], 0.0).sum(axis=1)
        block = tau[np.ix_(one[0][one[0] >= 0], other[0][other[0] >= 0])]
        number = int(both[0].sum())
        within.append(own / number)
        across.append((block.sum() - own) / (block.size - number))
    inside, outside = np.mean(within, axis=0), np.mean(across, axis=0)
    if between == "final":
        last = drawn[0, -1][drawn[0, -1] >= 0]
        pairs = tau[np.ix_(last, last)][np.triu_indices(len(last), 1)]
        outside = np.full(len(inside), pairs.mean())
    differences = inside - outside
    p = float((differences >= differences[0] - 1e-12).mean())
    ceiling = float(tau.diagonal()[used].mean())
    return TrajectoryContrast(
        float(inside[0]), float(outside[0]), float(differences[0]), p, ceiling
    )


def _verdict(contrast: TrajectoryContrast, permutations: int) -> TrajectoryVerdict:
    if min(contrast.ceiling, contrast.between) > TRIVIAL:
        return "trivially consistent"
    if permutations * ALPHA < 1 or math.isnan(contrast.p):
        return "too few checkpoints to tell"
    return "trajectory effect" if contrast.p <= ALPHA else "no trajectory effect shown"
