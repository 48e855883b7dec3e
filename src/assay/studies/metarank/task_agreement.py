"""How far settings agree on the order of the paper's methods, and its error over tasks.

LRP's epsilon rule equals input x gradient on networks of ReLUs, so both count once: seven methods.

Two settings are compared on disjoint halves of the images, so that equal errors on equal images do
not look like agreement; the noise ceiling of a setting compares its own halves. The error of a
mean over tasks, or over pairs of tasks, is that of a jackknife within each source: tasks are drawn
anew, sources are not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from assay.aggregation.image_halves import SampledScores
from assay.aggregation.noise_ceiling import noise_ceiling
from assay.aggregation.trajectories import CheckpointScores, TrajectoryEffect, trajectory_effect
from assay.errors import InputError
from assay.ranking.resampling import Floats
from assay.studies.effect import Effect
from assay.studies.metarank.task_scores import COUNTED, TaskScores

SPLITS = 200
TaskRows = Sequence[TaskScores]
OfTasks = Callable[[Sequence[str]], float]  # of some tasks


@dataclass(frozen=True)
class TaskSetting:
    """A network of a task under one protocol."""

    task: str
    source: str
    family: str
    order: str
    fill: str


@dataclass(frozen=True, eq=False)
class Agreement:
    """All settings of the tasks, and their agreement.

    Attributes:
        settings: The settings [S].
        tau: Tau-b between settings on disjoint halves [S, S]; the diagonal is the ceiling of each.
    """

    settings: tuple[TaskSetting, ...]
    tau: Floats

    @cached_property
    def sources(self) -> dict[str, str]:
        """The source of each task."""
        return {setting.task: setting.source for setting in self.settings}

    @cached_property
    def ceiling(self) -> Floats:  # [S, S]
        """What two settings could reach: the geometric mean of their ceilings."""
        own = np.maximum(self.tau.diagonal(), 0.0)
        return np.asarray(np.sqrt(np.outer(own, own)))

    def mean(self, values: Floats, pairs: Callable[[TaskSetting, TaskSetting], bool]) -> OfTasks:
        """The mean of `values` [S, S] over pairs of settings, as a function of the tasks."""
        chosen = np.array([[pairs(a, b) for b in self.settings] for a in self.settings])
        chosen &= ~np.isnan(values)
        home = np.array([setting.task for setting in self.settings])

        def of(tasks: Sequence[str]) -> float:
            there = np.isin(home, list(tasks))
            picked = values[chosen & there[:, None] & there]
            return float(picked.mean()) if picked.size else math.nan

        return of


def agreement(rows: TaskRows) -> Agreement:
    """The agreement of all settings in the part `tasks`."""
    found: dict[TaskSetting, dict[str, Floats]] = {}
    for row in rows:
        if row.part == "tasks" and row.method in COUNTED:
            setting = TaskSetting(row.task, row.source, row.family, row.order, row.fill)
            found.setdefault(setting, {})[row.method] = row.score
    settings = tuple(sorted(found, key=lambda s: (s.source, s.task, s.family, s.order, s.fill)))
    if len({setting.task for setting in settings}) < 2:
        raise InputError("Expected the scores of at least two tasks. Run the jobs of the study.")
    samples = []
    for setting in settings:
        values = np.array([found[setting][method] for method in COUNTED])
        labels = np.array([f"{setting.task} {i}" for i in range(values.shape[1])])
        samples.append(SampledScores(values, labels))
    return Agreement(settings, noise_ceiling(samples, splits=SPLITS).between)


def over_tasks(name: str, statistic: OfTasks, sources: Mapping[str, str]) -> Effect:
    """A statistic of all tasks, with the jackknife error over tasks within their sources.

    Raises:
        InputError: No source has two tasks.
    """
    tasks = list(sources)
    freedom = len(tasks) - len(set(sources.values()))
    if freedom < 1:
        raise InputError(f"Expected two tasks of one source for {name}.")
    variance = 0.0
    for source in dict.fromkeys(sources.values()):
        mine = [task for task in tasks if sources[task] == source]
        if len(mine) > 1:
            without = np.array([statistic([t for t in tasks if t != left]) for left in mine])
            variance += (len(mine) - 1) / len(mine) * float(((without - without.mean()) ** 2).sum())
    value = statistic(tasks)
    return Effect(name, value, math.sqrt(variance), len(tasks), freedom=freedom)


def mean_over(values: Mapping[str, float]) -> OfTasks:
    """The mean of a number of each task."""
    return lambda tasks: float(np.mean([values[task] for task in tasks]))


@dataclass(frozen=True)
class TaskTrajectories:
    """What the checkpoints of one task say, means over MoRF and LeRF.

    Attributes:
        within: Tau-b of checkpoints of one run.
        seeds: Tau-b of checkpoints of runs with other seeds, at the same times.
        ceiling: Tau-b of the halves of one checkpoint.
        close: `within` minus `seeds` over the closer half of the pairs of methods.
        source: The task's source.
    """

    within: float
    seeds: float
    ceiling: float
    close: float
    source: str


def trajectories(rows: TaskRows) -> dict[str, TaskTrajectories]:
    """The checkpoints of every task that has any."""
    mine = [row for row in rows if row.part == "checkpoints"]
    sources = {row.task: row.source for row in mine}
    found = {}
    for task in sorted(sources):
        effects = [_effect([r for r in mine if r.task == task], order) for order in ORDERS]
        overall = [effect.overall for effect in effects]
        found[task] = TaskTrajectories(
            float(np.mean([one.within for one in overall])),
            float(np.mean([one.between for one in overall])),
            float(np.mean([one.ceiling for one in overall])),
            float(np.nanmean([effect.close.difference for effect in effects])),
            sources[task],
        )
    return found


ORDERS = ("morf", "lerf")


def _effect(rows: TaskRows, order: str) -> TrajectoryEffect:
    scores: dict[tuple[int, int], dict[str, Floats]] = {}
    for row in rows:
        if row.order == order:
            scores.setdefault((row.seed, row.time), {})[row.method] = row.score
    checkpoints = [
        CheckpointScores(str(seed), time, np.array([of[m] for m in COUNTED]))
        for (seed, time), of in sorted(scores.items())
    ]
    return trajectory_effect(checkpoints, splits=SPLITS // 2, permutations=999)
