"""The restricted likelihood (REML) of the method contrasts over cells.

A value is the level of its cell, which all methods share, plus the method's mean, plus a deviation.
The deviations of different methods are independent, and all have the covariance K over cells.
Levels are free parameters, so only differences between methods speak. Every matrix is then cells by
cells: methods that lack the same cells share one factorisation, and there is no n C by n C matrix.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from assay.ranking.resampling import Floats

SMALLEST = 1e-6  # of the total variance: smaller components are zero


@dataclass(frozen=True, eq=False)
class AlikeMethods:
    """Methods that have values in the same cells: which methods [m] and which cells [c]."""

    methods: NDArray[np.int64]
    cells: NDArray[np.int64]


def alike_methods(values: Floats) -> list[AlikeMethods]:  # [n, C]
    """Put the methods together that have values in the same cells."""
    patterns, index = np.unique(~np.isnan(values), axis=0, return_inverse=True)
    return [
        AlikeMethods(np.flatnonzero(index.ravel() == i), np.flatnonzero(there))
        for i, there in enumerate(patterns)
    ]


class ContrastSystem:
    """The least-squares equations of methods and levels at one covariance K.

    Attributes:
        levels: The level of each cell [C]; free up to a constant per source.
        means: Method means per source [n, S], less those levels.
    """

    def __init__(
        self, values: Floats, alike: Sequence[AlikeMethods], design: Floats, covariance: Floats
    ) -> None:
        """Solve for the levels and the means.

        Args:
            values: Values [n, C], NaN where missing.
            alike: The methods that have the same cells.
            design: The source of each cell [C, S], as ones and zeros.
            covariance: K [C, C].
        """
        n, size = values.shape
        self._known = np.nan_to_num(values)
        self._alike, self._design = alike, design
        self._means: list[Floats] = []  # [S, C] each, from values to means
        self._errors: list[Floats] = []  # [S, S] each
        self._cleared: list[Floats] = []  # K^-1 cleared of the means, [C, C] each
        self._log_volume = 0.0
        for group in alike:
            inverse = np.zeros((size, size))
            factor = np.linalg.cholesky(covariance[np.ix_(group.cells, group.cells)])
            root = scipy.linalg.solve_triangular(factor, np.eye(len(group.cells)), lower=True)
            inverse[np.ix_(group.cells, group.cells)] = root.T @ root
            weighted = design.T @ inverse  # [S, C]
            information = weighted @ design
            self._errors.append(np.asarray(np.linalg.inv(information), np.float64))
            self._means.append(self._errors[-1] @ weighted)
            self._cleared.append(inverse - weighted.T @ self._means[-1])
            volume = 2 * np.log(np.diag(factor)).sum() + np.linalg.slogdet(information)[1]
            # With one group, the levels take away exactly what one method knows.
            self._log_volume += (len(group.methods) - (len(alike) == 1)) * float(volume)
        self._methods = n
        self.levels = self._solved_levels()
        self.means = np.zeros((n, design.shape[1]))
        for group, means in zip(alike, self._means, strict=True):
            self.means[group.methods] = (self._known[group.methods] - self.levels) @ means.T

    def _solved_levels(self) -> Floats:  # [C]
        self._total: Floats = np.zeros_like(self._cleared[0])
        right = np.zeros(len(self._total))
        for group, cleared in zip(self._alike, self._cleared, strict=True):
            self._total = self._total + len(group.methods) * cleared
            right += cleared @ self._known[group.methods].sum(axis=0)
        if len(self._alike) == 1:
            return np.asarray(self._known.mean(axis=0), np.float64)
        values, vectors = self._spectrum
        self._log_volume += float(np.log(values).sum())
        return np.asarray(vectors @ ((vectors.T @ right) / values), np.float64)

    @functools.cached_property
    def _spectrum(self) -> tuple[Floats, Floats]:
        """The eigenvalues and vectors of the levels' information that are not zero."""
        values, vectors = np.linalg.eigh(self._total)
        known = values > 1e-9 * values[-1]
        return values[known], vectors[:, known]

    def minus_log_likelihood(self) -> tuple[float, Floats]:
        """Minus the restricted log-likelihood, and its slope by each element of K [C, C]."""
        square, outer, taken = 0.0, np.zeros_like(self._total), np.zeros_like(self._total)
        for group, cleared in zip(self._alike, self._cleared, strict=True):
            apart = self._known[group.methods] - self.levels
            rest = apart @ cleared  # [m, C]
            square += float((rest * apart).sum())
            outer += rest.T @ rest
            if len(self._alike) > 1:
                values, vectors = self._spectrum
                half = cleared @ (vectors / np.sqrt(values))
                taken += len(group.methods) * (half @ half.T)
            else:
                taken += cleared
        return (self._log_volume + square) / 2, (self._total - taken - outer) / 2

    def errors(self, shares: Floats) -> Floats:  # [S] -> [n, n]
        """Error covariance of the means, weighted over sources; right for differences only."""
        covariance = np.zeros((self._methods, self._methods))
        weights = np.zeros((self._methods, len(self._total)))
        for group, means, error in zip(self._alike, self._means, self._errors, strict=True):
            covariance[group.methods, group.methods] = shares @ error @ shares
            weights[group.methods] = shares @ means
        if len(self._alike) > 1:
            values, vectors = self._spectrum
            half = ((weights - weights.mean(axis=0)) @ vectors) / np.sqrt(values)
            covariance = covariance + half @ half.T
        return covariance


def fitted_variances(
    values: Floats,
    alike: Sequence[AlikeMethods],
    design: Floats,
    terms: Sequence[Floats],
    noise: Floats,
) -> Floats:
    """The variances [k] that maximise the restricted likelihood; zero at the boundary.

    Args:
        values: Values [n, C], NaN where missing.
        alike: The methods that have the same cells.
        design: The source of each cell [C, S], as ones and zeros.
        terms: The covariance over cells [C, C] that each variance multiplies.
        noise: Known sampling covariance [C, C].
    """
    if not terms:
        return np.zeros(0)
    size = len(noise)
    plain = ContrastSystem(values, alike, design, np.eye(size))
    left = values - plain.levels - plain.means @ design.T
    total = float(np.nanmean(left**2))
    if not total > (1e-9 * float(np.nanmax(np.abs(values)))) ** 2:
        return np.zeros(len(terms))
    floor = SMALLEST * total * np.eye(size)

    def objective(deviations: Floats) -> tuple[float, Floats]:
        covariance = floor + noise
        for deviation, term in zip(deviations, terms, strict=True):
            covariance = covariance + total * deviation**2 * term
        system = ContrastSystem(values, alike, design, covariance)
        value, slope = system.minus_log_likelihood()
        slopes = [2 * total * d * (slope * t).sum() for d, t in zip(deviations, terms, strict=True)]
        return value, np.array(slopes)

    # Standard deviations, not logarithms: zero is then an ordinary point.
    start = np.full(len(terms), (1 / len(terms)) ** 0.5)
    limits = [(-100.0, 100.0)] * len(terms)
    tight = {"ftol": 1e-11, "gtol": 1e-6, "maxiter": 200}
    best = scipy.optimize.minimize(
        objective, start, jac=True, method="L-BFGS-B", bounds=limits, options=tight
    )
    variances = total * np.asarray(best.x, np.float64) ** 2
    return np.where(variances < 10 * SMALLEST * total, 0.0, variances)
