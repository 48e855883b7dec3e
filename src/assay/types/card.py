"""What is known about a network fine-tuned on inputs without one cell of a grid."""

from collections.abc import Mapping
from dataclasses import MISSING, Field, asdict, dataclass, fields
from typing import Any, Self, get_args

from assay.errors import InputError
from assay.plugins.option_types import Item
from assay.plugins.origins import addresses_in
from assay.plugins.registry import canonical, describe, get, pick

IN_DOMAIN = "in_domain"  # the capability of a fine-tuned network, and the key in `Model.card`
HALF = 0.5  # the share of the images that lose a cell in the IDSDS study
CLOSE = 2.0  # a network is close to the placebo if it moved at most this many times as far

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

    @property
    def capabilities(self) -> frozenset[str]:
        """What the network can be used for: nothing more for a placebo or another probability."""
        if self.placebo or self.probability != HALF:
            return frozenset()
        return frozenset({IN_DOMAIN, in_domain_need(self.grid, self.fill)})

    @property
    def close_to_placebo(self) -> bool | None:
        """Whether it moved at most twice as far from its base as the placebo; None if unknown."""
        return _no_further(self._moved, self._of("placebo"), CLOSE)

    @property
    def closer_than_seeds(self) -> bool | None:
        """Whether it is closer to its base than two seeds are to each other; None if unknown."""
        return _no_further(self._moved, self._of("seeds"), 1.0)

    @property
    def same_network(self) -> bool | None:
        """Close to the placebo, and closer than two seeds are; None where one is unknown."""
        judged = (self.close_to_placebo, self.closer_than_seeds)
        if False in judged:
            return False
        return None if None in judged else True

    @property
    def sentence(self) -> str:
        """In words: whether it is still the same network, or what is missing to say so."""
        moved = f"its answers moved by {self.mad_softmax:.3f}"
        against = {
            "the placebo's by": self.placebo_mad_softmax,
            "two seeds differ by": self.seeds_mad_softmax,
        }
        known = [f"{words} {value:.3f}" for words, value in against.items() if value is not None]
        moved = ", ".join([moved, *known])
        if self.same_network is not None:
            return f"{'Still' if self.same_network else 'Not'} the same network: {moved}."
        missing = [
            word
            for word, judged in (
                ("a placebo (`--placebo`)", self.close_to_placebo),
                ("another seed (`--seeds`)", self.closer_than_seeds),
            )
            if judged is None
        ]
        if self.placebo:
            missing = missing[1:]
            if not missing:
                return f"A placebo: {moved}."
        return f"Not known whether it is the same network: {moved}. Give {' and '.join(missing)}."

    def to_json(self) -> dict[str, Any]:
        """The fields as plain values; unknown comparisons are left out."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_json(cls, stored: Mapping[str, object]) -> Self:
        """A card from stored fields; unknown ones are ignored.

        Raises:
            InputError: A field is missing or of another type.
        """
        names = {field.name: field.default is MISSING for field in fields(cls)}
        known = {name: value for name, value in stored.items() if name in names}
        for name in ("mad_gradcam", "overlap"):  # there is no spatial layer
            known.setdefault(name, None)
        missing = [name for name, required in names.items() if required and name not in known]
        if missing:
            raise InputError(
                f"Expected a card of a fine-tuned network, got no `{missing[0]}`. `assay finetune` "
                f"writes `card.json`."
            )
        for field in fields(cls):
            _check_type(field, known.get(field.name, field.default))
        return cls(**known)  # type: ignore[arg-type]

    @property
    def _moved(self) -> tuple[float, float | None]:
        return self.mad_softmax, self.mad_gradcam

    def _of(self, who: str) -> tuple[float | None, float | None]:
        return getattr(self, f"{who}_mad_softmax"), getattr(self, f"{who}_mad_gradcam")


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


def _no_further(
    moved: tuple[float, float | None], other: tuple[float | None, float | None], times: float
) -> bool | None:
    """Whether no measure exceeds `times` the other's; None where the first is unknown."""
    if other[0] is None:
        return None
    pairs = [(m, o) for m, o in zip(moved, other, strict=True) if m is not None and o is not None]
    return all(m <= times * o for m, o in pairs)
