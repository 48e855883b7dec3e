"""What the mixed model says of each method, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from assay.ranking.resampling import Codes, Floats

FEWEST_TASKS = 10  # for a confidence level


@dataclass(frozen=True, eq=False)
class SourceMeans:
    """The methods' means on one source, or over all where sources are not told apart.

    Attributes:
        source: Its name.
        share: The probability that a new task is of this source.
        estimate: Means [n].
        errors: Error covariance of the differences between methods [n, n].
    """

    source: str
    share: float
    estimate: Floats
    errors: Floats


@dataclass(frozen=True, eq=False)
class MixedFit:
    """What the mixed model says of each method; arrays are in the order of `methods`.

    Attributes:
        methods: Names [n].
        estimate: Mean of each method in a new task on the same sources [n].
        low: Lower end of its interval [n]; NaN with fewer than 10 tasks.
        high: Upper end [n].
        level: Nominal coverage.
        errors: Error covariance of the differences between methods [n, n].
        freedom: Degrees of freedom of these errors; 0 where they are not known.
        variances: The variance of each part of a method's value in one cell.
        shares: The same as shares of their sum.
        new_task: Variance of a method's mean over questions and families between tasks.
        by_source: The same means for each source.
        tasks: Number of tasks.
        identical: A number per method [n]; methods with the same values share it.
        left_out: With fewer than 10 tasks, the estimates [n] without each source.
        notes: What limits the answer, in sentences.
    """

    methods: tuple[str, ...]
    estimate: Floats
    low: Floats
    high: Floats
    level: float
    errors: Floats
    freedom: float
    variances: Mapping[str, float]
    shares: Mapping[str, float]
    new_task: float
    by_source: tuple[SourceMeans, ...]
    tasks: int
    identical: Codes
    left_out: Mapping[str, Floats] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def left_out_range(self) -> tuple[Floats, Floats] | None:
        """The lowest and highest estimate [n] without one source; None where none was left out."""
        if not self.left_out:
            return None
        stacked = np.stack(list(self.left_out.values()))
        return stacked.min(axis=0), stacked.max(axis=0)
