"""Claims 1 to 7: which methods IDSDS prefers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from assay.errors import InputError
from assay.studies.claim import Claim, ClaimRow
from assay.studies.effect import Effect
from assay.studies.idsds.contrasts import (
    Unit,
    UnitScores,
    best,
    differences,
    distinct_others,
    from_table,
    judged_row,
    leads,
    others_than,
    over_units,
    scores,
    seeds_note,
)
from assay.studies.idsds.paper_methods import (
    AGNOSTIC,
    CAMS,
    CONVOLUTIONAL,
    FEW_MASKS,
    FEW_STEPS,
    INTRINSIC,
    PAIRS,
)
from assay.studies.idsds.score_table import PanelScore, ScoreTable

NOISY = {"IxG": "IxG-SG", "IG": "IG-SG", "Grad-CAM++": "SG-CAM++"}
SETTINGS = f"IG with {FEW_STEPS} steps, RISE with {FEW_MASKS} masks"
OVER_SEEDS = "The interval is over seeds of these architectures, no draw of architectures"


def tuned(table: ScoreTable) -> UnitScores:
    """IDSDS of the 19 model-agnostic methods on the tuned reference networks."""
    return scores(table, "seeds", "tuned", networks=CONVOLUTIONAL)


def noted(*notes: str) -> str:
    """The notes of a row, one sentence each."""
    return ". ".join(note for note in (*notes, SETTINGS, OVER_SEEDS) if note)


@from_table
def uniform_baseline_is_best(claim: Claim, table: ScoreTable) -> list[ClaimRow]:
    """1: IG-U against IG, and against the best other method."""
    rows = tuned(table)
    gap = differences(rows, "IG-U", "IG")
    lead = leads(rows, ["IG-U"], others_than(AGNOSTIC, ["IG-U"]))
    effects = [over_units("IG-U - IG", gap), _at_zero(over_units("IG-U - best other", lead))]
    return [judged_row(claim, effects, note=noted(seeds_note(gap, "IG-U - IG: ")))]


def _at_zero(effect: Effect) -> Effect:
    return replace(effect, margin=0.0)


@from_table
def rise_prefers_zeros(claim: Claim, table: ScoreTable) -> list[ClaimRow]:
    """2: both fills of RISE."""
    gap = differences(tuned(table), "RISE", "RISE-U")
    return [judged_row(claim, [over_units("RISE - RISE-U", gap)], note=noted(seeds_note(gap)))]


@from_table
def cams_do_well(claim: Claim, table: ScoreTable) -> list[ClaimRow]:
    """3: Grad-CAM against the median method, the other CAMs and XGrad-CAM."""
    rows = tuned(table)
    above = {unit: of["Grad-CAM"].mean - _median(of) for unit, of in rows.items()}
    lead = leads(rows, ["Grad-CAM"], others_than(CAMS, ["Grad-CAM"]))
    twin = differences(rows, "Grad-CAM", "XGrad-CAM")
    effects = [
        over_units("Grad-CAM - median method", above),
        replace(over_units("Grad-CAM - best other CAM", lead), margin=-0.01),
        replace(over_units("Grad-CAM - XGrad-CAM", twin), direction="within"),
    ]
    note = noted(seeds_note(above, "Grad-CAM - median method: "))
    return [judged_row(claim, effects, note=note)]


def _median(of: Mapping[str, PanelScore]) -> float:
    return float(np.median([of[m].mean for m in distinct_others(of, of, ["Grad-CAM"])]))


@from_table
def best_is_low(claim: Claim, table: ScoreTable) -> list[ClaimRow]:
    """4: the level of the best method."""
    level = {unit: best(of, AGNOSTIC) for unit, of in tuned(table).items()}
    effect = over_units("best of 19 methods", level)
    return [judged_row(claim, [effect], note=noted(seeds_note(level)))]


@from_table
def noise_hurts(claim: Claim, table: ScoreTable) -> list[ClaimRow]:
    """5: SmoothGrad at the authors' noise, and at the usual noise."""
    rows = tuned(table)
    usual = scores(table, "smooth", "tuned", networks=CONVOLUTIONAL)
    rows_of_claim = []
    for of, where in ((rows, "authors' noise"), (usual, "usual noise")):
        if not of:
            continue
        gaps = {noisy: differences(of, noisy, plain) for plain, noisy in NOISY.items()}
        # On networks that end in a mean and one linear layer both CAMs are the same by definition.
        same = [noisy for noisy, gap in gaps.items() if gap and not any(gap.values())]
        effects = [
            over_units(f"{noisy} - {noisy_of(noisy)}", gap)
            for noisy, gap in gaps.items()
            if noisy not in same
        ]
        about = f"{where}: {WORDS[where]}"
        equal = f"Equal by definition here, so no part: {', '.join(same)}" if same else ""
        note = noted(about, equal, seeds_note(gaps["IG-SG"], "IG-SG - IG: "))
        rows_of_claim.append(judged_row(claim, effects, where, note))
    if not rows_of_claim:
        raise InputError("Expected scores of tuned reference networks, got none.")
    return rows_of_claim


WORDS = {
    "authors' noise": "4 copies, noise of 1 after normalisation; SG-CAM++ as TorchCAM computes it, "
    "noise of 0.3",
    "usual noise": "25 copies, noise of 15 % of the range; SG-CAM++ as published, noise of 0.3",
}


def noisy_of(label: str) -> str:
    """The method without noise."""
    return next(plain for plain, noisy in NOISY.items() if noisy == label)


@from_table
def absolute_values_hurt(claim: Claim, table: ScoreTable) -> list[ClaimRow]:
    """6: absolute minus raw for the better methods, and against the worse ones."""
    rows = tuned(table)
    gaps = {raw: differences(rows, PAIRS[raw], raw) for raw in ("IG", "IG-U", "IxG-SG", "IG-SG")}
    units: list[Unit] = list(gaps["IG"])
    interaction = {
        unit: (gaps["IG"][unit] + gaps["IG-U"][unit] - gaps["IxG-SG"][unit] - gaps["IG-SG"][unit])
        / 2
        for unit in units
    }
    effects = [over_units(f"{PAIRS[raw]} - {raw}", gaps[raw]) for raw in ("IG", "IG-U")]
    effects.append(over_units("IG and IG-U against IxG-SG and IG-SG", interaction))
    return [judged_row(claim, effects, note=noted(seeds_note(gaps["IG"], "IG abs - IG: ")))]


@from_table
def intrinsic_maps_lead(claim: Claim, table: ScoreTable) -> list[ClaimRow]:
    """7: the maps of B-cos networks and BagNets against the best method elsewhere."""
    nine = scores(table, "nine", "tuned")
    levels = [best(of) for unit, of in nine.items() if unit[0] in CONVOLUTIONAL]
    if not levels:
        raise InputError(f"Expected scores of {' or '.join(CONVOLUTIONAL)}, got none.")
    level = float(np.mean(levels))
    effects, spreads = [], []
    for label, margin in zip(INTRINSIC, (0.03, 0.1), strict=True):
        own = {unit: of[label].mean - level for unit, of in nine.items() if label in of}
        effects.append(replace(over_units(f"{label} - best elsewhere", own), margin=margin))
        spreads += [seeds_note(own, f"{label}: ")] if own else []
    note = (
        f"{NEAR_CIRCULAR} The best method on {' and '.join(CONVOLUTIONAL)}: {level:.3f}. "
        f"{'. '.join(spreads)}"
    )
    return [judged_row(claim, effects, note=note)]


NEAR_CIRCULAR = (
    "Near-circular: a BagNet's map is a mean of local logits, so it nearly is the effect of the "
    "deletion itself."
)
