"""The critical-difference diagram of some runs."""

from __future__ import annotations

import numpy as np

from assay.aggregation.critical_difference import critical_difference_svg
from assay.aggregation.measured import Consistency
from assay.aggregation.rank_tests import friedman, wilcoxon_holm
from assay.errors import InputError

LEVEL = 0.05


def rank_diagram(found: Consistency) -> str:
    """Mean ranks over settings with all methods, joined where Wilcoxon and Holm do not separate.

    The protocols of one dataset and model share their images, so these count as one setting: their
    standardised scores are averaged.

    Raises:
        InputError: Fewer than two datasets or models score all methods.
    """
    scored = ~np.isnan(found.scores).any(axis=1)  # settings that score all methods
    scores = found.scores[scored]
    spread = scores.std(axis=1, keepdims=True)
    standard = (scores - scores.mean(axis=1, keepdims=True)) / np.where(spread > 0, spread, 1.0)
    kept = [found.settings[place][:3] for place in np.flatnonzero(scored).tolist()]
    complete = [
        standard[[place == one for place in kept]].mean(axis=0) for one in dict.fromkeys(kept)
    ]
    if len(complete) < 2:
        raise InputError(
            f"Expected at least two datasets or models that score all methods for a diagram, got "
            f"{len(complete)}."
        )
    note = f"Wilcoxon's signed ranks with Holm's correction, {len(complete)} datasets and models."
    merged = np.stack(complete)
    apart = wilcoxon_holm(merged).adjusted < LEVEL
    return critical_difference_svg(found.methods, friedman(merged).mean_ranks, apart, note=note)
