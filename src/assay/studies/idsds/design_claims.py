"""Claims 18 to 25: what the design of a network changes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from scipy import stats

from assay.errors import InputError
from assay.ranking.resampling import Floats
from assay.studies.claim import Claim, ClaimRow, Effect, apart, bootstrap, make_row
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
    leads,
    others_than,
    over_units,
    scores,
    seeds_note,
    share_of_methods,
    slope,
)
from assay.studies.idsds.method_claims import SETTING, noted
from assay.studies.idsds.paper_methods import (
    ATTENTION,
    CONVOLUTIONAL,
    INTRINSIC,
    NINE,
    OF_PROBABILITY,
    SD,
)
from assay.studies.idsds.score_table import ScoreTable
from assay.studies.idsds.stability_claims import fact

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
SPAN = 0.1  # of accuracy, the least over which a slope is a claim


def nine(table: ScoreTable, arm: str = "tuned") -> UnitScores:
    """IDSDS of the nine methods on all networks; maps of the networks' own are apart."""
    own = (*ATTENTION, *INTRINSIC)
    rows = scores(table, "nine", arm)
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
    means = architecture_means(attainable(rows))
    of = {kind: [v for n, v in means.items() if kinds.get(n) == kind] for kind in FAMILIES}
    effects = [apart("plain - residual", of["plain"], of["residual"])]
    if len(of["transformer"]) > 1:
        effects.append(apart("residual - transformer", of["residual"], of["transformer"]))
    shared = _between_families(rows, kinds)
    effects.append(replace(over_units("order between families", shared), margin=0.5))
    listed = ", ".join(f"{name} {value:.3f}" for name, value in means.items())
    note = f"n counts architectures. {listed}. {seeds_note(attainable(rows))}"
    return [make_row(claim, effects, SETTING, note=note)]


FAMILIES = ("plain", "residual", "transformer")


def _between_families(rows: UnitScores, kinds: Mapping[str, str]) -> dict[Unit, float]:
    """The rank correlation of methods between a residual network and others of the same seed."""
    reference = {seed: of for (name, seed), of in rows.items() if name == CONVOLUTIONAL[0]}
    return {
        (name, seed): agreement(reference[seed], of)
        for (name, seed), of in rows.items()
        if kinds.get(name) in ("plain", "transformer") and seed in reference
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
    return [make_row(claim, effects, SETTING, note=seeds_note(tie, "CheferLRP - IG-U: "))]


def _above(effect: Effect, margin: float) -> Effect:
    return replace(effect, direction="above", margin=margin)


def _trend(
    claim: Claim, table: ScoreTable, series: Sequence[Series], what: str, steps: bool
) -> list[ClaimRow]:
    """The slope over log2 of a number: between architectures, and over seeds of these."""
    rows = nine(table)
    level = {u: float(np.mean([r.mean for r in of.values()])) for u, of in rows.items()}
    means = architecture_means(level)
    points = [{math.log2(x): means[n] for x, n in s.items() if n in means} for s in series]
    points = [part for part in points if len(part) > 1]
    judged = []
    if sum(map(len, points)) > len(points) + 1:  # else the slope has no error
        listed = [(list(part), list(part.values())) for part in points]
        between = common_slope(f"slope over log2 {what}", listed)
        note = f"n counts architectures, each the mean of its seeds. {_listed(means, series)}"
        judged.append(make_row(claim, [between], SETTING, "architectures", note))
    slopes: dict[Unit, float] = {}
    contrasts: list[Floats] = []
    for name, chain in _chains(rows, series, steps):
        slopes[name] = slope(list(chain), [level[unit] for unit in chain.values()])
        contrasts.append(_falling(rows, chain))
    effects = [over_units(f"slope over log2 {what}, by seed", slopes)]
    share = share_of_methods("share of methods that fall", np.concatenate(contrasts, axis=1))
    effects.append(_above(share, 0.5))
    note = f"n counts seeds of these series. {_listed(means, series)}. {seeds_note(slopes)}"
    judged.append(make_row(claim, effects, SETTING, "seeds", note))
    return judged


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


def _listed(means: Mapping[str, float], series: Sequence[Series]) -> str:
    names = dict.fromkeys(name for one in series for name in one.values())
    return ", ".join(f"{name} {means[name]:.3f}" for name in names if name in means)


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
    """22: networks without batch-norm, and without bias as well."""
    rows, judged = nine(table), []
    effects: list[Effect] = []
    for what, chain in (("batch-norm", WITHOUT_NORM), ("bias", WITHOUT_BIAS)):
        units = [
            ((without, seed), (with_it, seed))
            for without, with_it in chain.items()
            for seed in sorted({unit[1] for unit in rows})
            if (without, seed) in rows and (with_it, seed) in rows
        ]
        if len(units) < 2:
            continue
        _, contrasts = contrast_table((rows[a], rows[b]) for a, b in units)
        by_unit = np.nanmean(contrasts, (0, 2))
        gaps = {a: float(v) for (a, _), v in zip(units, by_unit, strict=True)}
        effects.append(over_units(f"without {what}", gaps))
        effects.append(_above(share_of_methods(f"methods without {what}", contrasts), 0.8))
        judged.append(seeds_note(gaps, f"Without {what}: "))
    if not effects:
        raise InputError("Expected networks with and without batch-norm or bias, got none.")
    note = f"n counts seeds of these pairs of architectures. {'. '.join(judged)}"
    return [make_row(claim, effects, SETTING, "seeds", note)]


@from_table
def probabilities_cost(claim: Claim, table: ScoreTable) -> list[ClaimRow]:
    """23: attributions of the probability, drops of the logit or of the probability.

    Both are compared with attributions of the logit and drops of the logit, on the same images.
    """
    logits, judged = readings(table, SD)[0], []
    for where, protocol in READINGS.items():
        rows = readings(table, protocol)[1]
        units = [unit for unit in rows if unit in logits]
        methods, contrasts = contrast_table((logits[u], rows[u]) for u in units)
        lower = share_of_methods("methods with a lower score", contrasts)
        falls = {u: float(v) for u, v in zip(units, np.nanmean(contrasts, (0, 2)), strict=True)}
        note = noted(f"{len(methods)} methods; mean fall", seeds_note(falls))
        judged.append(make_row(claim, [lower], SETTING, where, note))
    return judged


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


def accuracy(table: ScoreTable, arm: str) -> dict[Unit, float]:
    """The test accuracy of the networks of an arm."""
    return fact(table, arm, "accuracy")


@from_table
def accuracy_against_attributability(claim: Claim, table: ScoreTable) -> list[ClaimRow]:
    """24: slopes of the best IDSDS over accuracy, between and within architectures."""
    reached, right = (
        architecture_means(attainable(nine(table))),
        architecture_means(accuracy(table, "tuned")),
    )
    names = [name for name in reached if name in right]
    x, y = ([of[name] for name in names] for of in (right, reached))
    between = common_slope("slope between architectures", [(x, y)])
    span = max(x) - min(x)
    wide = "" if span >= SPAN else f"; that is less than the {SPAN} over which this is a claim"
    rank = float(stats.spearmanr(x, y).statistic)
    note = f"n counts architectures. Accuracy spans {span:.3f}{wide}. Rank correlation {rank:.3f}"
    judged = [make_row(claim, [between], SETTING, "between", note)]
    within = _within(table)
    if len(within) > 1:
        effect = over_units("slope within an architecture", within)
        how = "Accuracy manipulated by the share of the training set and by epochs"
        note = f"{how}. {seeds_note(within)}"
        judged.append(make_row(claim, [effect], SETTING, "within", note))
    costs = {
        what: _cost_per_point(table, series)
        for what, series in (("depth", DEPTHS[:1]), ("width", WIDTHS))
    }
    gap = {
        seed: costs["depth"][seed] - costs["width"][seed]
        for seed in costs["depth"]
        if seed in costs["width"]
    }
    if len(gap) > 1:
        effect = _above(over_units("cost of depth - cost of width", gap), 0.0)
        judged.append(make_row(claim, [effect], SETTING, "depth and width", seeds_note(gap)))
    return judged


def _within(table: ScoreTable) -> dict[Unit, float]:
    """The slope of the best score over accuracy among the arms of one network and seed.

    Tuned arms are compared with each other; without them base arms, whose score is SDS.
    """
    slopes: dict[Unit, float] = {}
    arms = sorted({str(f["arm"]) for f in table.networks.values()})
    for kind in ("base", "tuned"):  # tuned arms win where both exist
        points: dict[Unit, list[tuple[float, float]]] = {}
        for arm in (a for a in arms if a.split("-")[0] == kind and "-g" not in a):
            reached, right = attainable(nine(table, arm)), accuracy(table, arm)
            for unit in reached:
                if unit in right:
                    points.setdefault(unit, []).append((right[unit], reached[unit]))
        for unit, of in points.items():
            x, y = ([p[i] for p in of] for i in (0, 1))
            if len(of) > 1 and max(x) - min(x) > 0.01:
                slopes[unit] = slope(x, y)
    return slopes


def _cost_per_point(table: ScoreTable, series: Sequence[Series]) -> dict[Unit, float]:
    """IDSDS lost per point of accuracy gained, from the first to the last of a series, by seed."""
    reached, right = attainable(nine(table)), accuracy(table, "tuned")
    costs: dict[Unit, float] = {}
    for chain in series:
        names = list(chain.values())
        for seed in sorted({unit[1] for unit in reached}):
            first, last = (names[0], seed), (names[-1], seed)
            if all(unit in reached and unit in right for unit in (first, last)):
                gained = right[last] - right[first]
                if gained > 0.001:
                    costs["series", seed] = (reached[first] - reached[last]) / (100 * gained)
    return costs


@from_table
def preferences_follow_attributability(claim: Claim, table: ScoreTable) -> list[ClaimRow]:
    """25: the best score of an architecture against Grad-CAM minus IG-U."""
    rows = nine(table)
    reached = architecture_means(attainable(rows))
    gap = architecture_means(differences(rows, "Grad-CAM", "IG-U"))
    names = [name for name in reached if name in gap]
    if len(names) < 3:
        raise InputError(f"Expected at least 3 architectures, got {len(names)}.")
    x, y = (np.array([of[name] for name in names]) for of in (reached, gap))
    (effect,) = bootstrap(["correlation over architectures"], _correlation(x, y), len(names))
    listed = ", ".join(f"{n} {reached[n]:.3f}: {gap[n]:+.3f}" for n in names)
    return [make_row(claim, [effect], SETTING, note=f"Best score: Grad-CAM - IG-U. {listed}")]


def _correlation(x: Floats, y: Floats) -> Callable[[Floats], Floats]:
    def statistic(weights: Floats) -> Floats:  # [b, n] -> [b, 1]
        total = weights.sum(1, keepdims=True)
        a, b = (v - weights @ v[:, None] / total for v in (x, y))  # [b, n]
        both, one, other = ((weights * p).sum(1) for p in (a * b, a * a, b * b))
        scale = np.sqrt(one * other)
        whole: Floats = np.where(scale > 0, both / np.where(scale > 0, scale, 1.0), 0.0)
        return whole[:, None]

    return statistic
