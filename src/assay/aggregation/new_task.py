"""What the mixed model predicts for a new task on the same sources: which method is best there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import scipy

from assay.aggregation.mixed_fit import MixedFit
from assay.errors import InputError
from assay.ranking.resampling import Floats


@dataclass(frozen=True, eq=False)
class NewTask:
    """The prediction for a new task.

    Attributes:
        p_best: For each method the probability that its true mean is the highest; they add to 1.
            Empty where nothing can be said.
        wins: The probability that the row's method has the higher true mean [n, n]; NaN where
            nothing can be said.
        note: Why nothing can be said; empty otherwise.
    """

    p_best: Mapping[str, float]
    wins: Floats
    note: str = ""


def predict_new_task(fit: MixedFit, *, draws: int = 20_000, seed: int = 0) -> NewTask:
    """Draw the true means of a new task from their predictive distribution.

    A draw takes a source by its share, the error of the estimates there, and how a method's mean
    varies between tasks. The variances are uncertain too: all are multiplied by one inverse
    chi-square, so that differences follow Student's distribution. Methods with the same values
    share one draw, and a win.

    Args:
        fit: The fitted model.
        draws: Number of draws.
        seed: Seed of the draws.
    """
    if draws < 1:
        raise InputError(f"Expected `draws` to be at least 1, got {draws}.")
    n = len(fit.methods)
    unique, first, copies = np.unique(fit.identical, return_index=True, return_counts=True)
    if fit.freedom <= 0 and len(unique) > 1:
        text = "Nothing can be said of a new task: no source has two tasks."
        if fit.tasks == 1:
            text = "Nothing can be said of a new task from one task."
        return NewTask({}, np.full((n, n), np.nan), text)
    generator = np.random.default_rng(seed)
    best = np.zeros(len(unique))
    counts = generator.multinomial(draws, [source.share for source in fit.by_source])
    for source, count in zip(fit.by_source, counts.tolist(), strict=True):
        errors = source.errors[np.ix_(first, first)] + fit.new_task * np.eye(len(first))
        values, vectors = np.linalg.eigh(errors)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        scale = np.sqrt(fit.freedom / generator.chisquare(max(1.0, fit.freedom), (count, 1)))
        drawn = generator.standard_normal((count, len(first))) @ root.T
        true = source.estimate[first] + scale * drawn
        top = true == true.max(axis=1, keepdims=True)
        best += (top * copies / (top @ copies)[:, None]).sum(axis=0)
    shared = (best / draws / copies)[fit.identical]
    p_best = dict(zip(fit.methods, shared.tolist(), strict=True))
    return NewTask(p_best, win_probabilities(fit))


def win_probabilities(fit: MixedFit) -> Floats:  # [n, n]
    """The probability that the row's method has the higher true mean in a new task; 1/2 if tied."""
    wins = np.zeros((len(fit.methods), len(fit.methods)))
    for source in fit.by_source:
        own = np.diag(source.errors)
        between = 2 * fit.new_task * (fit.identical[:, None] != fit.identical)
        variance = np.maximum(own[:, None] + own - 2 * source.errors, 0.0) + between
        gaps = source.estimate[:, None] - source.estimate
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.where(gaps == 0, 0.0, gaps / np.sqrt(variance))
        wins += source.share * scipy.stats.t.cdf(ratios, max(1.0, fit.freedom))
    return wins
