"""How far two settings could agree at most, given the noise of their samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from assay.aggregation.image_halves import SampledScores, crossed_tau, half_signs
from assay.aggregation.setting_orders import FEWEST_COMMON, pairs_of
from assay.errors import InputError
from assay.ranking.resampling import Floats

LEAST_RELIABLE = 0.3  # with less agreement between its own halves a setting is not comparable


@dataclass(frozen=True, eq=False)
class NoiseCeiling:
    """The agreement of settings, and what the noise of their samples allows.

    Attributes:
        half: Tau-b between disjoint halves of each setting [S].
        full: The same extrapolated to two sets as large as all samples, by `spearman_brown`.
        between: Tau-b between settings on disjoint halves [S, S]; its diagonal is `half`.
        ratio: `between` divided by the geometric mean of both settings' `half` [S, S]: the part of
            the ceiling that is reached. It overestimates the agreement of the true orders.
        disattenuated: An estimate of tau-b between the true orders [S, S], at most 1.
        splits: Number of splits.

    `ratio` and `disattenuated` are NaN where one of the two settings is not reliable.
    """

    half: Floats
    full: Floats
    between: Floats
    ratio: Floats
    disattenuated: Floats
    splits: int


def noise_ceiling(
    settings: Sequence[SampledScores],
    *,
    splits: int = 200,
    seed: int = 0,
    least: float = LEAST_RELIABLE,
) -> NoiseCeiling:
    """Compare every two settings on disjoint halves of their samples.

    The same samples in two settings give the same errors, which look like agreement: so the halves
    are disjoint over all settings. The agreement of two settings and their ceilings come from
    halves of the same size, so nothing is extrapolated.

    Noise lowers a correlation r by the factor sqrt(rel_s rel_t), but not tau, which is not linear
    in r. So tau is turned into r = sin(pi tau / 2), which holds for normal scores, corrected there,
    and turned back.

    Args:
        settings: The scores of the same methods in each setting.
        splits: Number of random splits.
        seed: Seed of the splits.
        least: Settings whose `half` is less are not reliable enough to be corrected for noise.
    """
    if not 0 < least < 1:
        raise InputError(f"Expected `least` to lie between 0 and 1, got {least}.")
    between = crossed_tau(half_signs(settings, splits, seed), pairs_of(FEWEST_COMMON))
    half = between.diagonal().copy()
    reliable = np.where(half >= least, half, np.nan)  # NaN is not reliable either
    rel = _pearson_of(reliable)
    corrected = _pearson_of(between) / np.sqrt(np.outer(rel, rel))
    return NoiseCeiling(
        half,
        spearman_brown(half),
        between,
        between / np.sqrt(np.outer(reliable, reliable)),
        _tau_of(np.clip(corrected, -1, 1)),
        splits,
    )


def spearman_brown(half: Floats) -> Floats:
    """Tau between two sets of samples from tau between two sets half as large.

    Spearman and Brown's 2 r / (1 + r) with r = sin(pi tau / 2); NaN below 0.
    """
    r = _pearson_of(np.where(half >= 0, half, np.nan))
    return _tau_of(2 * r / (1 + r))


def _pearson_of(tau: Floats) -> Floats:
    """Pearson's correlation of normal scores with this tau (Greiner)."""
    return np.asarray(np.sin(np.pi / 2 * tau))


def _tau_of(r: Floats) -> Floats:
    return np.asarray(2 / np.pi * np.arcsin(r))
