"""Which protocols can be trusted: their order of the methods compared with the order by truth."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import pyarrow as pa

from assay.errors import InputError
from assay.ranking.arithmetic import spearman
from assay.ranking.block_reading import read_blocks
from assay.ranking.blocks import Block, MethodScores, Places, shared_rows
from assay.ranking.orders import FEWEST_GROUPS
from assay.ranking.replicates import replicate_draws
from assay.ranking.resampling import (
    Codes,
    Floats,
    GroupedRows,
    combined_groups,
    levels,
    resample_counts,
)
from assay.ranking.rows import PublicRow
from assay.ranking.set_scores import SetScores
from assay.ranking.sets import Key, Outcome
from assay.store import SHOWN_ONLY, SettingKey
from assay.store.run_arrays import RunArrays

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
    scores: pa.Table | RunArrays,
    truth: str | Sequence[str],
    judged: Sequence[str],
    *,
    controls: Sequence[str] = (),
    outcomes: Mapping[Key, Outcome] | None = None,
    replicates: Mapping[str, Sequence[str]] | None = None,
    without: Collection[str] = (),
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
        scores: The scores of a run, as arrays or as a table.
        truth: The label of the protocol that knows the truth; of several, the first that ranks
            enough methods of a dataset and model.
        judged: The labels of the protocols that are compared with it.
        controls: Labels of methods that are left out.
        outcomes: The curves of the protocols that score whole sets.
        replicates: The metrics that hold one replicate each, by the label of the protocol.
        without: Labels of protocols that are left out.
        level: Nominal coverage of the intervals, by percentiles of the resamples.
        resamples: Number of bootstrap resamples.
        seed: Seed of the resamples.

    Returns:
        One row per dataset, model and protocol that can be compared.

    Raises:
        InputError: The run has no scores of the protocol that knows the truth.
    """
    truths = [truth] if isinstance(truth, str) else truth
    read = read_blocks(scores, outcomes, replicates=replicates, without=without)
    if not set(truths) & {block.protocol for block in read}:
        raise InputError(
            f"Expected the run to hold scores of the protocol `{truths[0]}`, found none."
        )
    rows = []
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

    numbers = block.statistic(mine, rows), reference.statistic(true, true_rows)
    higher = block.higher_is_better, reference.higher_is_better

    def correlations(pair: Sequence[Floats]) -> Floats:
        both = (values if up else -values for values, up in zip(pair, higher, strict=True))
        return spearman(*(levels(values) for values in both))  # only their orders are compared

    index = reference.groups_numbered(true_rows)
    low = high = None
    if index.max() + 1 >= FEWEST_GROUPS:
        off = _off(block, mine, rows, resamples, seed)
        true_off = _off(reference, true, true_rows, resamples, seed)
        parts, start = [], 0
        for drawn in _resampled(numbers, index, resamples, seed):
            part = slice(start, start := start + len(drawn[0]))
            parts.append(correlations([drawn[0] + off[part], drawn[1] + true_off[part]]))
        ends = [(1 - level) / 2, (1 + level) / 2]
        low, high = (float(end) for end in np.nanquantile(np.concatenate(parts), ends))
    value = float(correlations([of(np.ones((1, len(rows)))) for of in numbers])[0])
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


def _resampled(
    numbers: tuple[SetScores, SetScores], index: Codes, resamples: int, seed: int
) -> Iterator[list[Floats]]:  # two of [b, m]
    """Both protocols' scores of the methods in each resample of the groups of their samples."""
    n_groups, methods = int(index.max()) + 1, len(numbers[0].outcomes)
    add_up = all(of.adds_up for of in numbers)
    combined = combined_groups(n_groups) if add_up else None
    if combined is None:
        for counts in resample_counts(n_groups, resamples, seed, columns=methods):
            weights = counts[:, index]
            yield [of(weights) for of in numbers]
        return
    grouped = GroupedRows(combined.index[index])
    for counts in resample_counts(len(grouped.sizes), resamples, seed, columns=methods):
        yield [of.of_groups(grouped, counts) for of in numbers]
