"""Parts: does a map find the important parts of images that are painted from parts?

A part is removed by painting the image without it, so the network sees no unusual images. A part's
attribution is the map's sum over its pixels and a margin, because parts share edges.
"""

import functools
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from assay.engine.engine import intervention
from assay.errors import InputError
from assay.plugins.option_types import Output
from assay.plugins.registry import protocol
from assay.protocols.table_one import SHARES_OF_OUTPUTS, ranked_part_drops
from assay.ranking.arithmetic import spearman
from assay.removal import FillChoice
from assay.types import Batch, Case, Scores
from assay.units.absent import Absent, each
from assay.units.features import Features, make_units, parts_of

PartTest = Literal[
    "completeness", "data_check", "preservation", "deletion_check", "distractibility"
]
MARGIN = 2 / 256  # of the image's side, around every piece of a part
THRESHOLDS = tuple((0.01 + 0.49 * k / 79) for k in range(80))


@protocol(
    "part_deletion",
    properties=ranked_part_drops,
    higher_is_better=True,
    range=(0, 1),
    chance=0.5,
    uses="value",
    sign_sensitive=True,
    needs=["parts"],
    metric="agreement",
    family="parts",
    question="effects",
    cite="hesse2023funnybirds",
    title="Part deletion",
    intervenes=lambda batch, o: intervention(batch, "parts", o["fill"], o["output"]),
)
def part_deletion(case: Case, *, fill: FillChoice = "rerender", output: Output = "logit") -> Scores:
    """Rank agreement between a part's attribution and the drop when it is not painted.

    Formula: (1 + Spearman over the parts k of (e_k, d_k)) / 2 with d_k = f(x) - f(x without k), e_k
    the map's sum over the pixels of k and a margin, for each of its pieces (two wings) by itself.

    `area`, an extra, is the score of the parts' areas, that is of a map that is 1 everywhere: parts
    differ in size, and a good map scores better than that. (A constant map itself counts as
    uninformative and scores 0.5.) `parts_seen` counts the visible parts; a hidden part stays in,
    with e_k = 0.

    Differs from the paper: the paper leaves out images where the correlation is undefined; here a
    constant map scores 0.5, and an image whose parts all cause the same drop is left out for all
    methods. The margin is 2 of 256 pixels, at least one. Misclassified images count, as in the
    paper.
    """
    parts = make_units(case.batch, "parts")
    answers = case.respond(parts, each(parts), fill).output(output)
    drops = (case.clean.output(output).double() - answers.double()).cpu().numpy()  # [B, P]
    everywhere = importance(case.batch, torch.ones_like(case.attribution)).cpu()
    sums = importance(case.batch, case.attribution).cpu()

    def agreement(values: Tensor) -> Tensor:  # [B]
        return (torch.from_numpy(spearman(values.numpy(), drops)) + 1) / 2

    seen = (everywhere > 0).sum(1).double()
    return Scores(agreement(sums), extra={"area": agreement(everywhere), "parts_seen": seen})


def importance(batch: Batch, maps: Tensor, things: bool = False) -> Tensor:  # [B, P]
    """The map's sum over each part, followed by each of the `things` around the animal.

    Each piece is grown by a margin on its own, so pixels between two pieces count for both.
    """
    of = parts_of(batch, "parts to sum a map over")
    most = max(map(of.things, batch.ids)) if things else 0
    owners = [*of.pieces, *range(len(of.names), len(of.names) + most)]
    places = torch.stack([of.places(i) for i in batch.ids]).to(maps.device)  # [B, H, W]
    margin = max(1, round(MARGIN * min(places.shape[1:])))
    totals = maps.new_zeros(len(maps), len(of.names) + most, dtype=torch.float64)
    for piece, owner in enumerate(owners):
        seen = grown(places == piece, margin)
        totals[:, owner] += torch.where(seen, maps, 0).flatten(1).double().sum(1)
    return totals


def grown(mask: Tensor, margin: int) -> Tensor:  # [B, H, W] bool
    """The mask extended by `margin` pixels in every direction."""
    for axis in (1, 2):
        near = mask.clone()
        for step in range(1, margin + 1):
            left = mask.shape[axis] - step
            near.narrow(axis, 0, left).logical_or_(mask.narrow(axis, step, left))
            near.narrow(axis, step, left).logical_or_(mask.narrow(axis, 0, left))
        mask = near
    return mask


@protocol(
    "part_completeness",
    properties=SHARES_OF_OUTPUTS,
    higher_is_better=True,
    range=(0, 1),
    uses="value",
    sign_sensitive=True,
    needs=["parts", "labels"],
    metric="completeness",
    reduce="part_checks",
    axis="threshold",
    judges="set",
    family="parts",
    question="values",
    cite="hesse2023funnybirds",
    title="Part completeness",
)
def part_completeness(
    case: Case,
    *,
    score: PartTest = "completeness",
    fill: FillChoice = "rerender",
    output: Output = "logit",
    irrelevant: Annotated[float, Field(ge=0)] = 0.05,
    whole: Literal["positive", "signed"] = "positive",
) -> Scores:
    """Whether a map's important parts are sufficient, necessary, and free of irrelevant ones.

    Formula: I = the parts and things with e_k > tau x the whole map. `data_check`: the largest |S
    and I| / |S| over the minimal sets S of parts that no other class shares, on correctly
    classified images. `preservation`: whether I alone keeps the prediction. `deletion_check`:
    whether the prediction changes without I. `distractibility`: 1 - |Q and I| / |Q|, with Q the
    parts and things whose removal lowers f(x) by less than `irrelevant` of it, or raises it.
    `completeness` = ((data_check + preservation + deletion_check) / 3 + distractibility) / 2.

    One tau, of 80 from 0.01 to 0.5, is used for all images: the one with the largest completeness,
    whichever `score` is chosen. Each bootstrap resample chooses it again.

    Differs from the paper: "the whole map" is its positive sum; the authors' code takes the signed
    sum (`whole: signed`), so that nearly every part of a map with a negative sum is important. Maps
    explain the target class, for `preservation` and `deletion_check` too, where the code explains
    the predicted class. The rule of 5 % of a logit depends on a constant that a network may add to
    all logits; `output: probability` does not.
    """
    batch, maps = case.batch, case.attribution.flatten(1).double()  # [B, N]
    if batch.labels is None:
        raise InputError(
            "Expected labels, which decide whether an image is classified correctly, got none. "
            "Give the data labels, or leave this protocol out."
        )
    parts, everything = make_units(batch, "parts"), make_units(batch, {"parts": {"things": True}})
    levels = torch.tensor(THRESHOLDS, dtype=torch.float64, device=maps.device)
    mass = (maps.clamp(min=0) if whole == "positive" else maps).sum(1)
    sums = importance(batch, case.attribution, things=True)  # [B, P]
    important = sums[:, None] > (levels * mass[:, None])[:, :, None]  # [B, tau, P]
    named = important[:, :, : parts.count].long() @ _bits(parts)  # [B, tau]

    before = case.clean.predicted  # [B, 1]
    after = case.respond(parts, every_set(parts), fill).predicted  # [B, 2 ** parts]
    alone, without = after.gather(1, after.shape[1] - 1 - named), after.gather(1, named)
    table = covered(parts_of(batch, "classes of parts").classes).to(maps.device)
    right = before[:, 0] == batch.labels
    cost = case.clean.output(output).double()
    cost = cost - case.respond(everything, each(everything), fill).output(output).double()
    small = irrelevant * case.clean.output(output).double().abs()
    idle = ((cost.abs() < small) | (cost < 0)) & everything.valid  # [B, P]
    distracted = (important & idle[:, None]).sum(2) / idle.sum(1)[:, None]  # NaN: nothing is idle
    curves = {
        "data_check": table[batch.labels].gather(1, named).masked_fill(~right[:, None], torch.nan),
        "preservation": (alone == before).double(),
        "deletion_check": (without != before).double(),
        "distractibility": 1 - distracted.double(),
    }
    return Scores(torch.full((len(batch),), torch.nan), curves, levels.cpu())


def _bits(parts: Features) -> Tensor:  # [P]
    return 2 ** torch.arange(parts.count, device=parts.valid.device)


def every_set(parts: Features) -> Absent:
    """All sets of parts, numbered by their bits; they do not depend on the map."""
    bits = _bits(parts)
    last = 2**parts.count - 1
    rows = ("none", *(str(number) for number in range(1, last)), "all")
    return Absent("every set", rows, lambda _, row: (row[:, None] & bits) > 0)


def minimal_sets(classes: Tensor, label: int) -> list[frozenset[int]]:
    """The minimal sets of parts that distinguish a class from all others; none contains another."""
    same = classes == classes[label]  # [classes, parts]
    same = same[torch.arange(len(classes), device=classes.device) != label]
    minimal: list[frozenset[int]] = []
    number = classes.shape[1]
    by_size = sorted(range(2**number), key=lambda bits: (bits.bit_count(), bits))
    for bits in by_size:
        parts = [k for k in range(number) if bits >> k & 1]
        if not any(smaller <= set(parts) for smaller in minimal) and not bool(
            same[:, parts].all(1).any()
        ):
            minimal.append(frozenset(parts))
    return minimal


def covered(classes: Tensor) -> Tensor:  # [classes, 2 ** parts]
    """For each set of parts, its largest share of a minimal set of the class; numbered by bits."""
    return _covered(tuple(map(tuple, classes.tolist())))


@functools.lru_cache(maxsize=8)
def _covered(rows: tuple[tuple[int, ...], ...]) -> Tensor:
    classes = torch.tensor(rows)
    number = classes.shape[1]
    named = [{k for k in range(number) if bits >> k & 1} for bits in range(2**number)]
    return torch.tensor(
        [
            [max(len(s & there) / len(s) for s in sets) for there in named]
            for sets in (minimal_sets(classes, label) for label in range(len(classes)))
        ],
        dtype=torch.float64,
    )
