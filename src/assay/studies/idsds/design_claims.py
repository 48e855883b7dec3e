"""Claims 18 to 23: what the design of a network changes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from assay.errors import InputError
from assay.ranking.resampling import Floats
from assay.studies.claim import Claim, ClaimRow
from assay.studies.effect import Effect, absent, apart
from assay.studies.idsds.claims import MEANS_OF_SEEDS
from assay.studies.idsds.contrasts import (
    Unit,
    UnitScores,
    agreement,
    best,
    common_slope,
    contrast_table,
    differences,
    from_table,
    grouped,
    judged_part,
    judged_row,
    leads,
    others_than,
    over_units,
    scores,
    seeds_note,
    several_seeds,
    share_of_methods,
    slope,
)
from assay.studies.idsds.method_claims import noted
from assay.studies.idsds.paper_methods import (
    ATTENTION,
    CONVOLUTIONAL,
    INTRINSIC,
    NINE,
    OF_PROBABILITY,
    SD,
)
from assay.studies.idsds.score_table import ScoreTable

Series = Mapping[float, str]  # networks of one series by the number that differs
DEPTHS: Sequence[Series] = (
    {20: "resnet20", 32: "resnet32", 56: "resnet56", 110: "resnet110"},
    {10: "vgg11", 15: "vgg16"},
    {10: "vgg11_bn", 15: "vgg16_bn"},
)
WIDTHS: Sequence[Series] = ({1: "resnet20", 2: "resnet20_w2", 4: "resnet20_w4"},)
WITHOUT_NORM = {
    "resnet20_w2_fixup": "resnet20_w2",
    "vgg11": "vgg11_bn",
    "vgg16": "vgg16_bn",
}
WITHOUT_BIAS = {"resnet20_w2_nobias": "resnet20_w2_fixup", "vgg11_nobias": "vgg11"}


def nine(table: ScoreTable, arm: str = "tuned") -> UnitScores:
    """IDSDS of the nine methods on architectures with several seeds; their own maps are apart."""
    own = (*ATTENTION, *INTRINSIC)
    rows = several_seeds(scores(table, "nine", arm))
    return {unit: {m: row for m, row in of.items() if m not in own} for unit, of in rows.items()}


def family(table: ScoreTable) -> dict[str, str]:
    """The family of each network."""
    return {str(f["network"]): str(f["family"]) for f in table.networks.values()}


def attainable(rows: UnitScores) -> dict[Unit, float]:
    """The best score of each network, chosen on half of the images."""
    return {unit: best(of) for unit, of in rows.items()}


def architecture_means(values: Mapping[Unit, float]) -> dict[str, float]:
    """The mean over seeds of each architecture that has several."""
    return {name: float(np.mean(of)) for name, of in grouped(values).items() if len(of) > 1}


@from_table
def families_differ(claim: Claim, table: ScoreTable) -> list[ClaimRow]:
    """18: plain, residual and transformer networks."""
    rows, kinds = nine(table), family(table)
    reached = attainable(rows)
    means = architecture_means(reached)
    of = {kind: [v for n, v in means.items() if kinds.get(n) == kind] for kind in FAMILIES}
    effects = [_family_gap(one, other, of) for one, other in itertools.pairwise(FAMILIES)]
    for kind in FAMILIES:
        if kind != "residual":
            alike = _between_families(rows, kinds, kind)
            order = over_units(f"order of methods, residual and {kind}", alike, "correlation")
            effects.append(replace(order, margin=0.5))
    unit = "architectures in the smaller family; of the orders, networks of the other family"
    return [judged_row(claim, effects, note=seeds_note(reached), unit=unit)]


def _family_gap(one: str, other: str, of: Mapping[str, Sequence[float]]) -> Effect:
    few = [kind for kind in (one, other) if len(of[kind]) < 2]
    name = f"{one} - {other}"
    if few:
        return absent(name, f"expected 2 {few[0]} architectures with several seeds.")
    return apart(name, of[one], of[other])


FAMILIES = ("plain", "residual", "transformer")


def _between_families(rows: UnitScores, kinds: Mapping[str, str], kind: str) -> dict[Unit, float]:
    """The rank correlation of methods between a residual network and others of the same seed."""
    reference = {seed: of for (name, seed), of in rows.items() if name == CONVOLUTIONAL[0]}
    return {
        (name, seed): agreement(reference[seed], of)
        for (name, seed), of in rows.items()
        if kinds.get(name) == kind and seed in reference
    }


@from_table
def transformers(claim: Claim, table: ScoreTable) -> list[ClaimRow]:
    """19: CheferLRP, IG-U and Rollout on transformers."""
    rows = {u: of for u, of in scores(table, "nine", "tuned").items() if "CheferLRP" in of}
    pair = ("CheferLRP", "IG-U")
    others = others_than((*NINE, *ATTENTION), pair)
    rest = others_than(others, ["Rollout"])
    above = {
        u: of["Rollout"].mean - min(of[m].mean for m in rest if m in of) for u, of in rows.items()
    }
    below = {u: max(of[m].mean for m in of) - of["Rollout"].mean for u, of in rows.items()}
    tie = differences(rows, *pair)
    effects = [
        over_units("CheferLRP - IG-U", tie),
        _above(over_units("better of both - best other", leads(rows, pair, others)), -0.01),
        _above(over_units("Rollout - worst", above), 0.01),
        _above(over_units("best - Rollout", below), 0.01),
    ]
    return [judged_row(claim, effects, note=seeds_note(tie, "CheferLRP - IG-U: "))]


def _above(effect: Effect, margin: float) -> Effect:
    return replace(effect, direction="above", margin=margin)


def _trend(
    claim: Claim, table: ScoreTable, series: Sequence[Series], what: str, steps: bool
) -> list[ClaimRow]:
    """The slope over log2 of a number: between architectures, and over seeds of these."""
    rows = nine(table)
    level = {u: float(np.mean([r.mean for r in of.values()])) for u, of in rows.items()}
    shown = [name for one in series for name in one.values()]
    listed = seeds_note({unit: value for unit, value in level.items() if unit[0] in shown})
    means = architecture_means(level)
    points = [{math.log2(x): means[n] for x, n in s.items() if n in means} for s in series]
    lines = [(list(part), list(part.values())) for part in points if len(part) > 1]
    name = f"slope over log2 {what}"
    slopes: dict[Unit, float] = {}
    contrasts: list[Floats] = []
    for unit, chain in _chains(rows, series, steps):
        slopes[unit] = slope(list(chain), [level[u] for u in chain.values()])
        contrasts.append(_falling(rows, chain))
    if not slopes:
        raise InputError(f"Expected two networks of one series that differ in {what}, got none.")
    share = share_of_methods("share of methods that fall", np.concatenate(contrasts, axis=1))
    by_seed = [over_units(f"{name}, by seed", slopes), _above(share, 0.5)]
    left_out = [n for n in shown if n not in means]
    missing = f" Without several seeds and so left out: {', '.join(left_out)}." if left_out else ""
    return [
        judged_part(
            claim, "architectures", lambda: [common_slope(name, lines)], f"{listed}.{missing}",
            MEANS_OF_SEEDS,
        ),
        judged_part(
            claim, "seeds", lambda: by_seed,
            f"{listed}.{missing} Slopes: {seeds_note(slopes)}",
            "seeds of these series" + (", a step of the series each" if steps else ""),
        ),
    ]  # fmt: skip


def _chains(
    rows: UnitScores, series: Sequence[Series], steps: bool
) -> Iterator[tuple[Unit, dict[float, Unit]]]:
    """The networks of one series and seed by log2 of their number; `steps` takes neighbours."""
    for number, one in enumerate(series, 1):
        for seed in sorted({unit[1] for unit in rows}):
            chain = {math.log2(x): (n, seed) for x, n in one.items() if (n, seed) in rows}
            parts = itertools.pairwise(chain.items()) if steps else [chain.items()]
            for place, part in enumerate(parts, 1):
                if len(chain) > 1:
                    yield (f"series {number}.{place}", seed), dict(part)


def _falling(rows: UnitScores, chain: Mapping[float, Unit]) -> Floats:
    """Minus the slope of every method, block by block: `[methods, 1, blocks]`."""
    units = list(chain.values())
    tables = np.array([[rows[u][m].blocks for m in NINE if m in rows[u]] for u in units], float)
    centred = np.asarray(list(chain), float) - np.mean(list(chain))
    slopes: Floats = np.tensordot(centred, tables, 1) / (centred**2).sum()
    return -slopes[:, None]


@from_table
def depth_costs(claim: Claim, table: ScoreTable) -> list[ClaimRow]:
    """20: three series of depths."""
    return _trend(claim, table, DEPTHS, "depth", steps=False)


@from_table
def width_costs(claim: Claim, table: ScoreTable) -> list[ClaimRow]:
    """21: one series of widths; a seed has two steps, which share a network."""
    return _trend(claim, table, WIDTHS, "width", steps=True)


@from_table
def norm_and_bias_cost(claim: Claim, table: ScoreTable) -> list[ClaimRow]:
    """22: networks without batch-norm, and without bias as well: by architecture, and by seed."""
    rows = nine(table)
    between: list[Effect] = []
    by_seed: list[Effect] = []
    notes: list[str] = []
    for what, pairs in (("batch-norm", WITHOUT_NORM), ("bias", WITHOUT_BIAS)):
        units = _pairs_of(rows, pairs)
        if not units:
            reason = f"expected {' or '.join(pairs)} and their counterparts with several seeds."
            between.append(absent(f"without {what}", reason))
            by_seed.append(absent(f"without {what}", reason))
            continue
        _, contrasts = contrast_table((rows[a], rows[b]) for a, b in units)
        gaps = {a: float(v) for (a, _), v in zip(units, np.nanmean(contrasts, (0, 2)), strict=True)}
        names = [name for (name, _), _ in units]
        of_pairs = [
            contrasts[:, [n == name for n in names]].mean(1) for name in pairs if name in names
        ]
        means = {(name, 0): value for name, value in architecture_means(gaps).items()}
        between.append(over_units(f"without {what}", means))
        between.append(
            _above(share_of_methods(f"methods without {what}", np.stack(of_pairs, 1)), 0.8)
        )
        by_seed.append(over_units(f"without {what}", gaps))
        by_seed.append(_above(share_of_methods(f"methods without {what}", contrasts), 0.8))
        left_out = [name for name in pairs if name not in names]
        more = f"; not scored: {', '.join(left_out)}" if left_out else ""
        notes.append(seeds_note(gaps, f"Without {what}: ") + more)
    if not notes:
        raise InputError("Expected networks with and without batch-norm or bias, got none.")
    note = ". ".join(notes)
    return [
        judged_part(claim, "architectures", lambda: between, note, "pairs of architectures"),
        judged_part(claim, "seeds", lambda: by_seed, note, "seeds of these pairs of architectures"),
    ]


def _pairs_of(rows: UnitScores, pairs: Mapping[str, str]) -> list[tuple[Unit, Unit]]:
    """Networks of one seed without and with something, of pairs that have several such seeds."""
    found = [
        [((without, s), (with_it, s)) for s in sorted({unit[1] for unit in rows})]
        for without, with_it in pairs.items()
    ]
    kept = [[(a, b) for a, b in of if a in rows and b in rows] for of in found]
    return [pair for of in kept if len(of) > 1 for pair in of]


@from_table
def probabilities_cost(claim: Claim, table: ScoreTable) -> list[ClaimRow]:
    """23: attributions of the probability, drops of the logit or of the probability.

    Both are compared with attributions of the logit and drops of the logit, on the same images.
    """
    logits, rows = readings(table, SD)[0], []
    for where, protocol in READINGS.items():
        others = readings(table, protocol)[1]
        units = [unit for unit in others if unit in logits]
        methods, contrasts = contrast_table((logits[u], others[u]) for u in units)
        lower = share_of_methods("methods with a lower score", contrasts)
        falls = {u: float(v) for u, v in zip(units, np.nanmean(contrasts, (0, 2)), strict=True)}
        note = noted(f"{len(methods)} methods; mean fall", seeds_note(falls))
        rows.append(judged_row(claim, [lower], where, note))
    return rows


READINGS = {"drops of the logit": SD, "drops of the probability": f"{SD}{OF_PROBABILITY}"}


def readings(table: ScoreTable, protocol: str) -> tuple[UnitScores, UnitScores]:
    """Scores of attributions of the logit and of the probability, by the name of the method."""
    rows = scores(table, "readings", "tuned", protocol, networks=CONVOLUTIONAL)
    logit: UnitScores = {}
    probability: UnitScores = {}
    for unit, of in rows.items():
        for label, row in of.items():
            method = label.removesuffix(OF_PROBABILITY)
            into = logit if method == label else probability
            into.setdefault(unit, {})[method] = row
    return logit, probability
