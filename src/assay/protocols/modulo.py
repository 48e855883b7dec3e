"""Insertion, deletion and Sensitivity-N where every pixel of the truth counts one.

A network that counts pixels modulo a number answers otherwise whenever one of them comes or leaves,
and the same whenever another pixel does. Its answers are therefore known from the truth: these
protocols compute them and ask the network nothing.
"""

import math
from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from assay.absent import ranks
from assay.features import make_units
from assay.protocols.truth import said_and_true
from assay.ranking.arithmetic import pearson
from assay.registry import protocol
from assay.store import Array
from assay.types import Batch, Case, Scores

FACTS: Mapping[str, Any] = {
    "sign_sensitive": False,
    "needs": ["counted", "image", "truth"],
    "family": "truth",
    "cite": "zhang2023attributionlab",
}
SHARES = torch.linspace(0, 1, 21, dtype=torch.float64)  # where curves are drawn


@protocol(
    "modulo_insertion",
    **FACTS,
    higher_is_better=True,
    range=(0, 1),
    chance=0.5,
    uses="order",
    metric="area",
    title="Modulo insertion",
    axis="share of the pixels inserted",
)
def modulo_insertion(case: Case) -> Scores:
    """How soon a counting network's answer has changed as often as it will, as pixels are inserted.

    Formula: the area under c(k) / n, where c(k) counts how often the answer changed while the k
    pixels of largest |a| were put, one by one, on an empty image, and n is how many pixels count.
    It is 1 - (r - 1/2) / T, with r the mean rank of these n among all T pixels. The best is
    1 - n / 2T. Equal values come in random order, another one than for `modulo_deletion`. An image
    where nothing counts is left out for all methods alike.

    Beside the paper: it does not say whether a or |a| is ranked. The sign of a gradient is
    arbitrary where answers run in circles, and only |a| gives the paper's optimum for integrated
    gradients.
    """
    area, curve = _found(case, case.batch)
    return Scores(area, {"counted": curve}, SHARES)


@protocol(
    "modulo_deletion",
    **FACTS,
    higher_is_better=False,
    range=(0, 1),
    chance=0.5,
    uses="order",
    metric="area",
    title="Modulo deletion",
    axis="share of the pixels deleted",
)
def modulo_deletion(case: Case) -> Scores:
    """How many changes of a counting network's answer are still to come, as pixels are deleted.

    Formula: the area under 1 - c(k) / n, where c(k) counts how often the answer changed while the k
    pixels of largest |a| were set to zero, one by one; n and ties as for `modulo_insertion`. The
    best is n / 2T. Where no values are equal it is one minus the insertion.

    Beside the paper: as for `modulo_insertion`.
    """
    area, curve = _found(case, case.batch.redrawn(1))  # ties in an order of their own
    return Scores(1 - area, {"to_come": 1 - curve}, SHARES)


@protocol(
    "modulo_sensitivity_n",
    **FACTS,
    higher_is_better=True,
    range=(-1, 1),
    chance=0.0,
    uses="value",
    metric="correlation",
    title="Modulo Sensitivity-N",
)
def modulo_sensitivity_n(
    case: Case, *, permutations: Annotated[int, Field(ge=3)] | None = None
) -> Scores:
    """Correlation between the attribution of random pixels and how often they change a count.

    Formula: the mean over N of Pearson, over random sets of N pixels, of (the sum of |a| over the
    set, how many of them count). At every N below their number this is Pearson over the pixels of
    (|a|, 1 where a pixel counts): drawing without replacement scales covariance and both variances
    alike. An image where nothing counts, or everything, is left out for all methods alike.

    Beside the paper: it takes 100 random orders of the pixels and sets that grow along them,
    which is `permutations: 100`; the default is the limit of many. It does not say whether a or |a|
    is summed: it is |a|, as for `modulo_insertion`.
    """
    said, counts = (v.cpu().numpy() for v in _flat(case))
    if permutations is None:
        return Scores(torch.from_numpy(pearson(said, counts)))
    rows = [
        _along_orders(case.batch.generator(b, "orders of pixels"), permutations, *row)
        for b, row in enumerate(zip(said, counts, strict=True))
    ]
    return Scores(torch.tensor(rows, dtype=torch.float64))


def _along_orders(generator: torch.Generator, n: int, said: Array, counts: Array) -> float:
    """The mean over set sizes of the correlation of growing sums in `n` random orders."""
    orders = [torch.randperm(len(said), generator=generator).numpy() for _ in range(n)]
    sums = [np.stack([v[o].cumsum()[:-1] for o in orders], 1) for v in (said, counts)]
    by_size = pearson(*sums)  # [T - 1] from [T - 1, n]
    known = by_size[~np.isnan(by_size)]  # elsewhere all sets count alike
    return float(known.mean()) if len(known) else math.nan


def _found(case: Case, batch: Batch) -> tuple[Tensor, Tensor]:  # [B], [B, shares]
    """How much of what counts is among the first pixels: the area over all steps, and the curve."""
    said, counts = _flat(case)
    place = ranks(batch, make_units(batch, "elements"), said)  # [B, T], from 0
    total, number = counts.shape[1], counts.sum(1)
    number = torch.where(number == 0, torch.nan, number)
    area = 1 - ((place * counts).sum(1) / number + 0.5) / total
    first = (SHARES * total).round().tolist()
    curve = torch.stack([((place < k) * counts).sum(1) / number for k in first], 1)
    return area, curve


def _flat(case: Case) -> tuple[Tensor, Tensor]:  # [B, T] each
    """The size of every value, and 1 where its pixel counts, otherwise 0."""
    said, true = said_and_true(case)
    return said.abs().flatten(1), (true != 0).flatten(1).double()
