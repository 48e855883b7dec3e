"""Rules that fit a strength to each method so that strengths explain who beats whom."""

from __future__ import annotations

import math

import numpy as np
import scipy

from assay.aggregation.wins import Merged, count_wins, linked
from assay.errors import InputError
from assay.ranking.resampling import Floats

RIDGE = 1e-2  # weight of half the sum of squared strengths, against one comparison
STEPS, STEP_END = 200, 1e-9
SMOOTHING = 0.5  # settings added to each side of a pair


def metarank(scores: Floats, weights: Floats) -> Merged:
    """Least-squares fit to the log odds of pairwise wins: a reconstruction of Meta-Rank.

    The paper's equation is not public. This version adds half a setting to both sides of each pair
    and weights each pair by the settings that compare it. If all settings score all methods, the
    strength is the mean log odds of a method against all methods.
    """
    wins = count_wins(scores, weights)
    compared = wins + wins.T
    odds = np.log((wins + SMOOTHING) / (wins.T + SMOOTHING))
    laplacian = np.diag(compared.sum(axis=1)) - compared
    strength = np.linalg.pinv(laplacian, hermitian=True) @ (compared * odds).sum(axis=1)
    return Merged(np.asarray(strength, np.float64))


def bradley_terry(scores: Floats, weights: Floats, *, ridge: float = RIDGE) -> Merged:
    """Bradley and Terry's model of pairwise wins, fitted by penalised maximum likelihood.

    Args:
        scores: Scores of the methods in each setting [S, n].
        weights: How much each setting counts [S].
        ridge: Penalty on half the sum of squared strengths. Without it (0) the fit exists only if
            chains of wins lead from every method to every other one.
    """
    wins = count_wins(scores, weights)
    _check_ridge(wins, ridge)
    first, second = np.triu_indices(len(wins), 1)
    stages = np.zeros((len(first), len(wins)))
    lines = np.arange(len(first))
    stages[lines, first] = stages[lines, second] = 1.0
    return _fit(wins.sum(axis=1), stages, (wins + wins.T)[first, second], ridge)


def plackett_luce(scores: Floats, weights: Floats, *, ridge: float = RIDGE) -> Merged:
    """Plackett and Luce's model of whole rankings, fitted by penalised maximum likelihood.

    A ranking is a sequence of choices, the best method first. The mean log likelihood over the
    orders of tied methods replaces a tie. It is exact for two methods; for more, the middle choices
    use Efron's approximation.

    Args:
        scores: Scores of the methods in each setting [S, n].
        weights: How much each setting counts [S].
        ridge: Penalty on half the sum of squared strengths. Without it (0) the fit exists only if
            chains of wins lead from every method to every other one.
    """
    _check_ridge(count_wins(scores, weights), ridge)
    stages, counted = [], []
    for row, weight in zip(scores, weights, strict=True):
        for stage, share in _choices(row):
            stages.append(stage)
            counted.append(weight * share)
    chosen = weights @ ~np.isnan(scores)
    return _fit(chosen, np.array(stages), np.array(counted), ridge)


def _choices(row: Floats) -> list[tuple[Floats, float]]:
    """The choices of one ranking: how far each method is still available [n], and their weight."""
    choices = []
    for value in np.unique(row[~np.isnan(row)]):
        worse, tied = (row < value).astype(np.float64), row == value
        size = int(tied.sum())
        choices += [(worse + tied * (left / size), 1.0) for left in range(2, size + 1)]
        for last in np.flatnonzero(tied):  # of the tied methods, with equal chance
            stage = worse.copy()
            stage[last] = 1.0
            choices.append((stage, 1.0 / size))
    return choices


def _fit(chosen: Floats, stages: Floats, counted: Floats, ridge: float) -> Merged:
    """Maximise the log likelihood of choices by Newton's method with step halving.

    Args:
        chosen: How often each method is chosen [n].
        stages: How far each method is available in each choice [T, n].
        counted: Weight of each choice [T].
        ridge: Penalty on half the sum of squared strengths.
    """
    size = len(chosen)

    def value(strength: Floats) -> float:
        total = scipy.special.logsumexp(strength, axis=1, b=stages)
        return float(chosen @ strength - counted @ total - ridge / 2 * strength @ strength)

    strength = np.zeros(size)
    for _ in range(STEPS):
        share = stages * np.exp(strength - strength.max())
        share /= share.sum(axis=1, keepdims=True)  # [T, n], chance of being chosen
        expected = counted @ share
        slope = chosen - expected - ridge * strength
        curvature = np.diag(expected + ridge) - share.T @ (counted[:, None] * share)
        curvature += counted.sum() / size**2  # fixes the mean, which the likelihood leaves open
        step = np.linalg.solve(curvature, slope)
        now = value(strength)
        while value(strength + step) < now - 1e-12 * abs(now):
            step /= 2
        strength = strength + step
        if np.abs(step).max() < STEP_END * max(1.0, np.abs(strength).max()):
            return Merged(strength - strength.mean())
    return Merged(strength - strength.mean(), note=f"The fit did not converge in {STEPS} steps.")


def _check_ridge(wins: Floats, ridge: float) -> None:
    if not (math.isfinite(ridge) and ridge >= 0):
        raise InputError(f"Expected `ridge` to be at least 0, got {ridge}.")
    if ridge == 0 and not linked(wins > 0).all():
        raise InputError(
            "Expected chains of wins from every method to every other one, because `ridge` is 0, "
            f"and some are missing. Use a ridge above 0, for example {RIDGE}."
        )
