"""Methods that fit a simple model of the units to the network's outputs without some of them.

The engine computes and caches all responses, so another kernel, penalty or output costs no pass.
Each sample is fitted by itself, in double precision on the CPU, so that its map does not depend on
the rest of the batch, their number of units or the device.
"""

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from assay.engine.engine import Engine, intervention
from assay.methods.gradients import Output
from assay.methods.perturbation import Spread, painted
from assay.plugins.option_types import Options
from assay.plugins.registry import Passes, method
from assay.removal import FillChoice
from assay.types import Batch, Model
from assay.types.random_numbers import Stream
from assay.units.absent import Absent, listed
from assay.units.features import Features, UnitsChoice, known_count, make_units

CELLS = 7  # per side by default, about as many as LIME's segments


def _units(batch: Batch, units: UnitsChoice) -> UnitsChoice:
    """The chosen units, by default cells on images and entries elsewhere."""
    return units or {"grid": {"side": min(CELLS, *batch.map_shape)}}


def _intervenes(batch: Batch, options: Options) -> tuple[str, ...]:
    """The intervention by random sets of units; protocols with the same sets are circular."""
    units = _units(batch, options["units"])
    return intervention(batch, units, options["fill"], options["output"], "sets")


@method(
    "lime",
    passes=lambda options: Passes(forward=options["samples"] - 1),
    intervenes=_intervenes,
    family="perturbation",
    cite="ribeiro2016, li2023m4",
    title="LIME",
)
def lime(
    model: Model,
    batch: Batch,
    engine: Engine,
    *,
    units: UnitsChoice = None,
    samples: Annotated[int, Field(ge=2)] = 1000,
    fill: FillChoice = "zero",
    distance: Literal["cosine", "euclidean"] = "cosine",
    width: Annotated[float, Field(gt=0)] = 0.25,
    ridge: Annotated[float, Field(ge=0)] = 1.0,
    output: Output = "probability",
    spread: Spread = "full",
) -> Tensor:
    """The weights of a linear model on the presence of units, fitted near the whole input.

    Formula: the b that minimises sum_i w_i (f(z_i) - a - b z_i)^2 + `ridge` |b|^2, over the input
    itself and `samples` - 1 copies z_i with each unit present or absent with probability 1/2; w_i =
    exp(-d_i^2 / (2 `width`^2)), d_i the distance between z_i and the whole input.

    Units are the chosen ones, by default 7 x 7 cells on images and entries or tokens elsewhere. The
    distance is cosine, 1 - sqrt(share of units present), or Euclidean relative to its largest
    value, sqrt(share of units absent).

    Differs from the paper: the paper first selects a few units (K-Lasso); its authors' package fits
    all segments of an image by ridge regression, as here, with `units: quickshift` and the
    segment's mean as fill. M4 does the same without a penalty (`ridge: 0`) and replaces words by
    the unknown token. `width` is the package's 0.25 for images and 25 of 100 for texts; for tables
    the package has `distance: euclidean` with 0.75.
    """
    features = make_units(batch, _units(batch, units))
    sets = _coin_tosses(batch, features, samples)
    answers = engine.respond(features, sets, fill).output(output).double().cpu()
    values = torch.zeros(features.valid.shape, dtype=torch.float64)
    for b, able, there in _designs(features, sets):
        share = there.sum(1) / len(able)
        away = 1 - share.sqrt() if distance == "cosine" else (1 - share).sqrt()
        weight = torch.exp(-0.5 * (away / width) ** 2)
        values[b, able] = _linear_fit(there, answers[b], weight, ridge)
    return painted(batch, features, values.to(features.valid.device), spread)


def _coin_tosses(batch: Batch, features: Features, samples: int) -> Absent:
    """The whole input, then sets with each unit absent with probability 1/2.

    The sets of fewer samples are the first of more, so they share responses.
    """

    def sets_of(b: int) -> Tensor:
        able = features.valid[b].nonzero().flatten().cpu()
        stream = batch.stream(b, f"coin tosses {features.key}")
        sets = torch.zeros(samples, features.count, dtype=torch.bool)
        sets[1:, able] = stream.uniform(samples - 1, len(able)) < 0.5
        return sets

    rows = ("none", *(str(i) for i in range(1, samples)))
    return listed("coin tosses", rows, features, sets_of)


def _designs(features: Features, sets: Absent) -> Iterator[tuple[int, Tensor, Tensor]]:
    """For each sample with units: its index, its units `[M]`, and which are present `[K, M]`."""
    rows = torch.arange(len(sets.rows), device=features.valid.device)
    for b, valid in enumerate(features.valid.cpu()):
        able = valid.nonzero().flatten()
        if len(able):
            gone = sets.make(torch.full_like(rows, b), rows).cpu()
            yield b, able, (~gone[:, able]).double()


def _linear_fit(there: Tensor, answers: Tensor, weight: Tensor, ridge: float) -> Tensor:  # [M]
    """Weighted ridge regression with an intercept that is not penalised."""
    share, root = weight / weight.sum(), weight.sqrt()
    design = (there - share @ there) * root[:, None]
    return _least_squares(design, (answers - share @ answers) * root, ridge)


def _least_squares(design: Tensor, target: Tensor, ridge: float = 0.0) -> Tensor:  # [M]
    """The b that minimises |design b - target|^2 + `ridge` |b|^2; of several, the shortest."""
    tall = design.shape[0] >= design.shape[1]
    gram = design.T @ design if tall else design @ design.T
    right = design.T @ target if tall else target
    if ridge > 0:
        gram.diagonal().add_(ridge)
        solved: Tensor = torch.linalg.solve(gram, right)
    else:
        solved = torch.linalg.pinv(gram, hermitian=True, rtol=1e-10) @ right
    return solved if tall else design.T @ solved


def _sets_asked(options: Options) -> Passes:
    """The number of sets; the clean response is already known."""
    count = known_count(options["units"] or {"grid": {"side": CELLS}})
    if count is None:
        return Passes(forward=None, by="units")
    return Passes(forward=_Game(count, options["samples"]).sets + 1)


@method(
    "kernel_shap",
    passes=_sets_asked,
    intervenes=_intervenes,
    family="perturbation",
    cite="lundberg2017, covert2021",
    title="KernelSHAP",
)
def kernel_shap(
    model: Model,
    batch: Batch,
    engine: Engine,
    *,
    units: UnitsChoice = None,
    samples: Annotated[int, Field(ge=4)] = 1024,
    fill: FillChoice = "zero",
    output: Output = "logit",
    spread: Spread = "share",
) -> Tensor:
    """Shapley values of the units by weighted least squares: shares of f(x) - f(nothing).

    Formula: the b that minimises sum_S w_S (f(S) - f(nothing) - sum_{i in S} b_i)^2 with the sum
    f(x) - f(nothing); w_S = (M - 1) / (C(M, |S|) |S| (M - |S|)) for |S| of the M units.

    `samples` is the number of sets, including the whole input and nothing. If all 2^M sets fit they
    are all used and the values are exact. Otherwise the smallest and largest sets are used
    completely, size by size, as long as their share of the weight justifies their number; the rest
    is drawn by weight, every set with its complement. Units are those of `lime`. With `spread:
    share` a map sums to f(x) - f(nothing).

    Differs from the paper: paired sets follow Covert and Lee; complete sizes follow the authors'
    package, which draws 2048 + 2 M sets and selects units by Lasso when it draws few. Absent units
    take one `fill`, not the mean over a background of samples.
    """
    features = make_units(batch, _units(batch, units))
    games = _games(features, samples)
    sets = _coalitions(batch, features, games)
    answers = engine.respond(features, sets, fill).output(output).double().cpu()
    values = torch.zeros(features.valid.shape, dtype=torch.float64)
    for b, able, there in _designs(features, sets):
        game = games[b]
        whole, nothing = answers[b, 0], answers[b, 1]
        asked = slice(2, 2 + game.sets)
        values[b, able] = _shares(
            there[asked], answers[b, asked] - nothing, game.weights, whole - nothing
        )
    return painted(batch, features, values.to(features.valid.device), spread)


def _shares(there: Tensor, gains: Tensor, weight: Tensor, total: Tensor) -> Tensor:  # [M]
    """The best fit with a fixed sum: equal shares plus deviations that add up to zero."""
    units, root = there.shape[1], weight.sqrt()
    apart = there - there.mean(
        1, keepdim=True
    )  # only differences between units remain to be fitted
    beyond = _least_squares(apart * root[:, None], (gains - total * there.mean(1)) * root)
    return total / units + beyond - beyond.mean()


@dataclass(frozen=True)
class _Game:
    """The sets that are used for a number of units; sizes s and M - s have equal weight."""

    units: int
    samples: int

    @functools.cached_property
    def mass(self) -> list[float]:
        """The kernel's weight of all sets of sizes s and M - s, s = 1, 2, ... up to the half."""
        m = self.units
        return [self._ends(s) * (m - 1) / (s * (m - s)) for s in range(1, m // 2 + 1)]

    def _ends(self, size: int) -> int:
        return 1 if 2 * size == self.units else 2

    def _number(self, size: int) -> int:
        return self._ends(size) * math.comb(self.units, size)

    @functools.cached_property
    def plan(self) -> tuple[int, int]:
        """The largest s of which all sets are used, and how many pairs of other sizes are drawn."""
        left = (self.samples - 2) // 2 * 2
        for s, mass in enumerate(self.mass, 1):
            if left * mass < self._number(s) * math.fsum(self.mass[s - 1 :]) * (1 - 1e-9):
                return s - 1, left // 2
            left -= self._number(s)
        return len(self.mass), 0

    @property
    def sets(self) -> int:
        """The number of sets, without the whole input and nothing."""
        complete, pairs = self.plan
        return sum(self._number(s) for s in range(1, complete + 1)) + 2 * pairs

    @property
    def weights(self) -> Tensor:  # [sets]
        """The weight of each set; drawn sets share the weight of the sizes they are drawn from."""
        complete, pairs = self.plan
        each = [self.mass[s - 1] / self._number(s) for s in range(1, complete + 1)]
        numbers = [self._number(s) for s in range(1, complete + 1)]
        if pairs:
            each.append(math.fsum(self.mass[complete:]) / (2 * pairs))
            numbers.append(2 * pairs)
        times = torch.tensor(numbers, dtype=torch.long)  # empty for a single unit
        return torch.tensor(each, dtype=torch.float64).repeat_interleave(times)

    def draw(self, sizes: Stream, members: Stream) -> Tensor:  # [sets, M]
        """The sets, as masks of the units present, by random numbers for sizes and members."""
        complete, pairs = self.plan
        parts = [torch.zeros(0, self.units, dtype=torch.bool)]
        for s in range(1, complete + 1):
            chosen = torch.tensor(list(combinations(range(self.units), s)))
            small = torch.zeros(len(chosen), self.units, dtype=torch.bool)
            small.scatter_(1, chosen, True)
            parts += [small, ~small][: self._ends(s)]
        if pairs:
            ends = torch.tensor(self.mass[complete:], dtype=torch.float64).cumsum(0)
            more = torch.searchsorted(ends, sizes.uniform(pairs).double() * ends[-1], right=True)
            order = torch.from_numpy(members.orders(pairs, self.units))
            first = torch.arange(self.units) <= (more + complete)[:, None]
            drawn = torch.zeros_like(first).scatter_(1, order, first)
            parts += [drawn, ~drawn]
        return torch.cat(parts)


def _games(features: Features, samples: int) -> list[_Game]:
    """Each sample's game; samples with equally many units share one."""
    same = functools.cache(_Game)
    return [same(int(units), samples) for units in features.valid.sum(1).tolist()]


def _coalitions(batch: Batch, features: Features, games: list[_Game]) -> Absent:
    """Nothing absent, everything absent, then each sample's own sets."""
    most = max(game.sets for game in games)

    def sets_of(b: int) -> Tensor:
        able = features.valid[b].nonzero().flatten().cpu()
        what = f"{features.key} {games[b].samples}"
        sizes, members = (batch.stream(b, f"{of} {what}") for of in ("sizes", "coalitions"))
        sets = torch.zeros(2 + most, features.count, dtype=torch.bool)
        sets[1, able] = True
        sets[2 : 2 + games[b].sets, able] = ~games[b].draw(sizes, members)
        return sets

    own = torch.tensor([2 + game.sets for game in games])[:, None]
    exist = (torch.arange(2 + most) < own).to(features.valid.device)  # [B, K]
    rows = ("none", "all", *(str(i) for i in range(most)))
    return listed(f"coalitions of {games[0].samples}", rows, features, sets_of, exist)
