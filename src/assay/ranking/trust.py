"""Do the protocols of a run tell the truth? Their order of the methods against the true one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from assay.errors import InputError
from assay.ranking.arithmetic import spearman
from assay.ranking.blocks import Block, Entry, model_of, read_blocks
from assay.ranking.orders import FEWEST_GROUPS
from assay.ranking.resampling import Floats, levels, resample_counts
from assay.ranking.sets import Key, Outcome
from assay.store import SHOWN_ONLY

FEWEST_METHODS = 3  # of fewer no order says anything
FEW_METHODS = 6  # of fewer an order may be chance, whatever the samples say
NO_ORDER = (
    f"Expected at least {FEWEST_METHODS} methods beside the controls that the truth and another "
    f"protocol rank: fewer have no order to compare."
)


def trust(
    scores: pa.Table,
    truth: str | Sequence[str],
    judged: Sequence[str],
    *,
    controls: Sequence[str] = (),
    outcomes: Mapping[Key, Outcome] | None = None,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Correlate each protocol's order of the methods with the order by truth.

    Both orders are by the mean over the samples that have both scores; in every resample of these
    all means and both orders are made anew. Cells that are not ranked are left out, as everywhere:
    where the truth is an upper bound, a protocol that asks for all of it cannot judge the others.

    Args:
        scores: The `scores` of a run.
        truth: The label of the protocol that knows the truth; of several, the first that ranks
            enough methods of a dataset and model.
        judged: The labels of the protocols that are held against it.
        controls: Labels of methods that are left out.
        outcomes: What protocols that judge whole sets judge by.
        level: Nominal coverage of the intervals, by percentiles of the resamples.
        resamples: Number of bootstrap resamples.
        seed: Seed of the resamples.

    Returns:
        One row per dataset, model and protocol: Spearman's `correlation` over the methods, `low`
        and `high` (None below 10 groups), the `methods` it rests on and the number of samples `n`.
    """
    knowing = [truth] if isinstance(truth, str) else truth
    if not set(knowing) & set(scores["protocol"].to_pylist()):
        raise InputError(
            f"Expected the run to hold the protocol `{knowing[0]}`, found no such scores."
        )
    rows = []
    for _, same_model in groupby(read_blocks(scores, outcomes), key=model_of):
        blocks = {block.protocol: block for block in same_model}
        able = (blocks[label] for label in knowing if label in blocks)
        reference = next((b for b in able if len(b.ranked) >= FEWEST_METHODS), None)
        for name in judged:
            if reference is not None and name in blocks:
                found = _row(reference, blocks[name], controls, level, resamples, seed)
                rows += [found] if found else []
    return rows


def _row(
    reference: Block,
    block: Block,
    controls: Sequence[str],
    level: float,
    resamples: int,
    seed: int,
) -> dict[str, Any] | None:
    known = {
        entry.method: entry
        for entry in reference.entries
        if entry.values and entry.status not in SHOWN_ONLY
    }
    mine = [e for e in block.ranked if e.method in known and e.method not in controls]
    true = [known[entry.method] for entry in mine]
    samples = sorted(set.intersection(*(set(e.values) for e in (*mine, *true)))) if mine else []
    if len(mine) < FEWEST_METHODS or not samples:
        return None

    def correlations(weights: Floats) -> Floats:
        said = _scores(block, mine, samples, weights)
        return spearman(said, _scores(reference, true, samples, weights))

    groups = reference.groups_of(samples)
    low = high = None
    if len(set(groups)) >= FEWEST_GROUPS:
        drawn = np.concatenate(
            [correlations(w) for w in _weights(groups, resamples, seed, len(mine))]
        )
        ends = [(1 - level) / 2, (1 + level) / 2]
        low, high = (float(end) for end in np.nanquantile(drawn, ends))
    value = float(correlations(np.ones((1, len(samples))))[0])
    return {
        "dataset": block.dataset,
        "model": block.model,
        "checkpoint": block.checkpoint,
        "protocol": block.protocol,
        "truth": reference.protocol,
        "correlation": None if math.isnan(value) else value,
        "low": low,
        "high": high,
        "methods": sorted(entry.method for entry in mine),
        "n": len(samples),
    }


def _scores(
    block: Block, entries: Sequence[Entry], samples: Sequence[str], weights: Floats
) -> Floats:  # [b, m]
    found = block.statistic(entries, samples)(weights)
    return levels(found if block.higher_is_better else -found)  # only their order is compared


def _weights(groups: Sequence[str], resamples: int, seed: int, columns: int) -> Any:
    """How often each sample enters each resample: groups are drawn whole."""
    _, index = np.unique(groups, return_inverse=True)
    for counts in resample_counts(int(index.max()) + 1, resamples, seed, columns=columns):
        yield counts[:, index]
