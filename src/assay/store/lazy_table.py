"""A table that is too large for memory: it is read, shard by shard, whenever it is asked for."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    import pyarrow.compute as pc

MOST_ROWS = 5_000_000  # of a table that is held in memory


def whole_or_lazy(
    schema: pa.Schema, rows: int, parts: Callable[[], Iterator[pa.Table]]
) -> "pa.Table | LazyTable":
    """The table of these parts, in memory if it is expected to have few rows."""
    if rows > MOST_ROWS:
        return LazyTable(schema, rows, parts)
    tables = list(parts())
    return pa.concat_tables(tables) if tables else schema.empty_table()


def in_memory(table: "pa.Table | LazyTable") -> pa.Table:
    """All rows of a table, in memory."""
    return table.scan() if isinstance(table, LazyTable) else table


@dataclass(frozen=True)
class LazyTable:
    """A table of a large run. `scan` reads the columns and rows that are needed.

    Attributes:
        schema: Names and types of the columns.
        num_rows: Number of rows, at least.
        parts: Reads the parts of the table, one after the other.
    """

    schema: pa.Schema
    num_rows: int
    parts: Callable[[], Iterator[pa.Table]]

    @property
    def column_names(self) -> list[str]:
        """The names of the columns."""
        names: list[str] = self.schema.names
        return names

    def to_reader(self) -> pa.RecordBatchReader:
        """A reader of all rows, for one pass over them."""
        batches = (batch for part in self.parts() for batch in part.to_batches())
        return pa.RecordBatchReader.from_batches(self.schema, batches)

    def scan(
        self, columns: Sequence[str] | None = None, where: "pc.Expression | None" = None
    ) -> pa.Table:
        """The rows that an expression of `pyarrow.compute` selects, in memory.

        Args:
            columns: The columns; by default all.
            where: The condition; by default all rows.
        """
        from pyarrow.dataset import Scanner

        names = None if columns is None else list(columns)
        return Scanner.from_batches(self.to_reader(), columns=names, filter=where).to_table()

    def head(self, rows: int = 10) -> pa.Table:
        """The first rows."""
        for part in self.parts():
            return part.slice(0, rows)
        return self.schema.empty_table()

    def __len__(self) -> int:
        """The number of rows, at least."""
        return self.num_rows

    def __repr__(self) -> str:
        """What it is, and how to read it."""
        return (
            f"LazyTable({self.num_rows:,} rows or more; read some with `.scan(columns, where)` or "
            f"`results.query(sql)`)"
        )
