"""Headline rows of a scores table as arrays: one table of scores [n, m] per block."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from assay.ranking.resampling import Codes, Floats
from assay.store import SHOWN_ONLY

StringOrBool = TypeVar("StringOrBool", str, bool)
BlockKey = tuple[str, str, str, str]  # dataset, model, checkpoint, protocol

KEYS = ("dataset", "model", "checkpoint", "protocol")
LABELS = (
    *KEYS, "method", "method_options", "protocol_options", "metric", "sample", "group", "status",
)  # fmt: skip
COLUMNS = (*LABELS, "seed", "value", "higher_is_better", "headline")


@dataclass(frozen=True, eq=False)
class PivotedMethod:
    """What the rows of one method say besides its scores."""

    method: str
    options: str
    status: str
    failed: int
    degenerate: int


@dataclass(frozen=True, eq=False)
class Pivoted:
    """The headline rows of one block.

    Attributes:
        key: Dataset, model, checkpoint and protocol.
        protocol_options: Options of the protocol.
        metric: Name of the score.
        higher_is_better: Direction of the score.
        samples: All samples, sorted.
        groups: The group of each sample; a sample without one is a group of its own.
        methods: The methods, sorted by label.
        table: Scores averaged over seeds [n, m], NaN where there is none.
    """

    key: BlockKey
    protocol_options: str
    metric: str
    higher_is_better: bool
    samples: Sequence[str]
    groups: Sequence[str]
    methods: Sequence[PivotedMethod]
    table: Floats


@dataclass(frozen=True, eq=False)
class CodedRows:
    """Some rows of a scores table: labels as codes, which number `names` in sorted order."""

    codes: dict[str, Codes]
    names: dict[str, list[str]]
    seed: Codes
    value: Floats
    higher: NDArray[np.bool_]

    def take(self, places: Codes) -> CodedRows:
        """The rows at these places."""
        codes = {column: codes[places] for column, codes in self.codes.items()}
        seed, value, higher = self.seed[places], self.value[places], self.higher[places]
        return CodedRows(codes, self.names, seed, value, higher)

    def has(self, *statuses: str) -> NDArray[np.bool_]:
        """Which rows have one of these statuses."""
        names = self.names["status"]
        return np.isin(self.codes["status"], [i for i, n in enumerate(names) if n in statuses])

    def ran(self) -> CodedRows:
        """The rows of cells that ran: one that never ran may not know its metric."""
        idle = self.has("n/a", "failed")
        return self if idle.all() or not idle.any() else self.take(np.flatnonzero(~idle))

    def compact(self, column: str) -> tuple[list[str], Codes]:
        """The labels that these rows have, sorted, and the number of each row's label."""
        present, codes = _renumbered(self.codes[column], len(self.names[column]))
        return [self.names[column][i] for i in present], codes

    def single(self, column: str, where: str) -> str:
        """The only label of a column."""
        found = self.compact(column)[0]
        return only(column, found, where)

    def label(self, column: str, row: int) -> str:
        """The label of one row."""
        return self.names[column][int(self.codes[column][row])]


def pivot(scores: pa.Table) -> Iterator[Pivoted]:
    """Split the headline rows of a scores table by dataset, model, checkpoint and protocol.

    Raises:
        ValueError: A column is missing, or the rows of a block contradict each other.
    """
    check_columns(scores)
    for rows in split_blocks(coded_rows(scores.select(list(COLUMNS)).filter(scores["headline"]))):
        yield _pivoted(rows)


def check_columns(scores: pa.Table) -> None:
    """Raise an error for a scores table without the columns that are read."""
    missing = sorted(set(COLUMNS) - set(scores.column_names))
    if missing:
        raise ValueError(f"Expected `scores` to have the columns {missing}, got none of these.")


def split_blocks(rows: CodedRows) -> Iterator[CodedRows]:
    """Split rows by dataset, model, checkpoint and protocol, in order of these labels."""
    places: Codes = np.zeros(len(rows.seed), np.int64)
    for column in KEYS:
        places = places * len(rows.names[column]) + rows.codes[column]
    present, block = np.unique(places, return_inverse=True)
    for i in range(len(present)):
        yield rows if len(present) == 1 else rows.take(np.flatnonzero(block == i))


def coded_rows(scores: pa.Table, extra: Sequence[str] = ()) -> CodedRows:
    """Give the rows of a scores table with their labels as codes, and those of extra columns."""
    codes, names = {}, {}
    for column in (*LABELS, *extra):
        codes[column], names[column] = coded_column(scores[column])
    value = scores["value"].cast(pa.float64()).to_numpy()  # null becomes NaN
    higher = scores["higher_is_better"].to_numpy().astype(bool)
    return CodedRows(codes, names, scores["seed"].to_numpy().astype(np.int64), value, higher)


def coded_column(column: pa.ChunkedArray) -> tuple[Codes, list[str]]:
    """Give the codes of a column of texts, which may be encoded already, in order of the texts."""
    encoded = column.dictionary_encode().unify_dictionaries()
    if encoded.num_chunks == 0:
        return np.zeros(0, np.int64), []
    found = ["" if text is None else text for text in encoded.chunk(0).dictionary.to_pylist()]
    names = sorted({*found, *([""] if encoded.null_count else [])})
    place = {text: i for i, text in enumerate(names)}
    renamed = np.array([*(place[text] for text in found), place.get("", 0)], np.int64)
    indices = [chunk.indices.fill_null(len(found)).to_numpy() for chunk in encoded.chunks]
    return renamed[np.concatenate(indices)], names


def _renumbered(codes: Codes, size: int) -> tuple[Codes, Codes]:
    """Give the codes that occur, ascending, and the place of each code among them."""
    there = np.zeros(size, bool)
    there[codes] = True
    return np.flatnonzero(there), (np.cumsum(there) - 1)[codes]


def _pivoted(rows: CodedRows) -> Pivoted:
    key: BlockKey = (
        rows.label("dataset", 0),
        rows.label("model", 0),
        rows.label("checkpoint", 0),
        rows.label("protocol", 0),
    )
    where = " / ".join(part for part in key if part)
    ran = rows.ran()
    samples, sample = rows.compact("sample")
    groups = sample_groups(rows, sample, samples, where)
    protocol_options = ran.single("protocol_options", where)
    names, method = rows.compact("method")
    shape = (len(samples), len(names))
    field = sample * len(names) + method  # the place of each row in a table [n, m]
    check_once(rows, field, samples, names, where)
    known = np.isfinite(rows.value)
    scored = known & ~rows.has("failed", "n/a")
    degenerate = rows.has("degenerate")
    failed = ~degenerate & (rows.has("failed") | (~rows.has("n/a") & ~known))
    table = _averaged(rows, field, scored, shape)
    has_failed, has_degenerate = (_marked(field[of], shape) for of in (failed, degenerate))
    here = ~np.isnan(table)
    methods = []
    for column, name in enumerate(names):
        mine = rows.take(np.flatnonzero(method == column))
        has, lost = here[:, column], has_failed[:, column]
        marked = int(has_degenerate[:, column].sum())
        found = set(mine.compact("status")[0])
        status = method_status(found, int(has.sum()), int((lost & ~has).sum()), marked > 0)
        options = mine.single("method_options", f"{name} in {where}")
        methods.append(PivotedMethod(name, options, status, count_failures(lost, samples), marked))
    metric = ran.single("metric", where)
    higher = only("higher_is_better", np.unique(ran.higher).tolist(), where)
    return Pivoted(key, protocol_options, metric, higher, samples, groups, methods, table)


def sample_groups(rows: CodedRows, sample: Codes, samples: Sequence[str], where: str) -> list[str]:
    """Give the group of each sample; a sample without one is a group of its own."""
    names, group = rows.names["group"], rows.codes["group"]
    first = np.full(len(samples), -1)
    first[sample[::-1]] = group[::-1]  # of several rows the first one is kept
    labels = [names[code] or samples[place] for place, code in enumerate(first.tolist())]
    for row in np.flatnonzero(group != first[sample]).tolist():
        name = samples[sample[row]]
        other = names[group[row]] or name
        if other != labels[sample[row]]:
            raise ValueError(
                f"Expected one `group` for sample {name!r} of {where}, "
                f"got {labels[sample[row]]!r} and {other!r}."
            )
    return labels


def check_once(
    rows: CodedRows, field: Codes, samples: Sequence[str], names: Sequence[str], where: str
) -> None:
    """Raise an error if a method has two rows for one sample and seed."""
    seeds, seed = np.unique(rows.seed, return_inverse=True)
    count = np.bincount(field * len(seeds) + seed)
    if count.max(initial=0) < 2:
        return
    twice = np.flatnonzero(count > 1)
    place, column = np.divmod(twice // len(seeds), len(names))
    one = np.lexsort((twice % len(seeds), place, column))[0]
    raise ValueError(
        f"Expected one headline row per sample and seed of {names[column[one]]} in {where}, got "
        f"two for sample {samples[place[one]]!r}, seed {seeds[twice[one] % len(seeds)]}; give them "
        f"different labels."
    )


def _averaged(
    rows: CodedRows, field: Codes, scored: NDArray[np.bool_], shape: tuple[int, int]
) -> Floats:
    """Give the mean over seeds of each field of a table [n, m], NaN where nothing was scored."""
    table = np.full(shape[0] * shape[1], np.nan)
    field, value = field[scored], rows.value[scored]
    if len(np.unique(rows.seed)) > 1:
        order = np.argsort(field, kind="stable")
        present, starts, counts = np.unique(field[order], return_index=True, return_counts=True)
        sums = np.add.reduceat(value[order], starts) if len(present) else np.zeros(0)
        for place in np.flatnonzero(counts > 2).tolist():  # the sum of two is exact anyway
            start = starts[place]
            sums[place] = math.fsum(value[order[start : start + counts[place]]].tolist())
        field, value = present, sums / counts
    table[field] = value
    return table.reshape(shape)


def _marked(fields: Codes, shape: tuple[int, int]) -> NDArray[np.bool_]:
    """Give a table that is True in these fields."""
    marks = np.zeros(shape[0] * shape[1], bool)
    marks[fields] = True
    return marks.reshape(shape)


def method_status(statuses: set[str], scored: int, lost: int, degenerate: bool) -> str:
    """The status of a method with these statuses on so many scored and lost samples."""
    for status in SHOWN_ONLY:
        if status in statuses:
            return status
    # A method that fails on most samples would leave too few samples to compare the others on.
    if scored and scored >= lost:
        return "ok"
    if lost:
        return "failed"
    return "degenerate" if degenerate else "n/a"


def count_failures(lost: NDArray[np.bool_], samples: Sequence[str]) -> int:
    """Count failed samples; a cell that failed as a whole failed on every sample."""
    whole = samples[0] == "" and bool(lost[0])  # sorted: the empty name comes first
    return max(1, len(samples) - 1) if whole else int(lost.sum())


def only(column: str, values: Sequence[StringOrBool], where: str) -> StringOrBool:
    """The only value of a column, or an error."""
    different = sorted(set(values))
    if len(different) != 1:
        raise ValueError(
            f"Expected one `{column}` for {where}, got {different}; give them different labels."
        )
    return different[0]
