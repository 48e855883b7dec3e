"""The linear ordering problem: the order of items that violates the least weight of preferences.

One variable per pair, p < q, is 1 if p comes before q. No three items may form a circle. Only
the circles that a solution contains are excluded, until no solution contains one.
"""

from __future__ import annotations

import time

import numpy as np
import scipy
from numpy.typing import NDArray

from assay.ranking.partial_order import Relation
from assay.ranking.resampling import Floats

BestFirst = NDArray[np.int64]  # items, best first

NEAR = 1e-5  # losses this near are equal; the smallest margin is 1, unless the largest exceeds 1e6
LARGEST = 1e6
VIOLATED = 1e-6  # a circle exceeds its limit by at least this


class LinearOrder:
    """A linear ordering problem with its best order, a bound, and what all best orders share.

    Attributes:
        order: The best order that is known.
        loss: The weight of the margins that the order violates.
        bound: No order violates less.
    """

    def __init__(self, margins: Floats, deadline: float) -> None:
        """Set up the problem.

        Args:
            margins: By how much each item is preferred to each other one [m, m], antisymmetric.
            deadline: When to stop, as `time.monotonic` gives it.
        """
        positive = margins[margins > 0]
        smallest = max(positive.min(), positive.max() / LARGEST) if positive.size else 1.0
        self._unit = float(smallest)
        self._margins = margins / smallest
        self._deadline = deadline
        self._first, self._second = np.triu_indices(len(margins), 1)
        self._costs = -self._margins[self._first, self._second]
        self._constant = float(np.maximum(-self._costs, 0).sum())
        self._low, self._high = np.zeros(len(self._costs)), np.ones(len(self._costs))
        self._circles = np.empty((0, 3), np.int64)
        self.order: BestFirst = np.argsort(-self._margins.sum(axis=1), kind="stable")
        self.bound = 0.0
        self._improve(self.order)

    @property
    def loss(self) -> float:
        """The weight of the margins that the order violates."""
        return self._loss_of(self.order) * self._unit

    @property
    def solved(self) -> bool:
        """Whether no order violates less than the best one that is known."""
        return self._loss_of(self.order) - self.bound / self._unit <= NEAR

    def solve(self) -> None:
        """Find a best order by linear programs, and by integer programs if they are not enough."""
        self._relax()
        while not self.solved:
            result = scipy.optimize.milp(
                self._costs,
                integrality=1,
                bounds=scipy.optimize.Bounds(self._low, self._high),
                constraints=self._constraints(),
                options={"time_limit": self._time_left(), "mip_rel_gap": 0.0},
            )
            if result.mip_dual_bound is not None:
                self._raise_bound(result.mip_dual_bound)
            if result.x is not None:
                self._improve(self._listed(result.x))
            if result.status != 0 or not self._exclude_circles(result.x):
                return

    def reversible(self) -> tuple[Relation, bool]:
        """Tell for which pairs another best order has the other item first.

        Every round looks for the best order that reverses the most pairs not yet known to be
        reversible. If it reverses none, no best order does.

        Returns:
            [m, m], symmetric, and whether all pairs were checked before the deadline.
        """
        places = np.argsort(self.order)
        here = (places[self._first] < places[self._second]).astype(np.float64)
        open_pairs = self._low < self._high
        known = np.zeros(len(here), np.bool_)
        signs = 1 - 2 * here  # a reversed pair changes its variable by this
        settled = False
        while not settled:
            new = open_pairs & ~known
            result = scipy.optimize.milp(
                -signs * new,
                integrality=1,
                bounds=scipy.optimize.Bounds(self._low, self._high),
                constraints=[*self._constraints(), self._as_good()],
                options={"time_limit": self._time_left(), "mip_rel_gap": 0.0},
            )
            if result.status != 0:
                break
            other = np.round(result.x)
            if self._exclude_circles(other):
                continue
            if self._loss_of(self._listed(other)) > self._loss_of(self.order) + NEAR:
                break  # within the solver's tolerance, but not as good
            reversed_now = (other != here) & new
            settled = not reversed_now.any()
            known |= other != here
        relation = np.zeros(self._margins.shape, np.bool_)
        relation[self._first, self._second] = known
        return np.asarray(relation | relation.T, np.bool_), settled

    def _relax(self) -> None:
        """Solve the linear relaxation, and fix the pairs that it shows to have one best order."""
        while True:
            result = scipy.optimize.linprog(
                self._costs,
                A_ub=self._matrix(),
                b_ub=self._limits(),
                bounds=(0, 1),
                method="highs",
                options={"time_limit": self._time_left()},
            )
            if result.status != 0:
                return
            self._raise_bound(result.fun)
            self._improve(self._listed(result.x))
            if not self._exclude_circles(result.x):
                break
        slack = self._loss_of(self.order) - self.bound / self._unit + NEAR
        self._high[result.lower.marginals > slack] = 0.0
        self._low[result.upper.marginals < -slack] = 1.0

    def _loss_of(self, order: BestFirst) -> float:
        later = np.tril(self._margins[np.ix_(order, order)])  # [m, m], to each item before
        return float(np.maximum(later, 0).sum())

    def _raise_bound(self, value: float) -> None:
        self.bound = max(self.bound, (value + self._constant) * self._unit)

    def _improve(self, order: BestFirst) -> None:
        """Move single items while that lowers the loss; keep the order if it is better."""
        while True:
            ranked = self._margins[np.ix_(order, order)]
            sums = np.pad(np.cumsum(ranked, axis=1), ((0, 0), (1, 0)))  # [m, m + 1]
            own = np.diag(sums)[:, None]
            gains = np.where(
                np.tri(len(order), dtype=np.bool_), own - sums[:, :-1], own - sums[:, 1:]
            )
            place, target = np.unravel_index(int(gains.argmax()), gains.shape)
            if gains[place, target] <= NEAR:
                break
            order = np.insert(np.delete(order, place), target, order[place])
        if self._loss_of(order) < self._loss_of(self.order):
            self.order = order

    def _before(self, values: Floats) -> Floats:
        """How far each item comes before each other one [m, m]."""
        before = np.zeros(self._margins.shape)
        before[self._first, self._second] = values
        before[self._second, self._first] = 1 - values
        return before

    def _listed(self, values: Floats) -> BestFirst:
        return np.argsort(-self._before(values).sum(axis=1), kind="stable")

    def _exclude_circles(self, values: Floats) -> bool:
        """Exclude the circles of a solution; tell whether it has any."""
        before = self._before(values)
        around = before[:, :, None] + before[None] + before.T[:, None, :]  # i to j to k to i
        circles = np.argwhere(around > 2 + VIOLATED)
        first, second, third = circles.T
        new = circles[(first < second) & (first < third) & (second != third)]
        self._circles = np.concatenate([self._circles, new])
        return len(new) > 0

    def _matrix(self) -> scipy.sparse.csr_array:
        """The circles [c, pairs]: x_ij + x_jk - x_ik, with -x_kj in place of x_jk if k < j."""
        i, j, k = self._circles.T
        index = np.zeros(self._margins.shape, np.int64)
        index[self._first, self._second] = index[self._second, self._first] = np.arange(
            len(self._first)
        )
        lines = np.arange(len(i))
        ones = np.ones(len(i))
        return scipy.sparse.csr_array(
            (
                np.concatenate([ones, np.where(j < k, 1.0, -1.0), -ones]),
                (np.tile(lines, 3), np.concatenate([index[i, j], index[j, k], index[i, k]])),
            ),
            shape=(len(i), len(self._first)),
        )

    def _limits(self) -> Floats:
        _, second, third = self._circles.T
        return np.where(second < third, 1.0, 0.0)

    def _constraints(self) -> list[scipy.optimize.LinearConstraint]:
        if not len(self._circles):
            return []
        return [scipy.optimize.LinearConstraint(self._matrix(), -np.inf, self._limits())]

    def _as_good(self) -> scipy.optimize.LinearConstraint:
        most = self._loss_of(self.order) - self._constant + NEAR
        return scipy.optimize.LinearConstraint(self._costs[None], -np.inf, most)

    def _time_left(self) -> float:
        return max(0.0, self._deadline - time.monotonic())
