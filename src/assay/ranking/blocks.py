"""Read a scores table into blocks: one protocol on one model, all methods side by side."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from assay.ranking.intervals import (
    Differences,
    Interval,
    Statistic,
    mean_interval,
    paired_differences,
    set_differences,
    set_interval,
)
from assay.ranking.resampling import Floats
from assay.ranking.sets import Key, Outcome
from assay.store import SHOWN_ONLY

COLUMNS = (
    "dataset", "model", "checkpoint", "method", "method_options", "protocol", "protocol_options",
    "metric", "sample", "group", "seed", "value", "higher_is_better", "status",
)  # fmt: skip

Row = Mapping[str, Any]
Range = tuple[float, float]
UNBOUNDED: Range = (-math.inf, math.inf)


@dataclass(frozen=True)
class Entry:
    """One method's scores under one protocol.

    Attributes:
        method: Label of the method.
        options: Options of the method.
        status: ok | n/a | failed | degenerate | circular | upper_bound; only ok is ranked.
        values: Score by sample, averaged over seeds, only where there is one.
        failed: Number of samples on which the method failed, under any seed.
        degenerate: Number of samples marked degenerate, under any seed.
        outcome: What a protocol that judges whole sets judges by; None where a mean is enough.
    """

    method: str
    options: str
    status: str
    values: Mapping[str, float]
    failed: int
    degenerate: int
    outcome: Outcome | None = None


@dataclass(frozen=True)
class Block:
    """All methods under one protocol on one model and dataset, sorted by label."""

    dataset: str
    model: str
    checkpoint: str
    protocol: str
    protocol_options: str
    metric: str
    higher_is_better: bool
    groups: Mapping[str, str]
    entries: Sequence[Entry]
    range: Range = UNBOUNDED  # of one score, and so of means and numbers of sets

    @property
    def ranked(self) -> list[Entry]:
        """Entries that take part in ranks."""
        return [entry for entry in self.entries if entry.status == "ok"]

    @property
    def common(self) -> list[str]:
        """Samples that every ranked method has, sorted."""
        samples = [set(entry.values) for entry in self.ranked]
        return sorted(set.intersection(*samples)) if samples else []

    def matrix(self, entries: Sequence[Entry]) -> Floats:
        """Give the scores of `entries` on the common samples [n, m]."""
        rows = [[entry.values[sample] for entry in entries] for sample in self.common]
        return np.array(rows, dtype=np.float64).reshape(len(rows), len(entries))

    @property
    def judges_sets(self) -> bool:
        """Whether the score is a number of the whole set rather than a mean."""
        return any(entry.outcome is not None for entry in self.entries)

    def interval(self, entry: Entry, options: Mapping[str, Any]) -> Interval:
        """Give the score of one entry on all the samples it has."""
        samples = sorted(entry.values)
        groups = self.groups_of(samples)
        if entry.outcome is None:
            found = mean_interval([entry.values[s] for s in samples], groups, **options)
        else:
            found = set_interval(self.statistic([entry], samples), groups, **options)
        return found.within(*self.range)

    def difference(self, entry: Entry, other: Entry, options: Mapping[str, Any]) -> Interval:
        """Give one entry's score minus another's, on the samples of both."""
        samples = sorted(entry.values.keys() & other.values.keys())
        groups = self.groups_of(samples)
        if not self.judges_sets:
            paired = [entry.values[s] - other.values[s] for s in samples]
            found = mean_interval(paired, groups, **options)
        else:
            both = self.statistic([entry, other], samples)
            minus = np.array([[1.0], [-1.0]])
            found = set_interval(lambda weights: both(weights) @ minus, groups, **options)
        return found.within(-self._width, self._width)

    def differences(self, entries: Sequence[Entry], options: Mapping[str, Any]) -> Differences:
        """Compare all pairs of entries on the common samples."""
        groups = self.groups_of(self.common)
        if not self.judges_sets:
            found = paired_differences(self.matrix(entries), groups, **options)
        else:
            found = set_differences(self.statistic(entries, self.common), groups, **options)
        return found.within(self._width)

    @property
    def _width(self) -> float:
        least, most = self.range
        return most - least

    def statistic(self, entries: Sequence[Entry], samples: Sequence[str]) -> Statistic:
        """Give the function from weights of samples [b, n] to the entries' scores [b, m]."""
        values = np.array([[entry.values[s] for entry in entries] for s in samples])

        def scores(weights: Floats) -> Floats:
            means: Floats = weights @ values / weights.sum(axis=1, keepdims=True)
            for column, entry in enumerate(entries):
                if entry.outcome is not None:
                    means[:, column] = entry.outcome.values(samples, weights)
            return means

        return scores

    def groups_of(self, samples: Iterable[str]) -> list[str]:
        """Give the group of each sample."""
        return [self.groups[sample] for sample in samples]


def read_blocks(
    scores: pa.Table,
    outcomes: Mapping[Key, Outcome] | None = None,
    ranges: Mapping[str, Range] | None = None,
) -> list[Block]:
    """Split the headline rows of a scores table by dataset, model, checkpoint and protocol.

    Args:
        scores: The `scores` of a run.
        outcomes: What protocols that judge whole sets judge by.
        ranges: Where a protocol's score can lie, by its label; anywhere where nothing is said.

    Returns:
        The blocks, sorted by dataset, model, checkpoint and protocol.
    """
    missing = sorted({*COLUMNS, "headline"} - set(scores.column_names))
    if missing:
        raise ValueError(f"Expected `scores` to have the columns {missing}, got none of these.")
    split: dict[tuple[str, str, str, str], list[Row]] = defaultdict(list)
    for row in scores.filter(scores["headline"]).select(list(COLUMNS)).to_pylist():
        split[row["dataset"], row["model"], row["checkpoint"], row["protocol"]].append(row)
    known = ranges or {}
    return [
        replace(_block(key, split[key], outcomes or {}), range=known.get(key[3], UNBOUNDED))
        for key in sorted(split)
    ]


def model_of(block: Block) -> tuple[str, str, str]:
    """Give the dataset, model and checkpoint of a block."""
    return block.dataset, block.model, block.checkpoint


def _block(
    key: tuple[str, str, str, str], rows: Sequence[Row], outcomes: Mapping[Key, Outcome]
) -> Block:
    where = " / ".join(part for part in key if part)
    # A cell that never ran may not know its metric; one that ran does.
    told = [row for row in rows if row["status"] not in ("n/a", "failed")] or rows
    groups: dict[str, str] = {}
    by_method: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_method[row["method"]].append(row)
        group = row["group"] or row["sample"]
        if groups.setdefault(row["sample"], group) != group:
            raise ValueError(
                f"Expected one `group` for sample {row['sample']!r} of {where}, "
                f"got {groups[row['sample']]!r} and {group!r}."
            )
    return Block(
        *key,
        protocol_options=_single("protocol_options", told, where),
        metric=_single("metric", told, where),
        higher_is_better=_single("higher_is_better", told, where),
        groups=groups,
        entries=[
            _judged(_entry(name, by_method[name], groups, where), outcomes.get((*key, name)))
            for name in sorted(by_method)
        ],
    )


def _entry(method: str, rows: Sequence[Row], groups: Mapping[str, str], where: str) -> Entry:
    scored: dict[str, list[float]] = defaultdict(list)
    failed: set[str] = set()
    degenerate: set[str] = set()
    seen: set[tuple[str, int]] = set()
    for row in sorted(rows, key=lambda row: (row["sample"], row["seed"])):
        sample, status = row["sample"], row["status"]
        if (sample, row["seed"]) in seen:
            raise ValueError(
                f"Expected one headline row per sample and seed of {method} in {where}, got two "
                f"for sample {sample!r}, seed {row['seed']}; give them different labels."
            )
        seen.add((sample, row["seed"]))
        value = math.nan if row["value"] is None else float(row["value"])
        if status == "degenerate":
            degenerate.add(sample)
        elif status == "failed" or (status != "n/a" and not math.isfinite(value)):
            failed.add(sample)
        if status not in ("failed", "n/a") and math.isfinite(value):
            scored[sample].append(value)
    statuses = {row["status"] for row in rows}
    return Entry(
        method=method,
        options=_single("method_options", rows, f"{method} in {where}"),
        status=_status(statuses, len(scored), len(failed - scored.keys()), bool(degenerate)),
        values={sample: math.fsum(values) / len(values) for sample, values in scored.items()},
        failed=_failures(failed, groups),
        degenerate=len(degenerate),
    )


def _judged(entry: Entry, outcome: Outcome | None) -> Entry:
    """Give the entry with what its set is judged by: the samples that all seeds have."""
    if outcome is None:
        return entry
    values = {s: v for s, v in entry.values.items() if s in set(outcome.samples)}
    status = entry.status if values or entry.status != "ok" else "failed"
    return replace(entry, outcome=outcome, values=values, status=status)


def _status(statuses: set[str], scored: int, lost: int, degenerate: bool) -> str:
    for why in SHOWN_ONLY:
        if why in statuses:
            return why
    # A method that fails on most samples would leave the others too few to be compared on.
    if scored and scored >= lost:
        return "ok"
    if lost:
        return "failed"
    return "degenerate" if degenerate else "n/a"


def _failures(failed: set[str], groups: Mapping[str, str]) -> int:
    """Count failed samples; a cell that failed as a whole failed on every sample."""
    if "" not in failed:
        return len(failed)
    return max(1, len(groups.keys() - {""}))


def _single(column: str, rows: Sequence[Row], where: str) -> Any:
    values = sorted({row[column] for row in rows})
    if len(values) != 1:
        raise ValueError(
            f"Expected one `{column}` for {where}, got {values}; give them different labels."
        )
    return values[0]
