"""Which protocols can be trusted: their order of the methods compared with the order by truth."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import pyarrow as pa

from assay.errors import InputError
from assay.ranking.arithmetic import spearman
from assay.ranking.blocks import Block, MethodScores, Places, read_blocks, shared_rows
from assay.ranking.orders import FEWEST_GROUPS
from assay.ranking.replicates import replicate_draws
from assay.ranking.resampling import Floats, levels, resample_counts
from assay.ranking.rows import PublicRow
from assay.ranking.sets import Key, Outcome
from assay.store import SHOWN_ONLY, SettingKey

FEWEST_METHODS = 3  # with fewer an order says nothing
FEW_METHODS = 6  # with fewer an order may be chance, whatever the samples say
NO_ORDER = (
    f"Expected at least {FEWEST_METHODS} methods besides the controls that both the truth and "
    f"another protocol rank: fewer have no order to compare."
)


@dataclass(frozen=True)
class TrustRow:
    """How far one protocol orders the methods of a setting as the truth does.

    Attributes:
        dataset: Label of the dataset.
        model: Label of the model.
        checkpoint: Which weights of the model.
        protocol: Label of the protocol.
        truth: Label of the protocol that knows the truth.
        correlation: Spearman's correlation over the methods; None where one order has only ties.
        low: Lower end of its interval; None below 10 groups.
        high: Upper end of its interval; None below 10 groups.
        methods: Labels of the methods compared.
        n: Number of samples.
    """

    dataset: str
    model: str
    checkpoint: str
    protocol: str
    truth: str
    correlation: float | None
    low: float | None
    high: float | None
    methods: list[str]
    n: int

    @property
    def setting(self) -> SettingKey:
        """The setting it belongs to."""
        return SettingKey(self.dataset, self.model, self.checkpoint)

    def as_dict(self) -> PublicRow:
        """The row as users read it."""
        return dict(vars(self))


def trust(
    scores: pa.Table,
    truth: str | Sequence[str],
    judged: Sequence[str],
    *,
    controls: Sequence[str] = (),
    outcomes: Mapping[Key, Outcome] | None = None,
    replicates: Mapping[str, Sequence[str]] | None = None,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> list[TrustRow]:
    """Correlate each protocol's order of the methods with the order by truth.

    Both orders are by the mean over the samples that have both scores. In every resample of these
    samples, all means and both orders are computed again. Where scores are means over replicates,
    each resample also draws how far these may be off. Cells that are not ranked are left out:
    where the truth is an upper bound, a protocol that asks for all of it cannot judge the others.

    Args:
        scores: The `scores` of a run.
        truth: The label of the protocol that knows the truth; of several, the first that ranks
            enough methods of a dataset and model.
        judged: The labels of the protocols that are compared with it.
        controls: Labels of methods that are left out.
        outcomes: The curves of the protocols that score whole sets.
        replicates: The metrics that hold one replicate each, by the label of the protocol.
        level: Nominal coverage of the intervals, by percentiles of the resamples.
        resamples: Number of bootstrap resamples.
        seed: Seed of the resamples.

    Returns:
        One row per dataset, model and protocol that can be compared.

    Raises:
        InputError: The run has no scores of the protocol that knows the truth.
    """
    truths = [truth] if isinstance(truth, str) else truth
    if not set(truths) & set(scores["protocol"].to_pylist()):
        raise InputError(
            f"Expected the run to hold scores of the protocol `{truths[0]}`, found none."
        )
    rows = []
    read = read_blocks(scores, outcomes, replicates=replicates)
    for _, same_setting in groupby(read, key=lambda block: block.setting):
        blocks = {block.protocol: block for block in same_setting}
        known = (blocks[label] for label in truths if label in blocks)
        reference = next((b for b in known if len(b.ranked) >= FEWEST_METHODS), None)
        for name in judged:
            if reference is not None and name in blocks:
                row = _row(reference, blocks[name], controls, level, resamples, seed)
                rows += [row] if row else []
    return rows


def _row(
    reference: Block,
    block: Block,
    controls: Sequence[str],
    level: float,
    resamples: int,
    seed: int,
) -> TrustRow | None:
    known = {
        scores.method: scores
        for scores in reference.methods
        if len(scores) and scores.status not in SHOWN_ONLY
    }
    mine = [s for s in block.ranked if s.method in known and s.method not in controls]
    true = [known[scores.method] for scores in mine]
    if len(mine) < FEWEST_METHODS:
        return None
    rows, true_rows = _on_both(block, shared_rows(mine), reference, shared_rows(true))
    if not len(rows):
        return None

    def correlations(weights: Floats, off: Floats, true_off: Floats) -> Floats:
        by_protocol = _order(block, mine, rows, weights, off)
        return spearman(by_protocol, _order(reference, true, true_rows, weights, true_off))

    groups = reference.groups_at(true_rows)
    low = high = None
    if len(set(groups)) >= FEWEST_GROUPS:
        off = _off(block, mine, rows, resamples, seed)
        true_off = _off(reference, true, true_rows, resamples, seed)
        parts, start = [], 0
        for weights in _weights(groups, resamples, seed, len(mine)):
            end = start + len(weights)
            parts.append(correlations(weights, off[start:end], true_off[start:end]))
            start = end
        drawn = np.concatenate(parts)
        ends = [(1 - level) / 2, (1 + level) / 2]
        low, high = (float(end) for end in np.nanquantile(drawn, ends))
    exactly = np.zeros((1, len(mine)))
    value = float(correlations(np.ones((1, len(rows))), exactly, exactly)[0])
    return TrustRow(
        *block.setting,
        protocol=block.protocol,
        truth=reference.protocol,
        correlation=None if math.isnan(value) else value,
        low=low,
        high=high,
        methods=sorted(scores.method for scores in mine),
        n=len(rows),
    )


def _on_both(one: Block, rows: Places, other: Block, other_rows: Places) -> tuple[Places, Places]:
    """The places, in either block, of the samples that both have among these rows."""
    if one.samples == other.samples:
        both = np.intersect1d(rows, other_rows)
        return both, both
    known = set(other.names(other_rows))
    samples = [sample for sample in one.names(rows) if sample in known]
    return one.rows_of(samples), other.rows_of(samples)


def _order(
    block: Block,
    methods: Sequence[MethodScores],
    rows: Places,
    weights: Floats,
    off: Floats,
) -> Floats:  # [b, m]
    values = block.statistic(methods, rows)(weights) + off
    return levels(values if block.higher_is_better else -values)  # only their order is compared


def _off(
    block: Block,
    methods: Sequence[MethodScores],
    rows: Places,
    resamples: int,
    seed: int,
) -> Floats:  # [b, m]
    """How far means over replicates are off in each resample; 0 where nothing is repeated."""
    means = block.replicate_means(methods, rows)
    if means is None:
        return np.zeros((resamples, len(methods)))
    return replicate_draws(means, resamples, seed)


def _weights(
    groups: Sequence[str], resamples: int, seed: int, columns: int
) -> Iterator[Floats]:  # each [b, n]
    """How often each sample enters each resample: groups are drawn whole."""
    _, index = np.unique(groups, return_inverse=True)
    for counts in resample_counts(int(index.max()) + 1, resamples, seed, columns=columns):
        yield counts[:, index]
