"""The schemas of a run's tables, and SQL over them."""

import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from assay.errors import InputError
from assay.store.lazy_table import LazyTable

Array = np.ndarray[Any, Any]
SHOWN_ONLY = ("circular", "upper_bound", "shown")  # statuses that are scored but not ranked

SCORES = pa.schema(
    [
        *((n, pa.string()) for n in ("cell", "dataset", "model", "checkpoint", "method")),
        ("method_version", pa.int64()),
        ("method_options", pa.string()),
        ("protocol", pa.string()),
        ("protocol_version", pa.int64()),
        *((n, pa.string()) for n in ("protocol_options", "metric", "target", "sample", "group")),
        ("seed", pa.int64()),
        ("value", pa.float64()),
        ("higher_is_better", pa.bool_()),
        ("status", pa.string()),
        ("headline", pa.bool_()),
    ]
)
CURVES = pa.schema(
    [
        ("cell", pa.string()),
        ("sample", pa.string()),
        ("seed", pa.int64()),
        ("name", pa.string()),
        ("step", pa.int64()),
        ("x", pa.float64()),
        ("value", pa.float64()),
    ]
)

CHECKS = pa.schema(
    [
        *((n, pa.string()) for n in ("dataset", "model", "checkpoint", "method")),
        ("sample", pa.string()),
        ("seed", pa.int64()),
        ("check", pa.string()),
        ("value", pa.float64()),
    ]
)

# Results of a user's own set-level reduction: a sample's contribution (`draw` is null), or the
# number of a weighted set, whose samples and weights `draw` identifies.
REDUCED = pa.schema(
    [
        ("seed", pa.int64()),
        ("sample", pa.string()),
        ("draw", pa.uint64()),
        ("value", pa.float64()),
    ]
)


def query(sql: str, **tables: pa.Table | LazyTable) -> pa.Table:
    """Run SQL over these tables; the one place where DuckDB is used.

    A lazy table is streamed where the SQL names it once, else it is copied to a temporary file.
    """
    import duckdb

    with tempfile.TemporaryDirectory() as folder:
        connection = duckdb.connect(str(Path(folder, "tables.db")))
        try:
            for name, table in tables.items():
                times = len(re.findall(rf"\b{name}\b", sql, re.IGNORECASE))
                if not isinstance(table, LazyTable):
                    connection.register(name, table)
                elif times:
                    connection.register(f"rows_of_{name}", table.to_reader())
                    kind = "VIEW" if times == 1 else "TABLE"
                    connection.execute(f"CREATE TEMP {kind} {name} AS SELECT * FROM rows_of_{name}")
            answer = connection.sql(sql)
            if answer is None:
                raise InputError(f"Expected SQL that gives a table, got {sql!r}.")
            return answer.to_arrow_table()
        except duckdb.Error as error:
            message = f"Expected SQL over {', '.join(tables)}, got {sql!r}: {error}"
            raise InputError(message) from None
        finally:
            connection.close()
