"""Who hears of a run while it goes on: of network passes, and of how often models are right."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from assay.plan.finished import Finished
from assay.plan.plan import Shard
from assay.run.manifest import clean_accuracy
from assay.store import CleanAccuracy, ShardSummary

EARLY = 64  # samples after which a model that is hardly above chance is worth a word


class Watcher(Protocol):
    """Hears what the work on shards has to say before it is done."""

    def passes(self, rows: int) -> None:
        """Take note of network passes."""
        ...

    def looked(self, shard: Shard, summary: ShardSummary) -> None:
        """Take note of a shard whose clean answers are known; its long work begins."""
        ...


@dataclass
class RunWatcher:
    """Moves the progress bar, and says how often each model is right as soon as that is known.

    Where many samples already show a model hardly above chance, it is said before the long work.
    """

    finished: Finished
    listen: Callable[[int], None]
    say: Callable[[CleanAccuracy], None]
    _summaries: dict[str, ShardSummary] = field(default_factory=dict)  # by shard
    _said: set[tuple[str, str]] = field(default_factory=set)  # pairs that were warned of

    def passes(self, rows: int) -> None:
        """Move the bar."""
        self.listen(rows)

    def looked(self, shard: Shard, summary: ShardSummary) -> None:
        """Say how often the model is right on the dataset, once all its samples are known."""
        self._summaries[shard.id] = summary
        self.say_pair(shard.dataset, shard.model)

    def say_pair(self, dataset: str, model: str) -> None:
        """Say a pair's accuracy where it is known, or is already known to be bad."""
        plan, pair = self.finished.plan, (dataset, model)
        shards = [s for s in plan.shards if (s.dataset, s.model) == pair]
        known = [self._summaries[s.id] for s in shards if s.id in self._summaries]
        row = clean_accuracy(dataset, model, known)
        if row is None:
            return
        if len(known) == len(shards):
            self.say(row)
        elif row.n >= EARLY and row.hardly_above_chance and pair not in self._said:
            self._said.add(pair)
            self.say(row)

    def recall(self) -> None:
        """Take in what earlier runs in the folder already know."""
        for shard in self.finished.plan.shards:
            summary = self.finished.summary(shard)
            if summary is not None:
                self._summaries[shard.id] = summary
        for dataset, model in self.finished.plan.pairs:
            self.say_pair(dataset, model)
