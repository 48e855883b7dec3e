"""Kemeny's rule: the order that disagrees least with the settings, found exactly."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from assay.aggregation.linear_order import BestFirst, LinearOrder
from assay.aggregation.wins import Merged, count_wins, pairs_of, standing
from assay.ranking.partial_order import Relation
from assay.ranking.resampling import Floats

SECONDS = 30.0


@dataclass(frozen=True)
class BestOrder:
    """A best order of methods under Kemeny's rule.

    Attributes:
        order: The methods, best first.
        cost: The weight of settings against the order, over all pairs of methods.
        bound: No order costs less.
        undecided: Pairs [n, n] that another best order has the other way round.
        checked: Whether all pairs were checked for that.
    """

    order: BestFirst
    cost: float
    bound: float
    undecided: Relation
    checked: bool


def kemeny(scores: Floats, weights: Floats, *, seconds: float = SECONDS) -> Merged:
    """Order with the fewest disagreements with the settings, over all pairs of methods.

    Often several orders are best. A pair is undecided if its methods come in one order in one of
    them and in the other order in another one. The strength of a method is the number of methods
    below it in all best orders, plus half of those it is undecided with. So a method that is above
    another one in all best orders is stronger, and the result depends neither on names nor places.

    Args:
        scores: Scores of the methods in each setting [S, n].
        weights: How much each setting counts [S].
        seconds: Time limit. Beyond it, `gap` says how far the order may be from a best one, and
            `note` that not all undecided pairs are known.
    """
    best = best_order(count_wins(scores, weights), seconds=seconds)
    places = np.argsort(best.order)
    above = (places[:, None] < places) & ~best.undecided
    excess, note = best.cost - best.bound, ""
    if excess > 0:
        note = f"The order is not proven to be best within {seconds:g} seconds."
    elif not best.checked:
        note = f"Not all pairs were checked within {seconds:g} seconds: more may be undecided."
    gap = excess / best.cost if excess > 0 else 0.0
    return Merged(standing(above), pairs_of(best.undecided), gap, note)


def best_order(wins: Floats, *, seconds: float = SECONDS) -> BestOrder:
    """Find a best order and all pairs that are not the same in all best orders.

    Args:
        wins: Weight of the settings where the row's method beats the column's [n, n].
        seconds: Time limit.
    """
    margins = wins - wins.T
    deadline = time.monotonic() + seconds
    undecided = np.zeros(wins.shape, np.bool_)
    orders, excess, checked = [], 0.0, True
    for methods in _layers(margins):
        if len(methods) == 1:
            orders.append(methods)
            continue
        problem = LinearOrder(margins[np.ix_(methods, methods)], deadline)
        problem.solve()
        orders.append(methods[problem.order])
        if problem.solved:
            undecided[np.ix_(methods, methods)], settled = problem.reversible()
            checked &= settled
        else:
            excess += problem.loss - problem.bound
            checked = False
    order = np.concatenate(orders)
    cost = disagreement(wins, order)
    return BestOrder(order, cost, cost - excess, undecided, checked)


def disagreement(wins: Floats, order: BestFirst) -> float:
    """Give the cost of an order: the weight of settings against it, over all pairs of methods.

    Args:
        wins: Weight of the settings where the row's method beats the column's [n, n].
        order: The methods, best first.
    """
    return float(np.tril(wins[np.ix_(order, order)]).sum())


def _layers(margins: Floats) -> Iterator[BestFirst]:
    """Split the methods into layers: every method beats all methods of the layers below it.

    Every best order keeps the layers apart (the extended Condorcet criterion). The first k methods
    by number of wins are such layers if they have as many wins as k methods can have.
    """
    wins = (margins > 0).sum(axis=1) + ((margins == 0).sum(axis=1) - 1) / 2
    order = np.argsort(-wins, kind="stable")
    number = np.arange(1, len(order) + 1)
    most = number * (number - 1) / 2 + number * (len(order) - number)
    ends = np.flatnonzero(np.cumsum(wins[order]) == most) + 1
    yield from np.split(order, ends[:-1])
