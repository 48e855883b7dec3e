"""The table of all scores of the study, image by image, from which claims are computed. No torch.

Areas, and means over the first and the last half of the curve, are of the accuracy; on ImageNet of
the probability of the explained class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from assay.errors import InputError, PrerequisiteError
from assay.ranking.resampling import Floats

NAME = "metarank_scores.parquet"
PAPERS_EIGHT = (
    "saliency", "guided_backprop", "input_x_gradient", "deeplift", "deconvolution", "lrp",
    "guided_gradcam", "integrated_gradients",
)  # fmt: skip
CLONES = {"lrp": "input_x_gradient"}  # equal on networks of ReLUs, whatever their biases
COUNTED = tuple(method for method in PAPERS_EIGHT if method not in CLONES)
TEXTS = ("part", "task", "source", "family")
NUMBERS = ("seed", "time")
VALUES = ("area", "early", "late")
SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in TEXTS),
        *((name, pa.int32()) for name in NUMBERS),
        *((name, pa.string()) for name in ("order", "fill", "method")),
        ("accuracy", pa.float32()),
        *((name, pa.list_(pa.float32())) for name in VALUES),
    ]
)


@dataclass(frozen=True, eq=False)
class TaskScores:
    """The scores of one method on one network under one protocol.

    Attributes:
        part: `tasks`, `unsigned` maps, or `checkpoints`.
        task: The task.
        source: The task's source.
        family: The network's family.
        seed: The seed of the training.
        time: The epoch of the checkpoint.
        order: `morf` or `lerf`.
        fill: `constant` or `imputed`.
        method: The method.
        accuracy: The network's accuracy on the task's test images; NaN on ImageNet.
        area: The area under each image's curve [n].
        early: The mean of the curve while at most half of the pixels are removed [n].
        late: The same while at most half of them are left [n].
    """

    part: str
    task: str
    source: str
    family: str
    seed: int
    time: int
    order: str
    fill: str
    method: str
    accuracy: float
    area: Floats
    early: Floats
    late: Floats

    @property
    def score(self) -> Floats:
        """The area, so that higher is better [n]."""
        return self.area if self.order == "lerf" else -self.area


def as_table(rows: Sequence[TaskScores]) -> pa.Table:
    """The rows as a table."""
    return pa.table({name: [getattr(row, name) for row in rows] for name in SCHEMA.names}, SCHEMA)


def collect(out: Path) -> Path:
    """Write one table of all stored rows."""
    pieces = sorted((out / "rows").glob("*.parquet"))
    if not pieces:
        raise PrerequisiteError(f"Expected rows of finished runs in `{out}/rows`, found none.")
    path = out / NAME
    tables = [pq.read_table(piece) for piece in pieces]
    pq.write_table(pa.concat_tables(tables), path, compression="zstd", compression_level=19)
    return path


def read_task_scores(folder: Path) -> tuple[TaskScores, ...]:
    """The rows of the table in a folder.

    Raises:
        PrerequisiteError: There is no table.
        InputError: It is not such a table.
    """
    path = folder / NAME
    if not path.is_file():
        raise PrerequisiteError(
            f"Expected the scores of the study at `{path}`, found none. Run "
            f"`python -m assay.studies.metarank.jobs --data DIR --mnist DIR --out DIR` first."
        )
    return _parsed(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=2)  # every claim reads the same table
def _parsed(path: Path, changed: int) -> tuple[TaskScores, ...]:
    """The rows of a file that was last written at this time."""
    try:
        found = pq.read_table(path).to_pylist()
        return tuple(
            TaskScores(**{**row, **{name: np.asarray(row[name]) for name in VALUES}})
            for row in found
        )
    except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"Expected the scores of the study in `{path}`, got {type(error).__name__}: {error}. "
            f"Run its jobs again."
        ) from None
