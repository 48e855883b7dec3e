"""The rows of a comparison of models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from assay.ranking.rows import PublicRow


@dataclass(frozen=True)
class Bounded:
    """A number with its interval, None where it is not known, and the number of samples."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0


@dataclass(frozen=True)
class ModelRow:
    """One model under one protocol.

    Attributes:
        model: Label of the model.
        architecture: What its replicates have in common.
        accuracy: Share of the samples that it predicts correctly, with Wilson's interval.
        score: Score of the best common method, chosen on one half and scored on the other.
        chosen: The methods that are best on the first and on the second half.
        rank: The place of the first model of its group in the list by score: models that are not
            clearly worse than the first one share a rank. None where there is no order.
        noise: Ceiling: how far its drops are the same under tiny noise, a rank correlation.
        other_fill: Ceiling: how far its drops are the same under another fill.
        n: Number of samples.
        tuning: The card of its fine-tuning in words; empty without one.
        weak: Whether it is hardly right more often than by chance.
    """

    model: str
    architecture: str
    accuracy: Bounded
    score: Bounded
    chosen: tuple[str, str]
    rank: int | None
    noise: Bounded
    other_fill: Bounded
    n: int
    tuning: str = ""
    weak: bool = False


@dataclass(frozen=True)
class ModelMethodRow:
    """One method on one model: `common` to all models, `intrinsic`, or on `some` models only."""

    model: str
    method: str
    kind: str
    score: Bounded
    n: int


@dataclass(frozen=True)
class ArchitectureRow:
    """Replicates of one architecture: intervals are over samples and over replicates."""

    architecture: str
    models: tuple[str, ...]
    accuracy: Bounded
    score: Bounded
    deviation: float  # standard deviation between the replicates
    rank: int | None


@dataclass(frozen=True)
class PairRow:
    """One model or architecture minus another on `n` samples, positive where the first is better.

    The intervals hold for all pairs at once.
    """

    first: str
    second: str
    difference: float
    low: float | None
    high: float | None
    verdict: str  # better, worse or unclear
    n: int = 0


@dataclass(frozen=True)
class Association:
    """Spearman's correlation of score and accuracy over `n` models or architectures."""

    value: float
    low: float
    high: float
    n: int
    over: str  # models or architectures


@dataclass(frozen=True)
class LeftOut:
    """A model or a method that is not part of a comparison, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Refusal:
    """A protocol that compares no models, and why; `left_out` has the reason of each model."""

    protocol: str
    reason: str
    left_out: tuple[LeftOut, ...] = ()


@dataclass(frozen=True)
class ModelComparison:
    """All models of one dataset under one protocol.

    Attributes:
        dataset: Label of the dataset.
        protocol: Label of the protocol.
        metric: Name of the score.
        higher_is_better: Direction of the score.
        methods: The methods that all models have; the best of them is the score.
        models: The models, best first.
        pairs: All pairs of models.
        architectures: The architectures with several models, best first.
        architecture_pairs: All pairs of these.
        by_method: The score of each method on each model.
        correlation: Of score and accuracy; None with fewer than five models.
        left_out: Other models, and why they are not compared.
        methods_left_out: Methods that not all models have.
        notes: What limits the comparison.
    """

    dataset: str
    protocol: str
    metric: str
    higher_is_better: bool
    methods: tuple[str, ...]
    models: tuple[ModelRow, ...]
    pairs: tuple[PairRow, ...]
    architectures: tuple[ArchitectureRow, ...] = ()
    architecture_pairs: tuple[PairRow, ...] = ()
    by_method: tuple[ModelMethodRow, ...] = ()
    correlation: Association | None = None
    left_out: tuple[LeftOut, ...] = ()
    methods_left_out: tuple[LeftOut, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def intrinsic(self) -> list[ModelMethodRow]:
        """The maps of networks that explain themselves, which are not part of the score."""
        return [row for row in self.by_method if row.kind == "intrinsic"]


@dataclass(frozen=True)
class ModelComparisons:
    """The comparisons of some runs, and the protocols that compare no models."""

    comparisons: tuple[ModelComparison, ...]
    refused: tuple[Refusal, ...] = ()
    notes: tuple[str, ...] = ()

    def as_dict(self) -> PublicRow:
        """All rows as plain objects, for programs."""
        return asdict(self)

    @property
    def rows(self) -> list[PublicRow]:
        """One row per dataset, protocol and model."""
        return [
            {"dataset": one.dataset, "protocol": one.protocol, **asdict(row)}
            for one in self.comparisons
            for row in one.models
        ]

    def __repr__(self) -> str:
        """The models in order, one line each, then what is left out."""
        lines = [line for one in self.comparisons for line in _lines(one)]
        return "\n".join([*lines, *self.notes]) or "no models"


def _lines(one: ModelComparison) -> list[str]:
    width = max(len(row.model) for row in one.models)
    lines = [f"{one.dataset}: {one.protocol}, best of {len(one.methods)} common methods"]
    for row in one.models:
        rank = "-" if row.rank is None else str(row.rank)
        accuracy = in_text(row.accuracy)
        lines.append(f"  {rank:>2}  {row.model:{width}}  {in_text(row.score)}  accuracy {accuracy}")
    return [*lines, *(f"  {line}" for line in sentences(one.left_out))]


def in_text(number: Bounded, digits: int = 3) -> str:
    """A number and its interval as text; empty where it is not known."""
    if number.value is None:
        return ""
    if number.low is None or number.high is None:
        return f"{number.value:.{digits}f}"
    return f"{number.value:.{digits}f} [{number.low:.{digits}f}, {number.high:.{digits}f}]"


def by_reason(left_out: Sequence[LeftOut]) -> list[tuple[str, str]]:
    """Each reason once, after the names that it is about."""
    reasons = dict.fromkeys(one.reason for one in left_out)
    return [
        (", ".join(one.name for one in left_out if one.reason == reason), reason)
        for reason in reasons
    ]


def sentences(left_out: Sequence[LeftOut]) -> list[str]:
    """One sentence for the names with one reason, then the reason."""
    return [f"Left out: {names}. {reason}" for names, reason in by_reason(left_out)]
