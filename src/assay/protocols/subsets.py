"""Subset protocols: do the values of a map add up to what removing a set of units costs?"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from assay.absent import Absent, each, random_subsets
from assay.errors import InputError, NotApplicable
from assay.features import Features, UnitsChoice, make_units, one_of
from assay.interventions import intervention
from assay.ranking.arithmetic import pearson
from assay.registry import protocol
from assay.removal import FillChoice
from assay.types import Batch, Case, Scores

Output = Literal["logit", "probability", "log_odds"]
Share = Annotated[float, Field(gt=0, le=1)]
Shares = tuple[Share, ...]
Grid = Annotated[int, Field(ge=2)] | None


@protocol(
    "infidelity",
    higher_is_better=False,
    range=(0, float("inf")),
    uses="value",
    sign_sensitive=lambda o: o["variant"] != "m4" and not o["normalize"],  # others fit any scale
    metric="squared_error",
    family="subsets",
    cite="yeh2019, li2023m4",
    title="Infidelity",
    intervenes=lambda batch, o: (
        () if _by_windows(batch, o["units"]) else _random_sets(batch, o["units"] or "elements", o)
    ),
)
def infidelity(
    case: Case,
    *,
    sizes: Shares = (1 / 7, 2 / 7, 4 / 7),
    stride: Share = 1 / 28,
    subsets: Annotated[int, Field(ge=2)] = 40,
    units: UnitsChoice = None,
    fill: FillChoice = "zero",
    output: Output = "logit",
    variant: Literal["positive", "m4", "captum"] = "positive",
    normalize: bool = False,
) -> Scores:
    """Squared error of the map's sums, best scaled, as forecast of what removals cost.

    Formula: mean_p (d_p - b s_p)^2 with d_p = f(x) - f(x without p), s_p the map's sum over p, and
    b >= 0 the best scale. A map with flipped signs scores mean_p d_p^2, the most there is.

    On images p runs over square windows (`sizes` and `stride` as shares of the shorter side),
    elsewhere, or where `units` are named, over `subsets` random sets of each size (shares of the
    sample's units).

    Beside the paper: M4 lets b be negative, so that a map with flipped signs scores as well as the
    map (`variant: m4`), fills with grey, explains the predicted class and on texts the probability.
    Yeh et al. take the mean over random perturbations.

    `captum` takes the map at its word, b = 1; with `normalize: true` it fits b as Captum does,
    which is `m4`. It is Captum's form for maps that have the input in them: the perturbation is 1
    where a unit is gone, 0 elsewhere (its decorator with `multiply_by_inputs=True` and the fill as
    baseline). Its form for maps per unit of input, as `saliency`, multiplies them by x - fill: at
    fill `zero` that is `input_x_gradient` here.
    """
    if normalize and variant != "captum":
        raise InputError(
            f"Expected `normalize` with `variant: captum` only, got `{variant}`, which always fits "
            f"the scale. Drop it."
        )
    one_of("stride", stride, 1 / 28, units)
    features, removed = _perturbations(case, sizes, stride, subsets, units)
    answers = case.respond(features, removed, fill).output(output)
    cost = (case.clean.output(output).double() - answers.double()).cpu()  # [B, K]
    said = _sums(case, features, removed).cpu()
    exist = torch.ones_like(cost) if removed.valid is None else removed.valid.cpu().double()
    square = (said * said).sum(1)
    scale = (cost * said).sum(1) / torch.where(square == 0, 1.0, square)
    if variant == "positive":
        scale = scale.clamp(min=0)
    if variant == "captum" and not normalize:
        scale = torch.ones_like(scale)
    error = (cost - scale[:, None] * said).square().sum(1) / exist.sum(1)
    worst = cost.square().sum(1) / exist.sum(1)
    return Scores(error, extra={"relative": error / torch.where(worst == 0, torch.nan, worst)})


def _perturbations(
    case: Case, sizes: Shares, stride: float, subsets: int, units: UnitsChoice
) -> tuple[Features, Absent]:
    if _by_windows(case.batch, units):
        features = make_units(case.batch, {"windows": {"sizes": sizes, "stride": stride}})
        return features, each(features)
    features = make_units(case.batch, units or "elements")
    return features, random_subsets(case.batch, features, set_sizes(features, sizes), subsets)


def _by_windows(batch: Batch, units: UnitsChoice) -> bool:
    return units is None and len(batch.map_shape) == 2


def _random_sets(batch: Batch, units: Any, options: Mapping[str, Any]) -> tuple[str, ...]:
    """What a protocol asks that removes random sets: methods fitted to such sets are circular."""
    return intervention(batch, units, options["fill"], options["output"], "sets")


def set_sizes(features: Features, shares: Sequence[float]) -> Tensor:  # [B, S]
    """Each sample's numbers of units for these shares, at least one; 0 instead of a repetition.

    Where all samples have the same units, sizes that nobody has are left out.
    """
    number = features.valid.sum(1).cpu()[:, None]  # [B, 1]
    rising = torch.tensor(sorted(shares), dtype=torch.float64)
    sizes = torch.minimum((rising * number).round().long().clamp(min=1), number)
    again = torch.nn.functional.pad(sizes[:, 1:] == sizes[:, :-1], (1, 0))
    sizes = torch.where(again, 0, sizes)
    return sizes if features.ragged else sizes[:, (sizes > 0).any(0)]


def _sums(case: Case, features: Features, sets: Absent) -> Tensor:  # [B, K]
    """The map's total over each set, in the same order whatever else is in the batch."""
    values = features.sum(case.attribution).double()  # [B, P]
    if sets.family == "each":
        return values if sets.valid is None else torch.where(sets.valid, values, 0.0)
    rows = torch.arange(len(sets.rows), device=values.device)

    def sums(b: int) -> Tensor:  # [K]
        members = sets.make(torch.full_like(rows, b), rows)
        few = torch.split(members, 16)  # so many stay in a cache
        return torch.cat([(some * values[b]).sum(1) for some in few])

    return torch.stack([sums(b) for b in range(len(values))])


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
    intervenes=lambda batch, o: _random_sets(batch, _cells(batch, o["grid"], o["units"]), o),
)
def sensitivity_n(
    case: Case,
    *,
    grid: Grid = None,
    units: UnitsChoice = None,
    shares: Shares = (0.1, 0.25, 0.5, 0.75),
    subsets: Annotated[int, Field(ge=3)] = 50,
    fill: FillChoice = "zero",
    output: Output = "logit",
) -> Scores:
    """Correlation between a random set's total attribution and what its removal costs.

    Formula: the mean over sizes n of Pearson over random sets S, |S| = n, of (the map's sum over S,
    f(x) - f(x without S)); `subsets` sets of each size, sizes as `shares` of the units.

    Units are the ones named, by default the cells of a grid on images (`grid` or 14 a side, or
    single pixels on smaller images) and entries on vectors. A sample with fewer than three of them
    is degenerate.

    Beside the paper: it takes a hundred sets of single features for each of sixteen sizes, up to
    80 % of them, and shows the curve; here four sizes, fifty sets, and the curve's mean. Scattered
    pixels hardly move a network on large images, hence cells.
    """
    return _correlation(case, grid, units, shares, subsets, fill, output)


@protocol(
    "faithfulness_correlation",
    higher_is_better=True,
    range=(-1, 1),
    chance=0.0,
    uses="value",
    sign_sensitive=True,
    metric="correlation",
    family="subsets",
    cite="bhatt2020",
    title="Faithfulness correlation",
    intervenes=lambda batch, o: _random_sets(batch, _cells(batch, o["grid"], o["units"]), o),
)
def faithfulness_correlation(
    case: Case,
    *,
    grid: Grid = None,
    units: UnitsChoice = None,
    share: Share = 0.25,
    subsets: Annotated[int, Field(ge=3)] = 100,
    fill: FillChoice = "zero",
    output: Output = "logit",
) -> Scores:
    """Correlation between total attribution and cost of removal over random sets of one size.

    Formula: Pearson over `subsets` random sets S, |S| = `share` of the units, of (the map's sum
    over S, f(x) - f(x without S)): `sensitivity_n` at one size, with its units and its sets.

    Beside the paper: it leaves |S| open and fills with the mean of the data (`fill: mean`); Quantus
    takes 100 sets of 224 pixels, black, and the probability. A share, here the second of
    `sensitivity_n`, carries over sizes of images, and scattered pixels by the hundred hardly move a
    network; `grid` the image's side is pixels.
    """
    return _correlation(case, grid, units, (share,), subsets, fill, output)


def _cells(batch: Batch, grid: Grid, units: UnitsChoice) -> Any:
    return units or {"grid": {"side": grid or min(14, *batch.map_shape)}}


def _correlation(
    case: Case,
    grid: Grid,
    units: UnitsChoice,
    shares: Sequence[float],
    subsets: int,
    fill: FillChoice,
    output: Output,
) -> Scores:
    one_of("grid", grid, None, units)
    features = make_units(case.batch, _cells(case.batch, grid, units))
    sizes = set_sizes(features, shares)  # [B, S]
    number = features.valid.sum(1).cpu()[:, None]  # [B, 1]
    vary = (sizes < number) & (number >= 3)  # otherwise sets are all the same, or one of two
    sizes = torch.where(vary, sizes, 0) if features.ragged else sizes[:, vary.all(0)]
    if not sizes.shape[1]:
        raise NotApplicable(f"Sets of {features.count} units cannot vary.")
    sets = random_subsets(case.batch, features, sizes, subsets)
    answers = case.respond(features, sets, fill).output(output)
    cost = (case.clean.output(output).double() - answers.double()).cpu().numpy()
    said = _sums(case, features, sets).cpu().numpy()
    split = (*sizes.shape, subsets)
    by_size = pearson(said.reshape(split), cost.reshape(split))  # [B, sizes]
    by_size = np.where(sizes > 0, by_size, np.nan)
    known = ~np.isnan(by_size)
    mean = np.where(known, by_size, 0).sum(1) / np.where(known.any(1), known.sum(1), np.nan)
    return Scores(
        torch.from_numpy(mean),
        {"correlation": torch.from_numpy(by_size)},
        torch.tensor(sorted(shares), dtype=torch.float64)
        if features.ragged
        else sizes[0].double() / features.count,
    )
