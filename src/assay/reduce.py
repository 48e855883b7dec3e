"""Arithmetic on finished answers, in NumPy: correlations, areas, soundness. Imports no torch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import rankdata

Array = np.ndarray[Any, Any]

# A spread this small against the values is rounding, not information.
_FLAT = 1e-9

# Two points always lie on a line.
_FEWEST = 3


def pearson(said: Array, found: Array, valid: Array | None = None) -> Array:
    """Row-wise Pearson correlation, `[B, P], [B, P] -> [B]`, over the columns that are `valid`.

    A constant `said` (a map without information) gives 0, its expectation under random values; a
    constant `found` (the model does not react) gives NaN: nothing can be said of that sample. So do
    fewer than three valid columns.
    """
    if valid is not None:
        enough = valid.sum(-1) >= _FEWEST
        if valid.all():  # all rows at once
            return np.where(enough, pearson(said, found), np.nan)
        rows = zip(said, found, valid, enough, strict=True)
        return np.array(
            [pearson(a[v][None], d[v][None])[0] if e else np.nan for a, d, v, e in rows]
        )
    a, d = (np.asarray(v, np.float64) for v in (said, found))
    a, flat_a = _centred(a)
    d, flat_d = _centred(d)
    norm = np.sqrt((a * a).sum(-1) * (d * d).sum(-1))
    with np.errstate(invalid="ignore", divide="ignore"):
        r = (a * d).sum(-1) / norm
    return np.where(flat_d, np.nan, np.where(flat_a, 0.0, np.clip(r, -1.0, 1.0)))


def spearman(said: Array, found: Array, valid: Array | None = None) -> Array:
    """Row-wise Spearman correlation with average ranks for ties; all else as in `pearson`."""
    if valid is not None:  # the others rank last, behind every number
        said, found = (np.where(valid, v, np.inf) for v in (said, found))
    return pearson(rankdata(said, axis=-1), rankdata(found, axis=-1), valid)


def area(values: Array, x: Array) -> Array:  # [B, K], [K] -> [B]
    """The area under a curve by the trapezoid rule, per unit of x."""
    total: Array = np.asarray(np.trapezoid(values, x, axis=-1) / (x[-1] - x[0]))
    return total


def _centred(values: Array) -> tuple[Array, Array]:
    spread = values.max(-1) - values.min(-1)
    flat = spread <= _FLAT * np.abs(values).max(-1)
    return values - values.mean(-1, keepdims=True), flat


@dataclass(frozen=True)
class Reduction:
    """A number of a whole set that is no mean over samples.

    Attributes:
        value: `(curves, x, weights [b, n], **options) -> [b]`, the number of each weighted set: a
            bootstrap gives weights, and every decision is taken anew for each of them.
        each: `(curves, x, **options) -> [n]`, every sample's part: their mean is the number.
        options: The names of the protocol's options that they take.
        variations: From these options to others, by name, under which the number is always shown
            too: what a reader must know to judge how much a choice decides.
    """

    value: Callable[..., Array]
    each: Callable[..., Array]
    options: tuple[str, ...]
    variations: Callable[[Mapping[str, Any]], Mapping[str, Mapping[str, Any]]] = lambda options: {}


# Accuracy up to this much above that of empty images is chance, not features found.
_WARM_UP = 0.04
# The papers' threshold is for steps of this share of the image.
_PAPER_STEP = 0.01
# Accuracies and steps this near are equal, and so are scores that agree to so many digits.
_ROUNDING, _DIGITS = 1e-12, 12
# What the SoCo code adds to the mass it divides by.
_CODE_EPSILON = 1e-6


def soundness(
    curves: Mapping[str, Array],
    x: Array,
    weights: Array,
    *,
    epsilon: float = 1.0,
    levels: Sequence[float] = (0.9,),
    variant: str = "slope",
) -> Array:  # [b]
    """The share of attribution that lies on features which raise accuracy, by weighted sets.

    Args:
        curves: `correct` and `mass` `[n, K]`: whether each sample is right when its share `x` of
            highest pixels is there, and the attribution on them.
        x: The shares `[K]`, rising from 0 (nothing is there) to 1 (everything is).
        weights: How often each sample counts in each set `[b, n]`.
        epsilon: The smallest rise of accuracy, per share of the image, that counts.
        levels: Where it is read, as shares of clean accuracy; the result is the mean.
        variant: `slope`, `paper` or `code`.
    """
    weights = np.asarray(weights, np.float64)
    accuracy = weights @ curves["correct"] / weights.sum(1, keepdims=True)  # [b, K]
    false = _false_steps(accuracy, x, epsilon, variant)
    found = np.zeros((len(weights), len(levels)))
    for place, level in enumerate(levels):
        steps = _reached(accuracy, level)
        for step in np.unique(steps):
            sets = steps == step
            whole, share = _mass_shares(curves["mass"], step, variant)
            lost = ((weights[sets] @ share) * false[sets, : share.shape[1]]).sum(1)
            found[sets, place] = (weights[sets] @ whole - lost) / weights[sets].sum(1)
    mean: Array = found.mean(1).round(_DIGITS)
    return mean


def soundness_each(
    curves: Mapping[str, Array],
    x: Array,
    *,
    epsilon: float = 1.0,
    levels: Sequence[float] = (0.9,),
    variant: str = "slope",
) -> Array:  # [n]
    """Each sample's share of attribution on features that raise the accuracy of the whole set."""
    accuracy = np.asarray(curves["correct"], np.float64).mean(0)[None]  # [1, K]
    false = _false_steps(accuracy, x, epsilon, variant)[0]
    found = []
    for level in levels:
        (step,) = _reached(accuracy, level)
        whole, share = _mass_shares(curves["mass"], step, variant)
        found.append(whole - share @ false[: share.shape[1]])
    each: Array = np.mean(found, 0).round(_DIGITS)
    return each


def soundness_curve(
    curves: Mapping[str, Array],
    x: Array,
    weights: Array | None = None,
    *,
    epsilon: float = 1.0,
    variant: str = "slope",
) -> tuple[Array, Array]:  # [K - 1], [K - 1]; with weights each [b, K - 1]
    """Accuracy and soundness along the sweep, in its order: accuracy need not rise throughout.

    With `weights` `[b, n]`, those of each weighted set.
    """
    counts = np.ones((1, len(curves["mass"]))) if weights is None else np.asarray(weights, float)
    counts = counts / counts.sum(1, keepdims=True)
    accuracy = counts @ curves["correct"]  # [b, K]
    false = _false_steps(accuracy, x, epsilon, variant)
    found = []
    for step in range(1, len(x)):
        whole, share = _mass_shares(curves["mass"], step, variant)
        lost = ((counts @ share) * false[:, : share.shape[1]]).sum(1)
        found.append(counts @ whole - lost)
    sound = np.stack(found, 1)
    return (accuracy[0, 1:], sound[0]) if weights is None else (accuracy[:, 1:], sound)


def at_level(accuracy: Array, values: Array, level: float) -> float:
    """The value where accuracy first reaches a level along a sweep; NaN where it never does."""
    reached = accuracy >= level - _ROUNDING
    return float(values[int(np.argmax(reached))]) if reached.any() else float("nan")


def _false_steps(accuracy: Array, x: Array, epsilon: float, variant: str) -> Array:  # [b, K]
    """The steps whose new pixels did not raise accuracy: bool, the first (nothing) is none."""
    before, after = accuracy[:, :-1].copy(), accuracy[:, 1:]
    if variant == "slope":
        false = _smaller(after - before, epsilon * np.diff(x))
        # The warm-up is one step: it ends where accuracy first leaves chance, and wants the same
        # slope, or a map that hides its false mass in it would go free.
        above = after > accuracy[:, :1] + _WARM_UP + _ROUNDING
        end = np.where(above.any(1), np.argmax(above, axis=1), above.shape[1] - 1)[:, None]
        risen = np.take_along_axis(after, end, 1) - accuracy[:, :1]
        slow = _smaller(risen, epsilon * x[1:][end])
        false = np.where(np.arange(false.shape[1]) <= end, slow, false)
    else:
        before[:, 0] = 0  # the sweep begins at no accuracy
        gain, least = after - before, epsilon * _PAPER_STEP
        false = ~_smaller(least, gain) if variant == "code" else _smaller(gain, least)
        false &= after > (_WARM_UP if variant == "code" else -1)
    padded: Array = np.pad(false, ((0, 0), (1, 0)))
    return padded


def _smaller(a: Any, b: Any) -> Array:
    """Whether a is smaller than b by more than rounding: shares of images are exact in theory."""
    smaller: Array = a < b - _ROUNDING
    return smaller


def _reached(accuracy: Array, level: float) -> Array:  # [b]
    """The first step, nothing left out, at which a share of the last accuracy is reached."""
    steps: Array = 1 + np.argmax(accuracy[:, 1:] >= level * accuracy[:, -1:] - _ROUNDING, axis=1)
    return steps


def _mass_shares(mass: Array, step: int, variant: str) -> tuple[Array, Array]:
    """Of the attribution up to a step: whether there is any `[n]`, and each step's share."""
    total = mass[:, step]
    some = total > 0
    scale = np.where(some, total, 1.0) + (_CODE_EPSILON if variant == "code" else 0.0)
    last = step if variant == "code" else step + 1  # the code reads before it judges a step
    new = np.diff(mass[:, :last], axis=1, prepend=0.0)
    return np.where(some, total / scale, 0.0), np.where(some[:, None], new / scale[:, None], 0.0)


def _soundness_variations(options: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Half and twice the threshold, and every level on its own."""
    scaled = {
        f"epsilon {options['epsilon'] * factor:g}": {"epsilon": options["epsilon"] * factor}
        for factor in (0.5, 1, 2)
    }
    levels = {f"at {100 * level:.4g} %": {"levels": (level,)} for level in options["levels"]}
    return {name: {**options, **other} for name, other in {**scaled, **levels}.items()}


PART_CHECKS = ("data_check", "preservation", "deletion_check", "distractibility")
PART_SCORES = ("completeness", *PART_CHECKS)
_SHARES = np.array([1 / 6, 1 / 6, 1 / 6, 1 / 2])  # of the checks in completeness


def part_checks(
    curves: Mapping[str, Array], x: Array, weights: Array, *, score: str = "completeness"
) -> Array:  # [b]
    """A check of parts, or their mixture, at the threshold where the mixture is largest.

    Args:
        curves: The checks `[n, K]`; NaN where one does not apply to a sample.
        x: The thresholds `[K]`.
        weights: How often each sample counts in each set `[b, n]`.
        score: One of `PART_CHECKS`, or `completeness`, the mixture.
    """
    means = np.stack([_known_means(curves[name], weights) for name in PART_CHECKS], 2)  # [b, K, 4]
    best = np.argmax((means @ _SHARES).round(_DIGITS), axis=1)
    found: Array = means[np.arange(len(weights)), best] @ _picked(score)
    return found


def part_checks_each(
    curves: Mapping[str, Array], x: Array, *, score: str = "completeness"
) -> Array:  # [n]
    """Each sample's part of it: a check counts for more where it applies to few."""
    checks = np.stack([curves[name] for name in PART_CHECKS], 2)  # [n, K, 4]
    everyone = np.ones((1, len(checks)))
    means = np.stack([_known_means(curves[name], everyone)[0] for name in PART_CHECKS], 1)
    best = int(np.argmax((means @ _SHARES).round(_DIGITS)))
    known = ~np.isnan(checks[:, best])  # [n, 4]
    with np.errstate(divide="ignore", invalid="ignore"):
        weight = len(checks) / known.sum(0)
        parts = np.where(known, checks[:, best] * weight, 0.0)
    each: Array = np.where(known.any(0), parts, np.nan) @ _picked(score)
    return each


def _picked(score: str) -> Array:  # [4]
    return (
        _SHARES if score == "completeness" else np.array([n == score for n in PART_CHECKS], float)
    )


def _known_means(curve: Array, weights: Array) -> Array:  # [n, K], [b, n] -> [b, K]
    known = ~np.isnan(curve)
    counts = np.asarray(weights, float) @ known
    with np.errstate(divide="ignore", invalid="ignore"):
        means: Array = (weights @ np.where(known, curve, 0.0)) / counts
    return means


REDUCTIONS = {
    "soundness": Reduction(
        soundness, soundness_each, ("epsilon", "levels", "variant"), _soundness_variations
    ),
    "part_checks": Reduction(
        part_checks,
        part_checks_each,
        ("score",),
        lambda options: {name: {"score": name} for name in PART_SCORES},
    ),
}
