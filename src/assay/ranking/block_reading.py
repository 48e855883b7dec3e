"""Read the scores of a run into blocks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from assay.ranking.array_pivot import SortedSamples, further_scores, pivot_arrays
from assay.ranking.blocks import UNBOUNDED, Block, MethodScores
from assay.ranking.pivot import Pivoted, PivotedMethod
from assay.ranking.replicates import FEWEST_REPLICATES, Replicates
from assay.ranking.resampling import Floats
from assay.ranking.sets import Key, Outcome
from assay.ranking.table_arrays import TableArrays
from assay.store import Limits
from assay.store.run_arrays import RunArrays


def read_blocks(
    scores: pa.Table | RunArrays,
    outcomes: Mapping[Key, Outcome] | None = None,
    ranges: Mapping[str, Limits] | None = None,
    replicates: Mapping[str, Sequence[str]] | None = None,
    without: Collection[str] = (),
) -> list[Block]:
    """Split the scores of a run by dataset, model, checkpoint and protocol.

    Args:
        scores: The scores of a run, as arrays or as a table, of which only headline rows count.
        outcomes: The curves of the protocols that score whole sets.
        ranges: The lowest and highest score of a protocol, by its label; unlimited by default.
        replicates: By the label of a protocol whose scores are means over replicates, the metrics
            that hold one replicate each.
        without: Labels of protocols that are left out.

    Returns:
        The blocks, sorted by dataset, model, checkpoint and protocol.

    Raises:
        ValueError: A column is missing, or the rows of a block contradict each other.
    """
    arrays = TableArrays(scores) if isinstance(scores, pa.Table) else scores
    blocks = []
    for one, samples, block in pivot_arrays(arrays, outcomes or {}, without):
        names = (replicates or {}).get(block.protocol, ())
        repeated = further_scores(block, samples, names)
        blocks.append(_block(one, samples, outcomes or {}, repeated, ranges or {}))
    return sorted(blocks, key=lambda block: (*block.setting, block.protocol))


def _block(
    one: Pivoted,
    samples: SortedSamples,
    outcomes: Mapping[Key, Outcome],
    replicates: Mapping[str, Replicates],
    ranges: Mapping[str, Limits],
) -> Block:
    methods = []
    for column, about in zip(one.table.T, one.methods, strict=True):
        outcome = outcomes.get((*one.key, about.method))
        repeated = replicates.get(about.method, {})
        methods.append(_scores(about, one.samples, column, outcome, repeated))
    return Block(
        *one.key,
        protocol_options=one.protocol_options,
        metric=one.metric,
        higher_is_better=one.higher_is_better,
        samples=one.samples,
        sample_groups=one.groups,
        methods=_only_shown(methods) if _ranks_nothing(methods) else methods,
        range=ranges.get(one.key[3], UNBOUNDED),
        group_numbers=samples.numbers,
    )


def _scores(
    about: PivotedMethod,
    samples: Sequence[str],
    column: Floats,
    outcome: Outcome | None,
    replicates: Replicates,
) -> MethodScores:
    """Give a method's scores; those of a set only on the samples that all seeds have."""
    status = about.status
    if outcome is not None:
        if outcome.samples != samples:
            known = set(outcome.samples)
            column = np.where([sample in known for sample in samples], column, np.nan)
        status = "failed" if status == "ok" and np.isnan(column).all() else status
    return MethodScores(
        about.method,
        about.options,
        status,
        samples,
        column,
        about.failed,
        about.degenerate,
        outcome,
        replicates,
    )


def _ranks_nothing(methods: Sequence[MethodScores]) -> bool:
    """Whether the protocol ranks no method, or has too few replicates to rank the methods."""
    if any(scores.status == "shown" for scores in methods):
        return True
    repeated = [set(s.replicates) for s in methods if s.status == "ok"]
    return any(repeated) and len(set.intersection(*repeated)) < FEWEST_REPLICATES


def _only_shown(methods: Sequence[MethodScores]) -> list[MethodScores]:
    return [replace(s, status="shown") if s.status == "ok" else s for s in methods]
