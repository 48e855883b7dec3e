"""Does a protocol depend on values? Maps changed on purpose, and distances between curves.

The changes and distances of SoCo's Table 1 and Table 3, in NumPy. A protocol that depends on values
separates the original map from one with attribution removed or introduced; one that depends only on
the order may not.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Literal

import numpy as np

from assay.errors import InputError
from assay.ranking.resampling import Floats

Scheme = Literal["constant", "random", "partial"]
Way = Literal["remove", "introduce"]

SHIFT = 0.6  # by how much attribution is lowered or raised
REMOVED = (0.6, 0.8)  # the share of ranks, from the lowest, that `partial` sets to 0
RAISED = 0.4  # the share of lowest ranks that `partial` raises ...
QUANTILE = 0.8  # ... to this quantile of the map


def unit_range(maps: Floats) -> Floats:  # [n, ...] -> [n, ...]
    """Maps as SoCo uses them: negative values are zero, the highest value of each map is one."""
    positive: Floats = np.clip(np.asarray(maps, dtype=np.float64), 0.0, None)
    highest = positive.reshape(len(positive), -1).max(axis=1, initial=0.0)
    scale = np.where(highest > 0, highest, 1.0).reshape(-1, *[1] * (positive.ndim - 1))
    scaled: Floats = positive / scale
    return scaled


def modify(maps: Floats, scheme: Scheme, way: Way, uniform: Floats | None = None) -> Floats:
    """Maps in [0, 1] with attribution removed or introduced, clipped to [0, 1], not rescaled.

    Args:
        maps: The maps `[n, ...]`.
        scheme: `constant` shifts every value by 0.6; `random` by a random amount up to 0.6;
            `partial` sets the ranks from 60 to 80 % of the ascending order to zero, or the lowest
            40 % to the map's 0.8 quantile.
        way: `remove` or `introduce`.
        uniform: For `random`: a number in [0, 1) for every value of the maps.
    """
    maps = np.asarray(maps, dtype=np.float64)
    if maps.size and not (maps.min() >= 0 and maps.max() <= 1):
        raise InputError(
            f"Expected maps in [0, 1], got values from {maps.min():g} to {maps.max():g}. "
            f"Scale them with `unit_range`."
        )
    sign = 1.0 if way == "introduce" else -1.0
    if scheme == "constant":
        changed = maps + sign * SHIFT
    elif scheme == "random":
        if uniform is None or np.shape(uniform) != maps.shape:
            got = "none" if uniform is None else str(np.shape(uniform))
            raise InputError(f"Expected `uniform` numbers of shape {maps.shape}, got {got}.")
        changed = maps + sign * SHIFT * np.asarray(uniform, dtype=np.float64)
    else:
        changed = _partial(maps.reshape(len(maps), -1), way).reshape(maps.shape)
    clipped: Floats = np.clip(changed, 0.0, 1.0)
    return clipped


def _partial(flat: Floats, way: Way) -> Floats:  # [n, P]
    size = flat.shape[1]
    order = np.argsort(flat, axis=1, kind="stable")
    changed = flat.copy()
    if way == "remove":
        first, last = (int(share * size) for share in REMOVED)
        np.put_along_axis(changed, order[:, first:last], 0.0, axis=1)
    else:
        level = np.quantile(flat, QUANTILE, axis=1, keepdims=True)
        np.put_along_axis(changed, order[:, : int(RAISED * size)], level, axis=1)
    return changed


def by_rank(maps: Floats) -> Floats:
    """Maps in the same order with other values: each by its rank, zeros stay zero.

    Equal values stay equal, so a protocol that depends only on the order cannot change.
    """
    flat = np.asarray(maps, dtype=np.float64).reshape(len(maps), -1)
    ranked = np.empty_like(flat)
    for row, values in enumerate(flat):
        levels, place = np.unique(np.append(values, 0.0), return_inverse=True)
        ranks = place[:-1] - place[-1]  # 0 is rank 0
        ranked[row] = ranks / max(1, len(levels) - 1)
    shaped: Floats = ranked.reshape(np.shape(maps))
    return shaped


def hausdorff(a: Floats, b: Floats) -> Floats:  # [..., K, 2], [..., L, 2] -> [...]
    """The symmetric Hausdorff distance of two sets of points: Euclidean, on unscaled axes."""
    apart = np.sqrt(np.square(a[..., :, None, :] - b[..., None, :, :]).sum(-1))  # [..., K, L]
    distance: Floats = np.maximum(apart.min(-1).max(-1), apart.min(-2).max(-1))
    return distance


def smallest_distance(curves: Mapping[str, Floats]) -> Floats:
    """The smallest Hausdorff distance between any two of several curves."""
    pairs = [hausdorff(curves[a], curves[b]) for a, b in combinations(curves, 2)]
    smallest: Floats = np.min(pairs, axis=0)
    return smallest
