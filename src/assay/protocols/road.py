"""ROAD: curves whose absent pixels are imputed from their neighbours, not painted over.

The rows are those of every curve with the fill `noisy_linear`, so `road_lerf` shares them with
`soundness`.
"""

from typing import Literal

import torch

from assay.plugins.registry import protocol
from assay.protocols.accuracy_curves import correct
from assay.protocols.areas import area, own_shares
from assay.protocols.curves import Order, Steps, curve, ranked
from assay.protocols.table_one import ACCURACIES
from assay.removal import FillChoice
from assay.types import Case, Scores
from assay.units.absent import RoundedNumber
from assay.units.features import UnitsChoice

RoadVariant = Literal["exact", "road"]

# The shares that the authors removed (most relevant first) or left in (least relevant first).
AUTHORS_SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 0.9)


def _road(
    case: Case,
    order: Order,
    steps: Steps,
    fill: FillChoice,
    units: UnitsChoice,
    variant: RoadVariant,
) -> Scores:
    first = order == "most_relevant_first"
    if variant == "exact":
        answers, x = curve(case, order, units, steps, fill)
        own = own_shares(case, units, x.tolist(), descending=first)
    else:
        x = torch.tensor(AUTHORS_SHARES, dtype=torch.float64)
        removed = (x if first else 1 - x).tolist()
        whole: RoundedNumber = "removed" if first else "kept"  # rounded down, as int() does
        answers = ranked(case, order, units, removed, fill, whole)
        own = own_shares(case, units, removed, descending=first, whole=whole)
        own = own if first else 1 - own
    right, probability = correct(case, answers), answers.probability.double()
    return Scores(
        area(right, own),
        {"correct": right, "probability": probability},
        x,
        {"probability_area": area(probability, own)},
    )


@protocol(
    "road_morf",
    version=3,
    properties=ACCURACIES,
    higher_is_better=False,
    range=(0, 1),
    uses="order",
    sign_sensitive=True,
    needs=["labels", "image"],
    metric="area",
    family="curves",
    question="necessity",
    cite="rong2022",
    title="ROAD, MoRF",
)
def road_morf(
    case: Case,
    *,
    steps: Steps = 20,
    fill: FillChoice = "noisy_linear",
    units: UnitsChoice = "elements",
    variant: RoadVariant = "exact",
) -> Scores:
    """Area under the accuracy while the most relevant pixels are removed first and imputed.

    Formula: the area under [predicted_k = label] over the share of the sample's units removed, by
    the trapezoid rule. `probability_area` is the area under the target's probability.

    Differs from the paper: the paper compares whole curves at 10, 20, 30, 40, 50, 70 and 90 %,
    which is `variant: road`, and defines no area. It rounds the number of pixels down, as the
    variant does. Here the stated share is removed, to the nearest unit, with equal values in seeded
    random order; the paper adds noise of 1e-4 to the map, which also reorders values that differ by
    less. The noise field of a sample is the same at every share and for every method.
    """
    return _road(case, "most_relevant_first", steps, fill, units, variant)


@protocol(
    "road_lerf",
    version=3,
    properties=ACCURACIES,
    higher_is_better=True,
    range=(0, 1),
    uses="order",
    sign_sensitive=True,
    needs=["labels", "image"],
    axis="share of the units removed (variant road: kept)",
    metric="area",
    family="curves",
    question="sufficiency",
    cite="rong2022",
    title="ROAD, LeRF",
)
def road_lerf(
    case: Case,
    *,
    steps: Steps = 20,
    fill: FillChoice = "noisy_linear",
    units: UnitsChoice = "elements",
    variant: RoadVariant = "exact",
) -> Scores:
    """Area under the accuracy while the least relevant pixels are removed first and imputed.

    Formula: the area under [predicted_k = label] over the share of the sample's units removed, by
    the trapezoid rule. `probability_area` is the area under the target's probability.

    Differs from the paper: the paper's axis is the share *kept*, at 10, 20, 30, 40, 50, 70 and 90
    %, which is `variant: road`, with the number kept rounded down; here it is the share removed, as
    in every curve. Ties and noise are as in `road_morf`.
    """
    return _road(case, "least_relevant_first", steps, fill, units, variant)
