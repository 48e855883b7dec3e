"""Mean scores of methods in random halves of the images: what `benchmarks.questions` correlates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assay.errors import InputError
from assay.ranking.block_reading import read_blocks
from assay.ranking.blocks import Block, MethodScores, Places, shared_rows
from assay.ranking.near_clones import near_clones
from assay.results import Results

Floats = NDArray[np.float64]
FEWEST_METHODS = 10  # on a network


@dataclass(frozen=True, eq=False)
class NetworkScores:
    """The scores on one network, all turned so that higher is better.

    Attributes:
        network: Its name.
        protocols: Labels of the protocols.
        methods: Labels of the distinct methods, which all these protocols rank.
        clones: Labels of methods left out because they are near-clones of another one.
        whole: Scores on all images [p, m].
        halves: Scores on both halves of each split of the images [s, 2, p, m].
        n: Number of images.
    """

    network: str
    protocols: Sequence[str]
    methods: Sequence[str]
    clones: Sequence[str]
    whole: Floats
    halves: Floats
    n: int


def network_scores(
    network: str, results: Results, protocols: Sequence[str], splits: int, seed: int = 0
) -> NetworkScores:
    """Read the scores of a run and evaluate them on halves; scores of whole sets are made anew.

    A protocol that ranks none of the methods, because it does not apply to the network, is left
    out; a method is left out unless all other protocols rank it. Controls are left out.
    """
    controls = results.entries.controls
    blocks = [
        block
        for block in read_blocks(results.arrays, results.outcomes)
        if block.protocol in protocols and any(s.method not in controls for s in block.ranked)
    ]
    blocks.sort(key=lambda block: list(protocols).index(block.protocol))
    labels = [
        scores.method
        for scores in blocks[0].ranked
        if scores.method not in controls
        and all(any(s.method == scores.method for s in block.ranked) for block in blocks)
    ]
    if len(labels) < FEWEST_METHODS:
        raise InputError(
            f"Expected at least {FEWEST_METHODS} methods that all protocols rank on `{network}`, "
            f"got {len(labels)}. Add methods that apply to it to `benchmarks.question_runs`."
        )
    sides = [_side(block, labels) for block in blocks]
    rows = sides[0][1]
    for _, there in sides[1:]:
        rows = np.intersect1d(rows, there)
    distinct = near_clones(
        [
            block.matrix(methods, rows)
            for block, (methods, _) in zip(blocks, sides, strict=True)
            if not block.judges_sets
        ]
    )
    first = sorted({int(np.flatnonzero(distinct == family)[0]) for family in distinct})
    halves = _halves(len(rows), splits, seed)
    weights = np.concatenate([np.ones((1, len(rows))), halves.reshape(2 * splits, len(rows))])
    scores = np.stack(
        [
            (1 if block.higher_is_better else -1) * block.statistic(methods, rows)(weights)
            for block, (methods, _) in zip(blocks, sides, strict=True)
        ],
        axis=1,
    )[:, :, first]  # [1 + 2 s, p, m]
    return NetworkScores(
        network,
        [block.protocol for block in blocks],
        [labels[place] for place in first],
        [label for place, label in enumerate(labels) if place not in first],
        scores[0],
        scores[1:].reshape(splits, 2, len(blocks), len(first)),
        len(rows),
    )


def _side(block: Block, labels: Sequence[str]) -> tuple[list[MethodScores], Places]:
    by_label = {scores.method: scores for scores in block.ranked}
    methods = [by_label[label] for label in labels]
    return methods, shared_rows(methods)


def _halves(n: int, splits: int, seed: int) -> Floats:  # [s, 2, n]
    """Weights of 0 and 1: in each split a random half of the images, and the other one."""
    order = np.random.default_rng(seed).permuted(np.tile(np.arange(n), (splits, 1)), axis=1)
    first = order < n // 2
    return np.stack([first, ~first], axis=1).astype(np.float64)
