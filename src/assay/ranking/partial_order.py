"""A partial order of methods: who beats whom over several questions, and who is not beaten."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Relation = NDArray[np.bool_]  # [m, m], True where the row's method stands above the column's


def beats(better: Sequence[Relation]) -> Relation:
    """Tell which methods beat which.

    One method beats another if it is resolved better in at least one question and resolved worse
    in none.

    Args:
        better: For each question, which methods are resolved better than which.
    """
    somewhere: Relation = np.asarray(np.any(np.stack(better), axis=0), np.bool_)
    relation: Relation = somewhere & ~somewhere.T
    return relation


def unbeaten(relation: Relation) -> NDArray[np.bool_]:
    """Tell which methods [m] no other method stands above.

    Different questions can form a circle: a beats b, b beats c and c beats a. The members of a
    circle stand above each other, so none of them is left out because of another one. At least one
    method is never beaten in this sense.
    """
    above: Relation = relation | np.eye(len(relation), dtype=np.bool_)
    for _ in range(max(1, len(relation)).bit_length()):  # each round doubles the steps
        steps = above.astype(np.float64)
        above = np.asarray(steps @ steps > 0, np.bool_)
    return np.asarray((~above | above.T).all(axis=0), np.bool_)
