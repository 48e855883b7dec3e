"""How far maps agree with what is truly relevant: arithmetic on two maps, without a network.

A map and a truth are signed, `[B, *units]`: positive speaks for the class, negative against it.
Sums run sample by sample, so that a score does not depend on who else is in the batch.
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

# At 224 pixels a side: the blur's sigma, and how far a hole may be from both its sides to be
# closed. Where half the pixels of a patch are missing, a hole of five a side is one in 2^25.
_SIGMA, _REACH, _SIDE = 5.0, 2, 224


def normalise(maps: Tensor) -> Tensor:
    """Positive values over the largest, negative ones over the smallest's size, each by itself.

    A side without values stays zero; the largest value of either sign becomes 1 or -1, however
    small it was beside the other.
    """
    values = maps.double()
    return _to_one(values.clamp(min=0)) - _to_one((-values).clamp(min=0))


def soft_scores(
    maps: Tensor, truth: Tensor, side: TruthSide = "overall", smooth: Smooth = "filled"
) -> tuple[Tensor, Tensor, Tensor]:  # each [B]
    """Precision, recall and their harmonic mean of maps that need not be yes or no.

    Precision is sum|a g| / sum|a|, 0 where a map is zero; recall is sum|a g| / sum|g|; a and g are
    what `sides` gives. NaN where the truth has nothing on that side: nothing can be said there.

    Args:
        maps: What methods say, raw.
        truth: What is truly relevant, of the same shape.
        side: Which signs are held against which.
        smooth: How `positive_smooth` makes a truth for maps that cannot be sharp.
    """
    said, true = sides(maps, truth, side, smooth)
    both, mass, size = _total(said * true), _total(said), _total(true)
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
    """Map and truth, normalised, as sizes on one side: both at least 0 and at most 1."""
    said, true = normalise(maps), normalise(truth)
    if side == "overall":
        return said.abs(), true.abs()
    if side == "negative":
        return (-said).clamp(min=0), (-true).clamp(min=0)
    said, true = said.clamp(min=0), true.clamp(min=0)
    return said, smoothed(true > 0, smooth) if side == "positive_smooth" else true


def smoothed(mask: Tensor, smooth: Smooth) -> Tensor:  # [B, H, W]
    """A mask with its holes closed, or blurred and scaled to a largest value of 1.

    Sizes are for 224 pixels and shrink with the shorter side: holes of up to 4 pixels, sigma 5.

    Raises:
        NotApplicable: It is no mask of images.
    """
    if mask.ndim != 3:
        raise NotApplicable("A smooth truth exists for images only; these maps are not.")
    share = min(mask.shape[1:]) / _SIDE
    images = mask[:, None].double()
    if smooth == "gaussian":
        blurred = torch.cat([gaussian(image[None], _SIGMA * share) for image in images])
        return _to_one(blurred[:, 0])
    reach = max(1, round(_REACH * share))
    grown = functional.max_pool2d(images, 2 * reach + 1, 1, reach)
    return 1 - functional.max_pool2d(1 - grown, 2 * reach + 1, 1, reach)[:, 0]


def mass_inside(said: Tensor, inside: Tensor, there: Tensor) -> Tensor:  # [B]
    """The share of a map's mass that lies inside; a map of zeros has the share of the area.

    `said` is at least 0; `there` tells which units exist.
    """
    inside = inside & there
    area = _total(inside.double()) / _total(there.double())
    mass = _total(torch.where(there, said, 0.0))
    share = _total(torch.where(inside, said, 0.0)) / torch.where(mass == 0, 1.0, mass)
    return _known(torch.where(mass == 0, area, share), inside)


def top_inside(said: Tensor, inside: Tensor, there: Tensor) -> Tensor:  # [B]
    """Whether the highest value lies inside; of several, the share of them that do."""
    ranked = torch.where(there, said, -torch.inf).flatten(1)
    top = ranked == ranked.amax(1, keepdim=True)
    hits = _total((top & inside.flatten(1)).double()) / _total(top.double())
    return _known(hits, inside & there)


def average_precision(said: Tensor, inside: Tensor, there: Tensor) -> Tensor:  # [B]
    """The precision of a map as a ranking of its units, averaged over those inside; ties as one."""
    rows = zip(said, inside, there, strict=True)
    return torch.stack([_average_precision(s[t], i[t]) for s, i, t in rows])


def _average_precision(said: Tensor, inside: Tensor) -> Tensor:  # [units] -> one number
    ranked, order = said.double().sort(descending=True)
    hits = inside[order].double().cumsum(0)
    last = functional.pad(ranked[1:] != ranked[:-1], (0, 1), value=True)  # of equal ones
    ranks, hits = last.nonzero().flatten() + 1, hits[last]
    gained = hits.diff(prepend=hits.new_zeros(1))
    return (gained * hits / ranks).sum() / hits[-1]  # NaN where nothing is inside


def _known(scores: Tensor, inside: Tensor) -> Tensor:
    return torch.where(inside.flatten(1).any(1), scores, torch.nan)


def _to_one(sizes: Tensor) -> Tensor:
    """Values of at least 0, each sample's over its largest."""
    top = sizes.flatten(1).amax(1).reshape(-1, *[1] * (sizes.ndim - 1))
    return sizes / torch.where(top == 0, 1.0, top)


def _total(values: Tensor) -> Tensor:  # [B, *units] -> [B]
    return torch.stack([row.sum() for row in values])
