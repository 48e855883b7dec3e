"""What the cells of a run say besides their scores, added up in one pass over the shards."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

from assay.report.protocol_panels import FieldKey
from assay.store import RunFiles, ShardEntry, StoredCell
from assay.store.run_files import CellLabels


@dataclass
class MethodTotals:
    """The cost of one method in all cells."""

    seconds: float = 0.0  # of scoring
    forwards: int = 0
    explaining: float = 0.0  # seconds
    explained: int = 0  # samples
    cells: int = 0


@dataclass
class AlikeCells:
    """Cells of one method with the same status and message."""

    protocols: set[str] = field(default_factory=set)
    cells: int = 0


@dataclass
class CellTotals:
    """The cells of a run, added up.

    Attributes:
        methods: The cost of each method.
        messages: The message of each cell that left one.
        troubles: The cells that failed or do not apply, by status, method and message.
        finished: How many cells there are, counted per shard.
    """

    finished: int = 0
    methods: dict[str, MethodTotals] = field(default_factory=dict)
    messages: dict[FieldKey, str] = field(default_factory=dict)
    troubles: dict[tuple[str, str, str], AlikeCells] = field(default_factory=dict)

    @classmethod
    def of(cls, files: RunFiles) -> Self:
        """Add up all cells of a run."""
        totals = cls()
        for shard in files.manifest.shards:
            totals._add_shard(shard, files.provenance(shard))
        return totals

    @property
    def forwards(self) -> int:
        """The forward passes of all cells."""
        return sum(method.forwards for method in self.methods.values())

    @property
    def failed(self) -> int:
        """How many cells failed, counted per shard."""
        return sum(t.cells for (status, *_), t in self.troubles.items() if status == "failed")

    def _add_shard(self, shard: ShardEntry, cells: Iterable[tuple[CellLabels, StoredCell]]) -> None:
        explaining: dict[str, float] = {}  # each cell repeats the time of its shard
        for (protocol, method), cell in cells:
            totals = self.methods.setdefault(method, MethodTotals())
            totals.cells += 1
            self.finished += 1
            totals.seconds += cell.seconds or 0.0
            totals.forwards += cell.forwards
            if cell.explain_seconds is not None:
                explaining[method] = max(explaining.get(method, 0.0), cell.explain_seconds)
            if cell.message:
                self.messages[shard.setting, method, protocol] = cell.message
            if cell.status in ("failed", "n/a"):
                place = (cell.status, method, cell.message or "no message")
                trouble = self.troubles.setdefault(place, AlikeCells())
                trouble.protocols.add(protocol)
                trouble.cells += 1
        for method, seconds in explaining.items():
            self.methods[method].explaining += seconds
            self.methods[method].explained += len(shard.samples)
