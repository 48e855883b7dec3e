"""Soundness of a whole set: the share of attribution that raises accuracy."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from assay.ranking.weighted_sums import SampleWeights, WeightedSums
from assay.store import Array

# Accuracy up to this much above that of empty images is chance, not features found.
_WARM_UP = 0.04
# The papers' threshold is for steps of this share of the image.
_PAPER_STEP = 0.01
# Accuracies and steps this close are equal, and so are scores that agree to so many digits.
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
    sums = SampleWeights(np.asarray(weights, np.float64))
    return soundness_of_sums(curves, x, sums, epsilon=epsilon, levels=levels, variant=variant)


def soundness_of_sums(
    curves: Mapping[str, Array],
    x: Array,
    sums: WeightedSums,
    *,
    epsilon: float = 1.0,
    levels: Sequence[float] = (0.9,),
    variant: str = "slope",
) -> Array:  # [b]
    """The same of any weighted sets: all it reads of them are sums over samples."""
    total = sums.total
    accuracy = sums.of(curves["correct"]) / total[:, None]  # [b, K]
    false = _false_steps(accuracy, x, epsilon, variant)
    sound = np.zeros((len(total), len(levels)))
    for place, level in enumerate(levels):
        steps = _reached(accuracy, level)
        for step in np.unique(steps):
            sets = steps == step
            whole, share = _mass_shares(curves["mass"], step, variant)
            lost = (sums.of(share, sets) * false[sets, : share.shape[1]]).sum(1)
            sound[sets, place] = (sums.of(whole, sets) - lost) / total[sets]
    mean: Array = sound.mean(1).round(_DIGITS)
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
    sound = []
    for level in levels:
        (step,) = _reached(accuracy, level)
        whole, share = _mass_shares(curves["mass"], step, variant)
        sound.append(whole - share @ false[: share.shape[1]])
    each: Array = np.mean(sound, 0).round(_DIGITS)
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
    steps = []
    for step in range(1, len(x)):
        whole, share = _mass_shares(curves["mass"], step, variant)
        lost = ((counts @ share) * false[:, : share.shape[1]]).sum(1)
        steps.append(counts @ whole - lost)
    sound = np.stack(steps, 1)
    return (accuracy[0, 1:], sound[0]) if weights is None else (accuracy[:, 1:], sound)


def at_level(accuracy: Array, values: Array, level: float) -> float:
    """The value where accuracy first reaches a level along a sweep; NaN where it never does."""
    reached = accuracy >= level - _ROUNDING
    return float(values[int(np.argmax(reached))]) if reached.any() else float("nan")


def soundness_variations(options: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Half and twice the threshold, and each level alone."""
    scaled = {
        f"epsilon {options['epsilon'] * factor:g}": {"epsilon": options["epsilon"] * factor}
        for factor in (0.5, 1, 2)
    }
    levels = {f"at {100 * level:.4g} %": {"levels": (level,)} for level in options["levels"]}
    return {name: {**options, **other} for name, other in {**scaled, **levels}.items()}


def _false_steps(accuracy: Array, x: Array, epsilon: float, variant: str) -> Array:  # [b, K]
    """The steps whose new pixels did not raise accuracy: bool, the first (nothing) is none."""
    before, after = accuracy[:, :-1].copy(), accuracy[:, 1:]
    if variant == "slope":
        false = _smaller(after - before, epsilon * np.diff(x))
        # The warm-up is one step: it ends where accuracy first leaves chance, and needs the same
        # slope, or a map could hide its false mass in it.
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


def _smaller(a: Array | float, b: Array | float) -> Array:
    """Whether a is smaller than b by more than rounding: shares of images are exact in theory."""
    smaller: Array = np.asarray(a < b - _ROUNDING)
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
