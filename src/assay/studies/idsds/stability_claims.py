"""Claims 14 to 17 and 29: what fine-tuning keeps, and what cells, fills and seeds change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from assay.errors import InputError
from assay.studies.claim import Claim, ClaimRow
from assay.studies.effect import Effect
from assay.studies.idsds.contrasts import (
    Unit,
    UnitScores,
    agreement,
    by_architecture,
    copied_methods,
    from_table,
    judged_row,
    over_units,
    scores,
    seeds_note,
)
from assay.studies.idsds.method_claims import noted, tuned
from assay.studies.idsds.score_table import PanelScore, ScoreTable


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
    """14: accuracy and accuracy without the worst patch, tuned against base and placebo.

    The mean over all networks, and each architecture by itself.
    """
    clean, worst = (_change(table, "tuned", name) for name in ("accuracy_seen", "worst_patch"))
    beyond = _minus(worst, _change(table, "placebo", "worst_patch"))
    changes = {
        "accuracy": clean,
        "accuracy without the worst patch": worst,
        "the same beyond the placebo": beyond,
    }
    means = [over_units(name, of) for name, of in changes.items()]
    each = [effect for name, of in changes.items() for effect in by_architecture(name, of)]
    if not clean:
        raise InputError("Expected networks before and after tuning, got none.")
    lowest = _change(table, "tuned", "lowest_patch")
    note = (
        f"Accuracy changes by {min(clean.values()):+.3f} to {max(clean.values()):+.3f}. Right "
        f"without every single patch counts; without the patch of the lowest logit instead: "
        f"{np.mean(list(lowest.values())):+.3f}. {seeds_note(worst)}"
    )
    return [
        judged_row(claim, _kept(means), "all networks", note, "networks of all architectures"),
        judged_row(claim, _kept(each), "each architecture", note, "seeds of one architecture"),
    ]


def _kept(effects: Sequence[Effect]) -> list[Effect]:
    """The effects, of which those on the clean accuracy must be small."""
    return [
        replace(effect, direction="within", margin=0.05)
        if effect.name.split(": ")[-1] == "accuracy"
        else effect
        for effect in effects
    ]


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
    levels, spreads = [], []
    for name, text in (("mad_softmax", "probabilities"), ("mad_gradcam", "Grad-CAM")):
        of = {k: pairs(table, k, name) for k in ("tuned", "placebo", "seed", "architecture")}
        apart = _minus(of["architecture"], of["tuned"])
        effects.append(over_units(f"{text}: two architectures - tuned", apart))
        seeds = _minus(of["seed"], of["tuned"])
        effects.append(replace(over_units(f"{text}: two seeds - tuned", seeds), margin=0.0))
        placebo = _minus(of["tuned"], of["placebo"])
        beside = over_units(f"{text}: tuned - placebo", placebo)
        effects.append(replace(beside, direction="below", margin=0.03))
        spreads.append(seeds_note(of["tuned"], f"{text}, original and tuned: "))
        means = ", ".join(f"{k} {np.mean(list(v.values())):.3f}" for k, v in of.items() if v)
        levels.append(f"{text}: {means}")
    note = noted(f"Mean differences, {'; '.join(levels)}", *spreads)
    return [judged_row(claim, effects, note=note)]


def _agreements(one: UnitScores, other: UnitScores) -> dict[Unit, float]:
    return {unit: agreement(one[unit], of) for unit, of in other.items() if unit in one}


def _level(rows: UnitScores) -> dict[Unit, float]:
    """The mean score over methods, identical ones once."""
    return {unit: float(np.mean(_means(of))) for unit, of in rows.items()}


def _spread(rows: UnitScores) -> dict[Unit, float]:
    """The standard deviation between methods."""
    return {unit: float(np.std(_means(of), ddof=1)) for unit, of in rows.items()}


def _means(of: Mapping[str, PanelScore]) -> list[float]:
    copies = copied_methods(of)
    return [row.mean for method, row in of.items() if method not in copies]


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
        over_units("order of 4 and 16 cells", _agreements(few, usual), "correlation"),
        over_units("order of 16 and 64 cells", _agreements(usual, many), "correlation"),
        replace(over_units("level of 4 - 16 cells", smaller), margin=0.01),
        replace(over_units("level of 16 - 64 cells", larger), margin=0.01),
        replace(over_units("spread at 64 over 16", ratio), direction="below", margin=0.5),
    ]
    level = seeds_note(larger, "Level of 16 - 64 cells: ")
    note = noted("Each number of cells has its own tuned networks", level)
    return [judged_row(claim, effects, note=note)]


@from_table
def fills_and_seeds_keep_the_order(claim: Claim, table: ScoreTable) -> list[ClaimRow]:
    """17: the order of methods with other fills, and with other seeds."""
    usual = tuned(table)
    effects = []
    for fill in ("uniform", "blur"):
        rows = scores(table, "fills", f"tuned-{fill}")
        effects.append(over_units(f"zero and {fill}", _agreements(usual, rows), "correlation"))
    alike = _agreements(usual, following(usual))
    effects.append(over_units("two seeds", alike, "correlation"))
    others = []
    for arm, label in (
        ("uniform", "one field"),
        ("blur", "blur of IDSDS"),
        ("blur", "blur as run"),
    ):
        rows = scores(table, "fills", f"tuned-{arm}", f"single deletion, {label}")
        of = _agreements(usual, rows)
        if of:
            others.append(f"{label} {np.mean(list(of.values())):.3f}")
    forms = "Zero and other forms of these fills: " + ", ".join(others) if others else ""
    note = noted(forms, seeds_note(alike, "Two seeds: "))
    return [judged_row(claim, effects, note=note)]


def following(rows: UnitScores) -> UnitScores:
    """For each network the scores of the next seed of its architecture; for the last, the first."""
    seeds: dict[str, list[int]] = {}
    for name, seed in sorted(rows):
        seeds.setdefault(name, []).append(seed)
    return {
        (name, seed): rows[name, following_seed]
        for name, of in seeds.items()
        if len(of) > 1
        for seed, following_seed in zip(of, [*of[1:], of[0]], strict=True)
    }


@from_table
def channels_stay(claim: Claim, table: ScoreTable) -> list[ClaimRow]:
    """29: the overlap of top images, tuned against two seeds and the placebo."""
    of = {kind: pairs(table, kind, "overlap") for kind in ("tuned", "placebo", "seed")}
    effects = [over_units("tuned - two seeds", _minus(of["tuned"], of["seed"]))]
    beside = over_units("placebo - tuned", _minus(of["placebo"], of["tuned"]))
    effects.append(replace(beside, direction="below", margin=0.1))
    means = ", ".join(f"{k} {np.mean(list(v.values())):.3f}" for k, v in of.items() if v)
    note = noted(
        f"Overlap: {means}. Channels of two seeds have no common numbering: that is chance",
        seeds_note(of["tuned"], "Original and tuned: "),
    )
    return [judged_row(claim, effects, note=note)]
