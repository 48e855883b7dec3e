"""Claims 26 to 28: what the argument for IDSDS rests on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from assay.ranking.resampling import Floats
from assay.studies.claim import Claim, ClaimRow
from assay.studies.effect import Effect, absent, replicates
from assay.studies.idsds.contrasts import (
    Unit,
    differences,
    from_table,
    judged_row,
    over_units,
    scores,
    seeds_note,
)
from assay.studies.idsds.method_claims import noted
from assay.studies.idsds.paper_methods import (
    CELLS,
    CONVOLUTIONAL,
    FIXED,
    PAIRS,
    SD,
    TEMPERATURES,
)
from assay.studies.idsds.score_table import ScoreTable

COMPARED = ("IxG", "IG", "IG-U")
CHANCE = 0.1  # of ten classes


def gaps_by_size(table: ScoreTable, arm: str) -> dict[int, dict[Unit, float]]:
    """Raw minus absolute, mean of three pairs, by the number of deleted cells."""
    found = {}
    for k in range(1, CELLS):
        rows = scores(table, "sizes", arm, f"sets of {k}", networks=CONVOLUTIONAL)
        gaps = [differences(rows, raw, PAIRS[raw]) for raw in COMPARED]
        units = set.intersection(*map(set, gaps))
        found[k] = {unit: float(np.mean([gap[unit] for gap in gaps])) for unit in sorted(units)}
    return found


@from_table
def gap_shrinks_with_deletion(claim: Claim, table: ScoreTable) -> list[ClaimRow]:
    """26: the gap with one cell against that with fifteen, on tuned and original networks."""
    arms: list[dict[Unit, float]] = []
    curves = []
    for arm in ("tuned", "base"):
        gaps = gaps_by_size(table, arm)
        first, last = gaps[1], gaps[CELLS - 1]
        arms.append({unit: first[unit] - last[unit] for unit in first if unit in last})
        means = {k: np.mean(list(of.values())) for k, of in gaps.items() if of and k in SHOWN}
        curves.append(f"{arm}: " + ", ".join(f"k {k} {mean:.3f}" for k, mean in means.items()))
    # A tuned network is a copy of its base, so both together are one unit.
    falls = {unit: (arms[0][unit] + arms[1][unit]) / 2 for unit in arms[0] if unit in arms[1]}
    effect = over_units("gap at k = 1 - gap at k = 15", falls)
    note = noted(f"Raw minus absolute, {'; '.join(curves)}", seeds_note(falls))
    return [judged_row(claim, [effect], note=note)]


SHOWN = (1, 4, 8, 12, 15)


@from_table
def calibration_moves_ids(claim: Claim, table: ScoreTable) -> list[ClaimRow]:
    """27: the mean score at the lowest and the highest temperature, IDS and IDSDS."""
    effects, listed, spreads = [], [], []
    for name, arm, protocol in (("IDS", "base", FIXED), ("IDSDS", "tuned", SD)):
        levels = {
            t: {
                unit: float(np.mean([row.mean for row in of.values()]))
                for unit, of in scores(table, "temperature", arm, protocol, t).items()
            }
            for t in TEMPERATURES
        }
        cold, hot = levels[TEMPERATURES[0]], levels[TEMPERATURES[-1]]
        moved = {unit: cold[unit] - hot[unit] for unit in cold if unit in hot}
        effect = over_units(name, moved)
        spreads.append(seeds_note(moved, f"{name}, lowest minus highest: "))
        within = replace(effect, direction="within", margin=0.005)
        effects.append(effect if name == "IDS" else within)
        means = ", ".join(f"{t:g}: {np.mean(list(v.values())):.3f}" for t, v in levels.items() if v)
        listed.append(f"{name} at temperature {means}")
    return [judged_row(claim, effects, note=noted("; ".join(listed), *spreads))]


@from_table
def masks_of_cells_tell_nothing(claim: Claim, table: ScoreTable) -> list[ClaimRow]:
    """28: the accuracy of a network that sees only masks."""
    accuracies = {kind: np.asarray(of, float) - CHANCE for kind, of in table.masks.items()}
    effects = [
        _of_masks("cells", accuracies.get("cell", EMPTY)),
        replace(_of_masks("segments", accuracies.get("segment", EMPTY)), direction="above"),
    ]
    seeds = {(kind, seed): float(v) for kind, of in accuracies.items() for seed, v in enumerate(of)}
    spread = seeds_note(seeds, "Of masks of cells, segments and the brightest quarter: ")
    note = (
        f"Accuracy minus chance, {CHANCE}. Segments by k-means over colour and position. {spread}"
    )
    return [judged_row(claim, effects, note=note, setting="scaled")]


EMPTY = np.empty(0)


def _of_masks(name: str, accuracies: Floats) -> Effect:
    if len(accuracies) < 2:
        return absent(name, f"expected at least 2 seeds, got {len(accuracies)}.")
    return replicates(name, accuracies)
