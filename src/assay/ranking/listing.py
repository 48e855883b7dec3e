"""The order in which methods are listed: by their mean difference from a control."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import scipy

from assay.ranking.intervals import Interval, mean_intervals
from assay.ranking.question_scores import QuestionSum
from assay.ranking.resampling import Codes, Floats
from assay.ranking.set_intervals import SetDraws, interval_of_draws
from assay.ranking.standardised import Resampling


def protocols_behind(
    questions: Mapping[str, QuestionSum], method: int, reference: str, names: Sequence[str]
) -> int:
    """How many protocols rank a method together with the reference."""
    if names[method] == reference:
        return sum(len(one.protocols) for one in questions.values())
    column, _ = pair_column(method, names.index(reference), len(names))
    return sum(int(one.count[column]) for one in questions.values())


def is_known(one: QuestionSum, method: int, reference: str, names: Sequence[str]) -> bool:
    """Whether a question ranks a method together with the reference."""
    if names[method] == reference:
        return bool(one.known.any())
    column, _ = pair_column(method, names.index(reference), len(names))
    return bool(one.known[column])


def differences_from(
    questions: Mapping[str, QuestionSum],
    names: Sequence[str],
    reference: str,
    resampling: Resampling,
) -> list[Interval]:
    """The difference of each method from the reference, over all questions, with its interval."""
    place = names.index(reference)
    pairs = [pair_column(i, place, len(names)) for i in range(len(names)) if i != place]
    columns, signs = np.array([c for c, _ in pairs], np.int64), np.array([s for _, s in pairs])
    sums = list(questions.values())
    if not len(columns):
        return [Interval(0.0, np.nan, np.nan, max(one.n_groups for one in sums))]
    means = np.array([one.mean[columns] for one in sums])  # [q, m - 1]
    there = ~np.isnan(means)
    count = np.maximum(there.sum(axis=0), 1)
    mean = np.where(there.any(axis=0), signs * np.nansum(means, axis=0) / count, np.nan)
    share = there / count  # of each question in the mean of each method
    groups = np.max([one.group_counts[columns] for one in sums], axis=0)
    intervals = _intervals(mean, sums, columns, signs * share, groups, resampling)
    own = Interval(0.0, np.nan, np.nan, max(one.n_groups for one in sums))
    return [*intervals[:place], own, *intervals[place:]]


def _intervals(
    mean: Floats,
    sums: Sequence[QuestionSum],
    columns: Codes,
    shares: Floats,  # [q, m]
    own: Codes,  # groups behind each number [m]
    resampling: Resampling,
) -> list[Interval]:
    """Give the interval of each number by itself, over groups and over replicates."""
    groups, level = resampling.count, resampling.level
    if groups < 2:
        values = zip(mean, own, strict=True)
        return [Interval(float(value), np.nan, np.nan, int(n)) for value, n in values]
    if all(one.only_sums for one in sums):
        parts = np.zeros((groups, len(mean)))
        for one, share in zip(sums, shares, strict=True):
            if one.parts is not None:
                parts += share * one.parts[:, columns]
        intervals = mean_intervals(np.nan_to_num(mean) + groups * parts, **resampling.options)
        intervals = [
            _with_groups(replace(one, mean=float(value)), int(n), groups, level)
            for one, value, n in zip(intervals, mean, own, strict=True)
        ]
    else:
        draws = np.zeros((resampling.draws, len(mean)))
        for one, share in zip(sums, shares, strict=True):
            draws += share * one.draws(resampling)[:, columns]
        intervals = [
            interval_of_draws(
                float(value), SetDraws(value + column[:, None], min(int(n), groups)), int(n), level
            )
            for value, column, n in zip(mean, draws.T, own, strict=True)
        ]
    arms = np.abs(shares) * [one.arms_over_replicates(level, 1)[columns] for one in sums]
    return [_with_arm(one, arm) for one, arm in zip(intervals, arms.sum(axis=0), strict=True)]


def _with_groups(one: Interval, own: int, groups: int, level: float) -> Interval:
    """The interval of a number behind which are fewer groups than were resampled."""
    one = replace(one, n_groups=own)
    few = min(own, groups)
    if few < 2:
        return replace(one, low=np.nan, high=np.nan)
    wide, narrow = (scipy.stats.t.isf((1 - level) / 2, n - 1) for n in (few, groups))
    factor = np.sqrt(few / (few - 1) / (groups / (groups - 1)))
    return one.widened(float(wide / narrow * factor)) if few < groups else one


def _with_arm(one: Interval, arm: float) -> Interval:
    low, high = (
        one.mean - np.hypot(one.mean - one.low, arm),
        one.mean + np.hypot(one.high - one.mean, arm),
    )
    return replace(one, low=float(low), high=float(high))


def pair_column(one: int, other: int, methods: int) -> tuple[int, float]:
    """The column of a pair in the order of `triu_indices`, and the sign of one minus other."""
    low, high = min(one, other), max(one, other)
    column = low * methods - low * (low + 1) // 2 + high - low - 1
    return column, 1.0 if one < other else -1.0
