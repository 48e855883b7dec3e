"""Claims 8 to 13: what changes with the protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from assay.errors import InputError
from assay.ranking.resampling import Floats
from assay.studies.claim import Claim, ClaimRow
from assay.studies.effect import Effect, bootstrap
from assay.studies.idsds.contrasts import (
    Unit,
    UnitScores,
    agreement,
    changes,
    copied_methods,
    differences,
    from_table,
    judged_row,
    leads,
    others_than,
    over_units,
    scores,
    seeds_note,
    share_of_units,
)
from assay.studies.idsds.method_claims import noted, tuned
from assay.studies.idsds.paper_methods import (
    AGNOSTIC,
    CAMS,
    CONVOLUTIONAL,
    FIXED,
    PAIRS,
    PARTS,
    UPDATED,
)
from assay.studies.idsds.score_table import PanelScore, ScoreTable, block_matrix

PATHS = ("IxG", "IG", "IG-U")

OfMeans = Callable[[dict[str, Floats]], Floats]  # of the methods' means


def base(table: ScoreTable) -> UnitScores:
    """SDS of the 19 model-agnostic methods: single deletion on the original networks."""
    return scores(table, "seeds", "base", networks=CONVOLUTIONAL)


def incremental(table: ScoreTable) -> UnitScores:
    """IDS of the 19 methods with the attribution of the whole image."""
    return scores(table, "ids", "base", FIXED, networks=CONVOLUTIONAL)


def painted(table: ScoreTable) -> dict[str, PanelScore]:
    """Part deletion on painted birds, one network."""
    return {row.method: row for row in table.select(PARTS)}


@from_table
def absolute_values_win_by_ids(claim: Claim, table: ScoreTable) -> list[ClaimRow]:
    """8: absolute minus raw under IDS, each pair."""
    rows = incremental(table)
    gaps = {raw: differences(rows, absolute, raw) for raw, absolute in PAIRS.items()}
    effects = [over_units(f"{PAIRS[raw]} - {raw}", gap) for raw, gap in gaps.items()]
    return [judged_row(claim, effects, note=noted(seeds_note(gaps["IG"], "IG abs - IG: ")))]


@from_table
def updated_maps_gain(claim: Claim, table: ScoreTable) -> list[ClaimRow]:
    """9: updated against fixed attribution, and who leads with updated attribution."""
    fixed, updated = (
        scores(table, "updated", "base", protocol, networks=CONVOLUTIONAL)
        for protocol in (FIXED, UPDATED)
    )
    gains = {m: changes(fixed, updated, m) for m in PATHS}
    effects = [over_units(f"{m}, updated - fixed", gain) for m, gain in gains.items()]
    methods = dict.fromkeys(m for of in updated.values() for m in of)
    lead = leads(updated, PATHS, others_than(methods, PATHS))
    effects.append(replace(over_units("best of IxG, IG, IG-U - best other", lead), margin=0.0))
    note = noted(f"Compared with {', '.join(others_than(methods, PATHS))}", seeds_note(gains["IG"]))
    return [judged_row(claim, effects, note=note)]


def _least_gap(rows: UnitScores) -> dict[Unit, float]:
    """The smallest of the five differences absolute minus raw, by network."""
    gaps = [differences(rows, absolute, raw) for raw, absolute in PAIRS.items()]
    units = set.intersection(*(set(gap) for gap in gaps)) if gaps else set()
    return {unit: min(gap[unit] for gap in gaps) for unit in sorted(units)}


@from_table
def only_ids_prefers_absolute(claim: Claim, table: ScoreTable) -> list[ClaimRow]:
    """10: the smallest of five differences under each protocol."""
    gaps = {
        "IDS": _least_gap(incremental(table)),
        "SDS": _least_gap(base(table)),
        "IDSDS": _least_gap(tuned(table)),
    }
    effects = [
        replace(over_units(name, gap), direction="above" if name == "IDS" else "below")
        for name, gap in gaps.items()
    ]
    shown = _one_network(table, {"part deletion": _least_of_pairs})
    note = noted(shown, seeds_note(gaps["IDSDS"], "IDSDS: "))
    return [judged_row(claim, effects, note=note)]


def _one_network(table: ScoreTable, statistics: Mapping[str, OfMeans]) -> str:
    """Effects that are shown beside a claim: one network decides nothing."""
    try:
        effects = [_on_parts(table, name, statistic) for name, statistic in statistics.items()]
    except InputError as error:
        return f"Not shown: {error}".rstrip(".")
    return f"Of one network for painted birds, over images: {'; '.join(map(str, effects))}"


def _least_of_pairs(means: dict[str, Floats]) -> Floats:
    gaps: Floats = np.stack([means[absolute] - means[raw] for raw, absolute in PAIRS.items()], 1)
    least: Floats = gaps.min(1)
    return least


def _on_parts(table: ScoreTable, name: str, statistic: OfMeans) -> Effect:
    """A statistic of the methods' means on painted birds; images are resampled in blocks."""
    of = painted(table)
    methods = [m for m in AGNOSTIC if m in of]
    if len(methods) < len(AGNOSTIC):
        raise InputError("Expected part deletion of all 19 methods.")
    blocks = block_matrix(of[m] for m in methods)  # [methods, blocks]

    def of_weights(weights: Floats) -> Floats:  # [b, blocks] -> [b, 1]
        means = weights @ blocks.T / weights.sum(1, keepdims=True)  # [b, methods]
        return statistic({m: means[:, i] for i, m in enumerate(methods)})[:, None]

    (effect,) = bootstrap([name], of_weights, blocks.shape[1])
    return effect


@from_table
def cams_lead_outside(claim: Claim, table: ScoreTable) -> list[ClaimRow]:
    """11: the best CAM against the best other method under IDS and SDS."""
    effects, spreads = [], []
    for name, rows in (("IDS", incremental(table)), ("SDS", base(table))):
        lead = leads(rows, CAMS, others_than(AGNOSTIC, CAMS))
        effects.append(over_units(f"{name}: best CAM - best other", lead))
        spreads.append(seeds_note(lead, f"{name}: "))
    return [judged_row(claim, effects, note=noted(*spreads))]


@from_table
def paths_lead_inside(claim: Claim, table: ScoreTable) -> list[ClaimRow]:
    """12: IG or IG-U against all others inside the domain, and their order."""
    rows, both = tuned(table), ("IG", "IG-U")
    rest = others_than(AGNOSTIC, both)
    lead = leads(rows, both, rest)
    effects = [
        over_units("IDSDS: better of IG and IG-U - best other", lead),
        over_units("IDSDS: IG-U - IG", differences(rows, "IG-U", "IG")),
    ]
    shown: dict[str, OfMeans] = {
        "better of IG and IG-U - best other": _lead_of(both, rest),
        "IG - IG-U": lambda means: means["IG"] - means["IG-U"],
    }
    note = noted(_one_network(table, shown), seeds_note(lead, "Lead: "))
    return [judged_row(claim, effects, note=note)]


def _lead_of(these: Sequence[str], others: Sequence[str]) -> OfMeans:
    def lead(means: dict[str, Floats]) -> Floats:
        first, second = (np.stack([means[m] for m in some]).max(0) for some in (these, others))
        difference: Floats = first - second
        return difference

    return lead


@from_table
def orders_agree_but_not_at_the_top(claim: Claim, table: ScoreTable) -> list[ClaimRow]:
    """13: SDS against IDSDS, and the placebo's change of the order beside it."""
    before, after = base(table), tuned(table)
    units = [unit for unit in after if unit in before]
    alike = {unit: agreement(before[unit], after[unit]) for unit in units}
    other_top = {unit: top(before[unit]) != top(after[unit]) for unit in units}
    effects = [
        over_units("rank correlation", alike, "correlation"),
        replace(share_of_units("another best method", other_top), margin=0.5),
    ]
    nine = {arm: scores(table, "nine", arm) for arm in ("base", "tuned", "placebo")}
    changed = {
        unit: agreement(nine["base"][unit], of) - agreement(nine["base"][unit], nine["tuned"][unit])
        for unit, of in nine["placebo"].items()
        if unit in nine["base"] and unit in nine["tuned"]
    }
    effects.append(replace(over_units("change beyond the placebo's", changed), margin=0.0))
    note = noted(seeds_note(alike, "Rank correlation: "), seeds_note(changed, "Beyond placebo: "))
    return [judged_row(claim, effects, note=note)]


def top(of: dict[str, PanelScore]) -> str:
    """The best method, identical ones once."""
    copies = copied_methods(of)
    return max((m for m in of if m not in copies), key=lambda m: of[m].mean)
