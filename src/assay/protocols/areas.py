"""Areas under curves, over the share that was really removed from each sample."""

from collections.abc import Sequence

import torch
from torch import Tensor

from assay.ranking import arithmetic
from assay.types import Case
from assay.units.absent import RoundedNumber, rank_counts
from assay.units.features import UnitsChoice, make_units


def area(values: Tensor, x: Tensor) -> Tensor:  # [B, K], [K] or [B, K] -> [B]
    """The area under curves by the trapezoid rule, per unit of x."""
    return torch.from_numpy(arithmetic.area(values.double().cpu().numpy(), x.cpu().numpy()))


def own_shares(
    case: Case,
    units: UnitsChoice,
    shares: Sequence[float],
    *,
    descending: bool,
    whole: RoundedNumber = "nearest",
) -> Tensor:  # [B, K]
    """The share of each sample's units that is absent where a curve states `shares`.

    Only whole units can be removed: of five units a third is two, so .4 is absent. A sample without
    units has the stated shares.
    """
    features = make_units(case.batch, units)
    counts = rank_counts(features, shares, descending=descending, whole=whole).double()
    number = features.valid.sum(1, keepdim=True)
    stated = torch.tensor(shares, dtype=torch.float64, device=counts.device)
    return torch.where(number > 0, counts / number.clamp(min=1), stated)
