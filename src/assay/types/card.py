"""What is known about a network fine-tuned on inputs without one cell of a grid."""

import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, Self, get_args

from torch import Tensor

from assay.errors import InputError
from assay.plugins.option_types import Item
from assay.plugins.origins import addresses_in
from assay.plugins.registry import canonical, describe, get, pick

IN_DOMAIN = "in_domain"  # the capability of a fine-tuned network, and the key in `Model.card`
TRAINING_SAMPLES = "training_samples.safetensors"  # the file of their hashes, beside the card
HALF = 0.5  # the share of the images that lose a cell in the IDSDS study
CLOSE = 2.0  # a network is close to the placebo if it moved at most this many times as far
NEAR = 0.1  # a limit that is missed or kept by this share of it decides nothing

MEASURES = {"mad_softmax": "answers moved", "mad_gradcam": "Grad-CAM maps"}  # of a distance

# How far a network moved in words: compared with the placebo, and with another seed.
BEYOND = ("more than twice as far as the placebo", "further than two seeds differ")
AT_LIMIT = ("about twice as far as the placebo", "about as far as two seeds differ")
CURES = ("a placebo (`--placebo`)", "another seed (`--seeds`)")

# Types of fields in words; the first that a field has counts.
IN_WORDS = {
    dict: "a fill",
    float: "a number",
    int: "a whole number",
    bool: "true or false",
    str: "a text",
}


@dataclass(frozen=True)
class Card:
    """A fine-tuned network compared with the one it was made from, on held-out samples.

    Accuracies are shares. The worst patch counts a sample as right if it is right without each of
    the cells; the lowest patch removes the cell without which the label's logit is lowest. MAD is
    the mean absolute difference between the two networks: of the label's probability, and of
    Grad-CAM maps from 0 to 1 at the layer's own resolution. `overlap` is the mean Jaccard index of
    the ten samples that activate a channel of that layer most.

    `placebo_` values are of a network trained in the same way without removing anything, compared
    with the same base. `seeds_` values compare the base with a network of another seed.

    In-domain protocols take a network whose images lost a cell with probability 0.5: it has seen
    whole images as often as images without a cell.

    `training_hashes` identify the samples it was trained on by content, sorted. They are stored in
    a file of their own, 8 bytes for each sample.
    """

    grid: int
    fill: Item
    probability: float
    epochs: int
    seed: int
    placebo: bool
    accuracy_before: float
    accuracy_after: float
    worst_patch_before: float
    worst_patch_after: float
    lowest_patch_before: float
    lowest_patch_after: float
    mad_softmax: float
    mad_gradcam: float | None
    overlap: float | None
    weights_sha256: str  # `Model.weights_hash` of the fine-tuned network
    base_sha256: str  # and of the one it was made from
    origin: str  # of the samples: trained on what, measured on what
    n: int  # samples measured
    rate: float | None = None  # the highest learning rate
    batch: int | None = None
    placebo_accuracy: float | None = None
    placebo_worst_patch: float | None = None
    placebo_lowest_patch: float | None = None
    placebo_mad_softmax: float | None = None
    placebo_mad_gradcam: float | None = None
    placebo_overlap: float | None = None
    seeds_mad_softmax: float | None = None
    seeds_mad_gradcam: float | None = None
    seeds_overlap: float | None = None
    seeds_sha256: str | None = None  # the weights of the network of another seed
    training_sha256: str | None = None  # the hash of `training_hashes`
    training_hashes: Tensor | None = field(default=None, repr=False, compare=False)

    @property
    def capabilities(self) -> frozenset[str]:
        """What the network can be used for: nothing more for a placebo or another probability."""
        if self.placebo or self.probability != HALF:
            return frozenset()
        return frozenset({IN_DOMAIN, in_domain_need(self.grid, self.fill)})

    @property
    def use(self) -> str:
        """What it is a card of and what to do with it, to follow `its card is of`."""
        if self.placebo:
            return "a placebo: score the fine-tuned network, or fine-tune anew"
        if self.probability != HALF:
            return f"probability {self.probability:g}, not {HALF:g}: fine-tune anew"
        fill = fill_text(self.fill)
        return f"grid {self.grid} and fill {fill}: score with these, or fine-tune anew"

    @property
    def close_to_placebo(self) -> bool | None:
        """Whether it moved at most twice as far from its base as the placebo; None if unknown."""
        reach = self._reach("placebo", CLOSE)
        return None if reach is None else reach <= 1

    @property
    def closer_than_seeds(self) -> bool | None:
        """Whether it is closer to its base than two seeds are to each other; None if unknown."""
        reach = self._reach("seeds", 1.0)
        return None if reach is None else reach <= 1

    @property
    def same_network(self) -> bool | None:
        """Close to the placebo, and closer than two seeds are; None where one is unknown."""
        judged = (self.close_to_placebo, self.closer_than_seeds)
        if False in judged:
            return False
        return None if None in judged else True

    @property
    def sentence(self) -> str:
        """In words: whether it is still the same network or what is missing to say so; numbers."""
        return f"{self._verdict}. {self._numbers}."

    @property
    def _verdict(self) -> str:
        if self.placebo:
            return "A placebo"
        reaches = (self._reach("placebo", CLOSE), self._reach("seeds", 1.0))
        beyond = [
            words
            for words, reach in zip(BEYOND, reaches, strict=True)
            if reach is not None and reach > 1 + NEAR
        ]
        near = [
            words
            for words, reach in zip(AT_LIMIT, reaches, strict=True)
            if reach is not None and abs(reach - 1) <= NEAR
        ]
        missing = [cure for cure, reach in zip(CURES, reaches, strict=True) if reach is None]
        if beyond:
            return f"Not the same network: it moved {' and '.join(beyond)}"
        if near:
            return f"Undecided whether it is the same network: it moved {' and '.join(near)}"
        if missing:
            return f"Not known whether it is the same network: give {' and '.join(missing)}"
        return (
            "Still the same network: it moved less than twice as far as the placebo, and less than "
            "two seeds differ"
        )

    @property
    def _numbers(self) -> str:
        """How far the network, the placebo and another seed are from the network before."""
        parts = []
        for name, words in MEASURES.items():
            values = [getattr(self, f"{who}{name}") for who in ("", "placebo_", "seeds_")]
            beside = [
                f"{who} {value:.3f}"
                for who, value in zip(("placebo", "two seeds"), values[1:], strict=True)
                if value is not None
            ]
            if values[0] is not None:
                more = f" ({', '.join(beside)})" if beside else ""
                parts.append(f"{words} by {values[0]:.3f}{more}")
        return f"Its {', its '.join(parts)}"

    def to_json(self) -> dict[str, Any]:
        """The fields as plain values; unknown comparisons are left out."""
        values = {name: getattr(self, name) for name in STORED}
        return {name: value for name, value in values.items() if value is not None}

    @classmethod
    def from_json(cls, stored: Mapping[str, object]) -> Self:
        """A card from stored fields; unknown ones are ignored.

        Raises:
            InputError: A field is missing or of another type.
        """
        names = {name: one.default is MISSING for name, one in STORED.items()}
        known = {name: value for name, value in stored.items() if name in names}
        for name in ("mad_gradcam", "overlap"):  # there is no spatial layer
            known.setdefault(name, None)
        missing = [name for name, required in names.items() if required and name not in known]
        if missing:
            raise InputError(
                f"Expected a card of a fine-tuned network, got no `{missing[0]}`. `assay finetune` "
                f"writes `card.json`."
            )
        for name, one in STORED.items():
            _check_type(one, known.get(name, one.default))
        return cls(**known)  # type: ignore[arg-type]

    def _reach(self, who: str, times: float) -> float | None:
        """How far it moved as a share of `times` the other's way, the larger of both measures."""
        shares = []
        for name in MEASURES:
            mine, other = getattr(self, name), getattr(self, f"{who}_{name}")
            if other is None and name == "mad_softmax":
                return None
            if mine is not None and other is not None:
                shares.append(mine / (times * other) if other else math.inf if mine else 0.0)
        return max(shares)


STORED = {f.name: f for f in fields(Card) if f.name != "training_hashes"}  # in `card.json`


def in_domain_need(grid: int, fill: object) -> str:
    """The capability of a network fine-tuned with this grid and fill, as text."""
    return f"{IN_DOMAIN}:grid={grid},fill={fill_text(fill)}"


def fill_text(fill: object) -> str:
    """A fill as written in labels: `zero`, `blur(sigma=5)`; a tensor by the hash of its numbers.

    A fill that names code is not looked up, because a card must not run code: its options are taken
    as they are written.
    """
    stored = canonical(fill)
    if isinstance(stored, dict) and set(stored) == {"array"}:
        return describe(stored)
    name, options = pick(fill)
    if any(addresses_in(fill)):
        return f"{name}({describe(options)})" if options else name
    plugin = get("fill", name)
    configured = plugin.configure(options)
    different = {o: v for o, v in configured.items() if v != plugin.defaults.get(o)}
    return f"{name}({describe(different)})" if different else name


def _check_type(field: "Field[object]", value: object) -> None:
    """Reject a stored value that is not of the type of its field."""
    kinds = get_args(field.type) or (field.type,)
    if field.name == "fill":
        kinds = (str, dict)
    if float in kinds:
        kinds = (int, *kinds)
    if type(value) not in kinds:
        words = next(text for kind, text in IN_WORDS.items() if kind in kinds)
        raise InputError(
            f"Expected `{field.name}` of a card to be {words}, got {value!r}. Give the "
            f"`card.json` that `assay finetune` wrote."
        )
