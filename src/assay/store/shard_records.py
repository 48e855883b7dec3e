"""Records that a shard stores besides its tables: a summary, previews, one per cell."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from assay.store.json_records import JsonRecord, StoredObject


@dataclass(frozen=True, kw_only=True)
class Preview(JsonRecord):
    """One sample as the page shows it, and what the model predicts for it.

    Attributes:
        sample: Id of the sample.
        model: Label of the model that predicts; None in runs that did not store it.
        truth: File of the true map below `previews/`; None where the truth is not known.
        label: Class of the sample; None where it has none.
        label_name: Name of that class.
        predicted: Class that the model predicts.
        predicted_name: Name of that class.
        probability: Probability of the explained class.
        words: Tokens of a text.
        special: Which of the tokens are never removed.
        image: File of the picture below `previews/`.
    """

    optional: ClassVar[frozenset[str]] = frozenset({"words", "special", "image"})

    sample: str
    model: str | None = None
    truth: str | None = None
    label: int | str | None = None
    label_name: str = ""
    predicted: int | str | None = None
    predicted_name: str = ""
    probability: float | None = None
    words: Sequence[str] = ()
    special: Sequence[bool] = ()
    image: str = ""

    @property
    def label_text(self) -> str:
        """The class of the sample by name or number; empty where it has none."""
        return self.label_name or _text(self.label)

    @property
    def predicted_text(self) -> str:
        """The predicted class by name or number; empty where it is not known."""
        return self.predicted_name or _text(self.predicted)

    def without_prediction(self) -> Self:
        """The parts that do not depend on a model: the sample, its class and its picture."""
        return replace(
            self,
            truth=None,
            predicted=None,
            predicted_name="",
            probability=None,
            words=(),
            special=(),
        )


@dataclass(frozen=True, kw_only=True)
class ShardSummary(JsonRecord):
    """One finished shard in numbers.

    Attributes:
        dataset: Label of the dataset.
        model: Label of the model.
        n: Number of samples.
        correct: Samples that the model predicts correctly; None where there are no labels.
        classes: Number of classes of the model.
        micro_batch: Rows per call of the network, less than planned where memory ran out.
        previews: Samples that the page shows.
        forwards: Forward passes of the engine.
        calls: Calls of the network by the engine.
        explaining: Forward passes of the methods.
        seconds: Total time.
    """

    dataset: str
    model: str
    n: int
    correct: int | None = None
    classes: int = 0
    micro_batch: int = 1
    previews: Sequence[Preview] = ()
    forwards: int = 0
    calls: int = 0
    explaining: int = 0
    seconds: float = 0.0

    @classmethod
    def from_json(cls, stored: StoredObject) -> Self:
        """Read a stored summary."""
        previews = [Preview.from_json(one) for one in stored.get("previews") or ()]
        return super().from_json({**stored, "previews": previews})

    def to_json(self) -> StoredObject:
        """The object that is stored."""
        return super().to_json() | {"previews": [one.to_json() for one in self.previews]}

    def after(self, earlier: "ShardSummary | None") -> Self:
        """This summary with the costs of an earlier part of the same shard added."""
        if earlier is None:
            return self
        return replace(
            self,
            forwards=earlier.forwards + self.forwards,
            calls=earlier.calls + self.calls,
            explaining=earlier.explaining + self.explaining,
            seconds=earlier.seconds + self.seconds,
        )


@dataclass(frozen=True, kw_only=True)
class CellRecord(JsonRecord):
    """How one cell was computed on one shard."""

    cell: str
    shard: str
    dataset: str
    model: str
    method: str
    protocol: str
    status: str
    message: str = ""
    seconds: float | None = None
    explain_seconds: float | None = None
    forwards: int = 0


def _text(value: int | str | None) -> str:
    return "" if value is None else str(value)
