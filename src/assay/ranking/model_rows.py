"""The rows of a comparison of models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from assay.ranking.rows import PublicRow


@dataclass(frozen=True)
class Bounded:
    """A number with its interval; None where it is not known."""

    value: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class ModelRow:
    """One model under one protocol.

    Attributes:
        model: Label of the model.
        architecture: What its replicates have in common.
        accuracy: Share of the samples that it predicts correctly, with Wilson's interval.
        score: Score of the best common method, chosen on one half and scored on the other.
        chosen: The methods that are best on the first and on the second half.
        rank: 1 + the number of models that are clearly better; None where there is no order.
        noise: Ceiling: how far its drops are the same under tiny noise, a rank correlation.
        other_fill: Ceiling: how far its drops are the same under another fill.
        n: Number of samples.
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
    """Replicates of one architecture: the interval is over samples and over replicates."""

    architecture: str
    models: tuple[str, ...]
    accuracy: float | None
    score: Bounded
    deviation: float  # between the replicates
    rank: int | None


@dataclass(frozen=True)
class PairRow:
    """One model or architecture minus another, positive where the first is better."""

    first: str
    second: str
    difference: float
    low: float | None
    high: float | None
    verdict: str  # better, worse or unclear


@dataclass(frozen=True)
class Refusal:
    """A protocol by which the models may not be compared, and why."""

    protocol: str
    reason: str


@dataclass(frozen=True)
class ModelComparison:
    """All models of one dataset under one protocol."""

    dataset: str
    protocol: str
    metric: str
    higher_is_better: bool
    methods: tuple[str, ...]  # common to all models; the best of them is the score
    models: tuple[ModelRow, ...]  # best first
    pairs: tuple[PairRow, ...]
    architectures: tuple[ArchitectureRow, ...] = ()
    architecture_pairs: tuple[PairRow, ...] = ()
    by_method: tuple[ModelMethodRow, ...] = ()
    correlation: float | None = None  # Spearman's, of score and accuracy, where there are enough
    notes: tuple[str, ...] = ()

    @property
    def intrinsic(self) -> list[ModelMethodRow]:
        """The maps of networks that explain themselves, which are not part of the score."""
        return [row for row in self.by_method if row.kind == "intrinsic"]


@dataclass(frozen=True)
class ModelComparisons:
    """The comparisons of some runs, and the protocols that may not compare models."""

    comparisons: tuple[ModelComparison, ...]
    refused: tuple[Refusal, ...] = ()
    notes: tuple[str, ...] = field(default=())

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
        """The models in order, one line each."""
        return "\n".join(line for one in self.comparisons for line in _lines(one)) or "no models"


def _lines(one: ModelComparison) -> Sequence[str]:
    width = max(len(row.model) for row in one.models)
    lines = [f"{one.dataset}: {one.protocol}, best of {len(one.methods)} common methods"]
    for row in one.models:
        rank = "-" if row.rank is None else str(row.rank)
        accuracy = in_text(row.accuracy)
        lines.append(f"  {rank:>2}  {row.model:{width}}  {in_text(row.score)}  accuracy {accuracy}")
    return lines


def in_text(number: Bounded, digits: int = 3) -> str:
    """A number and its interval as text; empty where it is not known."""
    if number.value is None:
        return ""
    if number.low is None or number.high is None:
        return f"{number.value:.{digits}f}"
    return f"{number.value:.{digits}f} [{number.low:.{digits}f}, {number.high:.{digits}f}]"
