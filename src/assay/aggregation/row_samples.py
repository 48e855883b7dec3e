"""The scores of single samples behind a row: for resamples and halves of the images."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from assay.aggregation.run_settings import RunSettings, VoteRow
from assay.aggregation.setting_bootstrap import SettingSamples
from assay.ranking.blocks import Block
from assay.ranking.resampling import Floats


def row_samples(read: RunSettings, row: VoteRow) -> SettingSamples | None:
    """The scores [N, n] of one row on the samples that all its methods have.

    A row of several protocols has their mean, each in units of the spread of its scores, so that
    none outweighs the others. None where a protocol judges whole sets, or no sample is common.
    """
    present = [method for method in read.methods if method in row.scores]
    if any(block.judges_sets for block in row.blocks):
        return None
    tables = [_scores(block, present) for block in row.blocks]
    common = sorted(set.intersection(*(set(names) for names, _ in tables)))
    if not common:
        return None
    total = np.zeros((len(common), len(present)))
    for names, values in tables:
        places = {name: place for place, name in enumerate(names)}
        chosen = values[[places[name] for name in common]]
        spread = float(chosen.std()) if len(tables) > 1 else 1.0
        total += chosen / (spread or 1.0)
    whole = np.full((len(common), len(read.methods)), np.nan)
    whole[:, [read.methods.index(method) for method in present]] = total / len(tables)
    groups = row.blocks[0].groups
    return SettingSamples(
        row.setting.dataset, read.sources[row.setting.dataset], whole,
        [groups[name] for name in common], row.weight,
    )  # fmt: skip


def _scores(block: Block, methods: Sequence[str]) -> tuple[Sequence[str], Floats]:
    """The samples that all these methods have, and their scores, higher is better."""
    columns = {scores.method: scores.column for scores in block.ranked}
    chosen = [columns[method] for method in methods if method in columns]
    if len(chosen) < len(methods):
        return (), np.zeros((0, len(methods)))
    values = np.stack(chosen, axis=1)
    there = np.flatnonzero(~np.isnan(values).any(axis=1))
    names = [block.samples[place] for place in there.tolist()]
    return names, (1.0 if block.higher_is_better else -1.0) * values[there]


def all_row_samples(read: RunSettings) -> tuple[list[VoteRow], list[SettingSamples]]:
    """The rows whose single samples have scores, and these scores."""
    found = [(row, row_samples(read, row)) for row in read.rows]
    known = [(row, samples) for row, samples in found if samples is not None]
    return [row for row, _ in known], [samples for _, samples in known]
