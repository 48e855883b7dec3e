"""Truth protocols: does a map show what is truly relevant, where that is known by design?

They hold a map against `batch.truth` and ask the network nothing.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from assay.errors import InputError
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
from assay.types import Case, Scores

FACTS: Mapping[str, Any] = {
    "higher_is_better": True,
    "range": (0, 1),
    "sign_sensitive": lambda options: options["truth"] != "overall",
    "needs": ["truth"],
    "family": "truth",
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
    """Harmonic mean of a map's precision and recall against what is truly relevant.

    Formula: 2 P R / (P + R) with P = sum|a g| / sum|a| and R = sum|a g| / sum|g|. In map a and
    truth g positive values are divided by the largest and negative ones by the size of the
    smallest, each sign by itself. `truth` says what is compared: `overall` a with |g|, whatever the
    signs; `positive` max(a, 0) with max(g, 0); `negative` min(a, 0) with min(g, 0);
    `positive_smooth`, for methods whose maps cannot be sharp, max(a, 0) with a smooth truth:
    `smooth: filled` closes the holes between the positive pixels (up to 4 wide at 224 pixels),
    `smooth: gaussian` blurs them (sigma 5 at 224 pixels) and scales to a largest value of 1.

    Recall is soft: a map that is right but uneven does not reach 1, and against an uneven truth, as
    the blurred one, not even the truth itself does. A map of zeros, or without a value on the side
    asked for, scores 0 and counts. Where the truth has nothing on that side the sample is left out
    for all methods alike.

    Beside the paper: it does not say how truth is smoothed. The truth is normalised like the map.
    """
    precision, recall, f1 = soft_scores(*said_and_true(case), truth, smooth)
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
    """How much of what a map says is truly relevant.

    Formula: sum|a g| / sum|a|, with map a, truth g and the options of `truth_f1`. A map of zeros
    scores 0. A constant map scores the share of the units that are relevant.

    Beside the paper: as for `truth_f1`.
    """
    return Scores(soft_scores(*said_and_true(case), truth, smooth)[0])


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
    """How much of what is truly relevant a map shows.

    Formula: sum|a g| / sum|g|, with map a, truth g and the options of `truth_f1`. A constant map
    scores 1: it says nothing without precision beside it.

    Beside the paper: as for `truth_f1`.
    """
    return Scores(soft_scores(*said_and_true(case), truth, smooth)[1])


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
    `truth: overall` of |a| over the region g != 0. By chance it is the region's share of the area,
    another one for each sample, which is also the score of a map without positive values. A sample
    without such a region is left out for all methods alike.

    Beside the paper: it takes |a| and regions without signs, which is `truth: overall`.
    """
    said, inside, there = _located(case, truth)
    return Scores(mass_inside(said.clamp(min=0), inside, there))


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

    Formula: 1 where g > 0 at the largest a, otherwise 0; among several largest the share of them
    that hit. With `truth: overall` the largest |a|, and g != 0. By chance it is the region's share
    of the area, which is what a constant map scores. A sample without such a region is left out for
    all methods alike.

    Beside the paper: it counts a hit within 15 pixels of the object, and averages over classes;
    here the point itself must hit, and samples are averaged.
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
    """Average precision of a map as a ranking of the units that are truly relevant.

    Formula: sum_k (R_k - R_(k-1)) P_k over the distinct values of a, highest first, with precision
    P_k and recall R_k of the units that reach the k-th; units are relevant where g > 0. With
    `truth: overall` |a| ranks, and g != 0 is relevant. A constant map scores the share of relevant
    units, which is chance, another one for each sample. A sample without relevant units is left out
    for all methods alike.

    Beside the paper: M4 plants a yellow square of 60 pixels on images of 224 and explains the
    predicted class; here the truth is that of the data.
    """
    return Scores(average_precision(*_located(case, truth)))


def said_and_true(case: Case) -> tuple[Tensor, Tensor]:
    """Map and truth, both 0 where there is no content, such as at padding.

    The truth is that of the right class: where another one is explained it says nothing, and the
    sample is left out for all methods alike.
    """
    said, true, able = case.attribution.double(), case.batch.truth, case.batch.removable
    if true is None or true.shape != said.shape:
        got = "none for some of them" if true is None else f"{tuple(true.shape)}"
        raise InputError(
            f"Expected the truth of these samples to have the shape of their maps, "
            f"{tuple(said.shape)}, got {got}."
        )
    true = true.to(said)
    if case.batch.labels is not None:
        right = case.batch.targets == case.batch.labels
        true = torch.where(right.reshape(-1, *[1] * (true.ndim - 1)), true, 0.0)
    if able is None:
        return said, true
    return torch.where(able, said, 0.0), torch.where(able, true, 0.0)


def _located(case: Case, region: Region) -> tuple[Tensor, Tensor, Tensor]:
    """The map, which units are relevant, and which exist."""
    said, true = said_and_true(case)
    able = case.batch.removable
    there = torch.ones_like(true, dtype=torch.bool) if able is None else able
    if region == "overall":
        return said.abs(), true != 0, there
    return said, true > 0, there
