"""Observers of a run in progress: they receive network passes and model accuracies."""

import functools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from assay.plan.finished import Finished
from assay.plan.plan import Shard
from assay.run.tally import Tally
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
    _tallies: dict[tuple[str, str], Tally] = field(default_factory=dict)  # by dataset and model
    _reported: set[tuple[str, str]] = field(default_factory=set)  # pairs that were reported early
    _complete: set[tuple[str, str]] = field(default_factory=set)  # pairs that were reported whole

    def passes(self, rows: int) -> None:
        """Move the progress bar."""
        self.listen(rows)

    def looked(self, shard: Shard, summary: ShardSummary) -> None:
        """Report the accuracy of the model on the dataset, once all its samples are known."""
        self._add(shard, summary)
        self.report_pair(shard.dataset, shard.model)

    def report_pair(self, dataset: str, model: str) -> None:
        """Report a pair's accuracy once it is complete, or early if it is hardly above chance."""
        pair, tally = (dataset, model), self._tallies.get((dataset, model), Tally())
        row = tally.accuracy(dataset, model)
        if row is None:
            return
        if len(tally.shards) == self._planned[pair]:
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
                self._add(shard, summary)
        for dataset, model in self.finished.plan.pairs:
            self.report_pair(dataset, model)

    def _add(self, shard: Shard, summary: ShardSummary) -> None:
        tally = self._tallies.setdefault((shard.dataset, shard.model), Tally())
        tally.add(shard.id, summary)

    @functools.cached_property
    def _planned(self) -> Counter[tuple[str, str]]:
        """The number of shards of each dataset and model."""
        return Counter((shard.dataset, shard.model) for shard in self.finished.plan.shards)
