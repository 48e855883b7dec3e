"""The rules by name, and the function that applies one to the scores of several settings."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from assay.aggregation.choice_models import bradley_terry, metarank, plackett_luce
from assay.aggregation.kemeny import kemeny
from assay.aggregation.path_rules import ranked_pairs, schulze
from assay.aggregation.voting import borda, copeland
from assay.aggregation.wins import Merged, count_wins, linked, pairs_of
from assay.errors import InputError, unknown
from assay.ranking.partial_order import Relation
from assay.ranking.resampling import Floats

__all__ = ["RULES", "Merged", "RankRule", "merge", "order_of"]

ALIKE = 1e-9  # strengths this near to each other are equal, relative to the largest one or to 1


class RankRule(Protocol):
    """A rule: from scores [S, n] of methods that are all compared, and weights [S], to an order."""

    def __call__(self, scores: Floats, weights: Floats, /) -> Merged:
        """Give the order of the methods."""


RULES: Mapping[str, RankRule] = MappingProxyType(
    {
        "metarank": metarank,
        "borda": borda,
        "copeland": copeland,
        "kemeny": kemeny,
        "schulze": schulze,
        "ranked_pairs": ranked_pairs,
        "bradley_terry": bradley_terry,
        "plackett_luce": plackett_luce,
    }
)


def merge(rule: str, scores: ArrayLike, weights: ArrayLike | None = None) -> Merged:
    """Merge the scores of several settings into one order of the methods.

    A setting that scores fewer than two methods contributes nothing. Methods that no chain of
    settings compares are undecided under every rule.

    Args:
        rule: A name of `RULES`.
        scores: Scores of the methods in each setting [S, n], higher is better, NaN if missing.
        weights: How much each setting counts [S], above 0; by default 1.
    """
    if rule not in RULES:
        raise unknown("rule", rule, RULES)
    table = _checked_scores(scores)
    counted = _checked_weights(weights, len(table))
    useful = (~np.isnan(table)).sum(axis=1) >= 2
    if not useful.any():
        raise InputError("Expected a setting with scores of at least two methods, got none.")
    table, counted = table[useful], counted[useful]
    places = np.flatnonzero((~np.isnan(table)).any(axis=0))
    table = table[:, places]
    merged = RULES[rule](table, counted)
    strength = np.full(np.shape(scores)[1], np.nan)
    strength[places] = merged.strength
    apart = _apart(table, counted)
    undecided = {*merged.undecided, *pairs_of(apart)}
    note = "No chain of settings compares some of the methods." if apart.any() else ""
    return Merged(
        strength,
        tuple((int(places[p]), int(places[q])) for p, q in sorted(undecided)),
        merged.gap,
        " ".join(text for text in (merged.note, note) if text),
    )


def order_of(strength: ArrayLike) -> list[list[int]]:
    """List the methods in groups of equal strength, best first, without those whose is NaN."""
    values = np.asarray(strength, np.float64)
    order = [int(p) for p in np.argsort(-values, kind="stable") if not np.isnan(values[p])]
    width = ALIKE * max([1.0, *np.abs(values[order])])
    groups: list[list[int]] = []
    for method in order:
        if groups and values[groups[-1][0]] - values[method] <= width:
            groups[-1].append(method)
        else:
            groups.append([method])
    return [sorted(group) for group in groups]


def _checked_scores(scores: ArrayLike) -> Floats:
    table = np.asarray(scores, np.float64)
    if table.ndim != 2:
        raise InputError(f"Expected `scores` as [settings, methods], got shape {table.shape}.")
    if table.shape[1] < 2:
        raise InputError(f"Expected scores of at least two methods, got {table.shape[1]}.")
    if np.isnan(table).all():
        raise InputError("Expected at least one score, got none: all are missing.")
    return table


def _checked_weights(weights: ArrayLike | None, settings: int) -> Floats:
    if weights is None:
        return np.ones(settings)
    counted = np.asarray(weights, np.float64)
    if counted.shape != (settings,):
        raise InputError(
            f"Expected one weight for each of the {settings} settings, got shape {counted.shape}."
        )
    if not (np.isfinite(counted).all() and (counted > 0).all()):
        raise InputError("Expected all weights above 0 and finite. Leave out settings instead.")
    return counted


def _apart(scores: Floats, weights: Floats) -> Relation:
    """Tell which pairs of methods no chain of settings compares."""
    wins = count_wins(scores, weights)
    joined = linked(wins + wins.T > 0)
    np.fill_diagonal(joined, True)
    return np.asarray(~joined, np.bool_)
