"""The painter: classes apart, masks exact, what is left out was never there."""

from dataclasses import replace

import numpy as np
import pytest

from assay.environments import painter

SIZE = 64
SEEDS = range(12)


def scene(seed: int) -> painter.Scene:
    generator = np.random.default_rng(seed)
    table = painter.classes()
    return painter.draw_scene(table[int(generator.integers(len(table)))], generator)


def without(drawn: painter.Scene, *absent: int) -> np.ndarray:
    return painter.paint(drawn, SIZE, frozenset(absent))


def test_no_two_classes_are_the_same():
    for seed in range(20):
        table = painter.classes(50, seed)
        assert len({tuple(row) for row in table.tolist()}) == 50
        assert (table.max(0) < list(painter.PARTS.values())).all()
        assert (table.min(0) >= 0).all()


def test_every_variant_looks_different():
    """Each variant of a part changes the picture, in the same pose."""
    drawn = scene(3)
    for part, (name, count) in enumerate(painter.PARTS.items()):
        seen = set()
        for variant in range(count):
            variants = (*drawn.variants[:part], variant, *drawn.variants[part + 1 :])
            other = painter.Scene(**{**vars(drawn), "variants": variants})
            seen.add(painter.paint(other, SIZE).tobytes())
        assert len(seen) == count, name


@pytest.mark.parametrize("seed", SEEDS)
def test_only_pixels_of_a_part_change_when_it_leaves(seed):
    """A pixel in which nothing of the part is seen keeps its colour, bit for bit."""
    drawn, whole = scene(seed), without(scene(seed))
    for part in range(drawn.count):
        changed = (without(drawn, part) != whole).any(2)
        touched = painter.touched(drawn, SIZE, part)
        assert not (changed & ~touched).any()


@pytest.mark.parametrize("seed", SEEDS)
def test_every_pixel_of_a_part_changes_unless_what_is_behind_looks_the_same(seed):
    drawn, whole, fine = scene(seed), without(scene(seed)), painter.FINER
    for part in range(drawn.count):
        changed = (without(drawn, part) != whole).any(2)
        before = painter.points(drawn, SIZE).astype(int)
        after = painter.points(drawn, SIZE, frozenset({part})).astype(int)
        moved = (after - before).reshape(SIZE, fine, SIZE, fine, 3).sum((1, 3))
        by_more_than_rounding = (np.abs(moved) > fine * fine).any(2)
        mask = np.isin(painter.part_map(drawn, SIZE), pieces_of(drawn, part))
        assert changed[mask & by_more_than_rounding].all()
        looks_the_same = (before == after).reshape(SIZE, fine, SIZE, fine, 3).all((1, 3, 4))
        assert not (changed & looks_the_same).any()
        # The middle of such a pixel is the part's, and only an equal colour behind excuses it.
        middle = (before != after).any(2)[fine // 2 :: fine, fine // 2 :: fine]
        assert painter.touched(drawn, SIZE, part)[mask].all()
        assert not (middle & ~mask).any()


def pieces_of(drawn: painter.Scene, part: int) -> list[int]:
    numbers = range(len(painter.PIECES) + len(drawn.things))
    return [piece for piece in numbers if painter.owner(piece) == part]


@pytest.mark.parametrize("seed", SEEDS)
def test_things_only_cover(seed):
    """Where the animal is seen among things, it is what it is without them."""
    seen, alone = (painter.part_map(s, SIZE) for s in (scene(seed), bare(scene(seed))))
    animal = (seen >= 0) & (seen < len(painter.PIECES))
    assert (seen[animal] == alone[animal]).all()


def test_the_whole_scene_is_the_picture_bit_for_bit():
    drawn = scene(0)
    assert (without(drawn) == painter.paint(drawn, SIZE)).all()
    again = scene(0)  # equal to the first, but with nothing remembered
    assert again == drawn
    assert (without(drawn) == painter.paint(again, SIZE)).all()


def test_things_before_the_animal_hide_it_and_pairs_are_one_part():
    hidden = sum(
        (painter.part_map(scene(s), SIZE) != painter.part_map(bare(scene(s)), SIZE)).sum()
        for s in SEEDS
    )
    assert hidden > 0
    assert painter.PART_OF_PIECE == (0, 1, 1, 2, 2, 3, 4, 4)


def bare(drawn: painter.Scene) -> painter.Scene:
    return replace(drawn, things=())


@pytest.mark.parametrize("size", [32, 96, 128])
def test_a_scene_looks_the_same_at_every_size(size):
    """Brought down to 32 pixels, all sizes show the same picture but for edges."""
    drawn = scene(1)
    small = painter.paint(drawn, 32).astype(float)
    large = painter.paint(drawn, size).astype(float)
    fold = size // 32
    folded = large.reshape(32, fold, 32, fold, 3).mean((1, 3))
    assert np.abs(folded - small).mean() < 3
