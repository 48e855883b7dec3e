"""One measured number of a claim with its interval and p-values. Imports no torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy

from assay.errors import InputError
from assay.ranking.resampling import Floats, resample_counts

Direction = Literal["above", "below", "within", "outside"]
Scale = Literal["plain", "correlation", "share"]

ALPHA = 0.05  # for all claims of one paper together, by Holm; two-sided


@dataclass(frozen=True)
class Effect:
    """One measured number of a claim.

    Attributes:
        name: What was measured.
        value: The number.
        error: Its standard error; 0 where it is exact.
        n: How many units it is based on.
        direction: Where it must lie, if different from the claim's.
        margin: The smallest effect that counts, if different from the claim's.
        freedom: The degrees of freedom of the error; by default n - 1.
        scale: Where the interval is computed: of a `correlation` by Fisher's z; of a `share` of n
            units exactly, by the binomial distribution (Clopper and Pearson). Neither leaves its
            range.
        absent: Why there is no number: a part of the claim that was not tested.
    """

    name: str
    value: float
    error: float
    n: int
    direction: Direction | None = None
    margin: float | None = None
    freedom: float | None = None
    scale: Scale = "plain"
    absent: str = ""

    @property
    def degrees(self) -> float:
        """The degrees of freedom of the error."""
        return self.n - 1 if self.freedom is None else self.freedom

    def interval(self, alpha: float = ALPHA) -> tuple[float, float]:
        """The interval of level 1 - alpha, by Student's distribution on the number's scale."""
        if self.scale == "share":
            return _clopper_pearson(self._count, self.n, alpha)
        half = float(scipy.stats.t.isf(alpha / 2, self.degrees)) * self.error
        if self.scale == "correlation" and self.error:
            middle, half = math.atanh(self.value), half / (1 - self.value**2)
            return math.tanh(middle - half), math.tanh(middle + half)
        return self.value - half, self.value + half

    def tails(self, margin: float) -> tuple[float, float]:
        """Two-sided p-values of "it is not above the margin" and of "it is not below"."""
        if self.scale == "share" and 0 <= margin <= 1:
            at_least = scipy.stats.binom.sf(self._count - 1, self.n, margin)
            at_most = scipy.stats.binom.cdf(self._count, self.n, margin)
            return min(1.0, 2 * float(at_least)), min(1.0, 2 * float(at_most))
        distance, error = self.value - margin, self.error_at(margin)
        if self.scale == "correlation" and error:
            distance = math.atanh(self.value) - math.atanh(margin)
            error /= 1 - self.value**2
        if error == 0:
            return (0.0 if distance > 0 else 1.0), (0.0 if distance < 0 else 1.0)
        above = scipy.stats.t.sf(distance / error, self.degrees)
        below = scipy.stats.t.cdf(distance / error, self.degrees)
        return min(1.0, 2 * float(above)), min(1.0, 2 * float(below))

    def error_at(self, margin: float) -> float:
        """The standard error if the number were at the margin; of a share it depends on that."""
        if self.scale != "share":
            return self.error
        return math.sqrt(max(0.0, margin * (1 - margin)) / self.n)

    @property
    def _count(self) -> int:
        """How many units of a share have the mark."""
        return round(self.value * self.n)

    def __str__(self) -> str:
        """The number with its interval, as text."""
        low, high = self.interval()
        return f"{self.name} {self.value:.3f} [{low:.3f}, {high:.3f}]"


@dataclass(frozen=True)
class PositiveShare(Effect):
    """The share of several contrasts that are positive.

    Its interval counts the contrasts that are shown to be positive, and to be negative, by the
    partial conjunction of their tests (Benjamini and Heller, 2008): the p-value of "at least k of
    m" is m - k + 1 times the k-th smallest. It is valid however the contrasts are correlated.

    Attributes:
        ratios: Each contrast divided by its standard error.
    """

    ratios: tuple[float, ...] = ()

    def interval(self, alpha: float = ALPHA) -> tuple[float, float]:
        """The shares that the tests of the contrasts leave open."""
        ks, m = range(1, len(self.ratios) + 1), len(self.ratios)
        up, down = (sum(self._at_least(k, sign) <= alpha for k in ks) for sign in (1, -1))
        return up / m, 1 - down / m

    def tails(self, margin: float) -> tuple[float, float]:
        """Two-sided p-values of "it is not above the margin" and of "it is not below"."""
        m = len(self.ratios)
        places = margin * m
        return (
            self._at_least(math.floor(places + 1e-9) + 1, 1),
            self._at_least(m - math.ceil(places - 1e-9) + 1, -1),
        )

    def _at_least(self, k: int, sign: int) -> float:
        """The two-sided p-value against "fewer than `k` contrasts have this sign"."""
        m = len(self.ratios)
        if k > m:
            return 1.0
        tests = np.sort(scipy.stats.t.sf(sign * np.array(self.ratios), self.degrees))
        ordered = np.maximum.accumulate(2 * (m - np.arange(m)) * tests)  # never falls with k
        return min(1.0, float(ordered[k - 1]))


def _clopper_pearson(count: int, n: int, alpha: float) -> tuple[float, float]:
    """All shares that the exact binomial test does not refuse, half of `alpha` on each side."""
    low = scipy.stats.beta.ppf(alpha / 2, count, n - count + 1) if count else 0.0
    high = scipy.stats.beta.isf(alpha / 2, count + 1, n - count) if count < n else 1.0
    return float(low), float(high)


def absent(name: str, reason: str) -> Effect:
    """A part of a claim that was not tested."""
    return Effect(name, math.nan, math.nan, 0, absent=reason)


def bootstrap(
    names: Sequence[str],
    statistic: Callable[[Floats], Floats],
    n: int,
    *,
    resamples: int = 2000,
    seed: int = 0,
) -> list[Effect]:
    """Statistics of a whole set with bootstrap errors; each resample repeats every decision.

    Args:
        names: The names of the statistics.
        statistic: From weights of samples `[b, n]` to the statistics `[b, m]`.
        n: The number of samples.
        resamples: Number of resamples of the samples.
        seed: Seed of the resamples.
    """
    if n < 2:
        raise InputError(f"Expected at least 2 samples to resample, got {n}. Raise `n`.")
    values = statistic(np.ones((1, n)))[0]
    drawn = [statistic(counts) for counts in resample_counts(n, resamples, seed, columns=n)]
    errors = np.concatenate(drawn).std(axis=0) * math.sqrt(n / (n - 1))
    return [
        Effect(name, float(value), float(error), n)
        for name, value, error in zip(names, values, errors, strict=True)
    ]


def replicates(name: str, values: Sequence[float] | Floats, scale: Scale = "plain") -> Effect:
    """The mean of independent replicates with its standard error."""
    numbers = np.asarray(values, dtype=float)
    if len(numbers) < 2:
        raise InputError(f"Expected at least 2 replicates of {name}, got {len(numbers)}.")
    error = float(numbers.std(ddof=1) / math.sqrt(len(numbers)))
    return Effect(name, float(numbers.mean()), error, len(numbers), scale=scale)


def apart(name: str, these: Sequence[float], those: Sequence[float]) -> Effect:
    """The difference of the means of two independent groups, with Welch's error.

    Its `n` is the size of the smaller group, which is conservative.
    """
    one, other = replicates(name, these), replicates(name, those)
    error = math.hypot(one.error, other.error)
    return Effect(name, one.value - other.value, error, min(one.n, other.n))


def share(name: str, count: int, n: int) -> Effect:
    """The share of `n` units with a mark, with the exact binomial interval."""
    if n < 2:
        raise InputError(f"Expected at least 2 units for {name}, got {n}.")
    found = count / n
    error = math.sqrt(found * (1 - found) / n)
    return Effect(name, found, error, n, scale="share")


def correlation(name: str, x: Sequence[float] | Floats, y: Sequence[float] | Floats) -> Effect:
    """Pearson's correlation of two columns, with Fisher's interval."""
    if len(x) < 4:
        raise InputError(f"Expected at least 4 units for {name}, got {len(x)}.")
    if not np.ptp(x) or not np.ptp(y):
        raise InputError(f"Expected columns that vary for {name}, got a constant one.")
    value = float(np.clip(np.corrcoef(x, y)[0, 1], -1, 1))
    error = (1 - value**2) / math.sqrt(len(x) - 3)
    return Effect(name, value, error, len(x), freedom=math.inf, scale="correlation")
