"""Claims 14 to 17 and 29: what fine-tuning keeps, and what cells, fills and seeds change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from assay.studies.claim import Claim, ClaimRow, Effect, make_row
from assay.studies.idsds.contrasts import (
    Unit,
    UnitScores,
    agreement,
    by_architecture,
    from_table,
    over_units,
    scores,
    seeds_note,
)
from assay.studies.idsds.method_claims import SETTING, noted, tuned
from assay.studies.idsds.paper_methods import RESNET, SAME, VGG
from assay.studies.idsds.score_table import ScoreTable


def fact(table: ScoreTable, arm: str, name: str) -> dict[Unit, float]:
    """A number measured on every network of an arm, at the end of its training."""
    found = {}
    for facts in table.networks.values():
        value = facts.get(name)
        if facts["arm"] == arm and facts["epoch"] is None and isinstance(value, int | float):
            found[str(facts["network"]), int(str(facts["seed"]))] = float(value)
    return found


def _change(table: ScoreTable, arm: str, name: str) -> dict[Unit, float]:
    before, after = fact(table, "base", name), fact(table, arm, name)
    return {unit: after[unit] - before[unit] for unit in after if unit in before}


def _minus(one: Mapping[Unit, float], other: Mapping[Unit, float]) -> dict[Unit, float]:
    return {unit: value - other[unit] for unit, value in one.items() if unit in other}


@from_table
def tuning_keeps_accuracy(claim: Claim, table: ScoreTable) -> list[ClaimRow]:
    """14: accuracy and accuracy without the worst patch, tuned against base and placebo."""
    clean, worst = (_change(table, "tuned", name) for name in ("accuracy_seen", "worst_patch"))
    effects = [
        replace(effect, direction="within", margin=0.05)
        for effect in by_architecture("accuracy", clean)
    ]
    effects += by_architecture("accuracy without the worst patch", worst)
    beyond = _minus(worst, _change(table, "placebo", "worst_patch"))
    if len(beyond) > 1:
        effects += by_architecture("the same beyond the placebo", beyond)
    lowest = _change(table, "tuned", "lowest_patch")
    note = (
        f"Accuracy changes by {min(clean.values()):+.3f} to {max(clean.values()):+.3f}. Right "
        f"without every single patch counts; without the patch of the lowest logit instead: "
        f"{np.mean(list(lowest.values())):+.3f}. {seeds_note(worst)}"
    )
    return [make_row(claim, effects, SETTING, note=note)]


def pairs(table: ScoreTable, kind: str, name: str) -> dict[Unit, float]:
    """How far pairs of one kind are apart, by the first network."""
    found = {}
    for pair in table.pairs:
        value = pair.get(name)
        if pair["kind"] == kind and isinstance(value, int | float):
            found[str(pair["network"]), int(str(pair["seed"]))] = float(value)
    return found


@from_table
def tuned_is_the_same_network(claim: Claim, table: ScoreTable) -> list[ClaimRow]:
    """15: original and tuned against two architectures, two seeds and the placebo."""
    effects: list[Effect] = []
    levels = []
    for name, text in (("mad_softmax", "probabilities"), ("mad_gradcam", "Grad-CAM")):
        of = {k: pairs(table, k, name) for k in ("tuned", "placebo", "seed", "architecture")}
        # Two architectures of one seed are compared with the mean of their tuned networks.
        apart = {
            (RESNET, seed): value - (of["tuned"][RESNET, seed] + of["tuned"][VGG, seed]) / 2
            for (_, seed), value in of["architecture"].items()
            if (RESNET, seed) in of["tuned"] and (VGG, seed) in of["tuned"]
        }
        effects.append(over_units(f"{text}: two architectures - tuned", apart))
        seeds = _minus(of["seed"], of["tuned"])
        effects.append(replace(over_units(f"{text}: two seeds - tuned", seeds), margin=0.0))
        placebo = _minus(of["tuned"], of["placebo"])
        if len(placebo) > 1:
            beside = over_units(f"{text}: tuned - placebo", placebo)
            effects.append(replace(beside, direction="below", margin=0.03))
        means = ", ".join(f"{k} {np.mean(list(v.values())):.3f}" for k, v in of.items() if v)
        levels.append(f"{text}: {means}")
    note = noted(f"Mean differences, {'; '.join(levels)}")
    row = make_row(claim, effects, SETTING, note=note)
    return [replace(row, n=min(effect.n for effect in effects))]  # all parts must be decided


def _agreements(one: UnitScores, other: UnitScores) -> dict[Unit, float]:
    return {unit: agreement(one[unit], of) for unit, of in other.items() if unit in one}


def _level(rows: UnitScores) -> dict[Unit, float]:
    """The mean score over methods, identical ones once."""
    return {
        unit: float(np.mean([row.mean for m, row in of.items() if m not in SAME]))
        for unit, of in rows.items()
    }


def _spread(rows: UnitScores) -> dict[Unit, float]:
    """The standard deviation between methods."""
    return {
        unit: float(np.std([row.mean for m, row in of.items() if m not in SAME], ddof=1))
        for unit, of in rows.items()
    }


def common(one: UnitScores, other: UnitScores) -> UnitScores:
    """One table with only the methods that the other has too."""
    return {
        unit: {m: row for m, row in of.items() if m in other[unit]}
        for unit, of in one.items()
        if unit in other
    }


@from_table
def cells_keep_the_order(claim: Claim, table: ScoreTable) -> list[ClaimRow]:
    """16: the order, the level and the spread of methods with 4, 16 and 64 cells."""
    few, many = (scores(table, "cells", f"tuned-g{grid}") for grid in (2, 8))
    usual = tuned(table)
    smaller = _minus(_level(few), _level(common(usual, few)))
    larger = _minus(_level(common(usual, many)), _level(many))
    spread, before = _spread(many), _spread(common(usual, many))
    ratio = {unit: spread[unit] / before[unit] for unit in before}
    effects = [
        over_units("order of 4 and 16 cells", _agreements(few, usual)),
        over_units("order of 16 and 64 cells", _agreements(usual, many)),
        replace(over_units("level of 4 - 16 cells", smaller), margin=0.01),
        replace(over_units("level of 16 - 64 cells", larger), margin=0.01),
        replace(over_units("spread at 64 over 16", ratio), direction="below", margin=0.5),
    ]
    note = noted("Each number of cells has its own tuned networks", seeds_note(larger))
    return [make_row(claim, effects, SETTING, note=note)]


@from_table
def fills_and_seeds_keep_the_order(claim: Claim, table: ScoreTable) -> list[ClaimRow]:
    """17: the order of methods with other fills, and with other seeds."""
    usual = tuned(table)
    effects = []
    for fill in ("uniform", "blur"):
        rows = scores(table, "fills", f"tuned-{fill}")
        effects.append(over_units(f"zero and {fill}", _agreements(usual, rows)))
    following = {(name, seed - 1): of for (name, seed), of in usual.items()}
    effects.append(over_units("two seeds", _agreements(usual, following)))
    others = []
    for arm, label in (
        ("uniform", "one field"),
        ("blur", "blur of IDSDS"),
        ("blur", "blur as run"),
    ):
        rows = scores(table, "fills", f"tuned-{arm}", f"single deletion, {label}")
        alike = _agreements(usual, rows)
        if alike:
            others.append(f"{label} {np.mean(list(alike.values())):.3f}")
    note = noted("Zero and other forms of these fills: " + ", ".join(others) if others else "")
    return [make_row(claim, effects, SETTING, note=note)]


@from_table
def channels_stay(claim: Claim, table: ScoreTable) -> list[ClaimRow]:
    """29: the overlap of top images, tuned against two seeds and the placebo."""
    of = {kind: pairs(table, kind, "overlap") for kind in ("tuned", "placebo", "seed")}
    effects = [over_units("tuned - two seeds", _minus(of["tuned"], of["seed"]))]
    beside = _minus(of["placebo"], of["tuned"])
    if len(beside) > 1:
        effect = over_units("placebo - tuned", beside)
        effects.append(replace(effect, direction="below", margin=0.1))
    means = ", ".join(f"{k} {np.mean(list(v.values())):.3f}" for k, v in of.items() if v)
    note = noted(
        f"Overlap: {means}. Channels of two seeds have no common numbering: that is chance"
    )
    return [make_row(claim, effects, SETTING, note=note)]
