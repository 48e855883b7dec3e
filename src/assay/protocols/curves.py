"""Curves: the model's output while units are removed in the order of an attribution map.

All protocols here read one function, so they share every forward pass: the most-relevant-first
rows serve `morf`, `abpc`, `deletion` and `accuracy_morf`, the least-relevant-first rows `lerf`,
`abpc`, `insertion` and `accuracy_lerf`. Insertion is the least-relevant-first curve read from its
other end. `incremental_deletion`, `comprehensiveness` and `sufficiency`, in files of their own, use
rows of the same kind.

The x of a stored curve is the stated share, the same for all samples. Only whole units can be
removed, so a sample's own share differs by up to half a unit. Areas are over the own shares.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from assay.errors import InputError
from assay.plugins.option_types import Output
from assay.plugins.registry import protocol
from assay.protocols.areas import area, own_shares
from assay.protocols.table_one import OUTPUTS
from assay.removal import FillChoice
from assay.types import Case, Response, Scores
from assay.units.absent import RoundedNumber, above, below, by_rank
from assay.units.features import UnitsChoice, make_units

Order = Literal["most_relevant_first", "least_relevant_first"]
MOST_STEPS = 10_000  # of a curve: more rows than that repeat each other
Steps = (
    Annotated[int, Field(ge=1, le=MOST_STEPS)]
    | Annotated[tuple[float, ...], Field(max_length=MOST_STEPS + 1)]
)
CurveVariant = Literal["exact", "m4"]


def curve(
    case: Case,
    order: Order,
    units: UnitsChoice,
    steps: Steps,
    fill: FillChoice,
    variant: CurveVariant = "exact",
) -> tuple[Response, Tensor]:  # answers [B, K], share removed [K]
    """The model's responses while units are removed in the order of the map.

    `steps` is a number of equal steps, or the removed shares themselves, rising from 0 to 1.
    `exact` removes that share, to the nearest unit, with equal values in seeded random order. `m4`
    removes the units strictly beyond the percentile, as the M4 benchmark does: tied values are
    removed together or never.
    """
    shares = removed_shares(steps)
    if variant == "exact":
        answers = ranked(case, order, units, shares, fill)
        return answers, torch.tensor(shares, dtype=torch.float64)
    features = make_units(case.batch, units)
    values = features.sum(case.attribution)  # [B, P]
    first = order == "most_relevant_first"
    # The least-relevant-first levels begin at the minimum, so they lag one step.
    exact = [Fraction(s).limit_denominator(10**6) for s in shares]
    quantiles = [1 - s for s in exact[1:]] if first else exact[:-1]
    levels = percentiles(values.double(), quantiles, features.valid)  # [B, K]
    values, names = values.double(), [str(q) for q in quantiles]
    beyond = (above if first else below)(features, values, levels, names)
    answers = joined([case.clean, case.respond(features, beyond, fill)])
    return answers, torch.tensor(shares, dtype=torch.float64)


def ranked(
    case: Case,
    order: Order,
    units: UnitsChoice,
    shares: Sequence[float],
    fill: FillChoice,
    whole: RoundedNumber = "nearest",
) -> Response:  # [B, K]
    """The model's responses without the first shares of the units in the order of the map."""
    features = make_units(case.batch, units)
    values = features.sum(case.attribution)  # [B, P]
    first = order == "most_relevant_first"
    absent = by_rank(case.batch, features, values, shares, descending=first, whole=whole)
    return case.respond(features, absent, fill)


def joined(answers: Sequence[Response]) -> Response:
    """Concatenate responses along their rows."""
    parts = [(a.logit, a.log_prob, a.predicted) for a in answers]
    return Response(*(torch.cat(part, 1) for part in zip(*parts, strict=True)))


def percentiles(values: Tensor, shares: Sequence[Fraction], valid: Tensor | None = None) -> Tensor:
    """Percentiles `[B, K]` of the valid values among `[B, P]`, by linear interpolation.

    Ranks are exact fractions, because the strict comparison that follows depends on every bit.
    """
    if valid is not None and not bool(valid.all()):
        own = [v[ok] if ok.any() else v.new_zeros(1) for v, ok in zip(values, valid, strict=True)]
        return torch.cat([percentiles(v[None], shares) for v in own])
    ranked = values.sort(1).values
    places = [share * (values.shape[1] - 1) for share in shares]
    low = [int(place) for place in places]
    high = [min(i + 1, values.shape[1] - 1) for i in low]
    part = values.new_tensor([float(place - i) for place, i in zip(places, low, strict=True)])
    return torch.lerp(ranked[:, low], ranked[:, high], part)


def removed_shares(steps: Steps) -> list[float]:
    """The share removed at each step of a curve."""
    if isinstance(steps, int):
        return [k / steps for k in range(steps + 1)]
    shares = list(steps)
    if len(shares) < 2 or shares[0] != 0 or shares[-1] != 1 or shares != sorted(set(shares)):
        raise InputError(
            f"Expected `steps` to be a number, or shares that rise from 0 to 1, got {shares}."
        )
    return shares


def _drop(
    case: Case,
    order: Order,
    output: Output,
    units: UnitsChoice,
    steps: Steps,
    fill: FillChoice,
    variant: CurveVariant,
) -> tuple[Tensor, Scores]:
    answers, x = curve(case, order, units, steps, fill, variant)
    values = answers.output(output).double()
    drop = (values[:, :1] - values).mean(1)
    return values, Scores(drop, {output: values}, x)


@protocol(
    "morf",
    properties=OUTPUTS,
    higher_is_better=True,
    range=(-1, 1),
    uses="order",
    sign_sensitive=True,
    metric="mean_drop",
    family="curves",
    question="necessity",
    cite="samek2017, li2023m4",
    title="MoRF drop",
)
def morf(
    case: Case,
    *,
    steps: Steps = 20,
    fill: FillChoice = "zero",
    units: UnitsChoice = "default",
    output: Output = "probability",
    variant: CurveVariant = "exact",
) -> Scores:
    """Mean drop of the target's probability while the most relevant units are removed first.

    Formula: mean_k(p_0 - p_k), with p_k the probability after the k-th step, p_0 the clean one.

    Differs from the paper: M4 takes 100 steps, grey pixels and the predicted class, and removes the
    units strictly beyond a percentile, so tied values are removed together or never; that is
    `{morf: {variant: m4, steps: 100, fill: grey, units: elements}}` with `target: predicted`, on
    images. Here units are 8 x 8 cells with a random offset (`units: default`). The stated share is
    removed, to the nearest unit, and equal values are in seeded random order.
    Samek et al. replace regions of 9 x 9 pixels by uniform noise.
    """
    return _drop(case, "most_relevant_first", output, units, steps, fill, variant)[1]


@protocol(
    "lerf",
    properties=OUTPUTS,
    higher_is_better=False,
    range=(-1, 1),
    uses="order",
    sign_sensitive=True,
    metric="mean_drop",
    family="curves",
    question="sufficiency",
    cite="samek2017, li2023m4",
    title="LeRF drop",
)
def lerf(
    case: Case,
    *,
    steps: Steps = 20,
    fill: FillChoice = "zero",
    units: UnitsChoice = "default",
    output: Output = "probability",
    variant: CurveVariant = "exact",
) -> Scores:
    """Mean drop of the target's probability while the least relevant units are removed first.

    Formula: mean_k(p_0 - p_k), with p_k the probability after the k-th step, p_0 the clean one.

    Differs from the paper: M4 takes 100 steps, grey pixels and the predicted class, and removes the
    units strictly beyond a percentile, so tied values are removed together or never; that is
    `{lerf: {variant: m4, steps: 100, fill: grey, units: elements}}` with `target: predicted`, on
    images. Here units are 8 x 8 cells with a random offset (`units: default`). The stated share is
    removed, to the nearest unit, and equal values are in seeded random order.
    M4's rows also lag one step behind those of `morf`; the variant keeps that.
    """
    return _drop(case, "least_relevant_first", output, units, steps, fill, variant)[1]


@protocol(
    "abpc",
    properties=OUTPUTS,
    higher_is_better=True,
    range=(-1, 1),
    uses="order",
    sign_sensitive=True,
    metric="mean_gap",
    family="curves",
    question="necessity and sufficiency",
    cite="samek2017, li2023m4",
    title="ABPC",
)
def abpc(
    case: Case,
    *,
    steps: Steps = 20,
    fill: FillChoice = "zero",
    units: UnitsChoice = "default",
    output: Output = "probability",
    variant: CurveVariant = "exact",
) -> Scores:
    """Mean gap between the least- and the most-relevant-first curve.

    Formula: mean_k(l_k - m_k), the `morf` drop minus the `lerf` drop.

    Differs from the paper: M4 takes 100 steps, grey pixels and the predicted class, and removes the
    units strictly beyond a percentile, so tied values are removed together or never; that is
    `{abpc: {variant: m4, steps: 100, fill: grey, units: elements}}` with `target: predicted`, on
    images. Here units are 8 x 8 cells with a random offset (`units: default`). The stated share is
    removed, to the nearest unit, and equal values are in seeded random order.
    Under the variant a random map scores about (p_0 - p_end) / (steps + 1), not 0, because one
    curve lags one step behind the other.
    """
    most, first = _drop(case, "most_relevant_first", output, units, steps, fill, variant)
    least, last = _drop(case, "least_relevant_first", output, units, steps, fill, variant)
    return Scores(first.value - last.value, {"most_first": most, "least_first": least}, first.x)


@protocol(
    "deletion",
    version=2,
    properties=OUTPUTS,
    higher_is_better=False,
    range=(0, 1),
    uses="order",
    sign_sensitive=True,
    metric="area",
    family="curves",
    question="necessity",
    cite="petsiuk2018",
    title="Deletion",
)
def deletion(
    case: Case,
    *,
    steps: Steps = 20,
    fill: FillChoice = "zero",
    units: UnitsChoice = "default",
    output: Output = "probability",
) -> Scores:
    """Area under the target's probability while the most relevant units are removed first.

    Formula: the area under p_k over the share of the sample's units removed, by the trapezoid rule.

    Differs from the paper: the paper removes 224 of the pixels at a time, from images of 224 x 224,
    which is close to `{steps: 224, units: elements}`. Here there are 20 steps of 5 % of 8 x 8 cells
    with a random offset (`units: default`); the fill is zero in both. The paper explains the
    predicted class, here the suite's `target` decides. Equal values are in seeded random order.
    """
    answers, x = curve(case, "most_relevant_first", units, steps, fill)
    values = answers.output(output).double()
    absent = own_shares(case, units, x.tolist(), descending=True)
    return Scores(area(values, absent), {output: values}, x)


@protocol(
    "insertion",
    version=2,
    properties=OUTPUTS,
    higher_is_better=True,
    range=(0, 1),
    uses="order",
    sign_sensitive=True,
    axis="share of the units inserted",
    metric="area",
    family="curves",
    question="sufficiency",
    cite="petsiuk2018",
    title="Insertion",
)
def insertion(
    case: Case,
    *,
    steps: Steps = 20,
    fill: FillChoice = "zero",
    units: UnitsChoice = "default",
    output: Output = "probability",
) -> Scores:
    """Area under the target's probability while the most relevant units are inserted first.

    Formula: the area under p_k over the share of the sample's units inserted, by trapezoids.

    Differs from the paper: the paper begins with a blurred image (11 taps, sigma 5), here every
    curve has the same default fill, so the rows are those of `lerf` read from the other end; `fill:
    {blur: {sigma: 5}}` is close to the paper. The paper inserts 224 pixels at a time (`units:
    elements`), here 5 % of 8 x 8 cells.
    """
    removed = removed_shares(steps)
    backwards = tuple(1 - s for s in reversed(removed)) if not isinstance(steps, int) else steps
    answers, x = curve(case, "least_relevant_first", units, backwards, fill)
    values = answers.output(output).double().flip(1)
    present = (1 - own_shares(case, units, x.tolist(), descending=False)).flip(1)
    return Scores(area(values, present), {output: values}, (1 - x).flip(0))
