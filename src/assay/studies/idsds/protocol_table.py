"""Five protocols side by side on the same methods: the paper's Figure 2c with intervals.

IDSDS on tuned networks, SDS and IDS (fixed and updated) on the original ones, each a mean over
networks with Student's interval over them; part deletion on one network for painted birds, with an
interval over blocks of images. The scales differ, so only the orders can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import scipy

from assay.studies.effect import Effect, Scale, replicates
from assay.studies.idsds.contrasts import UnitScores, scores
from assay.studies.idsds.paper_methods import AGNOSTIC, CONVOLUTIONAL, FIXED, PARTS, TWINS, UPDATED
from assay.studies.idsds.score_table import PanelScore, ScoreTable

PROTOCOLS = ("IDSDS", "SDS", "IDS, fixed", "IDS, updated", "part deletion")
Column = dict[str, Effect]  # by method
ROUNDING = 5e-4  # of a mean score


def columns(table: ScoreTable, networks: Sequence[str] = CONVOLUTIONAL) -> dict[str, Column]:
    """The mean score of every method under each protocol that was run on these networks."""
    found = {
        "IDSDS": over_networks(scores(table, "seeds", "tuned", networks=networks)),
        "SDS": over_networks(scores(table, "seeds", "base", networks=networks)),
        "IDS, fixed": over_networks(
            scores(table, "ids", "base", FIXED, networks=networks), "share"
        ),
        "IDS, updated": over_networks(
            scores(table, "updated", "base", UPDATED, networks=networks), "share"
        ),
        "part deletion": {row.method: over_blocks(row) for row in table.select(PARTS)},
    }
    return {name: column for name, column in found.items() if column}


def over_networks(rows: UnitScores, scale: Scale = "correlation") -> Column:
    """The mean of each method over networks; a method that only one network has is left out.

    IDSDS and SDS are mean rank correlations, IDS a mean probability: a share.
    """
    values: dict[str, list[float]] = {}
    for of in rows.values():
        for method, row in of.items():
            values.setdefault(method, []).append(row.mean)
    return {m: replicates(m, of, scale) for m, of in values.items() if len(of) > 1}


def over_blocks(row: PanelScore) -> Effect:
    """The mean of a method with its error over blocks of images."""
    blocks = np.array([b for b in row.blocks if math.isfinite(b)])
    if len(blocks) < 2:
        return Effect(row.method, row.mean, 0.0, max(2, len(blocks)))
    return replicates(row.method, blocks, "correlation")


def rank_agreement(found: Mapping[str, Column]) -> dict[tuple[str, str], tuple[float, int]]:
    """The rank correlation of each pair of protocols and over how many methods it is.

    Identical methods count once.
    """
    pairs = {}
    for i, one in enumerate(found):
        for other in list(found)[i + 1 :]:
            copies = _copies(found[one]) & _copies(found[other])
            common = [m for m in found[one] if m in found[other] and m not in copies]
            if len(common) > 2:
                values = ([found[name][m].value for m in common] for name in (one, other))
                pairs[one, other] = float(scipy.stats.spearmanr(*values).statistic), len(common)
    return pairs


def _copies(column: Column) -> set[str]:
    """The methods that score as their twins do, to the rounding of a score."""
    return {
        method
        for method, twin in TWINS.items()
        if method in column
        and twin in column
        and abs(column[method].value - column[twin].value) < ROUNDING
    }


def markdown(table: ScoreTable, networks: Sequence[str] = CONVOLUTIONAL) -> Iterator[str]:
    """Both tables of some networks as lines of Markdown; none where nothing was scored."""
    found = columns(table, networks)
    if not found:
        return
    yield f"| method | {' | '.join(found)} |"
    yield f"|---|{'---|' * len(found)}"
    for method in AGNOSTIC:
        cells = [_cell(column.get(method)) for column in found.values()]
        if any(cells):
            yield f"| {method} | {' | '.join(cells)} |"
    pairs = rank_agreement(found)
    if pairs:
        yield ""
        yield "| order of methods | rank correlation | methods |"
        yield "|---|---|---|"
        for (one, other), (value, methods) in pairs.items():
            yield f"| {one} and {other} | {value:.2f} | {methods} |"


def _cell(effect: Effect | None) -> str:
    if effect is None:
        return ""
    low, high = effect.interval()
    return f"{effect.value:.3f} [{low:.3f}, {high:.3f}]"
