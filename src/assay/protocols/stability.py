"""Stability: would a network give the same order of its cells again? It judges the network."""

from typing import Annotated

import torch
from pydantic import Field

from assay.plugins.option_types import NonNegative, Output
from assay.plugins.registry import protocol
from assay.protocols.table_one import OF_THE_NETWORK
from assay.ranking.arithmetic import spearman
from assay.removal import FillChoice
from assay.store import Array
from assay.types import Case, Scores
from assay.units.absent import each
from assay.units.features import UnitsChoice, make_units, one_of


@protocol(
    "drop_stability",
    properties=OF_THE_NETWORK,
    judges="model",
    unranked=lambda options: "it describes the network, whatever the map.",
    higher_is_better=True,
    range=(-1, 1),
    uses="order",
    sign_sensitive=False,
    needs=["image"],
    metric="noise",
    family="stability",
    question="model",
    cite="hesse2024",
    title="Stability of the drops",
)
def drop_stability(
    case: Case,
    *,
    grid: Annotated[int, Field(ge=2)] = 4,
    units: UnitsChoice = None,
    fill: FillChoice = "zero",
    other: FillChoice = "blur",
    noise: NonNegative = 0.02,
    output: Output = "logit",
) -> Scores:
    """How stable a network's drops are: the best score to expect of a map under `single_deletion`.

    Formula: Spearman over the cells c of (f(x) - f(x without c), f(x') - f(x' without c)), where
    x' is x plus normal noise of `noise` times the standard deviation of x.

    `other_fill`, an extra, is Spearman over the cells of the drops under `fill` and under `other`.
    The score does not depend on the map, so it is the same for every method and is never ranked.
    The network answers once for all methods. A sample whose outputs do not vary is left out.

    Differs from the paper: the paper does not ask how far the drops can be predicted.
    """
    one_of("grid", grid, 4, units)
    cells = make_units(case.batch, units or {"grid": {"side": grid}})

    def drops(chosen: FillChoice) -> Array:  # [B, P], up to a constant, which ranks ignore
        return -case.respond(cells, each(cells), chosen).output(output).double().cpu().numpy()

    valid, own = cells.valid.cpu().numpy(), drops(fill)
    noisy = spearman(drops({"shaken": {"fill": fill, "noise": noise}}), own, valid)
    filled = spearman(drops(other), own, valid)
    return Scores(torch.from_numpy(noisy), extra={"other_fill": torch.from_numpy(filled)})
