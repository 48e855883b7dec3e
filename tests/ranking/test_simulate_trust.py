"""The simulation behind the intervals of `assay trust`."""

import numpy as np
import pytest
from benchmarks.simulate_trust import coverage


@pytest.mark.slow
@pytest.mark.parametrize("methods", [6, 10, 16])
@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_intervals_cover(methods, correlation):
    """At 250 runs, 95 % has a standard error of 1.4 points."""
    assert coverage(methods, correlation, 0.05, 250) >= 0.92 - 2 * np.sqrt(0.92 * 0.08 / 250)
