"""Accuracy while units are removed in the order of a map."""

from torch import Tensor

from assay.errors import InputError
from assay.plugins.registry import protocol
from assay.protocols.areas import area, own_shares
from assay.protocols.curves import Order, Steps, curve
from assay.protocols.table_one import ACCURACIES
from assay.removal import FillChoice
from assay.types import Case, Response, Scores
from assay.units.features import UnitsChoice


def correct(case: Case, answers: Response) -> Tensor:  # [B, K]
    """1 where the predicted class is the label, otherwise 0."""
    labels = case.batch.labels
    if labels is None:
        raise InputError(
            "Expected labels, which decide whether a prediction is correct, got none. Give the "
            "data labels, or leave this protocol out."
        )
    return (answers.predicted == labels[:, None]).double()


def _accuracy(
    case: Case, order: Order, units: UnitsChoice, steps: Steps, fill: FillChoice
) -> Scores:
    answers, x = curve(case, order, units, steps, fill)
    right = correct(case, answers)
    first = order == "most_relevant_first"
    absent = own_shares(case, units, x.tolist(), descending=first)
    return Scores(area(right, absent), {"correct": right}, x)


@protocol(
    "accuracy_morf",
    version=2,
    properties=ACCURACIES,
    higher_is_better=False,
    range=(0, 1),
    uses="order",
    sign_sensitive=True,
    needs=["labels"],
    metric="area",
    family="curves",
    question="necessity",
    cite="duan2024",
    title="Accuracy, MoRF",
)
def accuracy_morf(
    case: Case,
    *,
    steps: Steps = 20,
    fill: FillChoice = "zero",
    units: UnitsChoice = "default",
) -> Scores:
    """Area under the accuracy while the most relevant units are removed first.

    Formula: the area under [predicted_k = label] over the share of the sample's units removed, by
    the trapezoid rule.

    Differs from the paper: steps, units and fill are the defaults of all curves here; we do not
    know which ones the paper used.
    """
    return _accuracy(case, "most_relevant_first", units, steps, fill)


@protocol(
    "accuracy_lerf",
    version=2,
    properties=ACCURACIES,
    higher_is_better=True,
    range=(0, 1),
    uses="order",
    sign_sensitive=True,
    needs=["labels"],
    metric="area",
    family="curves",
    question="sufficiency",
    cite="duan2024",
    title="Accuracy, LeRF",
)
def accuracy_lerf(
    case: Case,
    *,
    steps: Steps = 20,
    fill: FillChoice = "zero",
    units: UnitsChoice = "default",
) -> Scores:
    """Area under the accuracy while the least relevant units are removed first.

    Formula: the area under [predicted_k = label] over the share of the sample's units removed, by
    the trapezoid rule.

    Differs from the paper: steps, units and fill are the defaults of all curves here; we do not
    know which ones the paper used.
    """
    return _accuracy(case, "least_relevant_first", units, steps, fill)
