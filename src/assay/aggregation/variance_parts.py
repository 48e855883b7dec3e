"""Which part of the scores' variance belongs to methods, and which to where they are measured."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from assay.errors import InputError
from assay.ranking.resampling import Codes, Floats

METHOD = "method"


@dataclass(frozen=True)
class VariancePart:
    """The variance that one effect adds to a score.

    Attributes:
        factors: What the effect depends on, such as `("method", "dataset")`.
        raw: The estimate by the method of moments, which can be negative.
        value: The estimate, or 0 where it is negative.
        share: Its share of all variance that tells methods apart; NaN without `method`.
        degrees: Degrees of freedom.
    """

    factors: tuple[str, ...]
    raw: float
    value: float
    share: float
    degrees: int


@dataclass(frozen=True)
class VarianceParts:
    """All effects of a balanced table, main effects first.

    Attributes:
        parts: The effects. The last one, of all factors, includes the noise of a cell.
        levels: How many levels each factor has.
        generalisability: Of the mean over all cells of the table, for the order of methods.
    """

    parts: tuple[VariancePart, ...]
    levels: Mapping[str, int]
    generalisability: float

    def part(self, *factors: str) -> VariancePart:
        """The effect of these factors, in any order."""
        match = next((part for part in self.parts if set(part.factors) == set(factors)), None)
        if match is None:
            raise InputError(f"Expected factors among {', '.join(self.levels)}, got {factors}.")
        return match

    def generalisability_of(self, levels: Mapping[str, int]) -> float:
        """The share of methods in the variance of a mean over so many levels of each facet.

        v_m / (v_m + sum of v_A / (levels of the facets in A)), where A runs over the effects that
        involve methods and at least one facet. NaN where methods do not differ at all.

        Args:
            levels: A number for each facet; facets that are not named keep that of the table.
        """
        sizes = {**self.levels, **levels}
        if unknown := sizes.keys() - self.levels.keys():
            raise InputError(f"Expected facets among {', '.join(self.levels)}, got {unknown}.")
        total = 0.0
        for part in self.parts:
            if METHOD in part.factors:
                total += part.value / math.prod(sizes[f] for f in part.factors if f != METHOD)
        return self.part(METHOD).value / total if total > 0 else math.nan


def variance_parts(scores: ArrayLike, facets: Sequence[str]) -> VarianceParts:
    """Variance components of a complete table with one score per cell; every factor is random.

    The mean square of an effect A has expectation sum over B containing A of c_B v_B, where c_B
    counts the cells per level of B. Solved for v: v_A = sum over B of +-(mean square of B) / c_A,
    the sign by how many more factors B has. Facets count as samples of what could have been
    chosen; with two levels, such as two protocols, their parts are rough.

    Args:
        scores: Complete scores [methods, levels of facet 1, ...] in comparable units, for example
            standardised within each setting; higher is better.
        facets: The names of the facets, such as dataset, model and protocol.
    """
    table = _checked(scores, facets)
    factors = (METHOD, *facets)
    effects = [a for size in range(1, table.ndim + 1) for a in _subsets(table.ndim, size)]
    mean_squares = {a: _mean_square(table, a) for a in effects}
    raw: dict[tuple[int, ...], float] = {}
    for a in effects:
        above = (b for b in effects if set(a) <= set(b))
        signed = math.fsum((-1) ** (len(b) - len(a)) * mean_squares[b] for b in above)
        raw[a] = signed * math.prod(table.shape[i] for i in a) / table.size
    between = math.fsum(max(raw[a], 0.0) for a in effects if 0 in a)
    parts = []
    for a in effects:
        value = max(raw[a], 0.0)
        share = value / between if 0 in a and between > 0 else math.nan
        names = tuple(factors[i] for i in a)
        parts.append(VariancePart(names, raw[a], value, share, _degrees(table, a)))
    counted = VarianceParts(tuple(parts), dict(zip(factors, table.shape, strict=True)), math.nan)
    whole = counted.generalisability_of({})
    return VarianceParts(counted.parts, counted.levels, whole)


def balanced_core(present: ArrayLike) -> tuple[Codes, ...]:
    """The levels of each factor of a large complete table, by a greedy rule.

    While a cell is missing, drop the level (of any factor) with the largest share of missing cells;
    of equal ones the level of the factor with most levels left, then the first. In the end,
    levels that fit again are put back, in order. The core is complete and no level can be added;
    it need not be the largest.

    Args:
        present: Which cells exist [methods, levels of facet 1, ...].

    Returns:
        The places of the levels that stay, for each factor; empty ones where nothing is complete.
    """
    cells = np.asarray(present, np.bool_)
    kept = [list(range(size)) for size in cells.shape]
    while all(kept) and not (core := cells[np.ix_(*kept)]).all():
        shares = [core.mean(axis=_others(core.ndim, axis)) for axis in range(core.ndim)]
        key = [(float(share.min()), -len(share)) for share in shares]
        axis = key.index(min(key))
        del kept[axis][int(shares[axis].argmin())]
    if not all(kept):
        return tuple(np.empty(0, np.int64) for _ in kept)
    for axis, size in enumerate(cells.shape):
        for level in range(size):
            slab = [[level] if i == axis else places for i, places in enumerate(kept)]
            if level not in kept[axis] and cells[np.ix_(*slab)].all():
                kept[axis] = sorted([*kept[axis], level])
    return tuple(np.array(places, np.int64) for places in kept)


def _checked(scores: ArrayLike, facets: Sequence[str]) -> Floats:
    table = np.asarray(scores, np.float64)
    if table.ndim != 1 + len(facets) or not facets:
        raise InputError(
            f"Expected `scores` with an axis for methods and one for each of {len(facets)} facets "
            f"(at least 1), got shape {table.shape}."
        )
    if len({METHOD, *facets}) < table.ndim:
        raise InputError(f"Expected facets with different names, got {', '.join(facets)}.")
    if min(table.shape) < 2:
        raise InputError(
            f"Expected at least 2 levels of every factor, got {table.shape}. Leave out a facet "
            "with one level."
        )
    if not np.isfinite(table).all():
        raise InputError(
            "Expected a finite score in every cell. `balanced_core` finds levels that are complete."
        )
    return table


def _subsets(factors: int, size: int) -> list[tuple[int, ...]]:
    return list(itertools.combinations(range(factors), size))


def _others(axes: int, *kept: int) -> tuple[int, ...]:
    return tuple(axis for axis in range(axes) if axis not in kept)


def _degrees(table: Floats, effect: tuple[int, ...]) -> int:
    return math.prod(table.shape[i] - 1 for i in effect)


def _mean_square(table: Floats, effect: tuple[int, ...]) -> float:
    """The mean square of one effect in the analysis of variance."""
    values = table.mean(axis=_others(table.ndim, *effect), keepdims=True)
    for axis in effect:
        values = values - values.mean(axis=axis, keepdims=True)
    cells = table.size // values.size  # per combination of levels
    return float(cells * np.square(values).sum() / _degrees(table, effect))
