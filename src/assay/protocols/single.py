"""Single deletion: one feature unit is removed at a time."""

from typing import Annotated

import torch
from pydantic import Field

from assay.engine.engine import intervention
from assay.plugins.option_types import Output
from assay.plugins.registry import protocol
from assay.protocols.table_one import ranked_drops, ranked_in_domain_drops
from assay.ranking.arithmetic import spearman
from assay.removal import FillChoice
from assay.types import Case, Scores
from assay.types.card import in_domain_need
from assay.units.absent import each
from assay.units.features import UnitsChoice, make_units, one_of


@protocol(
    "single_deletion",
    properties=ranked_drops,
    higher_is_better=True,
    range=(-1, 1),
    chance=0.0,
    uses="order",
    sign_sensitive=True,
    metric="correlation",
    family="single",
    question="effects",
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
    output: Output = "logit",
) -> Scores:
    """Rank correlation between a cell's attribution and the drop its removal causes.

    Formula: Spearman over the cells c of (the map's sum over c, f(x) - f(x without c)).

    Cells are the chosen `units`, by default a grid of `grid` x `grid` cells on images and the
    entries of vectors. A sample with fewer than three cells is degenerate.

    Differs from the paper: this is the paper's SDS, the score of the original network; IDSDS is the
    same score of a network fine-tuned on images without a cell. The paper drops images where the
    correlation is undefined. Here a constant map scores 0, and a sample whose outputs do not vary
    is left out for all methods. Cells cover the whole image even where `grid` does not divide its
    side: pixel i of a side of n pixels is in row (or column) i * grid // n.
    """
    one_of("grid", grid, 4, units)
    return _deletion(case, units or {"grid": {"side": grid}}, fill, output)


@protocol(
    "in_domain_single_deletion",
    properties=ranked_in_domain_drops,
    higher_is_better=True,
    range=(-1, 1),
    chance=0.0,
    uses="order",
    sign_sensitive=True,
    metric="correlation",
    family="single",
    question="effects",
    cite="hesse2024",
    title="In-domain single deletion",
    needs=lambda o: {"image", in_domain_need(o["grid"], o["fill"])},
    intervenes=lambda batch, o: intervention(
        batch, {"grid": {"side": o["grid"]}}, o["fill"], o["output"]
    ),
)
def in_domain_single_deletion(
    case: Case,
    *,
    grid: Annotated[int, Field(ge=2)] = 4,
    fill: FillChoice = "zero",
    output: Output = "logit",
) -> Scores:
    """Single deletion (IDSDS) of a network that was fine-tuned on images without one cell.

    Formula: Spearman over the cells c of (the map's sum over c, f(x) - f(x without c)), where f was
    trained on images of which half lack one random cell, with the same grid and fill.

    It applies to models with the card of such a fine-tuning (`assay finetune`). The answers of the
    network are shared with `single_deletion`, which gives the same score on the same network.

    Differs from the paper: constant maps score 0 and are counted, instead of being dropped. Cells
    cover the whole image even where `grid` does not divide its side, in fine-tuning too: pixel i
    of a side of n pixels is in row (or column) i * grid // n.
    """
    return _deletion(case, {"grid": {"side": grid}}, fill, output)


def _deletion(case: Case, units: UnitsChoice, fill: FillChoice, output: Output) -> Scores:
    """The rank correlation between the cells' attributions and the drops they cause."""
    cells = make_units(case.batch, units)
    answers = case.respond(cells, each(cells), fill).output(output)
    drops = case.clean.output(output).double() - answers.double()  # [B, P], same for every method
    valid, sums = cells.valid.cpu().numpy(), cells.sum(case.attribution).cpu().numpy()
    return Scores(torch.from_numpy(spearman(sums, drops.cpu().numpy(), valid)))
