"""Single deletion: one part of the input leaves at a time."""

from typing import Annotated, Literal

import torch
from pydantic import Field

from assay.absent import each
from assay.features import UnitsChoice, make_units, one_of
from assay.interventions import intervention
from assay.ranking.arithmetic import spearman
from assay.registry import protocol
from assay.removal import FillChoice
from assay.types import Case, Scores


@protocol(
    "single_deletion",
    higher_is_better=True,
    range=(-1, 1),
    chance=0.0,
    uses="order",
    sign_sensitive=True,
    metric="correlation",
    family="single",
    cite="hesse2024",
    title="Single deletion",
    intervenes=lambda batch, o: intervention(
        batch, o["units"] or {"grid": {"side": o["grid"]}}, o["fill"], o["output"]
    ),
)
def single_deletion(
    case: Case,
    *,
    grid: Annotated[int, Field(ge=2)] = 4,
    units: UnitsChoice = None,
    fill: FillChoice = "zero",
    output: Literal["logit", "probability", "log_odds"] = "logit",
) -> Scores:
    """Rank correlation between what a cell is said to matter and what its removal costs.

    Formula: Spearman over the cells c of (the map's sum over c, f(x) - f(x without c)).

    Cells are the `units` named, by default those of a grid of `grid` a side on images and the
    entries on vectors. A sample with fewer than three of them is degenerate.

    Beside the paper: this is its SDS, the score of the network as it is; IDSDS is the same of a
    network fine-tuned on images without a cell. The paper drops images where the correlation is
    undefined. Here a constant map counts as 0, and a sample whose answers do not vary is left out
    for all methods alike. Cells cover the image even where `grid` does not divide its side.
    """
    one_of("grid", grid, 4, units)
    cells = make_units(case.batch, units or {"grid": {"side": grid}})
    answers = case.respond(cells, each(cells), fill).output(output)
    drops = case.clean.output(output).double() - answers.double()  # [B, P], same for every method
    valid, said = cells.valid.cpu().numpy(), cells.sum(case.attribution).cpu().numpy()
    return Scores(torch.from_numpy(spearman(said, drops.cpu().numpy(), valid)))
