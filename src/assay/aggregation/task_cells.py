"""The values of methods in the cells of several tasks, and the noise of their samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assay.errors import InputError
from assay.ranking.resampling import Codes, Floats

TaskRow = tuple[str, str, str, str, float]  # method, task, question, family, value


@dataclass(frozen=True, eq=False)
class TaskCells:
    """The values of n methods in C cells; a cell is a question asked of a family in a task.

    Attributes:
        methods: Names [n].
        tasks: The task of each cell [C]; cells of one task share its images.
        questions: The question of each cell [C].
        families: The model architecture of each cell [C].
        sources: The source of each task, such as the dataset its classes come from.
        values: Standardised differences from the control `random` [n, C], higher is better; NaN
            where a method is missing.
        noise: Known sampling covariance of a method's values [C, C], less what all methods share;
            None where it is not known. See `pooled_noise`.
    """

    methods: tuple[str, ...]
    tasks: tuple[str, ...]
    questions: tuple[str, ...]
    families: tuple[str, ...]
    sources: Mapping[str, str]
    values: Floats
    noise: Floats | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be compared."""
        shape = (len(self.methods), len(self.tasks))
        if self.values.shape != shape:
            raise InputError(f"Expected `values` of shape {shape}, got {self.values.shape}.")
        if len(self.questions) != shape[1] or len(self.families) != shape[1]:
            raise InputError("Expected one task, one question and one family per cell.")
        if shape[0] < 2:
            raise InputError(f"Expected at least 2 methods to compare, got {shape[0]}.")
        if np.isinf(self.values).any():
            raise InputError("Expected finite values, or NaN where a method is missing.")
        empty = [m for m, row in zip(self.methods, self.values, strict=True) if _empty(row)]
        if empty:
            raise InputError(f"No cell has a value of {', '.join(f'`{m}`' for m in empty)}.")
        homeless = sorted(set(self.tasks) - set(self.sources))
        if homeless:
            raise InputError(f"Expected `sources` to name the source of every task: {homeless}.")
        if self.noise is not None and self.noise.shape != (shape[1], shape[1]):
            raise InputError(f"Expected `noise` of shape [C, C], got {self.noise.shape}.")

    def only(self, cells: NDArray[np.bool_]) -> TaskCells:
        """The same methods in some of the cells [C]; methods without a value there are left out."""
        there = ~np.isnan(self.values[:, cells]).all(axis=1)

        def some(labels: Sequence[str]) -> tuple[str, ...]:
            return tuple(np.asarray(labels)[cells].tolist())

        return TaskCells(
            tuple(np.asarray(self.methods)[there].tolist()),
            some(self.tasks), some(self.questions), some(self.families), self.sources,
            self.values[np.ix_(there, cells)],
            None if self.noise is None else self.noise[np.ix_(cells, cells)],
        )  # fmt: skip


def cells_from_rows(rows: Iterable[TaskRow], sources: Mapping[str, str]) -> TaskCells:
    """Arrange rows of (method, task, question, family, value); cells and methods are sorted."""
    values: dict[tuple[str, tuple[str, str, str]], float] = {}
    for method, task, question, family, value in rows:
        key = (method, (task, question, family))
        if key in values:
            raise InputError(f"Method `{method}` has two values in the cell {key[1]}.")
        values[key] = value
    methods = sorted({method for method, _ in values})
    cells = sorted({cell for _, cell in values})
    table = np.array([[values.get((m, c), np.nan) for c in cells] for m in methods])
    tasks, questions, families = zip(*cells, strict=True) if cells else ((), (), ())
    return TaskCells(
        tuple(methods), tasks, questions, families, sources,
        table.reshape(len(methods), len(cells)),
    )  # fmt: skip


def pooled_noise(
    sampling: Floats | Mapping[str, Floats], tasks: Sequence[str]
) -> Floats:  # -> [C, C]
    """The sampling covariance of a method's values over cells, as a mean over the methods.

    A covariance that two methods share, such as the noise of the control that both are compared
    with, cancels in their difference and is subtracted. Methods are taken to be equally noisy: this
    keeps the covariance of all values a product, and its mean over pairs of methods is right.

    Args:
        sampling: Variances [n, C]; or covariances between the methods of each cell [C, n, n]; or
            for each task those between all values of its c cells, in their order [c, n, c, n].
            NaN where a method is missing.
        tasks: The task of each cell [C].
    """
    size = len(tasks)
    if isinstance(sampling, Mapping):
        noise = np.zeros((size, size))
        labels = np.asarray(tasks)
        for task, block in sampling.items():
            places = np.flatnonzero(labels == task)
            noise[np.ix_(places, places)] = _apart(np.asarray(block).transpose(0, 2, 1, 3))
        return noise
    if sampling.ndim == 2:
        return np.diag(np.nanmean(sampling, axis=0))
    return np.diag(_apart(sampling))


def _apart(covariances: Floats) -> Floats:  # [..., n, n] -> [...]
    """The mean variance less the mean covariance of two different methods."""
    own = np.eye(covariances.shape[-1], dtype=np.bool_)
    alone = np.nanmean(covariances[..., own], axis=-1)
    shared = np.nanmean(covariances[..., ~own], axis=-1)
    return np.asarray(alone - shared, np.float64)


def numbered(labels: Sequence[str]) -> tuple[list[str], Codes]:
    """The sorted labels, and the number of each."""
    names, index = np.unique(np.asarray(labels), return_inverse=True)
    return names.tolist(), index.astype(np.int64)


def _empty(row: Floats) -> bool:
    return bool(np.isnan(row).all())
