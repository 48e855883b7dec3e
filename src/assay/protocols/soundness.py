"""Soundness and completeness: how much attribution lies on what matters, and whether all of it.

Unlike a curve's area they use a map's values. Only positive attribution counts: values below zero
are taken as zero.
"""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from assay.errors import NotApplicable
from assay.plugins.option_types import Share, ShareBelowOne
from assay.plugins.registry import protocol
from assay.protocols.curves import correct
from assay.removal import FillChoice
from assay.types import Case, Scores
from assay.units.absent import above, below, by_rank, ranks
from assay.units.features import Features, UnitsChoice, make_units

# Samples of different sizes cannot take equal steps if one has fewer units than this.
_FEWEST_UNITS = 100
# The share of pixels left out at each step: 96 of them, as the authors' code has them.
_REMOVED = {"slope": (98, 3), "paper": (98, 1), "code": (98, 3)}


@protocol(
    "soundness",
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
    """The share of attribution that lies on pixels which raise the accuracy.

    Formula: pixels enter by falling attribution, the same share in every image. A step is false if
    accuracy rises by less than `epsilon` per share of the image; all steps until accuracy is 0.04
    above that of empty images are one. q(v) = mean over images of (M - F) / M, with M the
    attribution in the image when accuracy first reaches v of its clean value, F what came in false
    steps. The score is the mean of q over `levels`. The decision about a step rests on all images
    together, so this is a number of the whole set; a bootstrap decides every step anew.

    Beside the paper: `variant: paper` begins at accuracy 0 without a warm-up and wants a rise of
    0.01 x `epsilon` at every step, `variant: code` also lets a step of exactly that rise be false,
    waits until accuracy is 0.04, and judges a step only after it was read. Under both, ten classes
    that are guessed gain 0.10 at the first step, and a steady rise is false throughout. Levels are
    shares of clean accuracy in all three. The sweep is closed by the untouched images, so that
    every level is reached. Ties enter in one seeded random order, so the sets are nested; in the
    authors' code they are drawn anew at each step. Where features are redundant (accuracy is the
    same without them) this is a lower bound: the exact map scores below 1.
    """
    features = make_units(case.batch, units)
    values = features.sum(case.attribution)  # [B, P]
    first, last = _REMOVED[variant]
    removed = [1.0, *(r / 100 for r in range(first, last - 1, -1)), 0.0]
    kept = torch.tensor([float(f"{1 - r:.9g}") for r in removed], dtype=torch.float64)
    number = features.valid.sum(1, keepdim=True)  # [B, 1]
    counts = (kept.to(values.device) * number + 0.5).floor().long()  # [B, K], as `by_rank` counts
    if bool((number == number[0]).all()):
        # Steps that add nothing are none, and what is added is what its length says.
        moves = [k for k in range(len(kept)) if k == 0 or counts[0, k] > counts[0, k - 1]]
        counts, removed = counts[:, moves], [removed[k] for k in moves]
        kept = (counts[0] / number[0]).double().cpu()
    elif int(number.min()) < _FEWEST_UNITS:
        raise NotApplicable(
            f"Soundness adds a hundredth of the units at a time, to all samples alike; one of "
            f"these has only {int(number.min())} units."
        )
    absent = by_rank(case.batch, features, values, removed, descending=False)
    answers = case.respond(features, absent, fill)
    mass = _mass(features, values).gather(1, counts)
    return Scores(
        torch.full((len(case.batch),), torch.nan),
        {"correct": correct(case, answers), "mass": mass},
        kept,
        degenerate=mass[:, -1] == 0,
    )


def _mass(features: Features, values: Tensor) -> Tensor:  # [B, P + 1]
    """The positive attribution of the 0, 1, 2, ... highest units, the highest taken as 1."""
    positive = torch.where(features.valid, values.double().clamp(min=0), 0.0)
    falling = positive.sort(1, descending=True).values
    highest = falling[:, :1]
    falling = falling / torch.where(highest > 0, highest, 1.0)
    return torch.nn.functional.pad(falling.cumsum(1), (1, 0))


@protocol(
    "completeness",
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
    """How much more accuracy falls without the attributed pixels than without as many others.

    Formula: at each threshold t the pixels above t times the map's maximum are removed. `raw` is
    mean_t([right before] - [right after]), the paper's number; `excess`, the score, is the same
    minus that of the method's own map of another image, cut where it removes as many pixels. `area`
    is the mean share removed.

    Beside the paper: it reports `raw` by threshold, which a constant map maximises, because it
    removes everything; its excess is 0. The thresholds are relative to each map's maximum, as in
    the authors' code; `relative: false` compares the values themselves, as the paper's text does.
    To compare networks, divide by clean accuracy minus that of empty images.
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
    """Each unit's place by falling attribution in the method's map of another sample."""
    if case.partner is None:
        raise NotApplicable("The maps of other samples are not known here.")
    return ranks(case.batch, features, features.sum(case.partner())).double()
