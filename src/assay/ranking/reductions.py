"""How the samples of a set become one number: the set-level reductions, and how one is looked up.

A protocol names its reduction: `mean`, one of `REDUCTIONS`, or a function of the user's own. The
reductions in `REDUCTIONS` are known wherever a run is read. A user's own is known to the run alone,
which stores what it gives: see `assay.ranking.stored`.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from assay.errors import InputError, unknown
from assay.plugins.option_types import Options
from assay.plugins.set_level import own_reduction
from assay.ranking.reduce_part_checks import (
    PART_SCORES,
    part_checks,
    part_checks_each,
    part_checks_of_sums,
)
from assay.ranking.reduce_soundness import (
    soundness,
    soundness_each,
    soundness_of_sums,
    soundness_variations,
)
from assay.ranking.resampling import BLOCK, Floats, GroupedRows
from assay.ranking.weighted_sums import GroupCounts
from assay.store import Array
from assay.suite.spec import Choice


@dataclass(frozen=True)
class Reduction:
    """A number of a whole set that is not a mean over samples.

    Attributes:
        value: `(curves, x, weights, *, options) -> [b]`, the number of each weighted set, from
            `curves` by name `[n, K]`, where they were taken `x` `[K]`, and how often each sample
            counts in each set `weights` `[b, n]`. The bootstrap gives the weights, so every
            decision is made anew in every resample.
        each: `(curves, x, *, options) -> [n]`, each sample's part: their mean is the number. Where
            it is None, the parts are derived from `value`.
        variations: From the options to others, by name, under which the number is always shown too:
            what a reader must know to judge how much a choice decides.
        of_sums: The same as `value` from `(curves, x, sums)`, for reductions that read nothing but
            weighted sums over samples; so samples that count alike can be added up before.
        options: The options that these functions get.
    """

    value: Callable[..., Array]
    each: Callable[..., Array] | None = None
    variations: Callable[[Options], Mapping[str, Options]] = lambda options: {}
    of_sums: Callable[..., Array] | None = None
    options: Options = field(default_factory=dict)

    def with_options(self, options: Options) -> "Reduction":
        """The reduction with those of a protocol's options that it takes, by their names.

        Raises:
            InputError: It cannot be called with them.
        """
        signature = inspect.signature(self.value)
        named = [p.name for p in signature.parameters.values() if p.kind is p.KEYWORD_ONLY]
        chosen = {name: options[name] for name in named if name in options}
        try:
            signature.bind({}, np.zeros(0), np.zeros((0, 0)), **chosen)
        except TypeError as error:
            raise InputError(
                f"Expected the reduction `{_name(self.value)}` to take `(curves, x, weights)` and, "
                f"by keyword, options of its protocol ({', '.join(options) or 'it has none'}); "
                f"got `{_name(self.value)}{signature}`: {error}."
            ) from None
        return replace(self, options=chosen)

    def numbers(self, curves: Mapping[str, Array], x: Array, weights: Floats) -> Floats:  # [b]
        """The number of each weighted set `[b, n]`."""
        values: Floats = np.asarray(self.value(curves, x, weights, **self.options), np.float64)
        if values.shape != (len(weights),):
            raise InputError(
                f"Expected the reduction `{_name(self.value)}` to give one number for each row of "
                f"`weights`, shape ({len(weights)},), got shape {values.shape}."
            )
        return values

    def numbers_of_groups(
        self, curves: Mapping[str, Array], x: Array, counts: Floats, grouped: GroupedRows
    ) -> Floats:  # [b]
        """The number of each set in which groups of samples count so often `[b, g]`."""
        if self.of_sums is None:
            return self.numbers(curves, x, counts[:, grouped.index])
        sums = GroupCounts(counts, grouped)
        return np.asarray(self.of_sums(curves, x, sums, **self.options), np.float64)

    def parts(self, curves: Mapping[str, Array], x: Array) -> Array:  # [n]
        """Each sample's part of the number of the whole set: their mean is the number.

        Without `each`, a part tells what a sample adds: with v the number of the set of n samples
        and v_i the number when sample i counts twice, it is v + (n + 1) (v_i - mean of all v_j).
        For a mean that is exactly the sample's own score. A part may lie outside the range of the
        number. (Counting twice rather than leaving out: every sample stays in every set, so the
        number is defined wherever that of the whole set is.)
        """
        if self.each is not None:
            return self.each(curves, x, **self.options)
        size = len(next(iter(curves.values())))
        whole = self.numbers(curves, x, np.ones((1, size)))
        rows = max(1, BLOCK // size)
        twice = np.concatenate(
            [
                self.numbers(curves, x, 1.0 + np.eye(min(rows, size - start), size, start))
                for start in range(0, size, rows)
            ]
        )
        parts: Array = whole + (size + 1) * (twice - twice.mean())
        return parts

    def varied(self) -> dict[str, "Reduction"]:
        """The same reduction under the other options it is always shown with."""
        others = self.variations(self.options)
        return {name: replace(self, options=options) for name, options in others.items()}


REDUCTIONS = {
    "soundness": Reduction(soundness, soundness_each, soundness_variations, soundness_of_sums),
    "part_checks": Reduction(
        part_checks,
        part_checks_each,
        lambda options: {name: {"score": name} for name in PART_SCORES},
        part_checks_of_sums,
    ),
}


def reduction_of(protocol: Choice) -> Reduction | None:
    """A protocol's reduction with its options; None where the number is the mean.

    Raises:
        InputError: There is no such reduction, or it cannot be called with the protocol's options.
    """
    own = own_reduction(protocol.plugin.reduce)
    if own is not None:
        return Reduction(own).with_options(protocol.options)
    if protocol.plugin.reduce == "mean":
        return None
    return named_reduction(protocol.plugin.reduce).with_options(protocol.options)


def own_reductions(protocols: Iterable[Choice]) -> dict[str, Reduction]:
    """The reductions that are users' own, with their options, by the label of the protocol."""
    return {
        protocol.label: Reduction(own).with_options(protocol.options)
        for protocol in protocols
        if (own := own_reduction(protocol.plugin.reduce)) is not None
    }


def named_reduction(name: str) -> Reduction:
    """The reduction of this package with that name.

    Raises:
        InputError: There is none.
    """
    if name not in REDUCTIONS:
        raise unknown("set-level reduction", name, ["mean", *REDUCTIONS])
    return REDUCTIONS[name]


def _name(function: Callable[..., Array]) -> str:
    return str(getattr(function, "__name__", type(function).__name__))
