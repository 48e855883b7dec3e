"""The scores and curves of a run as arrays, made from its tables."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assay.ranking.pivot import (
    COLUMNS,
    KEYS,
    CodedRows,
    check_columns,
    check_once,
    coded_column,
    coded_rows,
    only,
    sample_groups,
    split_blocks,
)
from assay.ranking.resampling import Codes
from assay.store import CURVES, Array
from assay.store.run_arrays import STATUSES, CurveChunk, CurveKey, CurvePart, ScoreArrays


class TableArrays:
    """Scores and curves as `RunArrays`, from tables that are in memory."""

    def __init__(self, scores: pa.Table, curves: pa.Table | None = None) -> None:
        """Take the tables of a run; nothing is read of them yet."""
        self._scores = scores
        self._curves = CURVES.empty_table() if curves is None else curves

    def scores(self, protocols: Collection[str] | None = None) -> Iterator[ScoreArrays]:
        """The scores, one block per setting and protocol, in the order of the suite.

        Args:
            protocols: The labels of those that are read; by default all.

        Raises:
            ValueError: A column is missing, or the rows of a block contradict each other.
        """
        check_columns(self._scores)
        table = self._scores.select(list(COLUMNS))
        others = list(split_blocks(coded_rows(table.filter(pc.invert(table["headline"])))))
        further = {tuple(rows.label(c, 0) for c in KEYS): rows for rows in others}
        headline = table.filter(table["headline"])
        blocks = {tuple(b.label(c, 0) for c in KEYS): b for b in split_blocks(coded_rows(headline))}
        in_order = headline.select(list(KEYS)).group_by(list(KEYS), use_threads=False).aggregate([])
        for row in in_order.to_pylist():
            key = tuple(row.values())
            if protocols is None or row["protocol"] in protocols:
                yield _score_arrays(blocks[key], further.get(key))

    def curves(self, protocols: Collection[str] | None = None) -> Iterator[CurveChunk]:
        """All curves, some samples at a time: those of one method under one protocol.

        Args:
            protocols: The labels of those that are read; by default all.
        """
        for block in self.scores(protocols):
            setting = (block.dataset, block.model, block.checkpoint)
            for method in block.methods:
                key = (*setting, block.protocol, method)
                parts: list[CurvePart] = []
                for cell in self._cells.get(key, ()):
                    if cell in self._rows_by_cell:
                        table = self._curves.take(self._rows_by_cell[cell])
                        parts += _curve_parts(block, cell, table)
                yield {key: parts}

    @functools.cached_property
    def _cells(self) -> dict[CurveKey, list[str]]:
        columns = [*KEYS, "method", "cell"]
        if "cell" not in self._scores.column_names:
            return {}
        cells: dict[CurveKey, list[str]] = {}
        groups = self._scores.select(columns).group_by(columns, use_threads=False).aggregate([])
        for row in groups.to_pylist():
            dataset, model, checkpoint, protocol, method, cell = (row[c] for c in columns)
            cells.setdefault((dataset, model, checkpoint, protocol, method), []).append(cell)
        return cells

    @functools.cached_property
    def _rows_by_cell(self) -> dict[str, Codes]:
        codes, names = coded_column(self._curves["cell"])
        order = np.argsort(codes, kind="stable")
        ends = np.searchsorted(codes[order], np.arange(len(names) + 1))
        return {name: order[ends[i] : ends[i + 1]] for i, name in enumerate(names)}


def _score_arrays(rows: CodedRows, others: CodedRows | None) -> ScoreArrays:
    dataset, model, checkpoint, protocol = (rows.label(column, 0) for column in KEYS)
    where = " / ".join(part for part in (dataset, model, checkpoint, protocol) if part)
    samples, sample = _by_appearance(rows, "sample")
    methods, method = _by_appearance(rows, "method")
    seeds = list(dict.fromkeys(rows.seed.tolist()))
    seed = _places(rows.seed, seeds)
    check_once(rows, sample * len(methods) + method, samples, methods, where)
    values = np.full((len(seeds), len(methods), len(samples)), np.nan)
    statuses = np.zeros(values.shape, np.uint8)
    values[seed, method, sample] = rows.value
    statuses[seed, method, sample] = _status_codes(rows, where)
    options = []
    for column, name in enumerate(methods):
        mine = rows.take(np.flatnonzero(method == column))
        options.append(mine.single("method_options", f"{name} in {where}"))
    ran = rows.ran()
    return ScoreArrays(
        dataset,
        model,
        checkpoint,
        protocol,
        protocol_options=ran.single("protocol_options", where),
        metric=ran.single("metric", where),
        higher_is_better=only("higher_is_better", np.unique(ran.higher).tolist(), where),
        samples=samples,
        groups=sample_groups(rows, sample, samples, where),
        methods=methods,
        method_options=options,
        seeds=seeds,
        values=values,
        statuses=statuses,
        replicates=_further(others, values.shape, seeds, methods, samples),
    )


def _further(
    others: CodedRows | None,
    shape: tuple[int, ...],
    seeds: Sequence[int],
    methods: Sequence[str],
    samples: Sequence[str],
) -> dict[str, Array]:
    """The scores of the other metrics, in the order in which they appear."""
    if others is None:
        return {}
    names, metric = _by_appearance(others, "metric")
    seed = _places(others.seed, seeds)
    method, sample = (
        _places(np.array(others.names[column], object)[others.codes[column]], labels)
        for column, labels in (("method", methods), ("sample", samples))
    )
    known = (seed >= 0) & (method >= 0) & (sample >= 0)
    further = {}
    for place, name in enumerate(names):
        here = known & (metric == place)
        further[name] = np.full(shape, np.nan)
        further[name][seed[here], method[here], sample[here]] = others.value[here]
    return further


def _by_appearance(rows: CodedRows, column: str) -> tuple[list[str], Codes]:
    """The labels of a column in the order in which they appear, and the number of each row's."""
    labels, codes = rows.compact(column)
    order = np.argsort(np.unique(codes, return_index=True)[1])
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    return [labels[i] for i in order], number[codes]


def _places(values: Array, labels: Sequence[int] | Sequence[str]) -> Codes:
    """The place of each value among these labels; -1 where it is none of them."""
    place = {label: i for i, label in enumerate(labels)}
    return np.fromiter((place.get(value, -1) for value in values.tolist()), np.int64, len(values))


def _status_codes(rows: CodedRows, where: str) -> Array:
    names = rows.names["status"]
    unknown = {names[code] for code in np.unique(rows.codes["status"])} - set(STATUSES[1:])
    if unknown:
        raise ValueError(
            f"Expected statuses of {where} among {STATUSES[1:]}, got {sorted(unknown)}."
        )
    codes = np.array([STATUSES.index(name) if name in STATUSES else 0 for name in names], np.uint8)
    return codes[rows.codes["status"]]


def _curve_parts(block: ScoreArrays, cell: str, table: pa.Table) -> Iterator[CurvePart]:
    """Split the curves of a cell into parts: one seed, the same x, the same names."""
    place = {sample: row for row, sample in enumerate(block.samples)}
    starts = np.flatnonzero(table["step"].to_numpy() == 0)  # a curve's steps lie together
    steps = np.diff([*starts, len(table)])
    heads = table.select(["seed", "sample", "name"]).take(pa.array(starts)).to_pylist()
    rows = np.array([place.get(head["sample"], -1) for head in heads], np.int64)
    names = list(dict.fromkeys(head["name"] for head in heads))
    name = _places(np.array([head["name"] for head in heads], object), names)
    seed = np.array([head["seed"] for head in heads], np.int64)
    x, value = (table[column].to_numpy() for column in ("x", "value"))
    for one in dict.fromkeys(seed.tolist()):
        for length in dict.fromkeys(steps[seed == one].tolist()):
            chosen = (seed == one) & (steps == length) & (rows >= 0)
            matrices = {}
            for number, label in enumerate(names):
                here = np.flatnonzero(chosen & (name == number))
                fields = starts[here, None] + np.arange(length)
                matrices[label] = rows[here], x[fields], value[fields]
            yield from _parts_of_matrices(cell, one, matrices)


def _parts_of_matrices(
    cell: str, seed: int, matrices: dict[str, tuple[Codes, Array, Array]]
) -> Iterator[CurvePart]:
    """Put curves of different names together where they have the same samples and x."""
    left = {name: of for name, of in matrices.items() if len(of[0])}
    while left:
        rows, x, _ = next(iter(left.values()))
        alike = {
            name: curves
            for name, (own, own_x, curves) in left.items()
            if np.array_equal(own, rows) and np.array_equal(own_x, x)
        }
        ends = np.flatnonzero((x[1:] != x[:-1]).any(axis=1)) + 1
        for start, end in zip([0, *ends], [*ends, len(x)], strict=True):
            some = {name: curves[start:end] for name, curves in alike.items()}
            yield CurvePart(cell, seed, rows[start:end], x[start], some)
        left = {name: of for name, of in left.items() if name not in alike}
