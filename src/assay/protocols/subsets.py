"""Subset protocols: do the values of a map add up to what removing a set of units costs?"""

from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from assay import reduce
from assay.absent import Absent, each, random_subsets
from assay.errors import NotApplicable
from assay.features import Features, make_units
from assay.registry import protocol
from assay.removal import FillChoice
from assay.types import Case, Scores

Output = Literal["logit", "probability", "log_odds"]
Shares = tuple[Annotated[float, Field(gt=0, le=1)], ...]


@protocol(
    "infidelity",
    higher_is_better=False,
    range=(0, float("inf")),
    uses="value",
    sign_sensitive=True,
    metric="squared_error",
    family="subsets",
    cite="yeh2019, li2023m4",
    title="Infidelity",
)
def infidelity(
    case: Case,
    *,
    sizes: Shares = (1 / 7, 2 / 7, 4 / 7),
    stride: Annotated[float, Field(gt=0, le=1)] = 1 / 28,
    subsets: Annotated[int, Field(ge=2)] = 40,
    fill: FillChoice = "zero",
    output: Output = "logit",
    variant: Literal["positive", "m4"] = "positive",
) -> Scores:
    """Squared error of the map's sums, best scaled, as forecast of what removals cost.

    mean_p (d_p - b s_p)^2 with d_p = f(x) - f(x without p), s_p the map's sum over p, and b >= 0
    the best scale, so a map with flipped signs scores mean_p d_p^2; `m4` lets b be negative. On
    images p runs over square windows (`sizes` and `stride` as shares of the shorter side),
    elsewhere over `subsets` random sets of each size.
    """
    features, removed = _perturbations(case, sizes, stride, subsets)
    answers = case.respond(features, removed, fill).output(output)
    cost = (case.clean.output(output).double() - answers.double()).cpu()  # [B, K]
    said = _sums(case, features, removed).cpu()
    square = (said * said).mean(1)
    scale = (cost * said).mean(1) / torch.where(square == 0, 1.0, square)
    if variant == "positive":
        scale = scale.clamp(min=0)
    error = (cost - scale[:, None] * said).square().mean(1)
    worst = cost.square().mean(1)
    return Scores(error, extra={"relative": error / torch.where(worst == 0, torch.nan, worst)})


def _perturbations(
    case: Case, sizes: Shares, stride: float, subsets: int
) -> tuple[Features, Absent]:
    if len(case.batch.map_shape) == 2:
        features = make_units(case.batch, {"windows": {"sizes": sizes, "stride": stride}})
        return features, each(features)
    features = make_units(case.batch, "elements")
    return features, random_subsets(case.batch, features, set_sizes(sizes, features.count), subsets)


def set_sizes(shares: Shares, count: int) -> list[int]:
    """Numbers of units for these shares: at least one, each number once."""
    return sorted({max(1, round(share * count)) for share in shares})


def _sums(case: Case, features: Features, sets: Absent) -> Tensor:  # [B, K]
    """The map's total over each set, in the same order whatever else is in the batch."""
    values = features.sum(case.attribution).double()  # [B, P]
    if sets.family == "each":
        return values
    rows = torch.arange(len(sets.rows), device=values.device)
    return torch.stack(
        [
            torch.where(sets.make(torch.full_like(rows, b), rows), values[b], 0.0).sum(1)
            for b in range(len(values))
        ]
    )


@protocol(
    "sensitivity_n",
    higher_is_better=True,
    range=(-1, 1),
    chance=0.0,
    uses="value",
    sign_sensitive=True,
    metric="correlation",
    family="subsets",
    cite="ancona2018",
    title="Sensitivity-n",
)
def sensitivity_n(
    case: Case,
    *,
    grid: Annotated[int, Field(ge=2)] | None = None,
    shares: Shares = (0.1, 0.25, 0.5, 0.75),
    subsets: Annotated[int, Field(ge=3)] = 50,
    fill: FillChoice = "zero",
    output: Output = "logit",
) -> Scores:
    """Correlation between a random set's total attribution and what its removal costs.

    Pearson over `subsets` random sets of each size, averaged over the sizes (`shares` of the
    units). Units are the cells of a grid on images (by default 14 a side, or single pixels on
    smaller images) and entries on vectors.
    """
    side = grid or min(14, *case.batch.map_shape)
    features = make_units(case.batch, {"grid": {"side": side}})
    sizes = [s for s in set_sizes(shares, features.count) if s < features.count]
    if not sizes:
        raise NotApplicable(f"Sets of {features.count} units cannot vary.")
    sets = random_subsets(case.batch, features, sizes, subsets)
    answers = case.respond(features, sets, fill).output(output)
    cost = (case.clean.output(output).double() - answers.double()).cpu().numpy()
    said = _sums(case, features, sets).cpu().numpy()
    split = (len(cost), len(sizes), subsets)
    by_size = reduce.pearson(said.reshape(split), cost.reshape(split))  # [B, sizes]
    known = ~np.isnan(by_size)
    mean = np.where(known, by_size, 0).sum(1) / np.where(known.any(1), known.sum(1), np.nan)
    return Scores(
        torch.from_numpy(mean),
        {"correlation": torch.from_numpy(by_size)},
        torch.tensor([s / features.count for s in sizes], dtype=torch.float64),
    )
