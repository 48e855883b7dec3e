"""Correlations and areas, row by row, in NumPy."""

import numpy as np
import scipy

from assay.store import Array

# A spread this small against the values is rounding, not information.
_FLAT = 1e-9

# Two points always lie on a line.
_FEWEST = 3


def pearson(attributed: Array, measured: Array, valid: Array | None = None) -> Array:
    """Row-wise Pearson correlation, `[B, P], [B, P] -> [B]`, over the columns that are `valid`.

    A constant row of `attributed` (a map without information) gives 0, its expectation under random
    values. A constant row of `measured` (the model does not react) gives NaN: it says nothing about
    that sample. So do fewer than three valid columns.
    """
    if valid is not None:
        enough = valid.sum(-1) >= _FEWEST
        if valid.all():  # all rows at once
            return np.where(enough, pearson(attributed, measured), np.nan)
        rows = zip(attributed, measured, valid, enough, strict=True)
        return np.array(
            [pearson(a[v][None], m[v][None])[0] if e else np.nan for a, m, v, e in rows]
        )
    a, flat_a = _centred(np.asarray(attributed, np.float64))
    m, flat_m = _centred(np.asarray(measured, np.float64))
    norm = np.sqrt((a * a).sum(-1) * (m * m).sum(-1))
    with np.errstate(invalid="ignore", divide="ignore"):
        r = (a * m).sum(-1) / norm
    return np.where(flat_m, np.nan, np.where(flat_a, 0.0, np.clip(r, -1.0, 1.0)))


def spearman(attributed: Array, measured: Array, valid: Array | None = None) -> Array:
    """Row-wise Spearman correlation with average ranks for ties; otherwise as `pearson`."""
    if valid is not None:  # columns that are not valid rank last, behind every number
        attributed, measured = (np.where(valid, v, np.inf) for v in (attributed, measured))
    return pearson(
        scipy.stats.rankdata(attributed, axis=-1), scipy.stats.rankdata(measured, axis=-1), valid
    )


def area(values: Array, x: Array) -> Array:  # [B, K], [K] or [B, K] -> [B]
    """The area under curves by the trapezoid rule, per unit of x, which may be each row's own."""
    total: Array = np.asarray(np.trapezoid(values, x, axis=-1) / (x[..., -1] - x[..., 0]))
    return total


def _centred(values: Array) -> tuple[Array, Array]:
    """The rows minus their means, and which rows are constant but for rounding."""
    spread = values.max(-1) - values.min(-1)
    flat = spread <= _FLAT * np.abs(values).max(-1)
    return values - values.mean(-1, keepdims=True), flat
