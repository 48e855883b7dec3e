"""Truth protocols: compare an attribution map with the ground truth, where it is known by design.

They compare a map with `batch.truth` and need no forward pass.
"""

import torch
from torch import Tensor

from assay.errors import InputError
from assay.plugins.option_types import Options
from assay.plugins.registry import protocol
from assay.protocols.agreement import (
    Region,
    Smooth,
    TruthSide,
    average_precision,
    mass_inside,
    soft_scores,
    top_inside,
)
from assay.protocols.table_one import KNOWN_TRUTH
from assay.types import Case, Scores

FACTS: Options = {
    "higher_is_better": True,
    "range": (0, 1),
    "sign_sensitive": lambda options: options["truth"] != "overall",
    "needs": ["truth"],
    "family": "truth",
    "question": "known truth",
    "properties": KNOWN_TRUTH,
}


@protocol(
    "truth_f1",
    **FACTS,
    whole_truth=True,
    uses="value",
    metric="f1",
    cite="zhang2023attributionlab",
    title="F1 against the truth",
)
def truth_f1(case: Case, *, truth: TruthSide = "overall", smooth: Smooth = "filled") -> Scores:
    """Harmonic mean of a map's precision and recall against the ground truth.

    Formula: 2 P R / (P + R) with P = sum|a g| / sum|a| and R = sum|a g| / sum|g|. In map a and
    truth g positive values are divided by the largest and negative ones by the magnitude of the
    smallest, each sign by itself. `truth` says what is compared: `overall` a with |g|, whatever the
    signs; `positive` max(a, 0) with max(g, 0); `negative` min(a, 0) with min(g, 0);
    `positive_smooth`, for methods whose maps cannot be sharp, max(a, 0) with a smooth truth:
    `smooth: filled` closes the holes between the positive pixels (up to 4 wide at 224 pixels),
    `smooth: gaussian` blurs them (sigma 5 at 224 pixels) and scales to a largest value of 1.

    Recall is soft: a correct but uneven map does not reach 1, and against an uneven truth, such as
    the blurred one, even the truth itself does not. A map of zeros, or without values on the chosen
    side, scores 0 and counts. Samples whose truth has no value on that side are left out for all
    methods.

    Differs from the paper: the paper does not say how the truth is smoothed. Here the truth is
    normalised like the map.
    """
    precision, recall, f1 = soft_scores(*map_and_truth(case), truth, smooth)
    return Scores(f1, extra={"precision": precision, "recall": recall})


@protocol(
    "truth_precision",
    **FACTS,
    uses="value",
    metric="precision",
    cite="zhang2023attributionlab",
    title="Precision against the truth",
)
def truth_precision(
    case: Case, *, truth: TruthSide = "overall", smooth: Smooth = "filled"
) -> Scores:
    """How much of a map's attribution lies on what is truly relevant.

    Formula: sum|a g| / sum|a|, with map a, truth g and the options of `truth_f1`. A map of zeros
    scores 0. A constant map scores the share of the units that are relevant.

    Differs from the paper: as for `truth_f1`.
    """
    return Scores(soft_scores(*map_and_truth(case), truth, smooth)[0])


@protocol(
    "truth_recall",
    **FACTS,
    whole_truth=True,
    uses="value",
    metric="recall",
    cite="zhang2023attributionlab",
    title="Recall against the truth",
)
def truth_recall(case: Case, *, truth: TruthSide = "overall", smooth: Smooth = "filled") -> Scores:
    """How much of what is truly relevant a map marks.

    Formula: sum|a g| / sum|g|, with map a, truth g and the options of `truth_f1`. A constant map
    scores 1, so recall means little without precision.

    Differs from the paper: as for `truth_f1`.
    """
    return Scores(soft_scores(*map_and_truth(case), truth, smooth)[1])


@protocol(
    "attribution_percent",
    **FACTS,
    uses="value",
    metric="share",
    cite="zhou2022",
    title="Attribution inside the truth",
)
def attribution_percent(case: Case, *, truth: Region = "positive") -> Scores:
    """The share of a map's positive attribution that lies where the truth is positive.

    Formula: the sum of max(a, 0) over the region g > 0, over its sum everywhere; with
    `truth: overall`, |a| and the region g != 0. Chance is the region's share of the area, which
    differs by sample and is also the score of a map without positive values. Samples without such
    a region are left out for all methods.

    Differs from the paper: the paper takes |a| and unsigned regions, which is `truth: overall`.
    """
    values, inside, there = _located(case, truth)
    return Scores(mass_inside(values.clamp(min=0), inside, there))


@protocol(
    "pointing_game",
    **FACTS,
    uses="order",
    metric="hits",
    cite="zhang2018",
    title="Pointing game",
)
def pointing_game(case: Case, *, truth: Region = "positive") -> Scores:
    """Whether the highest value of a map lies where the truth is positive.

    Formula: 1 where g > 0 at the largest a, otherwise 0; where several values are largest, the
    share of them that hit. With `truth: overall`, the largest |a| and g != 0. Chance is the
    region's share of the area, which is also the score of a constant map. Samples without such a
    region are left out for all methods.

    Differs from the paper: the paper counts a hit within 15 pixels of the object and averages
    over classes; here the point itself must hit, and samples are averaged.
    """
    return Scores(top_inside(*_located(case, truth)))


@protocol(
    "synscore",
    **FACTS,
    whole_truth=True,
    uses="order",
    metric="average_precision",
    cite="li2023m4",
    title="SynScore",
)
def synscore(case: Case, *, truth: Region = "positive") -> Scores:
    """Average precision of a map as a ranking for the truly relevant units.

    Formula: sum_k (R_k - R_(k-1)) P_k over the distinct values of a, highest first, with precision
    P_k and recall R_k of the units that reach the k-th; units are relevant where g > 0. With
    `truth: overall`, |a| ranks and g != 0 is relevant. A constant map scores the share of relevant
    units, which is chance and differs by sample. Samples without relevant units are left out for
    all methods.

    Differs from the paper: M4 plants a yellow square of 60 pixels on images of 224 pixels and
    explains the predicted class; here the truth is the one that comes with the data.
    """
    return Scores(average_precision(*_located(case, truth)))


def map_and_truth(case: Case) -> tuple[Tensor, Tensor]:
    """Map and truth, both 0 where there is no content, such as at padding.

    The truth belongs to the right class. Where another class is explained the truth becomes 0, so
    the sample is left out for all methods.
    """
    maps, true, able = case.attribution.double(), case.batch.truth, case.batch.removable
    if true is None or true.shape != maps.shape:
        got = "none for some of them" if true is None else f"{tuple(true.shape)}"
        raise InputError(
            f"Expected the truth of these samples to have the shape of their maps, "
            f"{tuple(maps.shape)}, got {got}."
        )
    true = true.to(maps)
    if case.batch.labels is not None:
        right = case.batch.targets == case.batch.labels
        true = torch.where(right.reshape(-1, *[1] * (true.ndim - 1)), true, 0.0)
    if able is None:
        return maps, true
    return torch.where(able, maps, 0.0), torch.where(able, true, 0.0)


def _located(case: Case, region: Region) -> tuple[Tensor, Tensor, Tensor]:
    """The map, which units are relevant, and which exist."""
    maps, true = map_and_truth(case)
    able = case.batch.removable
    there = torch.ones_like(true, dtype=torch.bool) if able is None else able
    if region == "overall":
        return maps.abs(), true != 0, there
    return maps, true > 0, there
