"""Insertion, deletion and Sensitivity-N for networks that count the pixels of the truth.

The output of a network that counts pixels modulo a number changes whenever one of them is inserted
or removed, and does not change with any other pixel. Its output is therefore known from the truth:
these protocols compute it without a forward pass.
"""

import math
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from assay.plugins.option_types import Options
from assay.plugins.registry import protocol
from assay.protocols.table_one import KNOWN_TRUTH
from assay.protocols.truth import map_and_truth
from assay.ranking.arithmetic import pearson
from assay.store import Array
from assay.types import Batch, Case, Scores
from assay.types.random_numbers import Stream
from assay.units.absent import ranks
from assay.units.features import make_units

FACTS: Options = {
    "sign_sensitive": False,
    "needs": ["counted", "image", "truth"],
    "family": "truth",
    "question": "known truth",
    "properties": KNOWN_TRUTH,
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
    """How early a counting network's output makes its changes while pixels are inserted.

    Formula: the area under c(k) / n, where c(k) is how often the output changed while the k pixels
    of largest |a| were inserted, one by one, into an empty image, and n is the number of pixels
    that are counted. It equals 1 - (r - 1/2) / T, with r the mean rank of these n among all T
    pixels. The best score is 1 - n / 2T. Equal values are ordered at random, with another draw than
    in `modulo_deletion`. Images without a counted pixel are left out for all methods.

    Differs from the paper: the paper does not say whether a or |a| is ranked. The sign of a
    gradient is arbitrary for a count modulo a number, and only |a| gives the paper's optimum for
    integrated gradients.
    """
    area, curve = _counted_curve(case, case.batch)
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
    """How late a counting network's output makes its changes while pixels are removed.

    Formula: the area under 1 - c(k) / n, where c(k) is how often the output changed while the k
    pixels of largest |a| were set to zero, one by one; n and ties as for `modulo_insertion`. The
    best score is n / 2T. Without ties it is one minus `modulo_insertion`.

    Differs from the paper: as for `modulo_insertion`.
    """
    area, curve = _counted_curve(case, case.batch.redrawn(1))  # ties in another random order
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
    """Correlation between the attribution of random sets of pixels and their effect on the count.

    Formula: the mean over N of Pearson, over random sets of N pixels, of (the sum of |a| over the
    set, the number of counted pixels in it). For every N below the number of pixels this equals
    Pearson over the pixels of (|a|, 1 where a pixel is counted): drawing without replacement scales
    the covariance and both variances equally. Images where no pixel or every pixel is counted are
    left out for all methods.

    Differs from the paper: the paper takes 100 random orders of the pixels and sets that grow along
    them, which is `permutations: 100`; the default is the limit of many orders. The paper does not
    say whether a or |a| is summed; here it is |a|, as for `modulo_insertion`.
    """
    sizes, counts = (v.cpu().numpy() for v in _flat(case))
    if permutations is None:
        return Scores(torch.from_numpy(pearson(sizes, counts)))
    rows = [
        _along_orders(case.batch.stream(b, "orders of pixels"), permutations, *row)
        for b, row in enumerate(zip(sizes, counts, strict=True))
    ]
    return Scores(torch.tensor(rows, dtype=torch.float64))


def _along_orders(stream: Stream, n: int, sizes: Array, counts: Array) -> float:
    """The correlation of sums that grow along `n` random orders, averaged over set sizes."""
    orders = stream.orders(n, len(sizes))
    sums = [np.stack([v[o].cumsum()[:-1] for o in orders], 1) for v in (sizes, counts)]
    by_size = pearson(*sums)  # [T - 1] from [T - 1, n]
    known = by_size[~np.isnan(by_size)]  # NaN where all sets hold equally many counted pixels
    return float(known.mean()) if len(known) else math.nan


def _counted_curve(case: Case, batch: Batch) -> tuple[Tensor, Tensor]:  # [B], [B, shares]
    """The share of counted pixels among the first k pixels: area over all k, and the curve."""
    sizes, counts = _flat(case)
    place = ranks(batch, make_units(batch, "elements"), sizes)  # [B, T], from 0
    total, number = counts.shape[1], counts.sum(1)
    number = torch.where(number == 0, torch.nan, number)
    area = 1 - ((place * counts).sum(1) / number + 0.5) / total
    first = (SHARES * total).round().tolist()
    curve = torch.stack([((place < k) * counts).sum(1) / number for k in first], 1)
    return area, curve


def _flat(case: Case) -> tuple[Tensor, Tensor]:  # [B, T] each
    """The size of every value, and 1 where its pixel is counted, otherwise 0."""
    maps, true = map_and_truth(case)
    return maps.abs().flatten(1), (true != 0).flatten(1).double()
