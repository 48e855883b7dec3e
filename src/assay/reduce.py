"""Arithmetic on finished answers, in NumPy: correlations, areas. Imports no torch."""

from typing import Any

import numpy as np
from scipy.stats import rankdata

Array = np.ndarray[Any, Any]

# A spread this small against the values is rounding, not information.
_FLAT = 1e-9

# Two points always lie on a line.
_FEWEST = 3


def pearson(said: Array, found: Array, valid: Array | None = None) -> Array:
    """Row-wise Pearson correlation, `[B, P], [B, P] -> [B]`, over the columns that are `valid`.

    A constant `said` (a map without information) gives 0, its expectation under random values; a
    constant `found` (the model does not react) gives NaN: nothing can be said of that sample. So do
    fewer than three valid columns.
    """
    if valid is not None:
        enough = valid.sum(-1) >= _FEWEST
        if valid.all():  # all rows at once
            return np.where(enough, pearson(said, found), np.nan)
        rows = zip(said, found, valid, enough, strict=True)
        return np.array(
            [pearson(a[v][None], d[v][None])[0] if e else np.nan for a, d, v, e in rows]
        )
    a, d = (np.asarray(v, np.float64) for v in (said, found))
    a, flat_a = _centred(a)
    d, flat_d = _centred(d)
    norm = np.sqrt((a * a).sum(-1) * (d * d).sum(-1))
    with np.errstate(invalid="ignore", divide="ignore"):
        r = (a * d).sum(-1) / norm
    return np.where(flat_d, np.nan, np.where(flat_a, 0.0, np.clip(r, -1.0, 1.0)))


def spearman(said: Array, found: Array, valid: Array | None = None) -> Array:
    """Row-wise Spearman correlation with average ranks for ties; all else as in `pearson`."""
    if valid is not None:  # the others rank last, behind every number
        said, found = (np.where(valid, v, np.inf) for v in (said, found))
    return pearson(rankdata(said, axis=-1), rankdata(found, axis=-1), valid)


def area(values: Array, x: Array) -> Array:  # [B, K], [K] -> [B]
    """The area under a curve by the trapezoid rule, per unit of x."""
    total: Array = np.asarray(np.trapezoid(values, x, axis=-1) / (x[-1] - x[0]))
    return total


def _centred(values: Array) -> tuple[Array, Array]:
    spread = values.max(-1) - values.min(-1)
    flat = spread <= _FLAT * np.abs(values).max(-1)
    return values - values.mean(-1, keepdims=True), flat
