"""Agreement along training: do checkpoints of one training run order the methods more alike?"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from assay.aggregation.run_settings import RunSettings, VoteRow
from assay.aggregation.trajectories import (
    TRIVIAL,
    CheckpointScores,
    TrajectoryContrast,
    TrajectoryEffect,
    trajectory_effect,
)
from assay.ranking.blocks import Block
from assay.ranking.resampling import Floats

Comparison = tuple[str, str, str]  # dataset, family and protocol
Moment = tuple[str, float]  # a training run, and how far it is

LAST_NUMBER = re.compile(r"\d+(?:\.\d+)?(?=\D*$)")  # of a checkpoint's name
FEWEST = 2  # training runs, common times, methods, and groups of samples


@dataclass(frozen=True)
class RunTrajectories:
    """What the training run has to do with the order of methods, in one place.

    Attributes:
        dataset: The dataset.
        family: The architecture.
        protocol: The protocol.
        effect: The test; None where something is missing.
        sentence: The result, or what is missing, in words.
    """

    dataset: str
    family: str
    protocol: str
    effect: TrajectoryEffect | None
    sentence: str


def run_trajectories(
    read: RunSettings, rows: Sequence[VoteRow], *, permutations: int = 9999, seed: int = 0
) -> tuple[RunTrajectories, ...]:
    """Test the models with several checkpoints, for each dataset, architecture and protocol.

    A training run is a model of the tables; its checkpoints are compared with those of other models
    of the same architecture at equal times.

    Args:
        read: The settings of some runs; its methods are compared.
        rows: One row per setting and protocol.
        permutations: Number of random permutations, where there are not fewer.
        seed: Seed of permutations and halves of the images.
    """
    places: dict[Comparison, list[VoteRow]] = {}
    for row in rows:
        place = row.setting.dataset, row.family, row.protocols[0]
        places.setdefault(place, []).append(row)
    several = {place: of for place, of in places.items() if _has_trajectory(of)}
    return tuple(_test(read, place, of, permutations, seed) for place, of in several.items())


def _has_trajectory(rows: Sequence[VoteRow]) -> bool:
    """Whether a model has several checkpoints."""
    return len({row.setting for row in rows}) > len({row.setting.model for row in rows})


def _test(
    read: RunSettings, place: Comparison, rows: Sequence[VoteRow], permutations: int, seed: int
) -> RunTrajectories:
    where = ", ".join(place)
    blocks = _comparable(_moments(rows))
    methods = _common_methods(read, list(blocks.values()))
    samples = _common_samples(list(blocks.values()), methods)
    groups = [next(iter(blocks.values())).groups[sample] for sample in samples]
    if missing := _missing(rows, blocks, methods, groups):
        text = f"{where}: agreement along training is not tested: {missing}."
        return RunTrajectories(*place, None, text)
    scores = [
        CheckpointScores(run, time, _values(block, methods)[:, block.rows_of(samples)])
        for (run, time), block in blocks.items()
    ]
    effect = trajectory_effect(scores, groups, permutations=permutations, seed=seed)
    runs, times = (len({moment[i] for moment in blocks}) for i in range(2))
    size = f"{runs} training runs, {times} times, {len(methods)} methods"
    return RunTrajectories(*place, effect, f"{where} ({size}): {_result(effect)}")


def _moments(rows: Sequence[VoteRow]) -> dict[Moment, Block]:
    """The scores of each model at each time.

    A time is the last number in a checkpoint's name. Without numbers in all names it is the place
    of the name among all of them, so that equal names have equal times.
    """
    numbers = [LAST_NUMBER.search(row.setting.checkpoint) for row in rows]
    times = [float(number[0]) for number in numbers if number]
    named = list(zip((row.setting.model for row in rows), times, strict=False))
    if len(times) < len(rows) or len(set(named)) < len(rows):
        names = sorted({row.setting.checkpoint for row in rows})
        times = [float(names.index(row.setting.checkpoint)) for row in rows]
    return {(row.setting.model, time): row.blocks[0] for row, time in zip(rows, times, strict=True)}


def _comparable(blocks: Mapping[Moment, Block]) -> dict[Moment, Block]:
    """Those at times that several training runs have, of runs with several such times."""
    shared = dict(blocks)
    while True:
        runs, times = ([moment[i] for moment in shared] for i in range(2))
        rest = {
            (run, time): block
            for (run, time), block in shared.items()
            if runs.count(run) >= FEWEST and times.count(time) >= FEWEST
        }
        if len(rest) == len(shared):
            return rest
        shared = rest


def _common_methods(read: RunSettings, blocks: Sequence[Block]) -> list[str]:
    """The methods of the settings that have scores in all blocks."""
    known = [{scores.method for scores in block.ranked if len(scores)} for block in blocks]
    return [m for m in read.methods if known and all(m in methods for methods in known)]


def _common_samples(blocks: Sequence[Block], methods: Sequence[str]) -> list[str]:
    """The samples on which every method has a score in all blocks, sorted."""
    if not blocks or not methods:
        return []
    known = [
        set(block.names(np.flatnonzero(~np.isnan(_values(block, methods)).any(axis=0))))
        for block in blocks
    ]
    return sorted(set.intersection(*known))


def _values(block: Block, methods: Sequence[str]) -> Floats:  # [n, N]
    """The scores of methods on all samples of a block, higher is better."""
    columns = {scores.method: scores.column for scores in block.ranked}
    sign = 1.0 if block.higher_is_better else -1.0
    return sign * np.stack([columns[method] for method in methods])


def _missing(
    rows: Sequence[VoteRow],
    blocks: Mapping[Moment, Block],
    methods: Sequence[str],
    groups: Sequence[str],
) -> str:
    """What the test needs and these settings have not, in words; empty where nothing is missing."""
    models = {row.setting.model for row in rows}
    if len(models) < FEWEST:
        return f"it needs two training runs, got only {next(iter(models))}"
    if not _two_common_times(list(blocks)):
        return f"no two of {len(models)} training runs have two equal times"
    if any(row.blocks[0].judges_sets for row in rows):
        return "the protocol scores whole sets, not single samples"
    if len(methods) < FEWEST:
        return f"it needs two methods with scores at every checkpoint, got {len(methods)}"
    if len(set(groups)) < FEWEST:
        return "the checkpoints have fewer than two independent samples in common"
    return ""


def _two_common_times(moments: Sequence[Moment]) -> bool:
    """Whether two training runs have two equal times."""
    times: dict[str, set[float]] = {}
    for run, time in moments:
        times.setdefault(run, set()).add(time)
    pairs = itertools.combinations(times.values(), 2)
    return any(len(one & other) >= FEWEST for one, other in pairs)


def _result(effect: TrajectoryEffect) -> str:
    """The numbers and the verdict in words."""
    one: TrajectoryContrast = effect.overall
    drawn = f"all {effect.permutations}" if effect.exhaustive else f"{effect.permutations} random"
    trivial = min(one.ceiling, one.between) > TRIVIAL
    why = f", as ceiling and agreement exceed {TRIVIAL}" if trivial else ""
    return (
        f"tau {one.within:.2f} within runs and {one.between:.2f} between them, difference "
        f"{one.difference:+.2f}, p {_p(one.p)} over {drawn} permutations. Ceiling "
        f"{one.ceiling:.2f}: {effect.verdict}{why}."
    )


def _p(value: float) -> str:
    return "< .001" if value < 0.001 else f"{value:.3f}"
