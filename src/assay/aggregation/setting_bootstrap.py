"""Resamples of images, of tasks, or of both, and what any rule makes of them.

A rule takes the scores of methods in settings [S, n] and the settings' weights [S], and gives each
method a strength [n], higher is better. Images are resampled in groups, and the settings of a task
share the resample, as they share the images. Tasks are resampled within their source, and all
settings of a task travel together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from assay.aggregation.task_cells import numbered
from assay.errors import InputError
from assay.ranking.partial_order import Relation
from assay.ranking.resampling import (
    Codes,
    Floats,
    GroupedRows,
    check_bootstrap,
    combined_groups,
    resample_counts,
)

StrengthRule = Callable[[Floats, Floats], Floats]  # scores [S, n], weights [S] -> strengths [n]


@dataclass(frozen=True, eq=False)
class SettingSamples:
    """The scores of the samples of one setting.

    Attributes:
        task: The task it belongs to.
        source: The source of this task.
        values: Scores [N, n], higher is better; NaN where a method has none.
        groups: The group of each sample [N]; the settings of a task name their groups alike.
        weight: The setting's weight in the rule.
    """

    task: str
    source: str
    values: Floats
    groups: Sequence[str]
    weight: float = 1.0


@dataclass(frozen=True, eq=False)
class StrengthDraws:
    """The strengths of methods in the data [n] and in resamples [b, n].

    Attributes:
        observed: The strengths in the data [n].
        draws: Those in the resamples [b, n].
        undefined: Resamples left out, because the rule gave a method no strength there.
    """

    observed: Floats
    draws: Floats
    undefined: int = 0

    def p_best(self) -> Floats:  # [n]
        """The share of resamples in which each method is the best; ties share."""
        top = self.draws == self.draws.max(axis=1, keepdims=True)
        return np.asarray((top / top.sum(axis=1, keepdims=True)).mean(axis=0), np.float64)

    def wins(self) -> Floats:  # [n, n]
        """The share of resamples in which the row's method is stronger; a tie counts half."""
        columns = []
        for one in self.draws.T:
            gaps = one[:, None] - self.draws
            columns.append(((gaps > 0) + (gaps == 0) / 2).mean(axis=0))
        return np.stack(columns)

    def interval(self, level: float = 0.95, *, freedom: float = np.inf) -> tuple[Floats, Floats]:
        """Both ends of each strength's interval [n]; percentiles are too narrow for few tasks.

        Args:
            level: Coverage of each interval.
            freedom: Degrees of freedom of the spread, such as tasks less sources.
        """
        check_bootstrap(level, len(self.draws))
        half = scipy.stats.t.ppf((1 + level) / 2, freedom) * self.draws.std(axis=0)
        return self.observed - half, self.observed + half

    def rank_intervals(
        self, level: float = 0.95, *, freedom: float = np.inf
    ) -> tuple[Codes, Codes]:
        """The best and the worst rank [n] of each method, simultaneous over all methods.

        Differences of two strengths get intervals as wide as the quantile of the largest
        standardised one. A method's best rank leaves room for the methods surely above it.

        Args:
            level: The chance that all ranks lie in their intervals.
            freedom: Degrees of freedom of the spread; Student's quantile replaces the normal one.
        """
        above = self.above(level, freedom=freedom)
        return 1 + above.sum(axis=0), len(above) - above.sum(axis=1)

    def above(self, level: float = 0.95, *, freedom: float = np.inf) -> Relation:  # [n, n]
        """Which methods are surely above which, simultaneously over all pairs.

        Args:
            level: The chance that no pair is wrong.
            freedom: Degrees of freedom of the spread.
        """
        check_bootstrap(level, len(self.draws))
        apart = self.draws - self.draws.mean(axis=0)
        products = apart.T @ apart / len(apart)
        own = np.diag(products)
        variance = np.maximum(own[:, None] + own - 2 * products, 0.0)
        errors = np.sqrt(np.where(variance > 1e-12 * (own[:, None] + own), variance, 0.0))
        largest = np.zeros(len(apart))
        for column, error in zip(apart.T, errors, strict=True):
            gaps = np.abs(column[:, None] - apart)
            ratios = np.divide(gaps, error, out=np.zeros_like(gaps), where=error > 0)
            np.maximum(largest, ratios.max(axis=1), out=largest)
        reach = float(np.quantile(largest, level))
        reach = float(scipy.stats.t.isf(scipy.stats.norm.sf(reach), freedom))
        gaps = self.observed[:, None] - self.observed
        return np.asarray(gaps > np.maximum(reach * errors, 1e-12), np.bool_)


def bootstrap_images(
    settings: Sequence[SettingSamples], rule: StrengthRule, *, resamples: int = 2000, seed: int = 0
) -> StrengthDraws:
    """Resample the groups of each task's images; tasks and settings stay as they are."""
    check_bootstrap(0.5, resamples)
    drawn = _resampled_scores(settings, resamples, seed)
    every = np.ones((resamples, len(settings)))
    return _applied(rule, mean_scores(settings), _weights(settings), drawn, every)


def bootstrap_tasks(
    scores: Floats, weights: Floats, rule: StrengthRule, *,
    tasks: Sequence[str], sources: Sequence[str], resamples: int = 2000, seed: int = 0,
) -> StrengthDraws:  # fmt: skip
    """Resample the tasks of each source; all settings of a task travel together.

    Of a source's T tasks, T - 1 are drawn, and weigh as T: the spread of a mean is then that of the
    population, where T draws would give (T - 1) / T of its variance, far too little for few tasks.
    A source with one task keeps it.

    Args:
        scores: Scores of methods in settings [S, n].
        weights: Weight of each setting [S].
        rule: What makes strengths of them.
        tasks: The task of each setting [S].
        sources: The source of each setting [S].
        resamples: Number of resamples.
        seed: Seed of the draws.
    """
    check_bootstrap(0.5, resamples)
    if not len(scores) == len(weights) == len(tasks) == len(sources):
        raise InputError("Expected one weight, one task and one source per setting.")
    counts = _task_counts(tasks, sources, resamples, seed)
    same = np.broadcast_to(scores, (resamples, *scores.shape))
    return _applied(rule, scores, weights, same, counts)


def bootstrap_both(
    settings: Sequence[SettingSamples], rule: StrengthRule, *, resamples: int = 2000, seed: int = 0
) -> StrengthDraws:
    """Resample tasks, and their images: an upper bound, for tasks differ by that noise already."""
    check_bootstrap(0.5, resamples)
    drawn = _resampled_scores(settings, resamples, seed)
    tasks, sources = [s.task for s in settings], [s.source for s in settings]
    counts = _task_counts(tasks, sources, resamples, seed)
    return _applied(rule, mean_scores(settings), _weights(settings), drawn, counts)


def mean_scores(settings: Sequence[SettingSamples]) -> Floats:  # [S, n]
    """The mean score of each method in each setting; NaN where it has no sample."""
    if not settings:
        raise InputError("Expected at least one setting.")
    means = []
    for setting in settings:
        there = ~np.isnan(setting.values)
        sums, sizes = np.nan_to_num(setting.values).sum(axis=0), there.sum(axis=0)
        means.append(np.divide(sums, sizes, out=np.full(len(sums), np.nan), where=sizes > 0))
    return np.stack(means)


def _weights(settings: Sequence[SettingSamples]) -> Floats:
    return np.array([setting.weight for setting in settings], np.float64)


def _resampled_scores(
    settings: Sequence[SettingSamples], resamples: int, seed: int
) -> Floats:  # [b, S, n]
    """The mean scores in resamples of groups, one draw of groups per task."""
    drawn = np.empty((resamples, len(settings), settings[0].values.shape[1]))
    names, task = numbered([setting.task for setting in settings])
    for number in range(len(names)):
        members = np.flatnonzero(task == number).tolist()
        labels = np.concatenate([np.asarray(settings[i].groups) for i in members])
        known, index = np.unique(labels, return_inverse=True)
        fewer = combined_groups(len(known))
        index = index if fewer is None else fewer.index[index]
        count = len(known) if fewer is None else len(fewer.sizes)
        own = np.split(index, np.cumsum([len(settings[i].groups) for i in members])[:-1])
        own_seed = int(np.random.SeedSequence((seed, number)).generate_state(1)[0])
        for i, groups in zip(members, own, strict=True):
            rows = GroupedRows(groups.astype(np.int64), groups=count)
            sums = rows.sums(np.nan_to_num(settings[i].values))
            sizes = rows.sums((~np.isnan(settings[i].values)).astype(np.float64))
            start, plain = 0, mean_scores([settings[i]])[0]
            for times in resample_counts(count, resamples, own_seed, columns=2 * sums.shape[1]):
                total = times @ sizes
                # A resample without any sample of a method keeps its score.
                means = np.broadcast_to(plain, total.shape).copy()
                np.divide(times @ sums, total, out=means, where=total > 0)
                drawn[start : start + len(times), i] = means
                start += len(times)
    return drawn


def _task_counts(
    tasks: Sequence[str], sources: Sequence[str], resamples: int, seed: int
) -> Floats:  # [b, S]
    """What each setting's weight is multiplied by in each resample."""
    names, task = numbered(tasks)
    homes = numbered(sources)[1]
    home = np.zeros(len(names), np.int64)
    home[task] = homes
    if (home[task] != homes).any():
        raise InputError("Expected all settings of a task to have one source.")
    generator = np.random.default_rng((seed, len(names)))
    counts = np.ones((resamples, len(names)))
    for source in range(int(home.max()) + 1):
        members = np.flatnonzero(home == source)
        size = len(members)
        if size > 1:
            drawn = generator.multinomial(size - 1, np.full(size, 1 / size), size=resamples)
            counts[:, members] = drawn * (size / (size - 1))
    return counts[:, task]


def _applied(
    rule: StrengthRule, scores: Floats, weights: Floats, drawn: Floats, counts: Floats
) -> StrengthDraws:
    """Apply the rule to the data and to each resample, without the settings that were not drawn."""
    strengths = np.empty((len(drawn), scores.shape[1]))
    for b, (some, count) in enumerate(zip(drawn, counts, strict=True)):
        there = count > 0
        strengths[b] = rule(some[there], weights[there] * count[there])
    observed = np.asarray(rule(scores, weights), np.float64)
    defined = np.isfinite(strengths).all(axis=1)
    if not defined.any() or not np.isfinite(observed).all():
        raise InputError("Expected the rule to give every method a finite strength.")
    return StrengthDraws(observed, strengths[defined], int((~defined).sum()))
