"""Observers of a run in progress: they receive network passes and model accuracies."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from assay.plan.finished import Finished
from assay.plan.plan import Shard
from assay.run.manifest import clean_accuracy
from assay.store import CleanAccuracy, ShardSummary

EARLY = 64  # samples after which a model that is hardly above chance is reported


class Watcher(Protocol):
    """Receives messages about shards in progress."""

    def passes(self, rows: int) -> None:
        """Record network passes."""
        ...

    def looked(self, shard: Shard, summary: ShardSummary) -> None:
        """Record the summary of a shard, before its methods and protocols run."""
        ...


@dataclass
class RunWatcher:
    """Moves the progress bar, and reports each model's accuracy once it is known.

    A model that is hardly above chance on many samples is reported early.
    """

    finished: Finished
    listen: Callable[[int], None]
    say: Callable[[CleanAccuracy], None]
    _summaries: dict[str, ShardSummary] = field(default_factory=dict)  # by shard
    _reported: set[tuple[str, str]] = field(default_factory=set)  # pairs that were reported early
    _complete: set[tuple[str, str]] = field(default_factory=set)  # pairs that were reported whole

    def passes(self, rows: int) -> None:
        """Move the progress bar."""
        self.listen(rows)

    def looked(self, shard: Shard, summary: ShardSummary) -> None:
        """Report the accuracy of the model on the dataset, once all its samples are known."""
        self._summaries[shard.id] = summary
        self.report_pair(shard.dataset, shard.model)

    def report_pair(self, dataset: str, model: str) -> None:
        """Report a pair's accuracy once it is complete, or early if it is hardly above chance."""
        plan, pair = self.finished.plan, (dataset, model)
        shards = [s for s in plan.shards if (s.dataset, s.model) == pair]
        known = [self._summaries[s.id] for s in shards if s.id in self._summaries]
        row = clean_accuracy(dataset, model, known)
        if row is None:
            return
        if len(known) == len(shards):
            if pair not in self._complete:  # a shard may be done again
                self._complete.add(pair)
                self.say(row)
        elif row.n >= EARLY and row.hardly_above_chance and pair not in self._reported:
            self._reported.add(pair)
            self.say(row)

    def recall(self) -> None:
        """Read the summaries of earlier runs in the folder and report their accuracies."""
        for shard in self.finished.plan.shards:
            summary = self.finished.summary(shard)
            if summary is not None:
                self._summaries[shard.id] = summary
        for dataset, model in self.finished.plan.pairs:
            self.report_pair(dataset, model)
