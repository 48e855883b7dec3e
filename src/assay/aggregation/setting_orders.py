"""Orders of methods in several settings: checks, complete settings, ranks and tau-b."""

from __future__ import annotations

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from assay.errors import InputError
from assay.ranking.resampling import Floats, levels

FEWEST_COMMON = 3  # with fewer common methods two orders are not compared


def checked_scores(scores: ArrayLike, settings: int = 2, methods: int = 2) -> Floats:
    """The scores [S, n] as floats; an error for another shape, too few of them, or infinity."""
    values = np.asarray(scores, np.float64)
    if values.ndim != 2:
        raise InputError(f"Expected `scores` of shape [settings, methods], got {values.shape}.")
    for name, number, fewest in zip(
        ("settings", "methods"), values.shape, (settings, methods), strict=True
    ):
        if number < fewest:
            raise InputError(f"Expected scores of at least {fewest} {name}, got {number}.")
    if np.isinf(values).any():
        raise InputError("Expected finite scores, or NaN where a score is missing, got infinity.")
    return values


def complete_settings(scores: ArrayLike, settings: int = 2) -> tuple[Floats, int]:
    """The scores [S', n] of settings that have every method, and how many settings are left out."""
    values = checked_scores(scores)
    complete = ~np.isnan(values).any(axis=1)
    number = int(complete.sum())
    if number < settings:
        raise InputError(
            f"Expected at least {settings} settings with a score of every method, got {number} of "
            f"{len(values)}. Leave out methods that few settings have."
        )
    return values[complete], len(values) - number


def ascending_ranks(scores: Floats) -> Floats:  # [S, n] -> [S, n]
    """Ranks of the methods in each setting: 1 is the worst, ties share their mean, NaN stays.

    Scores that differ only by rounding tie.
    """
    ranks: Floats = scipy.stats.rankdata(levels(scores), axis=-1, nan_policy="omit")
    return ranks


def pair_signs(scores: Floats) -> Floats:  # [..., n] -> [..., n (n - 1) / 2]
    """Signs of the differences of all pairs of methods: 1 where the first is better.

    0 for a tie, also of scores that differ only by rounding; NaN where one of the two is missing.
    """
    first, second = np.triu_indices(scores.shape[-1], 1)
    numbers = levels(scores)
    signs: Floats = np.sign(numbers[..., first] - numbers[..., second])
    return signs


def tau_of_signs(
    rows: Floats, columns: Floats, fewest_pairs: int = 1
) -> Floats:  # [S, p], [T, p] -> [S, T]
    """Kendall's tau-b between orders that are given by the signs of pairs of methods.

    Only the pairs that both have count. NaN for fewer pairs than `fewest_pairs`, and where one of
    the two has only ties.
    """
    known, other_known = ((~np.isnan(signs)).astype(np.float64) for signs in (rows, columns))
    first, second = (np.nan_to_num(signs) for signs in (rows, columns))
    common = known @ other_known.T
    untied = (first * first) @ other_known.T
    other_untied = known @ (second * second).T
    norm = np.sqrt(untied * other_untied)
    measured = (common >= fewest_pairs) & (norm > 0)
    tau = (first @ second.T) / np.where(norm > 0, norm, 1.0)
    return np.where(measured, tau, np.nan)


def pairs_of(methods: int) -> int:
    """How many pairs so many methods have."""
    return methods * (methods - 1) // 2


def square(values: ArrayLike, methods: int) -> NDArray[np.float64]:  # [p] -> [n, n]
    """A symmetric matrix of values of pairs, in the order of `pair_signs`; its diagonal is NaN."""
    matrix = np.full((methods, methods), np.nan)
    matrix[np.triu_indices(methods, 1)] = values
    return np.asarray(np.fmax(matrix, matrix.T))  # fmax passes over NaN
