"""How well attribution maps agree with the ground truth: arithmetic on two maps, no network.

A map and a truth are signed, `[B, *units]`: positive values support the class, negative ones speak
against it. Sums run sample by sample, so a score does not depend on the rest of the batch.
"""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from assay.errors import NotApplicable
from assay.removal.fills import gaussian

TruthSide = Literal["overall", "positive", "negative", "positive_smooth"]
Smooth = Literal["filled", "gaussian"]
Region = Literal["positive", "overall"]

# At 224 pixels a side: the sigma of the blur, and half the width of the widest hole that is closed.
# Where half the pixels of a patch are missing, a hole of 5 x 5 pixels has probability 2^-25.
_SIGMA, _REACH, _SIDE = 5.0, 2, 224


def normalise(maps: Tensor) -> Tensor:
    """Scale each sign by itself: positive values by the largest, negative ones by the smallest.

    A sign without values stays zero; the extreme value of either sign becomes 1 or -1, however
    small it is compared with the other.
    """
    values = maps.double()
    return _to_one(values.clamp(min=0)) - _to_one((-values).clamp(min=0))


def soft_scores(
    maps: Tensor, truth: Tensor, side: TruthSide = "overall", smooth: Smooth = "filled"
) -> tuple[Tensor, Tensor, Tensor]:  # each [B]
    """Precision, recall and their harmonic mean, for maps with continuous values.

    Precision is sum|a g| / sum|a|, 0 where a map is zero; recall is sum|a g| / sum|g|; a and g are
    what `sides` returns. NaN where the truth has no value on that side: no score is defined there.

    Args:
        maps: Raw attribution maps.
        truth: The ground truth, of the same shape.
        side: Which signs of the map are compared with which signs of the truth.
        smooth: How `positive_smooth` smooths the truth, for maps that cannot be sharp.
    """
    marked, true = sides(maps, truth, side, smooth)
    both, mass, size = _total(marked * true), _total(marked), _total(true)
    precision = both / torch.where(mass == 0, 1.0, mass)
    recall = both / torch.where(size == 0, 1.0, size)
    together = precision + recall
    f1 = 2 * precision * recall / torch.where(together == 0, 1.0, together)
    known = size > 0
    precision, recall, f1 = (torch.where(known, v, torch.nan) for v in (precision, recall, f1))
    return precision, recall, f1


def sides(
    maps: Tensor, truth: Tensor, side: TruthSide, smooth: Smooth = "filled"
) -> tuple[Tensor, Tensor]:
    """Map and truth, normalised, as magnitudes of one side: both between 0 and 1."""
    marked, true = normalise(maps), normalise(truth)
    if side == "overall":
        return marked.abs(), true.abs()
    if side == "negative":
        return (-marked).clamp(min=0), (-true).clamp(min=0)
    marked, true = marked.clamp(min=0), true.clamp(min=0)
    return marked, smoothed(true > 0, smooth) if side == "positive_smooth" else true


def smoothed(mask: Tensor, smooth: Smooth) -> Tensor:  # [B, H, W]
    """A mask with its holes closed, or blurred and scaled to a largest value of 1.

    At 224 pixels, holes of up to 4 pixels are closed and sigma is 5; both scale with the shorter
    side.

    Raises:
        NotApplicable: The maps are not images.
    """
    if mask.ndim != 3:
        raise NotApplicable(
            f"A smooth truth is for maps of [height, width]; these are {tuple(mask.shape[1:])}."
        )
    share = min(mask.shape[1:]) / _SIDE
    images = mask[:, None].double()
    if smooth == "gaussian":
        blurred = torch.cat([gaussian(image[None], _SIGMA * share) for image in images])
        return _to_one(blurred[:, 0])
    reach = max(1, round(_REACH * share))
    grown = functional.max_pool2d(images, 2 * reach + 1, 1, reach)
    return 1 - functional.max_pool2d(1 - grown, 2 * reach + 1, 1, reach)[:, 0]


def mass_inside(values: Tensor, inside: Tensor, there: Tensor) -> Tensor:  # [B]
    """The share of a map's mass that lies inside; for a map of zeros, the share of the area.

    `values` are at least 0; `there` marks the units that exist.
    """
    inside = inside & there
    area = _total(inside.double()) / _total(there.double())
    mass = _total(torch.where(there, values, 0.0))
    share = _total(torch.where(inside, values, 0.0)) / torch.where(mass == 0, 1.0, mass)
    return _known(torch.where(mass == 0, area, share), inside)


def top_inside(values: Tensor, inside: Tensor, there: Tensor) -> Tensor:  # [B]
    """Whether the highest value lies inside; among several highest, the share that does."""
    ranked = torch.where(there, values, -torch.inf).flatten(1)
    top = ranked == ranked.amax(1, keepdim=True)
    hits = _total((top & inside.flatten(1)).double()) / _total(top.double())
    return _known(hits, inside & there)


def average_precision(values: Tensor, inside: Tensor, there: Tensor) -> Tensor:  # [B]
    """Average precision of a map as a ranking of its units; equal values share one rank."""
    rows = zip(values, inside, there, strict=True)
    return torch.stack([_average_precision(v[t], i[t]) for v, i, t in rows])


def _average_precision(values: Tensor, inside: Tensor) -> Tensor:  # [units] -> one number
    ranked, order = values.double().sort(descending=True)
    hits = inside[order].double().cumsum(0)
    last = functional.pad(ranked[1:] != ranked[:-1], (0, 1), value=True)  # of a run of ties
    ranks, hits = last.nonzero().flatten() + 1, hits[last]
    gained = hits.diff(prepend=hits.new_zeros(1))
    return (gained * hits / ranks).sum() / hits[-1]  # NaN where nothing is inside


def _known(scores: Tensor, inside: Tensor) -> Tensor:
    return torch.where(inside.flatten(1).any(1), scores, torch.nan)


def _to_one(sizes: Tensor) -> Tensor:
    """Divide each sample's values, all at least 0, by the largest."""
    top = sizes.flatten(1).amax(1).reshape(-1, *[1] * (sizes.ndim - 1))
    return sizes / torch.where(top == 0, 1.0, top)


def _total(values: Tensor) -> Tensor:  # [B, *units] -> [B]
    return torch.stack([row.sum() for row in values])
