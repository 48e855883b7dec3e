"""The output of a shard in pieces, which one writer stores in the run's folder."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from assay.store.files import Store
from assay.store.tables import Array

StoredPath = tuple[str, ...]  # the path of a file inside the folder


@dataclass(frozen=True)
class TablePiece:
    """A table."""

    place: StoredPath
    table: pa.Table

    def write(self, store: Store) -> None:
        """Put it into the folder."""
        store.write_table(store.path(*self.place), self.table)


@dataclass(frozen=True)
class ArraysPiece:
    """Named arrays with a description: maps, answers, truth."""

    place: StoredPath
    arrays: Mapping[str, Array]
    about: Mapping[str, str]

    def write(self, store: Store) -> None:
        """Write them into the folder."""
        store.write_arrays(store.path(*self.place), self.arrays, self.about)


@dataclass(frozen=True)
class BytesPiece:
    """A file of raw bytes: a picture."""

    place: StoredPath
    content: bytes

    def write(self, store: Store) -> None:
        """Put it into the folder."""
        store.write_bytes(store.path(*self.place), self.content)


@dataclass(frozen=True)
class JsonPiece:
    """A description of the shard."""

    place: StoredPath
    value: Mapping[str, object]

    def write(self, store: Store) -> None:
        """Put it into the folder."""
        store.write_json(store.path(*self.place), self.value)


@dataclass(frozen=True)
class CellPiece:
    """The rows of one method under one protocol, with their provenance."""

    name: str  # of its files
    about: Mapping[str, object]
    curves: pa.Table
    scores: pa.Table

    def write(self, store: Store) -> None:
        """Write provenance and curves first, scores last: a cell with scores is finished."""
        scores = store.path("scores", f"{self.name}.parquet")
        scores.unlink(missing_ok=True)  # from a failed attempt
        store.write_json(store.path("cells", f"{self.name}.json"), self.about)
        store.write_table(store.path("curves", f"{self.name}.parquet"), self.curves)
        store.write_table(scores, self.scores)


Piece = TablePiece | ArraysPiece | BytesPiece | JsonPiece | CellPiece
Put = Callable[[Piece], None]  # called with each piece as soon as it is ready
