"""Measures of agreement in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import scipy

from assay.aggregation.measured import Consistency
from assay.aggregation.prediction_skill import LeftOutPrediction
from assay.ranking.resampling import Floats

FEW = 10  # groups: fewer give a range and no interval
LEVEL = 0.95  # that no rule is wrongly called better
FIXED = "borda"  # the rule that is reported: chosen beforehand, not by its result


def sentences(found: Consistency) -> Iterator[str]:
    """What the numbers say, the agreement first."""
    settings, methods = found.scores.shape
    yield (
        f"{settings} settings order {methods} methods with a mean rank correlation of "
        f"{_mean(found.rho):.2f} (Kendall's tau {_mean(found.tau):.2f})."
    )
    yield from _ceiling(found)
    yield from _by_facet(found)
    if found.friedman is not None:
        one = found.friedman
        yield (
            f"Kendall's W is {found.concordance.w:.2f} over {one.settings} settings with all "
            f"methods; Friedman's test of no difference: p {_p(one.p)} (Iman and Davenport "
            f"{_p(one.f_p)}), if settings were independent. Krippendorff's alpha {found.alpha:.2f}."
        )
    yield (
        f"Two settings have different winners in {found.flips.share:.0%} of "
        f"{found.flips.pairs} pairs; {found.flips.ever_first} methods are ever first."
    )
    yield from _variance(found)
    yield from _skill(found)


def _ceiling(found: Consistency) -> Iterator[str]:
    if found.ceiling is None:
        yield "No noise ceiling: no setting has scores of single samples."
        return
    of = found.ceiling
    if np.isnan(of.half).all():
        yield "No noise ceiling: all methods are tied in every half of the images."
        return
    within, between, corrected = np.nanmean(of.half), _mean(of.between), _mean(of.disattenuated)
    yield (
        f"Two halves of the images of one setting agree with tau {within:.2f}, two settings on "
        f"different halves with {between:.2f}. Without noise two settings would agree with about "
        f"{corrected:.2f}."
    )
    weak = int(np.isnan(of.disattenuated.diagonal()).sum())
    if weak:
        yield f"{weak} of {len(of.half)} settings are too noisy to be compared (tau below .3)."


def _by_facet(found: Consistency) -> Iterator[str]:
    """The mean agreement of settings that differ in one respect only."""
    names = ("dataset", "model", "checkpoint", "protocol")
    tau: dict[str, list[float]] = {}
    for i, one in enumerate(found.settings):
        for j in range(i):
            differ = [n for n, a, b in zip(names, one, found.settings[j], strict=True) if a != b]
            value = float(found.tau[i, j])
            if len(differ) == 1 and not np.isnan(value):
                tau.setdefault(differ[0], []).append(value)
    parts = [f"{name} {np.mean(of):.2f} ({len(of)} pairs)" for name, of in tau.items()]
    if parts:
        yield f"Mean tau of settings that differ in one respect only: {', '.join(parts)}."


def _variance(found: Consistency) -> Iterator[str]:
    if found.variance is None:
        return
    parts = [p for p in found.variance.parts if "method" in p.factors]
    shares = [f"{' x '.join(p.factors)} {p.share:.0%}" for p in parts]
    sizes = ", ".join(f"{n} {name}s" for name, n in found.variance.levels.items())
    yield (
        f"Of the variance of standardised scores that tells methods apart ({sizes}): "
        f"{', '.join(shares)}. Generalisability {found.variance.generalisability:.2f}."
    )


def _skill(found: Consistency) -> Iterator[str]:
    """How well the rest predicts what is left out, by one rule, and whether others differ."""
    for facet, rules in found.skills.items():
        one = rules.get(FIXED) or next(iter(rules.values()))
        shares = [float(np.nanmean(rule.accuracy)) for rule in rules.values()]
        low, high = f"{min(shares):.0%}", f"{max(shares):.0%}"
        others = f"all rules {low}" if low == high else f"{low} to {high} over the rules"
        yield (
            f"From the other {facet}s, {FIXED} predicts the order of a pair of methods in "
            f"{np.nanmean(one.accuracy):.0%} of cases ({others}). "
            f"{len(one.groups)} were left out in turn."
        )
        yield f"The method it puts first is first in {np.nanmean(one.top):.0%} of these."
        if len(one.groups) >= FEW:
            yield from _better_rules(facet, rules)


def _better_rules(facet: str, rules: Mapping[str, LeftOutPrediction]) -> Iterator[str]:
    """Whether one rule predicts better than another one; most do not."""
    own = rules[FIXED].accuracy if FIXED in rules else None
    if own is None:
        return
    better = [rule for rule, one in rules.items() if _clearly(one.accuracy, own, len(rules))]
    text = ", ".join(better) if better else "none"
    yield f"Rules that predict clearly better than {FIXED} over {facet}s: {text}."


def _clearly(one: Floats, other: Floats, rules: int) -> bool:
    """Whether a mean difference over groups is above zero, by Student's interval for all rules."""
    apart = one - other
    apart = apart[~np.isnan(apart)]
    spread = apart.std(ddof=1) / len(apart) ** 0.5
    chance = (1 - LEVEL) / (2 * max(1, rules - 1))
    return bool(apart.mean() > scipy.stats.t.isf(chance, len(apart) - 1) * spread)


def _mean(matrix: Floats) -> float:
    """The mean over pairs of settings."""
    values = matrix[np.triu_indices(len(matrix), 1)]
    known: Sequence[float] = values[~np.isnan(values)].tolist()
    return float(np.mean(known)) if len(known) else float("nan")


def _p(value: float) -> str:
    return "< .001" if value < 0.001 else f"{value:.3f}"
