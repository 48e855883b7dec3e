"""Near-clones: methods that are one method in all that their scores can show."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from assay.ranking.resampling import ROUNDING, Codes, Floats

# Methods whose scores agree at least so well under every protocol count as one.
CLONES = 0.99


def near_clones(tables: Sequence[Floats], least: float = CLONES) -> Codes:  # of [n, m] -> [m]
    """Number the methods; near-clones share a number.

    Two methods are near-clones where Lin's concordance of their scores is at least `least` under
    each protocol; so are those that a chain of such pairs connects. Before, the mean over the
    methods is taken from each sample: that a sample is easy for all does not make methods alike.

    Args:
        tables: The scores of the same methods on some samples, one table per protocol.
        least: The smallest concordance of near-clones.
    """
    alike = np.logical_and.reduce([concordance(values) >= least for values in tables])
    first = np.arange(len(alike))  # of the methods that a chain reaches
    for _ in first:
        first = np.where(alike, first, len(alike)).min(axis=1)
    return np.unique(first, return_inverse=True)[1].astype(np.int64)


def concordance(values: Floats) -> Floats:  # [n, m] -> [m, m]
    """Lin's concordance of each pair of columns around the mean of the rows; equal ones have 1."""
    apart = values - values.mean(axis=1, keepdims=True)
    means = apart.mean(axis=0)
    products = (apart - means).T @ (apart - means) / len(apart)
    spread = np.diag(products)
    total = spread[:, None] + spread + (means[:, None] - means) ** 2
    rounding = (ROUNDING * np.abs(values).max()) ** 2
    flat = total <= rounding
    agreement: Floats = np.where(flat, 1.0, 2 * products / np.where(flat, 1.0, total))
    return agreement
