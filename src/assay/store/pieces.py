"""The output of a shard in pieces, which one writer stores in the run's folder."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from assay.store.all_absent import AllAbsent, all_absent_record
from assay.store.cell_records import StoredCell, cells_record
from assay.store.files import Store, StoredPath, packed_arrays
from assay.store.shard_content import (
    StoredGaps,
    file_record,
    gaps_record,
    samples_record,
    summary_record,
)
from assay.store.shard_log import LogRecord
from assay.store.shard_records import ShardSummary
from assay.store.tables import Array

ANSWERS = "answers"  # kind of record


@dataclass(frozen=True)
class SamplesPiece:
    """The samples of a shard."""

    shard: str
    samples: Sequence[str]
    groups: Sequence[str]

    def write(self, store: Store) -> None:
        """Add them to the log."""
        store.append(store.log(self.shard), samples_record(self.samples, self.groups))


@dataclass(frozen=True)
class SummaryPiece:
    """Facts about the samples of a shard, and its cost."""

    shard: str
    summary: ShardSummary

    def write(self, store: Store) -> None:
        """Add it to the log."""
        store.append(store.log(self.shard), summary_record(self.summary))


@dataclass(frozen=True)
class CellsPiece:
    """Finished cells of one method, with scores, curves and provenance."""

    shard: str
    cells: Sequence[StoredCell]

    def write(self, store: Store) -> None:
        """Add them to the log as one record."""
        store.append(store.log(self.shard), cells_record(self.cells))


@dataclass(frozen=True)
class GapsPiece:
    """The gaps between a method's maps and what its formula promises."""

    shard: str
    key: str
    gaps: StoredGaps

    def write(self, store: Store) -> None:
        """Add them to the log."""
        store.append(store.log(self.shard), gaps_record(self.key, self.gaps))


@dataclass(frozen=True)
class AllAbsentPiece:
    """The model's answers when nothing and when everything is absent."""

    shard: str
    key: str
    answers: AllAbsent

    def write(self, store: Store) -> None:
        """Add them to the log."""
        store.append(store.log(self.shard), all_absent_record(self.key, self.answers))


@dataclass(frozen=True)
class AnswersPiece:
    """Answers of the model that do not depend on a method: some rows of a group."""

    shard: str
    key: str  # of the group
    rows: Sequence[str]
    arrays: Mapping[str, Array]  # each [B, rows]

    def write(self, store: Store) -> None:
        """Add them to the log of answers."""
        rows = list(self.rows)
        key = hashlib.sha256(json.dumps([self.key, rows]).encode()).hexdigest()[:16]
        facts = {"group": self.key, "rows": rows}
        store.append(store.answer_log(self.shard), LogRecord.make(ANSWERS, key, facts, self.arrays))


@dataclass(frozen=True)
class FilePiece:
    """A file of its own: a picture."""

    shard: str
    place: StoredPath
    content: bytes

    def write(self, store: Store) -> None:
        """Write the file, then its checksum into the log: a file without it does not count."""
        check = store.write_bytes(store.path(*self.place), self.content)
        store.append(store.log(self.shard), file_record("/".join(self.place), check))


@dataclass(frozen=True)
class ArraysPiece:
    """Named arrays with a description, as a safetensors file: maps, a true map."""

    shard: str
    place: StoredPath
    arrays: Mapping[str, Array]
    about: Mapping[str, str]

    def write(self, store: Store) -> None:
        """Write the file and its checksum."""
        content = packed_arrays(self.arrays, self.about)
        FilePiece(self.shard, self.place, content).write(store)


Piece = (
    SamplesPiece
    | SummaryPiece
    | CellsPiece
    | GapsPiece
    | AllAbsentPiece
    | AnswersPiece
    | FilePiece
    | ArraysPiece
)
Put = Callable[[Piece], None]  # called with each piece as soon as it is ready
