"""Orders of methods on disjoint random halves of the images, and how far they agree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.aggregation.setting_orders import pair_signs, tau_of_signs
from assay.errors import InputError
from assay.ranking.resampling import Codes, Floats, GroupedRows

Halves = tuple[Floats, Floats]  # signs of pairs of methods in both halves, two of [S, p]


@dataclass(frozen=True, eq=False)
class SampledScores:
    """The scores of methods on the samples of one setting.

    A method without any score is missing. Of the others, only samples with all scores count.

    Attributes:
        values: Scores [n, N]; higher is better, NaN is missing.
        groups: A label per sample [N]. Samples of one label always stay in the same half, also in
            different settings. None: the sample's place is its label.
    """

    values: Floats
    groups: ArrayLike | None = None

    def __post_init__(self) -> None:
        """Raise an error for shapes that do not fit together, and for infinity."""
        if np.ndim(self.values) != 2:
            raise InputError(
                f"Expected scores of shape [methods, samples], got {np.shape(self.values)}."
            )
        if np.isinf(self.values).any():
            raise InputError("Expected finite scores, or NaN where one is missing, got infinity.")
        samples = np.shape(self.values)[1]
        if self.groups is not None and np.shape(self.groups) != (samples,):
            raise InputError(
                f"Expected `groups` to hold one label per sample ({samples}), got shape "
                f"{np.shape(self.groups)}."
            )

    def labels(self) -> NDArray[np.generic]:
        """The label of each sample [N]."""
        values = np.asarray(self.values)
        return np.arange(values.shape[1]) if self.groups is None else np.asarray(self.groups)

    def counted(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which methods [n] have scores, and which samples [N] have the scores of all of those."""
        known = ~np.isnan(self.values)
        methods = known.any(axis=1)
        samples = known[methods].all(axis=0) & methods.any()
        return np.asarray(methods, np.bool_), np.asarray(samples, np.bool_)


def half_signs(settings: Sequence[SampledScores], splits: int, seed: int) -> Iterator[Halves]:
    """Signs of the differences of pairs of methods in both halves, for each split.

    Every split puts half of the labels into each half, at random. Labels that occur in the same
    settings are split evenly, so every setting has two equal halves but for single labels.

    Args:
        settings: The scores of the same methods in each setting.
        splits: Number of splits.
        seed: Seed of the splits.
    """
    if splits < 1:
        raise InputError(f"Expected at least 1 split, got {splits}.")
    if len({np.shape(setting.values)[0] for setting in settings}) != 1:
        raise InputError("Expected at least one setting, and the same methods in all of them.")
    members, sums = _group_sums(settings)
    strata = np.unique(members, axis=0, return_inverse=True)[1].reshape(-1)
    generator = np.random.default_rng(seed)
    for _ in range(splits):
        chosen = _half(strata, generator)
        first, second = (
            np.stack([_means(part, half) for part in sums]) for half in (chosen, ~chosen)
        )
        yield pair_signs(first), pair_signs(second)


def crossed_tau(halves: Iterable[Halves], fewest_pairs: int = 1) -> Floats:
    """Tau-b between settings on disjoint halves [S, S], mean over splits and both swaps.

    The diagonal compares a setting with itself on other samples: the ceiling of noise. Splits in
    which one of two orders has only ties do not count; NaN where none counts.

    Args:
        halves: What `half_signs` returns.
        fewest_pairs: Settings with fewer common pairs of methods give NaN.
    """
    total, number = np.zeros(()), np.zeros(())
    for first, second in halves:
        tau = tau_of_signs(first, second, fewest_pairs)
        for one in (tau, tau.T):
            known = ~np.isnan(one)
            number = number + known
            total = total + np.where(known, one, 0.0)
    return np.where(number > 0, total / np.maximum(number, 1), np.nan)


_Sums = tuple[Floats, Codes]  # sums of scores and their number [g, n + 1], the label of each row


def _group_sums(
    settings: Sequence[SampledScores],
) -> tuple[NDArray[np.bool_], list[_Sums]]:
    """Which labels [G] each setting has [G, S], and every setting's sums over its labels."""
    kept = [setting.counted() for setting in settings]
    labels = [of.labels()[samples] for of, (_, samples) in zip(settings, kept, strict=True)]
    names, place = np.unique(np.concatenate(labels), return_inverse=True)
    places = np.split(place.reshape(-1), np.cumsum([len(part) for part in labels])[:-1])
    members = np.zeros((len(names), len(settings)), np.bool_)
    sums: list[_Sums] = []
    for number, (setting, (methods, samples)) in enumerate(zip(settings, kept, strict=True)):
        rows, index = np.unique(places[number], return_inverse=True)
        if len(rows) < 2:
            raise InputError(
                f"Expected setting {number} to have samples of at least 2 groups with the scores "
                f"of all its methods, got {len(rows)}."
            )
        members[rows, number] = True
        values = np.asarray(setting.values, np.float64)[:, samples].T  # [N', n]
        values = np.where(methods, values, np.nan)
        counted = np.concatenate([values, np.ones((len(values), 1))], axis=1)
        sums.append((GroupedRows(index.reshape(-1)).sums(counted), rows))
    return members, sums


def _half(strata: Codes, generator: np.random.Generator) -> NDArray[np.bool_]:
    """Every other label of each stratum in random order; chance decides who gets an odd one."""
    order = np.lexsort((generator.random(len(strata)), strata))
    ordered = strata[order]
    start = np.searchsorted(ordered, np.arange(strata.max() + 1))
    offset = generator.integers(0, 2, len(start))
    chosen = np.empty(len(strata), np.bool_)
    chosen[order] = (np.arange(len(strata)) - start[ordered] + offset[ordered]) % 2 == 0
    return chosen


def _means(part: _Sums, half: NDArray[np.bool_]) -> Floats:  # [n]
    """A setting's mean scores over the labels of one half; NaN for an empty half."""
    sums, rows = part
    total = half[rows].astype(np.float64) @ sums
    return total[:-1] / total[-1] if total[-1] > 0 else np.full(len(total) - 1, np.nan)
