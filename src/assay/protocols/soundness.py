"""Soundness and completeness: is attribution on relevant units, and on all of them?

Unlike the area under a curve they use the values of a map. Only positive attribution counts:
negative values are set to zero.
"""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from assay.errors import NotApplicable
from assay.plugins.option_types import Share, ShareBelowOne
from assay.plugins.registry import protocol
from assay.protocols.accuracy_curves import correct
from assay.protocols.table_one import ACCURACIES
from assay.removal import FillChoice
from assay.types import Case, Scores
from assay.units.absent import RoundedNumber, above, below, by_rank, rank_counts, ranks
from assay.units.features import Features, UnitsChoice, make_units

# Samples with different numbers of units cannot take equal steps if one has fewer than this.
_FEWEST_UNITS = 100
# First and last percentage of pixels removed: 96 steps, as in the authors' code.
_REMOVED = {"slope": (98, 3), "paper": (98, 1), "code": (98, 3)}


@protocol(
    "soundness",
    version=2,
    properties=ACCURACIES,
    higher_is_better=True,
    range=(0, 1),
    uses="value",
    sign_sensitive=True,
    needs=["labels"],
    metric="soundness",
    reduce="soundness",
    axis="share of the units there",
    judges="set",
    family="value",
    question="values",
    cite="li2024soco",
    title="Soundness",
)
def soundness(
    case: Case,
    *,
    epsilon: Annotated[float, Field(ge=0)] = 1.0,
    levels: Annotated[tuple[Share, ...], Field(min_length=1)] = (0.5, 0.6, 0.7, 0.8, 0.9),
    fill: FillChoice = "noisy_linear",
    units: UnitsChoice = "elements",
    variant: Literal["slope", "paper", "code"] = "slope",
) -> Scores:
    """The share of attribution that lies on pixels that raise the accuracy.

    Formula: pixels are inserted in order of decreasing attribution, the same share in every image.
    A step is false if accuracy rises by less than `epsilon` per share of the image; all steps until
    accuracy is 0.04 above that of empty images count as one. q(v) = mean over images of (M - F) /
    M, with M the attribution inserted when accuracy first reaches v of its clean value, and F the
    part of M inserted in false steps. The score is the mean of q over `levels`. Whether a step is
    false depends on all images together, so this is one number for the whole set; each bootstrap
    resample decides every step again.

    Differs from the paper: `variant: paper` begins at accuracy 0 without a warm-up and requires a
    rise of 0.01 x `epsilon` at every step. `variant: code` also counts a step of exactly that rise
    as false, waits until accuracy is 0.04, judges a step only after it was read, and rounds the
    number of pixels removed down. Under both,
    guessing among ten classes gains 0.10 at the first step, and a steady rise is false throughout.
    Levels are shares of clean accuracy in all three. The last step shows the original images, so
    every level is reached. Ties are inserted in one seeded random order, so the sets are nested;
    the authors' code draws a new order at each step. Where features are redundant (accuracy is the
    same without them) the score is a lower bound: the exact map scores below 1.
    """
    features = make_units(case.batch, units)
    values = features.sum(case.attribution)  # [B, P]
    first, last = _REMOVED[variant]
    removed = [1.0, *(r / 100 for r in range(first, last - 1, -1)), 0.0]
    present = torch.tensor([float(f"{1 - r:.9g}") for r in removed], dtype=torch.float64)
    number = features.valid.sum(1, keepdim=True)  # [B, 1]
    whole: RoundedNumber = "removed" if variant == "code" else "nearest"
    counts = number - rank_counts(features, removed, descending=False, whole=whole)  # [B, K]
    if bool((number == number[0]).all()):
        # Drop steps that add no unit, and let x be the share that is really present.
        moves = [k for k in range(len(present)) if k == 0 or counts[0, k] > counts[0, k - 1]]
        counts, removed = counts[:, moves], [removed[k] for k in moves]
        present = (counts[0] / number[0]).double().cpu()
    elif int(number.min()) < _FEWEST_UNITS:
        raise NotApplicable(
            f"Soundness inserts 1 % of the units at a time, the same share in all samples; one of "
            f"these samples has only {int(number.min())} units, fewer than {_FEWEST_UNITS}."
        )
    absent = by_rank(case.batch, features, values, removed, descending=False, whole=whole)
    answers = case.respond(features, absent, fill)
    mass = _mass(features, values).gather(1, counts)
    return Scores(
        torch.full((len(case.batch),), torch.nan),
        {"correct": correct(case, answers), "mass": mass},
        present,
        degenerate=mass[:, -1] == 0,
    )


def _mass(features: Features, values: Tensor) -> Tensor:  # [B, P + 1]
    """The positive attribution of the 0, 1, 2, ... highest units, scaled so the highest is 1."""
    positive = torch.where(features.valid, values.double().clamp(min=0), 0.0)
    falling = positive.sort(1, descending=True).values
    highest = falling[:, :1]
    falling = falling / torch.where(highest > 0, highest, 1.0)
    return torch.nn.functional.pad(falling.cumsum(1), (1, 0))


@protocol(
    "completeness",
    properties=ACCURACIES,
    higher_is_better=True,
    range=(-1, 1),
    chance=0.0,
    uses="value",
    sign_sensitive=True,
    needs=["labels"],
    metric="excess",
    axis="threshold",
    judges="set",
    family="value",
    question="necessity",
    cite="li2024soco",
    title="Completeness",
)
def completeness(
    case: Case,
    *,
    thresholds: Annotated[tuple[ShareBelowOne, ...], Field(min_length=1)] = (
        *(0.9, 0.8, 0.7, 0.6, 0.5),
        *(0.4, 0.3, 0.2, 0.1),
    ),
    relative: bool = True,
    fill: FillChoice = "noisy_linear",
    units: UnitsChoice = "elements",
) -> Scores:
    """How much more accuracy drops without the attributed pixels than without as many others.

    Formula: at each threshold t the pixels above t times the map's maximum are removed. `raw` is
    mean_t([right before] - [right after]), the paper's number; `excess`, the score, is `raw` minus
    the same number for the method's own map of another image, with as many pixels removed. `area`
    is the mean share removed.

    Differs from the paper: the paper reports `raw` by threshold. A constant map maximises `raw`,
    because it removes everything; its excess is 0. The thresholds are relative to each map's
    maximum, as in the authors' code; `relative: false` compares the values themselves, as the
    paper's text does. To compare networks, divide by clean accuracy minus that of empty images.
    """
    features = make_units(case.batch, units)
    values = features.sum(case.attribution).double()  # [B, P]
    highest = torch.where(features.valid, values, 0.0).amax(1, keepdim=True).clamp(min=0)
    levels = values.new_tensor(thresholds) * (highest if relative else torch.ones_like(highest))
    names = [f"{t:.9g} {'relative' if relative else 'absolute'}" for t in thresholds]
    answers = case.respond(features, above(features, values, levels, names), fill)
    able = features.valid
    gone = torch.stack([((values > level[:, None]) & able).sum(1) for level in levels.T], 1)
    dealt = _dealt(case, features)
    others = below(features, dealt, gone.to(dealt), [f"{n} dealt" for n in names])
    shuffled = correct(case, case.respond(features, others, fill))
    before, after = correct(case, case.clean), correct(case, answers)
    area = gone.double() / features.valid.sum(1, keepdim=True)
    return Scores(
        (shuffled - after).mean(1),
        {"correct": after, "shuffled": shuffled, "area": area},
        torch.tensor(thresholds, dtype=torch.float64),
        {"raw": (before - after).mean(1), "area": area.mean(1)},
        degenerate=highest[:, 0] == 0,
    )


def _dealt(case: Case, features: Features) -> Tensor:  # [B, P]
    """Each unit's rank, highest attribution first, in the method's map of another sample."""
    if case.partner is None:
        raise NotApplicable(
            "Completeness compares with the method's map of another sample; there is none here."
        )
    return ranks(case.batch, features, features.sum(case.partner())).double()
