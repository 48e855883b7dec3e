"""How often a model is right on the samples of finished shards."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from assay.store import CleanAccuracy, ShardSummary


def clean_accuracy(
    dataset: str, model: str, summaries: Sequence[ShardSummary]
) -> CleanAccuracy | None:
    """The accuracy of a model on the samples of these shards; None if it is not known."""
    tally = Tally()
    for number, summary in enumerate(summaries):
        tally.add(str(number), summary)
    return tally.accuracy(dataset, model)


@dataclass
class Tally:
    """Adds up how often a model is right, shard by shard."""

    shards: dict[str, ShardSummary] = field(default_factory=dict)  # by id
    _n: int = 0
    _correct: int = 0
    _classes: int = 0
    _unknown: int = 0  # shards without labels

    def add(self, shard: str, summary: ShardSummary) -> None:
        """Count a shard, in place of an earlier summary of it."""
        before = self.shards.get(shard)
        for sign, one in ((-1, before), (1, summary)):
            if one is not None:
                self._n += sign * one.n
                self._correct += sign * (one.correct or 0)
                self._unknown += sign * (one.correct is None)
        self._classes = max(self._classes, summary.classes)
        self.shards[shard] = summary

    def accuracy(self, dataset: str, model: str) -> CleanAccuracy | None:
        """The accuracy on the samples so far; None if it is not known."""
        if not self.shards or self._unknown:
            return None
        accuracy, chance = self._correct / self._n, 1 / self._classes
        return CleanAccuracy(
            dataset=dataset, model=model, n=self._n, accuracy=accuracy, chance=chance
        )
