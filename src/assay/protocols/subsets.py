"""Subset protocols: do a map's values add up to the drop when a set of units is removed?"""

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from assay.engine.engine import intervention
from assay.errors import InputError, NotApplicable
from assay.plugins.option_types import Options, Output, Share
from assay.plugins.registry import protocol
from assay.protocols.table_one import CORRELATED_VALUES, OUTPUTS
from assay.ranking.arithmetic import pearson
from assay.removal import FillChoice
from assay.types import Batch, Case, Scores
from assay.units.absent import Absent, each, random_subsets
from assay.units.features import Features, UnitsChoice, make_units, one_of

SetSizes = tuple[Share, ...]
Grid = Annotated[int, Field(ge=2)] | None


@protocol(
    "infidelity",
    properties=OUTPUTS,
    higher_is_better=False,
    range=(0, float("inf")),
    uses="value",
    # Other variants fit a scale of either sign.
    sign_sensitive=lambda o: o["variant"] != "m4" and not o["normalize"],
    metric="squared_error",
    family="subsets",
    question="effects",
    cite="yeh2019, li2023m4",
    title="Infidelity",
    intervenes=lambda batch, o: (
        () if _by_windows(batch, o["units"]) else _random_sets(batch, o["units"] or "elements", o)
    ),
)
def infidelity(
    case: Case,
    *,
    sizes: SetSizes = (1 / 7, 2 / 7, 4 / 7),
    stride: Share = 1 / 28,
    subsets: Annotated[int, Field(ge=2)] = 40,
    units: UnitsChoice = None,
    fill: FillChoice = "zero",
    output: Output = "logit",
    variant: Literal["positive", "m4", "captum"] = "positive",
    normalize: bool = False,
) -> Scores:
    """Squared error of the map's best-scaled sums as a prediction of the drops.

    Formula: mean_p (d_p - b s_p)^2 with d_p = f(x) - f(x without p), s_p the map's sum over p, and
    b >= 0 the best scale. A map with flipped signs scores mean_p d_p^2, the maximum.

    On images p runs over square windows (`sizes` and `stride` as shares of the shorter side).
    Elsewhere, or where `units` are chosen, p runs over `subsets` random sets of each size (as
    shares of the sample's units).

    Differs from the paper: M4 allows a negative b, so that a map with flipped signs scores as well
    as the map itself (`variant: m4`). It fills with grey and explains the predicted class, on texts
    its probability. Yeh et al. take the mean over random perturbations.

    `captum` does not scale the map, b = 1; with `normalize: true` it fits b as Captum does, which
    is `m4`. It is Captum's form for maps that already include the input: the perturbation is 1
    where a unit is absent, 0 elsewhere (Captum's decorator with `multiply_by_inputs=True` and the
    fill as baseline). Captum's form for maps per unit of input, such as `saliency`, multiplies them
    by x - fill: with the fill `zero` that is `input_x_gradient` here.
    """
    if normalize and variant != "captum":
        raise InputError(
            f"Expected `normalize` only with `variant: captum`, got `variant: {variant}`, which "
            f"always fits the scale. Remove `normalize`."
        )
    one_of("stride", stride, 1 / 28, units)
    features, removed = _perturbations(case, sizes, stride, subsets, units)
    answers = case.respond(features, removed, fill).output(output)
    cost = (case.clean.output(output).double() - answers.double()).cpu()  # [B, K]
    sums = _sums(case, features, removed).cpu()
    exist = torch.ones_like(cost) if removed.valid is None else removed.valid.cpu().double()
    square = (sums * sums).sum(1)
    scale = (cost * sums).sum(1) / torch.where(square == 0, 1.0, square)
    if variant == "positive":
        scale = scale.clamp(min=0)
    if variant == "captum" and not normalize:
        scale = torch.ones_like(scale)
    error = (cost - scale[:, None] * sums).square().sum(1) / exist.sum(1)
    worst = cost.square().sum(1) / exist.sum(1)
    return Scores(error, extra={"relative": error / torch.where(worst == 0, torch.nan, worst)})


def _perturbations(
    case: Case, sizes: SetSizes, stride: float, subsets: int, units: UnitsChoice
) -> tuple[Features, Absent]:
    if _by_windows(case.batch, units):
        features = make_units(case.batch, {"windows": {"sizes": sizes, "stride": stride}})
        return features, each(features)
    features = make_units(case.batch, units or "elements")
    return features, random_subsets(case.batch, features, set_sizes(features, sizes), subsets)


def _by_windows(batch: Batch, units: UnitsChoice) -> bool:
    return units is None and len(batch.map_shape) == 2


def _random_sets(batch: Batch, units: UnitsChoice, options: Options) -> tuple[str, ...]:
    """The intervention by random sets; methods fitted to the same sets are circular."""
    return intervention(batch, units, options["fill"], options["output"], "sets")


def set_sizes(features: Features, shares: Sequence[float]) -> Tensor:  # [B, S]
    """Each sample's set sizes for these shares, at least one unit; 0 marks a repeated size.

    Where all samples have the same units, repeated sizes are left out.
    """
    number = features.valid.sum(1).cpu()[:, None]  # [B, 1]
    rising = torch.tensor(sorted(shares), dtype=torch.float64)
    sizes = torch.minimum((rising * number).round().long().clamp(min=1), number)
    again = torch.nn.functional.pad(sizes[:, 1:] == sizes[:, :-1], (1, 0))
    sizes = torch.where(again, 0, sizes)
    return sizes if features.ragged else sizes[:, (sizes > 0).any(0)]


def _sums(case: Case, features: Features, sets: Absent) -> Tensor:  # [B, K]
    """The map's sum over each set, added in the same order whatever the batch holds."""
    values = features.sum(case.attribution).double()  # [B, P]
    if sets.family == "each":
        return values if sets.valid is None else torch.where(sets.valid, values, 0.0)
    rows = torch.arange(len(sets.rows), device=values.device)

    def sums(b: int) -> Tensor:  # [K]
        members = sets.make(torch.full_like(rows, b), rows)
        few = torch.split(members, 16)  # 16 sets fit into the processor's cache
        return torch.cat([(some * values[b]).sum(1) for some in few])

    return torch.stack([sums(b) for b in range(len(values))])


@protocol(
    "sensitivity_n",
    version=2,
    properties=CORRELATED_VALUES,
    higher_is_better=True,
    range=(-1, 1),
    chance=0.0,
    uses="value",
    sign_sensitive=True,
    metric="correlation",
    family="subsets",
    question="effects",
    cite="ancona2018",
    title="Sensitivity-n",
    intervenes=lambda batch, o: _random_sets(batch, _cells(o["grid"], o["units"]), o),
)
def sensitivity_n(
    case: Case,
    *,
    grid: Grid = None,
    units: UnitsChoice = None,
    shares: SetSizes = (0.1, 0.25, 0.5, 0.75),
    subsets: Annotated[int, Field(ge=3)] = 50,
    fill: FillChoice = "zero",
    output: Output = "logit",
) -> Scores:
    """Correlation between a random set's total attribution and the drop its removal causes.

    Formula: the mean over sizes n of Pearson over random sets S, |S| = n, of (the map's sum over S,
    f(x) - f(x without S)); `subsets` sets of each size, sizes as `shares` of the units.

    Units are the chosen ones, by default 8 x 8 cells with a random offset on images (or `grid` x
    `grid` cells without one) and the entries of vectors. A sample with fewer than three units is
    degenerate.

    Differs from the paper: the paper takes a hundred sets of single features for each of sixteen
    sizes, up to 80 % of the features, and shows the curve; here there are four sizes and fifty
    sets, and the score is the curve's mean. Scattered pixels hardly change the output on large
    images, hence cells.
    """
    return _correlation(case, grid, units, shares, subsets, fill, output)


@protocol(
    "faithfulness_correlation",
    version=2,
    properties=CORRELATED_VALUES,
    higher_is_better=True,
    range=(-1, 1),
    chance=0.0,
    uses="value",
    sign_sensitive=True,
    metric="correlation",
    family="subsets",
    question="effects",
    cite="bhatt2020",
    title="Faithfulness correlation",
    intervenes=lambda batch, o: _random_sets(batch, _cells(o["grid"], o["units"]), o),
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
    """Correlation between total attribution and drop over random sets of one size.

    Formula: Pearson over `subsets` random sets S, |S| = `share` of the units, of (the map's sum
    over S, f(x) - f(x without S)): `sensitivity_n` at one size, with its units and its sets.

    Differs from the paper: the paper leaves |S| open and fills with the mean of the data (`fill:
    mean`). Quantus takes 100 sets of 224 pixels, black, and the probability. Here |S| is a share of
    the units, the second one of `sensitivity_n`, so that it carries over to images of any size, and
    units are cells, because a few hundred scattered pixels hardly change the output; set `grid` to
    the image's side for single pixels.
    """
    return _correlation(case, grid, units, (share,), subsets, fill, output)


def _cells(grid: Grid, units: UnitsChoice) -> UnitsChoice:
    return units or ("default" if grid is None else {"grid": {"side": grid}})


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
    features = make_units(case.batch, _cells(grid, units))
    sizes = set_sizes(features, shares)  # [B, S]
    number = features.valid.sum(1).cpu()[:, None]  # [B, 1]
    vary = (sizes < number) & (number >= 3)  # otherwise all sets are the same, or one of two
    sizes = torch.where(vary, sizes, 0) if features.ragged else sizes[:, vary.all(0)]
    if not sizes.shape[1]:
        raise NotApplicable(
            f"Correlations over random sets need at least 3 units, and sets smaller than all "
            f"of them; these samples have {features.count}."
        )
    sets = random_subsets(case.batch, features, sizes, subsets)
    answers = case.respond(features, sets, fill).output(output)
    cost = (case.clean.output(output).double() - answers.double()).cpu().numpy()
    sums = _sums(case, features, sets).cpu().numpy()
    split = (*sizes.shape, subsets)
    by_size = pearson(sums.reshape(split), cost.reshape(split))  # [B, sizes]
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
