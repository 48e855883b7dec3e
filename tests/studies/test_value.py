"""Changes of maps by hand, distances against scipy."""

import numpy as np
import pytest
from scipy.spatial.distance import directed_hausdorff

from assay.errors import InputError
from assay.studies.soco import value

MAPS = value.unit_range(np.random.default_rng(0).normal(size=(4, 5, 8)))


def test_maps_are_brought_to_the_unit_range():
    maps = value.unit_range(np.array([[-1.0, 2.0, 4.0], [-3.0, -2.0, 0.0]]))
    assert maps.tolist() == [[0, 0.5, 1], [0, 0, 0]]


def test_constant_and_random_changes():
    uniform = np.random.default_rng(1).random(MAPS.shape)
    assert (value.modify(MAPS, "constant", "remove") == np.maximum(MAPS - 0.6, 0)).all()
    assert (value.modify(MAPS, "constant", "introduce") == np.minimum(MAPS + 0.6, 1)).all()
    less = value.modify(MAPS, "random", "remove", uniform)
    more = value.modify(MAPS, "random", "introduce", uniform)
    assert less == pytest.approx(np.clip(MAPS - 0.6 * uniform, 0, 1))
    assert more == pytest.approx(np.clip(MAPS + 0.6 * uniform, 0, 1))


def test_partial_changes_by_hand():
    shuffle = np.random.default_rng(1).permutation(10)
    rising = np.arange(10) / 10  # the 0.8 quantile is 0.72
    less = value.modify(rising[shuffle][None], "partial", "remove")[0]
    more = value.modify(rising[shuffle][None], "partial", "introduce")[0]
    back = np.argsort(shuffle)
    assert less[back].tolist() == [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0, 0, 0.8, 0.9]
    assert more[back] == pytest.approx([0.72] * 4 + [0.4, 0.5, 0.6, 0.7, 0.8, 0.9])


@pytest.mark.parametrize("scheme", ["constant", "random", "partial"])
@pytest.mark.parametrize("way", ["remove", "introduce"])
def test_changes_stay_in_range_and_leave_the_map_alone(scheme, way):
    before = MAPS.copy()
    changed = value.modify(MAPS, scheme, way, np.random.default_rng(1).random(MAPS.shape))
    assert (before == MAPS).all()
    assert changed.shape == MAPS.shape
    assert 0 <= changed.min() <= changed.max() <= 1
    moved = changed - MAPS
    assert (moved <= 0).all() if way == "remove" else (moved >= 0).all()
    assert np.abs(moved).max() > 0.1


def test_wrong_maps_are_refused():
    with pytest.raises(InputError, match=r"Expected maps in \[0, 1\]"):
        value.modify(MAPS - 0.5, "constant", "remove")
    with pytest.raises(InputError, match="Expected `uniform` numbers"):
        value.modify(MAPS, "random", "remove")


def test_ranks_keep_order_and_ties_and_change_values():
    maps = np.array([[0.0, 0.0, 0.1, 1.0, 0.1], [0.2, 0.2, 0.2, 0.2, 0.2]])
    ranks = value.by_rank(maps)
    assert ranks == pytest.approx(np.array([[0, 0, 0.5, 1, 0.5], [1, 1, 1, 1, 1]]))
    many = value.by_rank(MAPS).reshape(4, -1)
    flat = MAPS.reshape(4, -1)
    assert (np.sign(np.diff(flat)) == np.sign(np.diff(many))).all()
    assert ((many == 0) == (flat == 0)).all()


@pytest.mark.parametrize("seed", range(5))
def test_the_distance_is_scipys(seed):
    random = np.random.default_rng(seed)
    a, b = random.random((3, 9, 2)), random.random((3, 6, 2))
    expected = [
        max(directed_hausdorff(p, q)[0], directed_hausdorff(q, p)[0])
        for p, q in zip(a, b, strict=True)
    ]
    assert value.hausdorff(a, b) == pytest.approx(expected)
    assert value.hausdorff(a, a) == pytest.approx(0)


def test_the_smallest_of_three_distances():
    line = np.stack([np.arange(4.0), np.zeros(4)], 1)
    down, up = np.array([[0, -0.5], [0, 0.2]])
    curves = {"original": line, "remove": line + down, "introduce": line + up}
    assert value.smallest_distance(curves) == pytest.approx(0.2)
