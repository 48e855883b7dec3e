"""Incremental deletion: the least relevant units are removed first, by one map or by updated maps.

The rows of the fixed order are those of `lerf` and `insertion`. Of the updated order only the first
step is shared, since what is removed later depends on the method.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from assay.errors import NotApplicable
from assay.plugins.option_types import Output
from assay.plugins.registry import protocol
from assay.protocols.curves import Steps, joined, ranked, removed_shares
from assay.protocols.table_one import OUTPUTS
from assay.removal import FillChoice, make_removal
from assay.types import Case, Response, Scores
from assay.units.absent import by_rank
from assay.units.features import UnitsChoice, make_units

PAPER_SHARES = [k / 32 for k in range(32)]
CHEAP = 2  # forward passes per sample that a method may take to be repeated at every step


@protocol(
    "incremental_deletion",
    properties=OUTPUTS,
    higher_is_better=True,
    range=(0, 1),
    uses="order",
    sign_sensitive=True,
    metric="mean_output",
    family="curves",
    question="sufficiency",
    cite="hesse2024",
    title="Incremental deletion",
)
def incremental_deletion(
    case: Case,
    *,
    steps: Steps | Literal["idsds"] = 20,
    fill: FillChoice = "zero",
    units: UnitsChoice = "default",
    output: Output = "probability",
    attribution: Literal["fixed", "updated"] = "fixed",
    force: bool = False,
) -> Scores:
    """Mean probability of the target while the least relevant units are removed first.

    Formula: mean_k p_k, with p_k the probability after the k-th step.

    There is no option for the other order, under which lower would be better: that is `deletion`
    and `morf`.

    Differs from the paper: the default steps are those of all curves, 0, 5, ..., 100 %, so that
    rows are shared; `steps: idsds` are the paper's, k / 32 for k = 0 ... 31, of single pixels
    (`units: elements`). A share is rounded to the nearest number of units, not down, and equal
    values are removed in seeded random order.

    `attribution: updated` explains the current, partly removed input again at each step; units that
    were removed stay removed. It is for methods that take at most two forward passes per sample,
    unless `force: true`.
    """
    shares = PAPER_SHARES if steps == "idsds" else removed_shares(steps)
    if attribution == "updated":
        answers = _updated(case, _method(case, force), units, shares, fill)
    else:
        answers = ranked(case, "least_relevant_first", units, shares, fill)
    values = answers.output(output).double()
    x = torch.tensor(shares, dtype=torch.float64)
    return Scores(values.mean(1), {output: values}, x)


def _method(case: Case, force: bool) -> Callable[[Tensor], Tensor]:
    """The method to repeat at each step, if there is one and it is cheap enough."""
    if case.explain is None:
        raise NotApplicable(
            "Maps computed elsewhere cannot be updated on changed inputs. Name the method, give it "
            "as a function, or use `attribution: fixed`."
        )
    passes = case.explain_passes
    if not force and (passes is None or passes > CHEAP):
        cost = "an unknown number of" if passes is None else str(passes)
        raise NotApplicable(
            f"An updated map at every step is for methods of at most {CHEAP} forward passes per "
            f"sample; this one takes {cost}. Use `force: true`, or `attribution: fixed`."
        )
    return case.explain


def _updated(
    case: Case,
    explain: Callable[[Tensor], Tensor],
    units: UnitsChoice,
    shares: Sequence[float],
    fill: FillChoice,
) -> Response:  # [B, K]
    """The responses when each step is ordered by a map of what the previous step left."""
    features, removal = make_units(case.batch, units), make_removal(case.batch, fill)
    everyone = torch.arange(len(case.batch), device=case.batch.inputs.device)
    maps, gone = case.attribution, torch.zeros_like(features.valid)  # [B, P]
    answers, past = [], ""
    for share, following in zip(shares, [*shares[1:], 1.0], strict=True):
        # Removed units come first in the order, so the sets are nested.
        values = features.sum(maps).masked_fill(gone, -torch.inf)
        absent = by_rank(case.batch, features, values, [share], descending=False)
        # The past is part of a row's name, so that a rehearsal with made-up maps counts it right.
        absent = replace(absent, family=f"{absent.family}{past}")
        answers.append(case.respond(features, absent, fill))
        if share > 0 and following < 1:  # with everything absent the order does not matter
            past = f"{past} after {share}"
            gone = absent.make(everyone, torch.zeros_like(everyone))
            maps = explain(removal(features, gone, everyone))
    return joined(answers)
