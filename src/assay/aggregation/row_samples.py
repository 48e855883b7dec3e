"""The scores of single samples behind a row: for resamples and halves of the images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from assay.aggregation.run_settings import RunSettings, VoteRow
from assay.aggregation.setting_bootstrap import SettingSamples
from assay.ranking.blocks import Block
from assay.ranking.resampling import Floats


@dataclass(frozen=True, eq=False)
class SampledRows:
    """The rows whose single samples have scores, and why others have none.

    Attributes:
        rows: The places of the rows.
        samples: Their scores.
        notes: The rows that are left out.
    """

    rows: tuple[int, ...]
    samples: tuple[SettingSamples, ...]
    notes: tuple[str, ...]


def row_samples(read: RunSettings, row: VoteRow) -> SettingSamples | None:
    """The scores [N, n] of one row, of which its own scores are the means.

    A method has the mean over the protocols that score it. Samples count that all of these have.
    None where only protocols that judge whole sets remain, or no sample is common.
    """
    blocks = [block for block in row.blocks if not block.judges_sets]
    methods = [method for method in read.methods if method in row.scores]
    tables = [_scores(block, methods, row.reference) for block in blocks]
    if not tables:
        return None
    common = sorted(set.intersection(*(set(names) for names, _ in tables)))
    if not common:
        return None
    total, count = np.zeros((len(common), len(methods))), np.zeros(len(methods))
    for names, values in tables:
        places = {name: place for place, name in enumerate(names)}
        chosen = values[[places[name] for name in common]]
        known = ~np.isnan(chosen).any(axis=0)
        total += np.where(known, chosen, 0.0)
        count += known
    if not count.all():
        return None
    whole = np.full((len(common), len(read.methods)), np.nan)
    whole[:, [read.methods.index(method) for method in methods]] = total / count
    groups = blocks[0].groups
    return SettingSamples(
        row.setting.dataset, read.sources[row.setting.dataset], whole,
        [groups[name] for name in common], row.weight,
    )  # fmt: skip


def _scores(block: Block, methods: Sequence[str], reference: str) -> tuple[Sequence[str], Floats]:
    """The samples that the block's methods have, and the scores, NaN for methods it lacks.

    With a reference they are differences from it, in units of the spread of its scores.
    """
    columns = {scores.method: scores.column for scores in block.ranked}
    present = [method for method in methods if method in columns]
    needed = [*present, reference] if reference else present
    if not present or (reference and reference not in columns):
        return (), np.zeros((0, len(methods)))
    there = np.flatnonzero(~np.isnan(np.stack([columns[m] for m in needed])).any(axis=0))
    values = np.full((len(there), len(methods)), np.nan)
    for method in present:
        values[:, methods.index(method)] = columns[method][there]
    values *= 1.0 if block.higher_is_better else -1.0
    if reference:
        own = columns[reference]
        sign = 1.0 if block.higher_is_better else -1.0
        values = (values - sign * own[there, None]) / own[~np.isnan(own)].std(ddof=1)
    return [block.samples[place] for place in there.tolist()], values


def sampled_rows(read: RunSettings, standard_only: bool = False) -> SampledRows:
    """The scores of single samples of all rows, or of those in units of `random`."""
    places, samples, notes = [], [], []
    for place, row in enumerate(read.rows):
        if standard_only and not row.standard:
            continue
        one = row_samples(read, row)
        if one is None:
            notes.append(f"{row.name}: no scores of single samples, so resamples leave it out.")
        else:
            places.append(place)
            samples.append(one)
    return SampledRows(tuple(places), tuple(samples), tuple(notes))
