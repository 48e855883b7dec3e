"""Rationales: are the most relevant units necessary for the prediction, and are they sufficient?

`comprehensiveness` uses most-relevant-first rows and `sufficiency` least-relevant-first ones, so
both share rows with the curves wherever the removed shares are equal.
"""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from assay.errors import InputError
from assay.plugins.option_types import InnerShare, Output
from assay.plugins.registry import protocol
from assay.protocols.curves import Order, ranked
from assay.protocols.table_one import OUTPUTS
from assay.removal import FillChoice
from assay.types import Case, Scores
from assay.units.features import UnitsChoice

RationaleShares = Annotated[tuple[InnerShare, ...], Field(min_length=1)]
ERASER: tuple[float, ...] = (0.01, 0.05, 0.1, 0.2, 0.5)


@protocol(
    "comprehensiveness",
    properties=OUTPUTS,
    higher_is_better=True,
    range=(-1, 1),
    uses="order",
    sign_sensitive=True,
    metric="mean_drop",
    family="curves",
    question="necessity",
    cite="deyoung2020",
    title="Comprehensiveness",
)
def comprehensiveness(
    case: Case,
    *,
    shares: RationaleShares = ERASER,
    fill: FillChoice = "zero",
    units: UnitsChoice = "default",
    output: Output = "probability",
) -> Scores:
    """Mean drop of the target's probability when the most relevant units are removed.

    Formula: mean_s(p(x) - p(x without the top s)) over `shares` s of the units, the area over the
    perturbation curve of ERASER.

    Differs from the paper: the paper divides the same sum by one more than the number of shares,
    because it counts an empty rationale; this is a constant factor. Absent units are filled, not
    cut out. A share smaller than one unit removes nothing, for every map.
    """
    x = _rising(shares)
    drops = _drops(case, "most_relevant_first", units, list(shares), fill, output)
    return Scores(drops.mean(1), {"drop": drops}, x)


@protocol(
    "sufficiency",
    properties=OUTPUTS,
    higher_is_better=False,
    range=(-1, 1),
    uses="order",
    sign_sensitive=True,
    metric="mean_drop",
    family="curves",
    question="sufficiency",
    cite="deyoung2020",
    title="Sufficiency",
)
def sufficiency(
    case: Case,
    *,
    shares: RationaleShares = ERASER,
    fill: FillChoice = "zero",
    units: UnitsChoice = "default",
    output: Output = "probability",
) -> Scores:
    """Mean drop of the target's probability when only the most relevant units stay.

    Formula: mean_s(p(x) - p(x with the top s only)) over `shares` s of the units. The rest, the
    least relevant 1 - s, is filled.

    Differs from the paper: as for `comprehensiveness`: a constant factor, and units are filled, not
    cut out.
    """
    x, leaving = _rising(shares), [1 - share for share in shares]
    drops = _drops(case, "least_relevant_first", units, leaving, fill, output)
    return Scores(drops.mean(1), {"drop": drops}, x)


def _drops(
    case: Case,
    order: Order,
    units: UnitsChoice,
    leaving: list[float],
    fill: FillChoice,
    output: Output,
) -> Tensor:  # [B, K]
    answers = ranked(case, order, units, leaving, fill).output(output)
    return case.clean.output(output).double() - answers.double()


def _rising(shares: tuple[float, ...]) -> Tensor:
    if list(shares) != sorted(set(shares)):
        raise InputError(f"Expected `shares` in rising order, each once, got {list(shares)}.")
    return torch.tensor(shares, dtype=torch.float64)
