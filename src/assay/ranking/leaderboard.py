"""The leaderboard: per protocol and overall, every method with its interval, rank and floor."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import pyarrow as pa

from assay.ranking import table
from assay.ranking.answer import Answer
from assay.ranking.block_reading import read_blocks
from assay.ranking.overall import Asked, LeftOutRow, OverallRow, rank_overall
from assay.ranking.resampling import BootstrapOptions
from assay.ranking.rows import BoardRow, PublicRow, block_rows
from assay.ranking.sets import Key, Outcome
from assay.store import Limits, SettingKey
from assay.store.run_arrays import RunArrays

KINDS = ("random", "model_free", "other")


@dataclass(frozen=True, repr=False)
class Leaderboard:
    """Ranked methods.

    Attributes:
        by_protocol: One row per method and protocol; best first within a protocol, unranked last.
        over_protocols: One row per method and setting, over all protocols that rank a method,
            except those that are kept apart.
        without_place: Why a method has no place in `over_protocols`.
        answers: One per setting: which methods no other one beats.
    """

    by_protocol: Sequence[BoardRow]
    over_protocols: Sequence[OverallRow] = ()
    without_place: Sequence[LeftOutRow] = ()
    answers: Sequence[Answer] = ()

    @functools.cached_property
    def rows(self) -> list[PublicRow]:
        """One row per method and protocol; best first within a protocol, unranked last."""
        return [row.as_dict() for row in self.by_protocol]

    @functools.cached_property
    def overall(self) -> list[PublicRow]:
        """One row per method and setting: its place over all protocols that are not kept apart."""
        return [row.as_dict() for row in self.over_protocols]

    @functools.cached_property
    def left_out(self) -> list[PublicRow]:
        """The methods that `overall` leaves out: `protocol` and `reason`."""
        return [row.as_dict() for row in self.without_place]

    def __len__(self) -> int:
        """Count the rows."""
        return len(self.by_protocol)

    def __iter__(self) -> Iterator[PublicRow]:
        """Iterate over the rows."""
        return iter(self.rows)

    def __getitem__(self, index: int) -> PublicRow:
        """Give one row."""
        return self.rows[index]

    def __repr__(self) -> str:
        """Give an aligned text table."""
        return table.to_text(self.by_protocol)

    def _repr_html_(self) -> str:
        return table.to_html(self.by_protocol)

    def to_table(self) -> pa.Table:
        """Give the rows as an Arrow table."""
        return table.to_arrow(self.by_protocol)

    def to_csv(self, path: str | Path | None = None) -> str:
        """Give the rows as CSV; also write them to `path` if there is one."""
        return table.written(table.to_csv(self.by_protocol), path)

    def to_latex(self, path: str | Path | None = None) -> str:
        """Give the rows as a booktabs table, best in bold; also write it to `path`, if any."""
        return table.written(table.to_latex(self.by_protocol), path)


def leaderboard(
    scores: pa.Table | RunArrays,
    *,
    controls: Mapping[str, str],
    outcomes: Mapping[Key, Outcome] | None = None,
    ranges: Mapping[str, Limits] | None = None,
    replicates: Mapping[str, Sequence[str]] | None = None,
    apart: Collection[str] = (),
    without: Collection[str] = (),
    questions: Mapping[str, str] | None = None,
    fills: Mapping[str, str] | None = None,
    silent: Mapping[tuple[SettingKey, str], str] | None = None,
    aligned: Collection[tuple[str, str]] = (),
    noise: Collection[str] = (),
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Leaderboard:
    """Rank methods per protocol and overall.

    Ranks and differences use the samples that all ranked methods of a protocol have; means use
    all samples that the method has. Seeds are averaged per sample first. Where scores are means
    over replicates, such as retrainings, intervals are over samples and replicates.

    Args:
        scores: The scores of a run, as arrays or as a table, of which only rows with `headline`
            count.
        controls: Kind of each control by method label: `random`, `model_free` (these two are the
            floor) or `other` (shown and ranked per protocol, neither floor nor in the overall
            list: an oracle cannot be recommended).
        outcomes: The curves of the protocols that score whole sets.
        ranges: The lowest and highest score of a protocol, by its label; they limit the intervals.
        replicates: By the label of a protocol whose scores are means over replicates, the metrics
            that hold one replicate each.
        apart: Labels of protocols that answer another question, such as those that know the truth.
            They are in the overall list only where no other protocol ranks.
        without: Labels of protocols that are left out.
        questions: What each protocol asks, by its label; those without one ask the same.
        fills: What each protocol puts in place of absent units, by its label.
        silent: Why a protocol has nothing to rank in a setting.
        aligned: The methods and protocols of cells whose method starts from the protocol's fill.
        noise: Labels of controls that every method should differ from, besides the random ones.
        level: Nominal coverage of the intervals.
        resamples: Number of bootstrap resamples.
        seed: Seed of the resamples.

    Returns:
        The leaderboard.

    Raises:
        ValueError: A kind of control is unknown, or `scores` lacks a column.
    """
    unknown = sorted(set(controls.values()) - set(KINDS))
    if unknown:
        raise ValueError(f"Expected kinds of `controls` among {list(KINDS)}, got {unknown}.")
    options: BootstrapOptions = {"level": level, "resamples": resamples, "seed": seed}
    blocks = read_blocks(scores, outcomes, ranges, replicates, without)
    rows = [row for block in blocks for row in block_rows(block, controls, options, aligned, noise)]
    asked = Asked(questions or {}, fills or {}, frozenset(apart), silent or {}, frozenset(noise))
    settings = [
        rank_overall(list(same_setting), controls, options, asked)
        for _, same_setting in groupby(blocks, key=lambda block: block.setting)
    ]
    return Leaderboard(
        rows,
        [row for one in settings for row in one.rows],
        [row for one in settings for row in one.left_out],
        [_with_rows(one.answer, rows, apart) for one in settings],
    )


def _with_rows(answer: Answer, rows: Sequence[BoardRow], truths: Collection[str]) -> Answer:
    """The answer with what single protocols say.

    That is the methods in first place by each protocol that knows the truth and separates methods,
    and the best methods that start from a protocol's fill.
    """
    here = [row for row in rows if row.setting == answer.setting and not row.control]
    aligned = {row.method for row in here if row.aligned}
    answer = replace(answer, aligned=tuple(name for name in answer.best if name in aligned))
    true_first = {}
    for truth in truths:
        ranked = [row for row in here if row.protocol == truth and row.rank and row.ties_broken]
        if ranked:
            place = min(row.rank for row in ranked if row.rank)
            first = tuple(row.method for row in ranked if row.rank == place)
            if len(first) < len(ranked) or len(ranked) == 1:
                true_first[truth] = first
    return replace(answer, true_first=true_first)
