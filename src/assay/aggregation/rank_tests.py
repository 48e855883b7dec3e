"""Tests over settings: do methods differ at all, and which pairs of methods do."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike

from assay.aggregation.setting_orders import (
    ascending_ranks,
    checked_scores,
    complete_settings,
    pair_signs,
    square,
)
from assay.aggregation.signed_rank import signed_rank_p
from assay.errors import InputError
from assay.ranking.proportions import Flags
from assay.ranking.resampling import ROUNDING, Codes, Floats


@dataclass(frozen=True, eq=False)
class FriedmanTest:
    """Whether methods differ over settings, by Friedman's test and by Iman and Davenport's.

    Attributes:
        statistic: Friedman's chi-square, corrected for ties; NaN where every setting has only ties.
        degrees: Its degrees of freedom.
        p: Its p-value.
        f: Iman and Davenport's F; infinite where all settings have one order.
        f_degrees: Its two degrees of freedom.
        f_p: Its p-value.
        mean_ranks: Mean rank of each method [n]; 1 is the best.
        settings: How many settings count.
        left_out: How many settings lack a method and do not count.
    """

    statistic: float
    degrees: int
    p: float
    f: float
    f_degrees: tuple[int, int]
    f_p: float
    mean_ranks: Floats
    settings: int
    left_out: int


@dataclass(frozen=True, eq=False)
class NemenyiTest:
    """Pairs of methods by the difference of their mean ranks.

    Attributes:
        p: p-values [n, n], adjusted for all pairs; NaN on the diagonal.
        apart: Pairs [n, n] whose mean ranks differ by at least `distance`.
        distance: The critical difference of mean ranks.
        mean_ranks: Mean rank of each method [n]; 1 is the best.
        settings: How many settings count.
        left_out: How many settings lack a method and do not count.
    """

    p: Floats
    apart: Flags
    distance: float
    mean_ranks: Floats
    settings: int
    left_out: int


@dataclass(frozen=True, eq=False)
class PairTests:
    """Tests of all pairs of methods, by the settings that have both of the pair.

    Attributes:
        p: p-values [n, n], two-sided; NaN on the diagonal and for pairs without a setting.
        adjusted: The same, adjusted by Holm over all pairs that are tested.
        settings: How many settings have both methods [n, n].
    """

    p: Floats
    adjusted: Floats
    settings: Codes

    def apart(self, alpha: float = 0.05) -> Flags:
        """Pairs [n, n] that differ at this level for all pairs together."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self.adjusted <= alpha, np.bool_)


@dataclass(frozen=True, eq=False)
class SignTests(PairTests):
    """`PairTests` of who is better in a setting, with the share of settings.

    Attributes:
        wins: In how many settings the row's method is better than the column's [n, n].
        share: The share of wins among the settings where the two differ; NaN without any.
        low: Lower ends of Clopper and Pearson's intervals of the shares.
        high: Upper ends.
    """

    wins: Codes
    share: Floats
    low: Floats
    high: Floats


def friedman(scores: ArrayLike) -> FriedmanTest:
    """Friedman's test with the correction for ties, and Iman and Davenport's F.

    Only settings with a score of every method count.

    Args:
        scores: Scores [S, n] of methods in settings; higher is better, NaN is missing.
    """
    complete, left_out = complete_settings(scores)
    settings, methods = complete.shape
    ranks = ascending_ranks(-complete)  # 1 is the best
    spread = np.square(ranks - (methods + 1) / 2).sum() / (methods - 1)
    between = np.square(ranks.sum(axis=0) - settings * (methods + 1) / 2).sum()
    statistic = float(between / spread) if spread > 0 else np.nan
    most = settings * (methods - 1)
    rest = most - statistic
    f = (settings - 1) * statistic / rest if rest > 1e-9 * most else np.inf
    degrees = (methods - 1, (methods - 1) * (settings - 1))
    return FriedmanTest(
        statistic,
        methods - 1,
        float(scipy.stats.chi2.sf(statistic, methods - 1)),
        float(f) if spread > 0 else np.nan,
        degrees,
        float(scipy.stats.f.sf(f, *degrees)) if spread > 0 else np.nan,
        ranks.mean(axis=0),
        settings,
        left_out,
    )


def critical_distance(methods: int, settings: int, alpha: float = 0.05) -> float:
    """The difference of mean ranks that Nemenyi's test asks for: q sqrt(n (n + 1) / (6 S))."""
    if not 0 < alpha < 1:
        raise InputError(f"Expected `alpha` to lie between 0 and 1, got {alpha}.")
    q = scipy.stats.studentized_range.isf(alpha, methods, np.inf) / np.sqrt(2)
    return float(q * np.sqrt(methods * (methods + 1) / (6 * settings)))


def nemenyi(scores: ArrayLike, alpha: float = 0.05) -> NemenyiTest:
    """Nemenyi's test of all pairs, which depends on the pool of methods; see `wilcoxon_holm`.

    Only settings with a score of every method count. The test has no correction for ties: with
    many ties it is conservative.

    Args:
        scores: Scores [S, n] of methods in settings; higher is better, NaN is missing.
        alpha: The level of all pairs together.
    """
    complete, left_out = complete_settings(scores)
    settings, methods = complete.shape
    mean_ranks = ascending_ranks(-complete).mean(axis=0)
    first, second = np.triu_indices(methods, 1)
    differences = np.abs(mean_ranks[first] - mean_ranks[second])
    q = differences * np.sqrt(12 * settings / (methods * (methods + 1)))
    p = np.clip(scipy.stats.studentized_range.sf(q, methods, np.inf), 0, 1)
    distance = critical_distance(methods, settings, alpha)
    apart = square(differences, methods) >= distance
    return NemenyiTest(square(p, methods), apart, distance, mean_ranks, settings, left_out)


def wilcoxon_holm(scores: ArrayLike) -> PairTests:
    """Wilcoxon's signed-rank test of every pair of methods, adjusted by Holm.

    A pair's result does not depend on the other methods, but for Holm's factor. Differences of
    zero are left out. p-values are exact for up to 50 settings, also with ties of differences, and
    otherwise those of the normal distribution.

    Args:
        scores: Scores [S, n] in units that are comparable between settings; higher is better, NaN
            is missing. Settings count as independent: merge those of one dataset and model before.
    """
    values = checked_scores(scores)
    methods = values.shape[1]
    first, second = np.triu_indices(methods, 1)
    differences = values[:, first] - values[:, second]  # [S, p]
    larger = np.fmax(np.abs(values[:, first]), np.abs(values[:, second]))
    with np.errstate(invalid="ignore"):
        differences[np.abs(differences) <= ROUNDING * larger] = 0.0
    p = [signed_rank_p(column[~np.isnan(column)]) for column in differences.T]
    return PairTests(*_matrices(np.array(p), methods), _settings(values))


def sign_test_holm(scores: ArrayLike, level: float = 0.95) -> SignTests:
    """The exact sign test of every pair of methods, adjusted by Holm, with shares of wins.

    Settings where the two tie are left out. The test needs only the order within each setting.

    Args:
        scores: Scores [S, n] of methods in settings; higher is better, NaN is missing.
        level: Nominal coverage of the interval of each share.
    """
    if not 0 < level < 1:
        raise InputError(f"Expected `level` to lie between 0 and 1, got {level}.")
    values = checked_scores(scores)
    methods = values.shape[1]
    signs = pair_signs(values)
    wins = np.zeros((methods, methods), np.int64)
    first, second = np.triu_indices(methods, 1)
    wins[first, second] = (signs > 0).sum(axis=0)
    wins[second, first] = (signs < 0).sum(axis=0)
    losses, decided, tail = wins.T, wins + wins.T, (1 - level) / 2
    low = scipy.stats.beta.ppf(tail, np.where(wins > 0, wins, 1), losses + 1)
    high = scipy.stats.beta.isf(tail, wins + 1, np.where(losses > 0, losses, 1))
    known = decided > 0
    low = np.where(wins > 0, low, np.where(known, 0.0, np.nan))
    high = np.where(losses > 0, high, np.where(known, 1.0, np.nan))
    share = np.where(known, wins / np.where(known, decided, 1), np.nan)
    settings = _settings(values)
    p = np.minimum(1.0, 2 * scipy.stats.binom.sf(np.maximum(wins, losses) - 1, decided, 0.5))
    tested = np.where(settings > 0, p, np.nan)[first, second]
    return SignTests(*_matrices(tested, methods), settings, wins, share, low, high)


def adjusted_by_holm(p: Floats) -> Floats:  # [p] -> [p]
    """Holm's adjusted p-values; NaN stays and does not count."""
    adjusted = np.full(len(p), np.nan)
    order = np.argsort(p, kind="stable")[: int((~np.isnan(p)).sum())]  # NaN comes last
    steps = p[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(steps))
    return adjusted


def _matrices(p: Floats, methods: int) -> tuple[Floats, Floats]:
    return square(p, methods), square(adjusted_by_holm(p), methods)


def _settings(values: Floats) -> Codes:
    """How many settings have both methods [n, n]."""
    known = (~np.isnan(values)).astype(np.int64)
    return np.asarray(known.T @ known, np.int64)
