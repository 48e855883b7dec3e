"""Which protocols can be trusted: their order of the methods compared with the order by truth."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import pyarrow as pa

from assay.errors import InputError
from assay.ranking.block_reading import read_blocks
from assay.ranking.blocks import Block, Places, shared_rows
from assay.ranking.rows import PublicRow
from assay.ranking.sets import Key, Outcome
from assay.ranking.trust_draws import Compared, Ends, TrustSide, agreement, pooled_agreement
from assay.store import SHOWN_ONLY, SettingKey
from assay.store.run_arrays import RunArrays

FEWEST_METHODS = 3  # with fewer an order says nothing
NO_ORDER = (
    f"Expected at least {FEWEST_METHODS} methods besides the controls that both the truth and "
    f"another protocol rank: fewer have no order to compare."
)


@dataclass(frozen=True)
class TrustRow:
    """How far one protocol orders the methods of a setting as the truth does.

    Attributes:
        dataset: Label of the dataset; empty in a row over several settings.
        model: Label of the model; empty in a row over several settings.
        checkpoint: Which weights of the model.
        protocol: Label of the protocol.
        truth: Label of the protocol that knows the truth.
        correlation: Spearman's correlation over the distinct methods, or its mean over settings;
            None where one order has only ties.
        low: Lower end of its interval over samples and methods, and over networks where there are
            several; None below 10 groups, 6 distinct methods, or 3 settings of several.
        high: Upper end of its interval; None where there is no lower one.
        methods: Labels of the methods compared.
        distinct: Number of methods, near-clones counted once.
        settings: Number of settings.
        n: Number of samples; of several settings, the smallest.
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
    distinct: int
    settings: int
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

    Both orders are by the mean over the samples that have both scores. Every resample draws these
    samples, and then the methods: other methods would give another correlation. Near-clones count
    as one method. Where scores are means over replicates, each resample also draws how far these
    may be off. Cells that are not ranked are left out: where the truth is an upper bound, a
    protocol that asks for all of it cannot judge the others.

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
        One row per dataset, model and protocol that can be compared; then, for each protocol that
        the same truth judges in several settings, their mean.

    Raises:
        InputError: The run has no scores of the protocol that knows the truth.
    """
    truths = [truth] if isinstance(truth, str) else truth
    read = read_blocks(scores, outcomes, replicates=replicates, without=without)
    if not set(truths) & {block.protocol for block in read}:
        raise InputError(
            f"Expected the run to hold scores of the protocol `{truths[0]}`, found none."
        )
    comparisons: list[Compared] = []
    for _, same_setting in groupby(read, key=lambda block: block.setting):
        blocks = {block.protocol: block for block in same_setting}
        known = (blocks[label] for label in truths if label in blocks)
        reference = next((b for b in known if len(b.ranked) >= FEWEST_METHODS), None)
        for name in judged:
            if reference is not None and name in blocks:
                sides = _sides(blocks[name], reference, controls)
                comparisons += [Compared(*sides, level, resamples, seed)] if sides else []
    return [*map(_row, comparisons), *_pooled(comparisons)]


def _sides(
    block: Block, reference: Block, controls: Sequence[str]
) -> tuple[TrustSide, TrustSide] | None:
    """The methods and samples that both protocols score; None where they are too few."""
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
    return TrustSide(block, mine, rows), TrustSide(reference, true, true_rows)


def _on_both(one: Block, rows: Places, other: Block, other_rows: Places) -> tuple[Places, Places]:
    """The places, in either block, of the samples that both have among these rows."""
    if one.samples == other.samples:
        both = np.intersect1d(rows, other_rows)
        return both, both
    known = set(other.names(other_rows))
    samples = [sample for sample in one.names(rows) if sample in known]
    return one.rows_of(samples), other.rows_of(samples)


def _row(compared: Compared) -> TrustRow:
    value, ends, distinct = agreement(compared)
    setting = compared.judged.block.setting
    return _of_settings(setting, [compared], value, ends, compared.labels, distinct)


def _pooled(comparisons: Sequence[Compared]) -> Iterator[TrustRow]:
    """The means over the settings in which the same truth judges a protocol."""
    alike: dict[tuple[str, str], list[Compared]] = {}
    for compared in comparisons:
        key = compared.judged.block.protocol, compared.truth.block.protocol
        alike.setdefault(key, []).append(compared)
    for several in alike.values():
        if len(several) > 1:
            value, ends, labels, distinct = pooled_agreement(several)
            if distinct >= FEWEST_METHODS:
                everywhere = SettingKey("", "", "")
                yield _of_settings(everywhere, several, value, ends, labels, distinct)


def _of_settings(
    setting: SettingKey,
    several: Sequence[Compared],
    value: float,
    ends: Ends,
    labels: Sequence[str],
    distinct: int,
) -> TrustRow:
    low, high = ends or (None, None)
    return TrustRow(
        *setting,
        protocol=several[0].judged.block.protocol,
        truth=several[0].truth.block.protocol,
        correlation=None if math.isnan(value) else value,
        low=low,
        high=high,
        methods=sorted(labels),
        distinct=distinct,
        settings=len(several),
        n=min(len(compared.judged.rows) for compared in several),
    )
