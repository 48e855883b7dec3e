"""How far settings agree on the order of methods: correlations, clusters, alpha, winners."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy
from numpy.typing import ArrayLike

from assay.aggregation.setting_orders import (
    FEWEST_COMMON,
    ascending_ranks,
    checked_scores,
    complete_settings,
    pair_signs,
    pairs_of,
    tau_of_signs,
)
from assay.errors import InputError
from assay.ranking.proportions import Flags
from assay.ranking.resampling import Codes, Floats, levels


@dataclass(frozen=True, eq=False)
class SettingClusters:
    """Settings in average-linkage clusters.

    Attributes:
        order: The settings in the order of the leaves [S]; similar ones are neighbours.
        linkage: SciPy's linkage matrix [S - 1, 4]; distances are 1 minus the correlation.
    """

    order: Codes
    linkage: Floats


@dataclass(frozen=True)
class Concordance:
    """Kendall's W of several settings.

    Attributes:
        w: From 0, no agreement, to 1, one order; corrected for ties. NaN where all is tied.
        mean_rho: Spearman's correlation, mean over pairs of settings. Without ties it is
            (S W - 1) / (S - 1).
        settings: How many settings count.
        left_out: How many settings lack a method and do not count.
    """

    w: float
    mean_rho: float
    settings: int
    left_out: int


@dataclass(frozen=True, eq=False)
class WinnerFlips:
    """Whether settings have the same winner.

    Attributes:
        share: The share of pairs of settings without a common winner; NaN without a pair.
        pairs: How many pairs of settings have two methods in common.
        winners: Which methods are best in each setting [S, n], several in a tie.
        ever_first: How many methods are best in some setting.
    """

    share: float
    pairs: int
    winners: Flags
    ever_first: int


def tau_matrix(scores: ArrayLike, fewest: int = FEWEST_COMMON) -> Floats:
    """Kendall's tau-b between settings [S, S], on the methods that both have.

    Args:
        scores: Scores [S, n]; higher is better, NaN is missing.
        fewest: Fewer common methods give NaN.
    """
    signs = pair_signs(checked_scores(scores, settings=1))
    return tau_of_signs(signs, signs, pairs_of(_checked_fewest(fewest)))


def spearman_matrix(scores: ArrayLike, fewest: int = FEWEST_COMMON) -> Floats:
    """Spearman's correlation between settings [S, S], with ranks among the methods of both.

    Args:
        scores: Scores [S, n]; higher is better, NaN is missing.
        fewest: Fewer common methods give NaN.
    """
    values = checked_scores(scores, settings=1)
    _checked_fewest(fewest)
    patterns, place = np.unique(~np.isnan(values), axis=0, return_inverse=True)
    members = [np.flatnonzero(place.reshape(-1) == i) for i in range(len(patterns))]
    rho = np.full((len(values), len(values)), np.nan)
    for first, rows in zip(patterns, members, strict=True):
        for second, columns in zip(patterns, members, strict=True):
            common = first & second
            if common.sum() >= fewest:
                pair = (values[np.ix_(some, common)] for some in (rows, columns))
                one, other = (_unit(ascending_ranks(part)) for part in pair)
                rho[np.ix_(rows, columns)] = one @ other.T
    return rho


def common_methods(scores: ArrayLike) -> Codes:
    """How many methods each two settings have in common [S, S]."""
    known = (~np.isnan(checked_scores(scores, settings=1))).astype(np.int64)
    return np.asarray(known @ known.T, np.int64)


def cluster_settings(correlation: ArrayLike) -> SettingClusters:
    """Average-linkage clusters of settings by 1 minus their correlation.

    Args:
        correlation: A symmetric matrix [S, S]. A pair with NaN counts as uncorrelated.
    """
    matrix = np.asarray(correlation, np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or len(matrix) < 2:
        raise InputError(
            f"Expected a square matrix of at least 2 settings, got shape {matrix.shape}."
        )
    distance = 1 - np.nan_to_num(matrix)
    if not np.allclose(distance, distance.T):
        raise InputError("Expected a symmetric matrix of correlations.")
    pairs = np.maximum(distance[np.triu_indices(len(distance), 1)], 0)
    linkage = scipy.cluster.hierarchy.linkage(pairs, "average", optimal_ordering=True)
    return SettingClusters(scipy.cluster.hierarchy.leaves_list(linkage).astype(np.int64), linkage)


def concordance(scores: ArrayLike) -> Concordance:
    """Kendall's W with the correction for ties, over settings with a score of every method.

    S (n - 1) W is Friedman's statistic.

    Args:
        scores: Scores [S, n]; higher is better, NaN is missing.
    """
    complete, left_out = complete_settings(scores)
    settings, methods = complete.shape
    ranks = ascending_ranks(complete)
    centred = ranks - (methods + 1) / 2
    spread = settings * np.square(centred).sum()  # S^2 (n^3 - n) / 12 without ties
    w = float(np.square(centred.sum(axis=0)).sum() / spread) if spread > 0 else np.nan
    rho = spearman_matrix(complete, fewest=2)[np.triu_indices(settings, 1)]
    known = rho[~np.isnan(rho)]
    return Concordance(w, float(known.mean()) if len(known) else np.nan, settings, left_out)


def krippendorff_alpha(
    values: ArrayLike, metric: Literal["ordinal", "interval"] = "ordinal"
) -> float:
    """Krippendorff's alpha: 1 minus the observed over the expected disagreement.

    The disagreement of two values is their squared distance: as they are, or, if ordinal, by how
    many of all values lie between them. Units with fewer than two values do not count. NaN where
    all values are equal.

    Args:
        values: A value of each unit from each rater [raters, units]; NaN is missing. For settings
            that rate methods give ranks of the same methods: scores of settings have different
            units.
        metric: What a difference means.
    """
    if metric not in ("ordinal", "interval"):
        raise InputError(f"Expected `metric` to be 'ordinal' or 'interval', got {metric!r}.")
    rated = checked_scores(values, settings=2, methods=1)
    known = ~np.isnan(rated)
    rated = rated[:, known.sum(axis=0) >= 2]
    known = ~np.isnan(rated)
    number, raters = int(known.sum()), known.sum(axis=0)  # raters per unit [u]
    if not number:
        return float("nan")
    if metric == "ordinal":  # the distance of midranks counts the values between, and half the ends
        rated[known] = scipy.stats.rankdata(rated[known])
    expected = np.square(rated[known] - rated[known].mean()).sum() / (number - 1)
    if expected == 0:
        return float("nan")
    filled = np.where(known, rated, 0.0)
    deviations = np.where(known, rated - filled.sum(axis=0) / raters, 0.0)
    # A unit has m (m - 1) ordered pairs, each of weight 1 / (m - 1).
    observed = (np.square(deviations).sum(axis=0) * raters / (raters - 1)).sum() / number
    return float(1 - observed / expected)


def winner_flips(scores: ArrayLike) -> WinnerFlips:
    """How often two settings have no common winner; for the worst methods give `-scores`.

    Two settings are compared on the methods that both have.

    Args:
        scores: Scores [S, n]; higher is better, NaN is missing.
    """
    values = checked_scores(scores)
    order = np.where(np.isnan(values), -np.inf, levels(values))
    known = np.isfinite(order)
    common = known[:, None] & known[None]  # [S, S, n]
    shown = np.where(common, order[:, None], -np.inf)  # the row's order
    best = common & (shown == shown.max(axis=-1, keepdims=True))
    apart = ~(best & best.swapaxes(0, 1)).any(axis=-1)
    first, second = np.triu_indices(len(values), 1)
    compared = common.sum(axis=-1)[first, second] >= 2
    pairs = int(compared.sum())
    share = float(apart[first, second][compared].mean()) if pairs else np.nan
    winners = known & (order == order.max(axis=-1, keepdims=True))
    return WinnerFlips(share, pairs, winners, int(winners.any(axis=0).sum()))


def _unit(ranks: Floats) -> Floats:
    """Rows minus their means, with length 1; NaN for a row of ties."""
    centred = ranks - ranks.mean(axis=1, keepdims=True)
    length = np.sqrt(np.square(centred).sum(axis=1, keepdims=True))
    return np.asarray(centred / np.where(length > 0, length, np.nan))


def _checked_fewest(fewest: int) -> int:
    if fewest < 2:
        raise InputError(f"Expected `fewest` to be at least 2, got {fewest}.")
    return fewest
