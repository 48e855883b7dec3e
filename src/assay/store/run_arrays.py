"""Scores and curves of a run as arrays, the form in which ranking and report read them."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from assay.store.tables import Array

# The statuses of scores. Their places are the codes in `ScoreArrays.statuses`; 0: there is no row.
STATUSES = ("", "ok", "n/a", "failed", "degenerate", "circular", "upper_bound", "shown")


@dataclass(frozen=True, eq=False)
class ScoreArrays:
    """The scores of all methods under one protocol, on one model and dataset.

    Attributes:
        dataset: Label of the dataset.
        model: Label of the model.
        checkpoint: Which weights of the model.
        protocol: Label of the protocol.
        protocol_options: Options of the protocol, as JSON.
        metric: Name of the score.
        higher_is_better: Direction of the score.
        samples: Ids of the samples, in the order of the run.
        groups: The group of each sample.
        methods: Labels of the methods, in the order of the suite.
        method_options: Options of each method, as JSON.
        seeds: The seeds of the run.
        values: Scores [seeds, methods, samples], NaN where there is none.
        statuses: The place in `STATUSES` of each score's status, uint8 [seeds, methods, samples].
        replicates: Further scores of the same shape, by metric: the replicates of which `values`
            is the mean, and whatever else the protocol gives.
    """

    dataset: str
    model: str
    checkpoint: str
    protocol: str
    protocol_options: str
    metric: str
    higher_is_better: bool
    samples: Sequence[str]
    groups: Sequence[str]
    methods: Sequence[str]
    method_options: Sequence[str]
    seeds: Sequence[int]
    values: Array
    statuses: Array
    replicates: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class CurvePart:
    """The curves of one method under one protocol for some of the samples: those of one shard.

    Attributes:
        cell: Identity of the method under the protocol, for one seed.
        seed: The seed.
        rows: Places of the samples in `ScoreArrays.samples`, int64 [b].
        x: Where the curves were taken [K].
        curves: The curves by name, each [b, K].
    """

    cell: str
    seed: int
    rows: Array
    x: Array
    curves: Mapping[str, Array]


CurveKey = tuple[str, str, str, str, str]  # dataset, model, checkpoint, protocol, method
CurveChunk = Mapping[CurveKey, Sequence[CurvePart]]  # the curves of some samples


class RunArrays(Protocol):
    """The scores and curves of a run. One block is in memory at a time, if the caller lets go."""

    def scores(self, protocols: Collection[str] | None = None) -> Iterator[ScoreArrays]:
        """The scores, one block per setting and protocol, in the order of the suite.

        Args:
            protocols: The labels of those that are read; by default all.
        """
        ...

    def curves(self, protocols: Collection[str] | None = None) -> Iterator[CurveChunk]:
        """All curves, some samples at a time. All seeds of a sample are in the same chunk.

        Args:
            protocols: The labels of those that are read; by default all.
        """
        ...
