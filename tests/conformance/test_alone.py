"""A sample explained alone has the map that it has in any batch, shard or order: the same bits.

Here alone means a data set of its own, under another id. Methods that take something from other
samples are named below; they are given the same data set.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from PIL import Image

import assay
from assay.conformance.methods import WORLDS, choose, explain, usual_maps
from assay.conformance.worlds import World, small_image_network
from assay.data.memory import as_dataset
from assay.errors import NotApplicable
from assay.types import Batch, Dataset, Pixels, Preprocess, Sample
from conformance.test_methods import NAMES, VARIANTS
from small_worlds import make_images, make_net

# What they take from other samples.
FROM_OTHERS = {
    "shuffled": "their maps",
    "deepshap": "baselines, if it is told how many",
    "iba": "the mean and spread of a layer",
    "input_iba": "the mean and spread of a layer",
}


@functools.cache
def made(make: Callable[[], World]) -> World:
    return make()


def cut(world: World, rows: Sequence[int]) -> Batch:
    """Some samples as a data set of their own, whose ids begin at 0 again."""
    batch, pick = world.batch, list(rows)
    whole = (batch.inputs[pick], batch.targets[pick], batch.truth[pick])
    dataset = as_dataset(whole, tokens=batch.tokens is not None)
    return dataset.batch(dataset.ids, tokens=batch.tokens)


def among(world: World, rows: Sequence[int]) -> Batch:
    """The same samples of the same data set, read anew."""
    batch = world.batch
    return batch.dataset.batch([batch.ids[row] for row in rows], tokens=batch.tokens)


def same_alone(world: World, item: Any, take: Callable[[World, Sequence[int]], Batch]) -> bool:
    """Whether every part of the samples has the maps of all together."""
    together, n = usual_maps(world, item), len(world.batch)
    parts = [*([row] for row in range(n)), range(n)[::-1], [n - 1, 0], range(1, n)]
    return all(
        torch.equal(explain(world, item, take(world, rows)), together[list(rows)]) for rows in parts
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_alone_is_as_in_any_batch(name: str) -> None:
    take = among if name in FROM_OTHERS else cut
    tried, broken = 0, []
    for item in (name, *({name: options} for options in VARIANTS.get(name, ()))):
        for make in WORLDS:
            world = made(make)
            try:
                usual_maps(world, item)
            except NotApplicable:
                continue
            tried += 1
            if not same_alone(world, item, take):
                broken.append(f"{choose(item).label} in {make.__name__}")
    assert tried
    assert not broken


@pytest.mark.parametrize("name", sorted(FROM_OTHERS))
def test_those_that_take_from_others_do(name: str) -> None:
    """Alone in its data set, a sample has no map, or another one."""
    world, same = made(small_image_network), []
    for item in (name, *({name: options} for options in VARIANTS.get(name, ()))):
        together = usual_maps(world, item)
        try:
            same.append(torch.equal(explain(world, item, cut(world, [0])), together[:1]))
        except NotApplicable:
            same.append(False)
    assert not all(same)


DRAWING = [
    "random", "smoothgrad", {"rise": {"masks": 30}}, {"lime": {"samples": 40}},
    {"kernel_shap": {"samples": 40}}, {"smooth_gradcam_pp": {"samples": 2}},
    {"integrated_gradients_uniform": {"steps": 3}}, {"occlusion": {"fill": "uniform"}},
    "gradcam", "saliency",
]  # fmt: skip


@pytest.mark.parametrize(
    "item", DRAWING, ids=lambda item: item if isinstance(item, str) else next(iter(item))
)
def test_an_image_alone_is_as_in_any_shard_of_a_run(item: Any) -> None:
    """Twenty images are three shards; those of the second come in another order too."""
    net, (x, y) = make_net(), make_images(20)
    name, options = (item, {}) if isinstance(item, str) else next(iter(item.items()))
    whole = assay.explain(net, x, y, name, **options)
    backwards = torch.arange(19, -1, -1)
    assert torch.equal(
        assay.explain(net, x[backwards], y[backwards], name, **options), whole[backwards]
    )
    for row in (0, 9, 19):
        alone = assay.explain(net, x[row : row + 1], y[row : row + 1], name, **options)
        assert torch.equal(alone[0], whole[row])


def test_equal_samples_have_equal_random_numbers() -> None:
    """Whatever their ids, number type and device layout; another seed or purpose has others."""
    x = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    batch = Batch(("a", "b", "c"), x[[0, 1, 0]], torch.zeros(3, dtype=torch.long))
    drawn = batch.draw("some", (7,))
    assert torch.equal(drawn[0], drawn[2])
    assert not torch.equal(drawn[0], drawn[1])
    for changed in (x.double(), x.to(memory_format=torch.channels_last), x - 0.0):
        same = Batch(("x", "y"), changed, torch.zeros(2, dtype=torch.long))
        assert torch.equal(same.draw("some", (7,)).float(), drawn[:2])
    for other in (batch.draw("other", (7,)), replace(batch, seed=1).draw("some", (7,))):
        assert not torch.isin(other, drawn).any()


def test_changed_inputs_of_the_same_samples_keep_their_random_numbers() -> None:
    x = torch.randn(3, 6, generator=torch.Generator().manual_seed(0))
    batch = Batch(("a", "b", "c"), x, torch.zeros(3, dtype=torch.long))
    moved = replace(batch, inputs=x + 1).select([2, 0])
    assert torch.equal(moved.draw("some", (4,)), batch.draw("some", (4,))[[2, 0]])


def test_hashes_of_other_samples_are_refused() -> None:
    batch = Batch(("a", "b"), torch.rand(2, 3), torch.zeros(2, dtype=torch.long))
    with pytest.raises(assay.InputError, match=r"each of 1 samples, got 2.*`contents=\(\)`"):
        replace(batch, ids=("c",), inputs=torch.rand(1, 3))
    other = replace(batch, ids=("c",), inputs=torch.rand(1, 3), contents=())
    assert len(other.contents) == 1


def test_padding_and_width_of_numbers_are_no_part_of_a_text() -> None:
    tokens = assay.Tokens(pad=0)
    short, long = torch.tensor([[5, 3, 7]]), torch.tensor([[5, 3, 7, 0, 0]], dtype=torch.int32)
    targets = torch.zeros(1, dtype=torch.long)
    one, other = (Batch(("a",), ids, targets, tokens=tokens) for ids in (short, long))
    assert torch.equal(one.draw("some", (9,)), other.draw("some", (9,)))
    third = Batch(("a",), torch.tensor([[5, 7, 3]]), targets, tokens=tokens)
    assert not torch.equal(one.draw("some", (9,)), third.draw("some", (9,)))


def test_images_draw_by_their_pixels_whatever_a_model_makes_of_them() -> None:
    """Two models of different sizes see the same photo, read under two ids."""
    pixels = torch.randint(0, 256, (12, 9, 3), generator=torch.Generator().manual_seed(0))
    photo = Image.fromarray(pixels.byte().numpy())
    drawn = []
    for name, size in (("a", 8), ("b", 10)):
        dataset = Dataset("d", "image", (name,), lambda _: Sample(photo, 0), fingerprint=name)
        prepare = Preprocess(size, Pixels((0.5,) * 3, (0.5,) * 3))
        drawn.append(dataset.batch([name], prepare).draw("some", (5,)))
    assert torch.equal(*drawn)
