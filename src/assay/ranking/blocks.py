"""Read a scores table into blocks: one protocol on one model, all methods side by side."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypedDict, TypeVar

import numpy as np
import pyarrow as pa

from assay.ranking.intervals import (
    Interval,
    PairedDifferences,
    Statistic,
    mean_interval,
    paired_differences,
    set_differences,
    set_interval,
)
from assay.ranking.replicates import (
    FEWEST_REPLICATES,
    Replicates,
    differences_over_replicates,
    interval_over_replicates,
    read_replicates,
    replicate_means,
)
from assay.ranking.resampling import BootstrapOptions, Floats, level_of
from assay.ranking.sets import Key, Outcome
from assay.store import SHOWN_ONLY, Limits, SettingKey

UNBOUNDED: Limits = (-math.inf, math.inf)
StringOrBool = TypeVar("StringOrBool", str, bool)


class ScoreRow(TypedDict):
    """One headline row of the scores table."""

    dataset: str
    model: str
    checkpoint: str
    method: str
    method_options: str
    protocol: str
    protocol_options: str
    metric: str
    sample: str
    group: str
    seed: int
    value: float | None
    higher_is_better: bool
    status: str


@dataclass(frozen=True)
class MethodScores:
    """One method's scores under one protocol.

    Attributes:
        method: Label of the method.
        options: Options of the method.
        status: ok | n/a | failed | degenerate | circular | upper_bound | shown; only
            ok is ranked.
        values: Score by sample, averaged over seeds, only where there is one.
        failed: Number of samples on which the method failed, under any seed.
        degenerate: Number of samples marked degenerate, under any seed.
        outcome: The curves behind a score of a whole set; None where the score is a mean.
        replicates: The scores of each replicate, such as a retraining, where a score is their mean.
    """

    method: str
    options: str
    status: str
    values: Mapping[str, float]
    failed: int
    degenerate: int
    outcome: Outcome | None = None
    replicates: Replicates = field(default_factory=dict)


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
    methods: Sequence[MethodScores]
    range: Limits = UNBOUNDED  # of one score, and so of means and of scores of sets

    @property
    def setting(self) -> SettingKey:
        """The setting it belongs to."""
        return SettingKey(self.dataset, self.model, self.checkpoint)

    @property
    def ranked(self) -> list[MethodScores]:
        """The methods that take part in ranks."""
        return [scores for scores in self.methods if scores.status == "ok"]

    @property
    def common(self) -> list[str]:
        """Samples that every ranked method has, sorted."""
        samples = [set(scores.values) for scores in self.ranked]
        return sorted(set.intersection(*samples)) if samples else []

    def matrix(self, methods: Sequence[MethodScores]) -> Floats:
        """Give the scores of `methods` on the common samples [n, m]."""
        rows = [[scores.values[sample] for scores in methods] for sample in self.common]
        return np.array(rows, dtype=np.float64).reshape(len(rows), len(methods))

    @property
    def judges_sets(self) -> bool:
        """Whether the score is one of the whole set rather than a mean."""
        return any(scores.outcome is not None for scores in self.methods)

    def replicate_means(
        self, methods: Sequence[MethodScores], samples: Sequence[str]
    ) -> Floats | None:
        """Give the means of `methods` in each replicate [R, m]; None where nothing is repeated."""
        if not any(scores.replicates for scores in self.methods):
            return None
        return replicate_means([scores.replicates for scores in methods], samples)

    def interval(self, scores: MethodScores, options: BootstrapOptions) -> Interval:
        """Give the score of one method on all the samples it has."""
        samples = sorted(scores.values)
        groups = self.groups_of(samples)
        if scores.outcome is None:
            values = [scores.values[sample] for sample in samples]
            interval = mean_interval(values, groups, **options)
            means = self.replicate_means([scores], samples)
            if means is not None and len(means) > 1:  # of one, the interval is over samples only
                interval = interval_over_replicates(interval, means[:, 0], level_of(options))
            return interval.within(*self.range)
        statistic = self.statistic([scores], samples)
        return set_interval(statistic, groups, **options).within(*self.range)

    def difference(
        self, scores: MethodScores, other: MethodScores, options: BootstrapOptions
    ) -> Interval:
        """Give one method's score minus another's, on the samples of both."""
        samples = sorted(scores.values.keys() & other.values.keys())
        groups = self.groups_of(samples)
        if not self.judges_sets:
            paired = [scores.values[s] - other.values[s] for s in samples]
            interval = mean_interval(paired, groups, **options)
            means = self.replicate_means([scores, other], samples)
            if means is not None:
                apart = means[:, 0] - means[:, 1]
                interval = interval_over_replicates(interval, apart, level_of(options))
            return interval.within(-self._width, self._width)
        both = self.statistic([scores, other], samples)
        minus = np.array([[1.0], [-1.0]])
        interval = set_interval(lambda weights: both(weights) @ minus, groups, **options)
        return interval.within(-self._width, self._width)

    def differences(
        self, methods: Sequence[MethodScores], options: BootstrapOptions
    ) -> PairedDifferences:
        """Compare all pairs of methods on the common samples."""
        groups = self.groups_of(self.common)
        if not self.judges_sets:
            differences = paired_differences(self.matrix(methods), groups, **options)
            means = self.replicate_means(methods, self.common)
            if means is not None:
                differences = differences_over_replicates(differences, means, level_of(options))
        else:
            statistic = self.statistic(methods, self.common)
            differences = set_differences(statistic, groups, **options)
        return differences.within(self._width)

    @property
    def _width(self) -> float:
        least, most = self.range
        return most - least

    def statistic(self, methods: Sequence[MethodScores], samples: Sequence[str]) -> Statistic:
        """Give the function from weights of samples [b, n] to the methods' scores [b, m]."""
        values = np.array([[scores.values[s] for scores in methods] for s in samples])

        def statistic(weights: Floats) -> Floats:
            means: Floats = weights @ values / weights.sum(axis=1, keepdims=True)
            for column, scores in enumerate(methods):
                if scores.outcome is not None:
                    means[:, column] = scores.outcome.values(samples, weights)
            return means

        return statistic

    def groups_of(self, samples: Iterable[str]) -> list[str]:
        """Give the group of each sample."""
        return [self.groups[sample] for sample in samples]


def read_blocks(
    scores: pa.Table,
    outcomes: Mapping[Key, Outcome] | None = None,
    ranges: Mapping[str, Limits] | None = None,
    replicates: Mapping[str, Sequence[str]] | None = None,
) -> list[Block]:
    """Split the headline rows of a scores table by dataset, model, checkpoint and protocol.

    Args:
        scores: The `scores` of a run.
        outcomes: The curves of the protocols that score whole sets.
        ranges: The lowest and highest score of a protocol, by its label; unlimited by default.
        replicates: By the label of a protocol whose scores are means over replicates, the metrics
            that hold one replicate each.

    Returns:
        The blocks, sorted by dataset, model, checkpoint and protocol.

    Raises:
        ValueError: A column is missing, or the rows of a block contradict each other.
    """
    columns = list(ScoreRow.__annotations__)
    missing = sorted({*columns, "headline"} - set(scores.column_names))
    if missing:
        raise ValueError(f"Expected `scores` to have the columns {missing}, got none of these.")
    split: dict[tuple[str, str, str, str], list[ScoreRow]] = defaultdict(list)
    for row in scores.filter(scores["headline"]).select(columns).to_pylist():
        split[row["dataset"], row["model"], row["checkpoint"], row["protocol"]].append(row)
    limits, repeated = ranges or {}, read_replicates(scores, replicates or {})
    return [
        replace(
            _block(key, split[key], outcomes or {}, repeated), range=limits.get(key[3], UNBOUNDED)
        )
        for key in sorted(split)
    ]


def _block(
    key: tuple[str, str, str, str],
    rows: Sequence[ScoreRow],
    outcomes: Mapping[Key, Outcome],
    replicates: Mapping[Key, Replicates],
) -> Block:
    where = " / ".join(part for part in key if part)
    # A cell that never ran may not know its metric; one that ran does.
    ran = [row for row in rows if row["status"] not in ("n/a", "failed")] or rows
    groups = _groups(rows, where)
    by_method: dict[str, list[ScoreRow]] = defaultdict(list)
    for row in rows:
        by_method[row["method"]].append(row)
    options = _single("protocol_options", (row["protocol_options"] for row in ran), where)
    methods = [
        replace(
            _with_outcome(
                _scores(name, by_method[name], groups, where), outcomes.get((*key, name))
            ),
            replicates=replicates.get((*key, name), {}),
        )
        for name in sorted(by_method)
    ]
    return Block(
        *key,
        protocol_options=options,
        metric=_single("metric", (row["metric"] for row in ran), where),
        higher_is_better=_single(
            "higher_is_better", (row["higher_is_better"] for row in ran), where
        ),
        groups=groups,
        methods=_only_shown(methods) if _ranks_nothing(methods) else methods,
    )


def _ranks_nothing(methods: Sequence[MethodScores]) -> bool:
    """Whether the protocol ranks no method, or has too few replicates to rank the methods."""
    if any(scores.status == "shown" for scores in methods):
        return True
    repeated = [set(s.replicates) for s in methods if s.status == "ok"]
    return any(repeated) and len(set.intersection(*repeated)) < FEWEST_REPLICATES


def _only_shown(methods: Sequence[MethodScores]) -> list[MethodScores]:
    return [replace(s, status="shown") if s.status == "ok" else s for s in methods]


def _groups(rows: Sequence[ScoreRow], where: str) -> dict[str, str]:
    """Give the group of each sample; a sample without one is a group of its own."""
    groups: dict[str, str] = {}
    for row in rows:
        group = row["group"] or row["sample"]
        if groups.setdefault(row["sample"], group) != group:
            raise ValueError(
                f"Expected one `group` for sample {row['sample']!r} of {where}, "
                f"got {groups[row['sample']]!r} and {group!r}."
            )
    return groups


def _scores(
    method: str, rows: Sequence[ScoreRow], groups: Mapping[str, str], where: str
) -> MethodScores:
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
    options = _single(
        "method_options", (row["method_options"] for row in rows), f"{method} in {where}"
    )
    return MethodScores(
        method=method,
        options=options,
        status=_status(statuses, len(scored), len(failed - scored.keys()), bool(degenerate)),
        values={sample: math.fsum(values) / len(values) for sample, values in scored.items()},
        failed=_failures(failed, groups),
        degenerate=len(degenerate),
    )


def _with_outcome(scores: MethodScores, outcome: Outcome | None) -> MethodScores:
    """Give the scores with the curves of their set, on the samples that all seeds have."""
    if outcome is None:
        return scores
    samples = set(outcome.samples)
    values = {s: v for s, v in scores.values.items() if s in samples}
    status = scores.status if values or scores.status != "ok" else "failed"
    return replace(scores, outcome=outcome, values=values, status=status)


def _status(statuses: set[str], scored: int, lost: int, degenerate: bool) -> str:
    for status in SHOWN_ONLY:
        if status in statuses:
            return status
    # A method that fails on most samples would leave too few samples to compare the others on.
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


def _single(column: str, values: Iterable[StringOrBool], where: str) -> StringOrBool:
    different = sorted(set(values))
    if len(different) != 1:
        raise ValueError(
            f"Expected one `{column}` for {where}, got {different}; give them different labels."
        )
    return different[0]
