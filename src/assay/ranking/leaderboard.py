"""The leaderboard: per protocol and overall, every method with its interval, rank and floor."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa

from assay.ranking import table
from assay.ranking.blocks import Range, model_of, read_blocks
from assay.ranking.overall import model_order
from assay.ranking.rows import block_rows
from assay.ranking.sets import Key, Outcome

KINDS = ("random", "model_free", "other")


@dataclass(frozen=True, repr=False)
class Leaderboard:
    """Ranked methods.

    Attributes:
        rows: One per method and protocol; best first within a protocol, unranked last.
        overall: One per method and model, over all protocols that rank a method, but for those
            that are kept apart.
        left_out: Methods that `overall` leaves out of a model's order: `protocol` and `reason`.
    """

    rows: list[dict[str, Any]]
    overall: list[dict[str, Any]] = field(default_factory=list)
    left_out: list[dict[str, Any]] = field(default_factory=list)

    def __len__(self) -> int:
        """Count the rows."""
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Go over the rows."""
        return iter(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Give one row."""
        return self.rows[index]

    def __repr__(self) -> str:
        """Give an aligned text table."""
        return table.to_text(self.rows)

    def _repr_html_(self) -> str:
        return table.to_html(self.rows)

    def to_table(self) -> pa.Table:
        """Give the rows as an Arrow table."""
        return table.to_arrow(self.rows)

    def to_csv(self, path: str | Path | None = None) -> str:
        """Give the rows as CSV, and write them to `path` if there is one."""
        return table.written(table.to_csv(self.rows), path)

    def to_latex(self, path: str | Path | None = None) -> str:
        """Give the rows as a booktabs table, best in bold, and write it to `path` if given."""
        return table.written(table.to_latex(self.rows), path)


def leaderboard(
    scores: pa.Table,
    *,
    controls: Mapping[str, str],
    outcomes: Mapping[Key, Outcome] | None = None,
    ranges: Mapping[str, Range] | None = None,
    apart: Collection[str] = (),
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Leaderboard:
    """Rank methods per protocol and overall.

    Ranks and differences rest on the samples that all ranked methods of a protocol have; means
    on all samples that the method has. Seeds are averaged per sample first.

    Args:
        scores: The `scores` of a run; only rows with `headline` count.
        controls: Kind of each control by method label: `random`, `model_free` (these two are the
            floor) or `other` (shown and ranked per protocol, neither floor nor in the overall
            order: an oracle cannot be recommended).
        outcomes: What protocols that judge whole sets judge by.
        ranges: Where a protocol's score can lie, by its label: no interval goes beyond.
        apart: Labels of protocols that answer another question, such as those that know the truth:
            ranked by themselves, and in the overall order only where no other protocol ranks.
        level: Nominal coverage of the intervals.
        resamples: Number of bootstrap resamples.
        seed: Seed of the resamples.

    Returns:
        The leaderboard.
    """
    unknown = sorted(set(controls.values()) - set(KINDS))
    if unknown:
        raise ValueError(f"Expected kinds of `controls` among {list(KINDS)}, got {unknown}.")
    options: dict[str, Any] = {"level": level, "resamples": resamples, "seed": seed}
    blocks = read_blocks(scores, outcomes, ranges)
    rows = [row for block in blocks for row in block_rows(block, controls, options)]
    overall: list[dict[str, Any]] = []
    left_out: list[dict[str, Any]] = []
    for _, same_model in groupby(blocks, key=model_of):
        ordered, excluded = model_order(list(same_model), controls, options, apart)
        overall += ordered
        left_out += excluded
    return Leaderboard(rows, overall, left_out)
