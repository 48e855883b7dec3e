"""How well the order of methods in settings that were left out is predicted from the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike

from assay.aggregation.setting_orders import checked_scores, pair_signs, tau_of_signs
from assay.errors import InputError
from assay.ranking.orders import FEWEST_GROUPS
from assay.ranking.resampling import Codes, Floats, levels

# From scores [S, n] and a weight of each setting [S] to the strength of each method [n]; more is
# better, NaN is unknown.
PredictingRule = Callable[[Floats, Floats], Floats]


@dataclass(frozen=True)
class SkillEstimate:
    """The share of a baseline's wrong pairs that a rule gets right.

    Attributes:
        value: (accuracy - baseline) / (1 - baseline); NaN where the baseline makes no error.
        low: Lower end.
        high: Upper end.
        is_interval: Whether the ends are a confidence interval. With fewer than 10 groups they
            are the least and largest value of a group.
    """

    value: float
    low: float
    high: float
    is_interval: bool


@dataclass(frozen=True, eq=False)
class LeftOutPrediction:
    """Predictions of settings that were left out; means over settings, then over groups.

    Attributes:
        groups: The labels of the groups that could be scored [g].
        tau: Tau-b of predicted and true order in each group [g].
        accuracy: Share of pairs in the right order [g]; a predicted tie counts half, pairs that
            truly tie do not count.
        top: Share of settings whose winner was predicted [g]; predicted ties share.
        regret: Score of the true best minus score of the predicted best [g], in units of scores.
        single_accuracy: `accuracy` of the best single setting [g]. It is the one that agrees best
            with the others that are not left out.
        against_random: Skill against guessing.
        against_single: Skill against the best single setting.
    """

    groups: tuple[str, ...]
    tau: Floats
    accuracy: Floats
    top: Floats
    regret: Floats
    single_accuracy: Floats
    against_random: SkillEstimate
    against_single: SkillEstimate


def left_out_prediction(
    scores: ArrayLike,
    labels: Sequence[str],
    rule: PredictingRule,
    *,
    weights: ArrayLike | None = None,
    level: float = 0.95,
) -> LeftOutPrediction:
    """Leave one group of settings out at a time, and predict its orders from the rest.

    Args:
        scores: Scores [S, n]; higher is better, NaN is missing.
        labels: The group of each setting, such as its dataset, model or protocol.
        rule: Makes strengths of methods of the settings that are not left out.
        weights: A weight of each setting [S]; by default all are 1.
        level: Nominal coverage of intervals. They are jackknife intervals over groups, and ignore
            that the same settings serve many predictions.
    """
    values = checked_scores(scores)
    weighted = np.ones(len(values)) if weights is None else np.asarray(weights, np.float64)
    names = _checked_groups(values, labels, weighted, level)
    groups = np.array([names.index(label) for label in labels])
    signs = pair_signs(values)
    by_one = _accuracy(signs, signs)
    rows, scored = [], []
    for number, name in enumerate(names):
        rest, out = np.flatnonzero(groups != number), np.flatnonzero(groups == number)
        strength = np.asarray(rule(values[rest], weighted[rest]), np.float64)
        if strength.shape != values.shape[1:]:
            raise InputError(
                f"Expected the rule to return one strength per method ({values.shape[1]}), got "
                f"shape {strength.shape}."
            )
        single = rest[_most_typical(by_one[np.ix_(rest, rest)])]
        parts = np.array([(*_scored(strength, values[t]), by_one[single, t]) for t in out])
        parts = parts[~np.isnan(parts).any(axis=1)]
        if len(parts):
            rows.append(parts.mean(axis=0))
            scored.append(name)
    if not rows:
        raise InputError("Expected a group with two methods that a rule and the truth both order.")
    tau, accuracy, top, regret, single_accuracy = np.array(rows).T
    return LeftOutPrediction(
        tuple(scored),
        tau,
        accuracy,
        top,
        regret,
        single_accuracy,
        skill(accuracy, np.full(len(rows), 0.5), level),
        skill(accuracy, single_accuracy, level),
    )


def skill(accuracy: Floats, baseline: Floats, level: float = 0.95) -> SkillEstimate:
    """The skill over groups, with its jackknife interval from 10 groups on, else the range.

    Args:
        accuracy: Pairwise accuracy of each group [g].
        baseline: That of the baseline [g].
        level: Nominal coverage.
    """
    room = 1 - baseline.mean()
    if room <= 0:
        return SkillEstimate(math.nan, math.nan, math.nan, False)
    gains = (accuracy - baseline) / room  # their mean is the skill
    value, number = float(gains.mean()), len(gains)
    if number < FEWEST_GROUPS:
        return SkillEstimate(value, float(gains.min()), float(gains.max()), False)
    rooms = number * room - (1 - baseline)  # without one group
    if (rooms <= 0).any():
        return SkillEstimate(value, math.nan, math.nan, False)
    without = ((accuracy - baseline).sum() - (accuracy - baseline)) / rooms
    error = math.sqrt((number - 1) * float(np.var(without)))
    arm = float(scipy.stats.t.ppf((1 + level) / 2, number - 1)) * error
    return SkillEstimate(value, value - arm, value + arm, True)


def _checked_groups(
    values: Floats, labels: Sequence[str], weights: Floats, level: float
) -> list[str]:
    """The names of the groups in the order of their first setting."""
    if len(labels) != len(values) or weights.shape != (len(values),):
        raise InputError(
            f"Expected a label and a weight for each of {len(values)} settings, got {len(labels)} "
            f"labels and weights of shape {weights.shape}."
        )
    if not 0 < level < 1:
        raise InputError(f"Expected `level` to lie between 0 and 1, got {level}.")
    names = list(dict.fromkeys(labels))
    if len(names) < 2:
        raise InputError("Expected settings of at least 2 groups: one is left out at a time.")
    return names


def _scored(strength: Floats, truth: Floats) -> tuple[float, float, float, float]:
    """Tau, accuracy, hit of the winner and regret in one setting, on the methods of both."""
    common = ~np.isnan(strength) & ~np.isnan(truth)
    if common.sum() < 2:
        return math.nan, math.nan, math.nan, math.nan
    predicted, true = levels(strength[common]), truth[common]
    signs, true_signs = pair_signs(predicted[None]), pair_signs(true[None])
    tau = float(tau_of_signs(signs, true_signs)[0, 0])
    first, order = predicted == predicted.max(), levels(true)
    hit = float((order[first] == order.max()).mean())
    accuracy = float(_accuracy(signs, true_signs)[0, 0])
    # A rule that ties all methods has no tau: it orders nothing, like a random order.
    tau = 0.0 if math.isnan(tau) and not math.isnan(accuracy) else tau
    return tau, accuracy, hit, float(true.max() - true[first].mean())


def _accuracy(predicted: Floats, true: Floats) -> Floats:  # [R, p], [S, p] -> [R, S]
    """The share of pairs in the right order, from their signs; NaN where the truth has no order."""
    known = (~np.isnan(predicted)).astype(np.float64)
    counted = known @ np.abs(np.nan_to_num(true)).T
    right = np.nan_to_num(predicted) @ np.nan_to_num(true).T
    return np.where(counted > 0, (1 + right / np.maximum(counted, 1)) / 2, np.nan)


def _most_typical(accuracy: Floats) -> int:
    """The setting that predicts the other settings best, from its accuracy on each [S, S]."""
    others = accuracy.copy()
    np.fill_diagonal(others, np.nan)
    known: Codes = (~np.isnan(others)).sum(axis=1)
    return int(np.argmax(np.nansum(others, axis=1) / np.maximum(known, 1)))
