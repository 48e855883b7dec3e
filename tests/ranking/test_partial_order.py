"""Who beats whom over several questions, compared with paths counted by brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from assay.ranking.partial_order import beats, unbeaten


def relation(size: int, *pairs: tuple[int, int]) -> np.ndarray:
    found = np.zeros((size, size), np.bool_)
    for winner, loser in pairs:
        found[winner, loser] = True
    return found


def test_better_somewhere_and_worse_nowhere() -> None:
    necessity = relation(3, (0, 1), (0, 2))
    sufficiency = relation(3, (1, 0), (1, 2))
    found = beats([necessity, sufficiency])
    assert found.tolist() == relation(3, (0, 2), (1, 2)).tolist()
    assert unbeaten(found).tolist() == [True, True, False]


def test_a_circle_is_unbeaten_together() -> None:
    circle = relation(4, (0, 1), (1, 2), (2, 0), (2, 3))
    assert unbeaten(circle).tolist() == [True, True, True, False]


def test_nothing_resolved_leaves_all_unbeaten() -> None:
    assert unbeaten(relation(3)).all()


@pytest.mark.parametrize("seed", range(30))
def test_unbeaten_is_what_paths_say(seed: int) -> None:
    """A method is beaten if a path leads to it from one to which it has no path."""
    drawn = np.random.default_rng(seed)
    size = int(drawn.integers(1, 8))
    found = np.triu(drawn.random((size, size)) < 0.3, 1)
    flip = np.triu(drawn.random((size, size)) < 0.4, 1)
    found = (found & ~flip) | (found & flip).T
    paths = found.copy()
    for middle, one, other in itertools.product(range(size), repeat=3):
        paths[one, other] |= paths[one, middle] & paths[middle, other]
    expected = [all(paths[m, o] for o in range(size) if paths[o, m]) for m in range(size)]
    assert unbeaten(found).tolist() == expected
    assert any(expected)
