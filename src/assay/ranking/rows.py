"""Rows of one protocol: each method's mean, rank and distance to the controls."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from assay.ranking.blocks import Block, MethodScores
from assay.ranking.intervals import Interval, PairedDifferences
from assay.ranking.orders import resolved, tied_ranks
from assay.ranking.proportions import Flags
from assay.ranking.resampling import BootstrapOptions, Floats, level_of
from assay.store import SettingKey

PublicRow = dict[str, Any]  # a row as users read it: `row["method"]`

# Kinds of control that do not depend on the model: what a method must beat.
FLOOR = ("random", "model_free")


@dataclass(frozen=True)
class BoardRow:
    """One method under one protocol.

    Attributes:
        dataset: Label of the dataset.
        model: Label of the model.
        checkpoint: Which weights of the model.
        protocol: Label of the protocol.
        method: Label of the method.
        mean: Score over all samples of the method; None where there is none.
        low: Lower end of its interval.
        high: Upper end of its interval.
        n: Number of samples with a score.
        n_groups: Number of groups of samples.
        status: ok | n/a | failed | degenerate | circular | upper_bound | shown; only
            ok is ranked.
        method_options: Options of the method, as JSON.
        protocol_options: Options of the protocol, as JSON.
        metric: Name of the score.
        higher_is_better: Direction of the score.
        failed: Number of samples on which the method failed.
        degenerate: Number of samples with a degenerate map.
        control: Kind of control; empty for a method.
        rank: The place of the first method of its group in the list by score; a group begins at a
            method that is clearly worse than the first one of the group before. None where it is
            not ranked.
        ties_broken: Whether there were enough groups to break ties.
        n_common: Number of samples that all ranked methods have.
        minus_random: Distance to the best random control, positive where the method is better.
        minus_random_low: Lower end of its interval.
        minus_random_high: Upper end of its interval.
        minus_control: Distance to the best control of the floor.
        minus_control_low: Lower end of its interval.
        minus_control_high: Upper end of its interval.
        best_control: Label of the best control of the floor.
        below_control: Whether the mean is worse than that control's; None for controls.
        clearly_below: Whether the interval of the difference says so too.
        told_apart: Whether the method is resolved from every `random` and `shuffled` control; None
            for controls, without such a control, or with too few groups.
        aligned: Whether the method starts from what the protocol fills with, such as zero.
        level: Nominal coverage of `low` to `high`; None where there is no interval, or where the
            true coverage of the interval is unknown.
    """

    dataset: str
    model: str
    checkpoint: str
    protocol: str
    method: str
    mean: float | None
    low: float | None
    high: float | None
    n: int
    n_groups: int
    status: str
    method_options: str
    protocol_options: str
    metric: str
    higher_is_better: bool
    failed: int
    degenerate: int
    control: str
    rank: int | None = None
    ties_broken: bool | None = None
    n_common: int | None = None
    minus_random: float | None = None
    minus_random_low: float | None = None
    minus_random_high: float | None = None
    minus_control: float | None = None
    minus_control_low: float | None = None
    minus_control_high: float | None = None
    best_control: str | None = None
    below_control: bool | None = None
    clearly_below: bool | None = None
    told_apart: bool | None = None
    aligned: bool = False
    level: float | None = None

    @property
    def without_level(self) -> bool:
        """Whether there is an interval of unknown coverage."""
        return self.low is not None and self.level is None

    @property
    def setting(self) -> SettingKey:
        """The setting it belongs to."""
        return SettingKey(self.dataset, self.model, self.checkpoint)

    def as_dict(self) -> PublicRow:
        """The row as users read it."""
        return dict(vars(self))


class Gap(NamedTuple):
    """A method's paired difference to a control, positive where the method is better."""

    mean: float | None = None
    low: float | None = None
    high: float | None = None


def block_rows(
    block: Block,
    controls: Mapping[str, str],
    options: BootstrapOptions,
    aligned: Collection[tuple[str, str]] = (),
    noise: Collection[str] = (),
) -> list[BoardRow]:
    """Give one row per method of a block, best first, unranked last.

    Args:
        block: All methods under one protocol.
        controls: Kind of each control by method label.
        options: Keywords of the interval functions.
        aligned: The methods and protocols of cells whose method starts from the protocol's fill.
        noise: Labels of controls that every method should differ from, besides the random ones.

    Returns:
        The rows.
    """
    intervals = block.intervals(options)
    rows = {
        scores.method: replace(
            _unranked(block, scores, controls, intervals.get(scores.method)),
            level=_level(intervals.get(scores.method), options),
            aligned=(scores.method, block.protocol) in aligned,
        )
        for scores in block.methods
    }
    rows |= _ranked(block, rows, options, noise)
    return sorted(rows.values(), key=_best_first)


def known(value: float) -> float | None:
    """Give None for NaN: what is not known is null in every format."""
    return None if math.isnan(value) else value


def _level(interval: Interval | None, options: BootstrapOptions) -> float | None:
    if interval is None or math.isnan(interval.low) or not interval.has_level:
        return None
    return level_of(options)


def _best_first(row: BoardRow) -> tuple[bool, float, bool, float, str]:
    mean = row.mean
    ordered = math.inf if mean is None else -mean if row.higher_is_better else mean
    return row.rank is None, row.rank or 0, mean is None, ordered, row.method


def _unranked(
    block: Block, scores: MethodScores, controls: Mapping[str, str], interval: Interval | None
) -> BoardRow:
    return BoardRow(
        *block.setting,
        protocol=block.protocol,
        method=scores.method,
        mean=interval.mean if interval else None,
        low=known(interval.low) if interval else None,
        high=known(interval.high) if interval else None,
        n=len(scores),
        n_groups=interval.n_groups if interval else 0,
        status=scores.status,
        method_options=scores.options,
        protocol_options=block.protocol_options,
        metric=block.metric,
        higher_is_better=block.higher_is_better,
        failed=scores.failed,
        degenerate=scores.degenerate,
        control=controls.get(scores.method, ""),
    )


def _ranked(
    block: Block,
    rows: Mapping[str, BoardRow],
    options: BootstrapOptions,
    noise: Collection[str],
) -> dict[str, BoardRow]:
    """Give the rows of the ranked methods with rank and distance to the floor."""
    ranked, common = block.ranked, block.common
    if not len(common):
        return {scores.method: replace(rows[scores.method], n_common=0) for scores in ranked}
    differences = block.differences(ranked, options)
    listed = np.array([_score(rows[scores.method]) for scores in ranked])
    ranks = tied_ranks(differences, higher_is_better=block.higher_is_better, scores=listed)
    better = resolved(differences, higher_is_better=block.higher_is_better)
    sign = 1.0 if block.higher_is_better else -1.0
    means = sign * block.statistic(ranked, common)(np.ones((1, len(common))))[0]
    kinds = [rows[scores.method].control for scores in ranked]
    random = _best(means, [kind == "random" for kind in kinds])
    floor = _best(means, [kind in FLOOR for kind in kinds])
    apart = _told_apart(
        better | better.T,
        [kind == "random" or s.method in noise for s, kind in zip(ranked, kinds, strict=True)],
    )
    placed = {}
    for i, scores in enumerate(ranked):
        to_random = _gap(differences, i, random, sign)
        to_floor = _gap(differences, i, floor, sign)
        compared = floor is not None and not kinds[i]
        placed[scores.method] = replace(
            rows[scores.method],
            rank=int(ranks.ranks[i]),
            ties_broken=ranks.ties_broken,
            n_common=len(common),
            minus_random=to_random.mean,
            minus_random_low=to_random.low,
            minus_random_high=to_random.high,
            minus_control=to_floor.mean,
            minus_control_low=to_floor.low,
            minus_control_high=to_floor.high,
            best_control=None if floor is None else ranked[floor].method,
            below_control=bool(sign * differences.mean[i, floor] < 0) if compared else None,
            clearly_below=bool(better[floor, i]) if compared else None,
            told_apart=apart[i] if ranks.ties_broken and not kinds[i] else None,
        )
    return placed


def _told_apart(resolved_pairs: Flags, noise: Sequence[bool]) -> list[bool | None]:
    """Whether each method is resolved from all methods that are noise."""
    if not any(noise):
        return [None] * len(noise)
    return [bool(pairs[list(noise)].all()) for pairs in resolved_pairs]


def _score(row: BoardRow) -> float:
    return math.nan if row.mean is None else row.mean


def _best(means: Floats, chosen: Sequence[bool]) -> int | None:
    if not any(chosen):
        return None
    return int(np.argmax(np.where(chosen, means, -np.inf)))


def _gap(differences: PairedDifferences, method: int, control: int | None, sign: float) -> Gap:
    if control is None or control == method:
        return Gap()
    low, high = sorted(
        (
            sign * float(differences.low[method, control]),
            sign * float(differences.high[method, control]),
        )
    )
    return Gap(sign * float(differences.mean[method, control]), known(low), known(high))
