"""Modulo curves in closed form, against a count taken modulo a number pixel by pixel."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import assay
from assay.data.memory import as_dataset
from assay.errors import NotApplicable

SIDE, PIXELS, MODULUS = 8, 64, 5
CURVES = ("modulo_insertion", "modulo_deletion")
NET = nn.Sequential(nn.Flatten(), nn.Linear(PIXELS, 2))


def some_images(n=6, seed=0):
    """White pixels on black, another number of them in each image: `[n, side, side]`."""
    generator = torch.Generator().manual_seed(seed)
    share = torch.linspace(0.1, 0.7, n)[:, None, None]
    return (torch.rand(n, SIDE, SIDE, generator=generator) < share).float()


def score(maps, images, protocol, has=("counted", "truth"), **options):
    data = as_dataset((images[:, None], torch.zeros(len(images), dtype=torch.long), images))
    data = replace(data, has=frozenset({"labels", *has}))
    return assay.score(NET, data, None, maps, protocol, **options)


def answer(image):
    """What the network says that these data are made for."""
    return int(image.sum()) % MODULUS


def changes(image, order, start):
    """Whether the answer changes, pixel by pixel, from `start` towards the other of the two."""
    canvas, goal = (np.zeros_like(image), image) if start == "empty" else (image.copy(), 0 * image)
    found, before = [], answer(canvas)
    for pixel in order:
        canvas[pixel] = goal[pixel]
        after = answer(canvas)
        found.append(after != before)
        before = after
    return np.array(found)


def area(curve):
    """By the trapezoid rule over all steps, from before the first."""
    return np.trapezoid(curve, dx=1 / (len(curve) - 1))


class TestInsertionAndDeletion:
    def test_are_what_the_count_says_pixel_by_pixel(self):
        images = some_images()
        maps = torch.randn(images.shape, generator=torch.Generator().manual_seed(1))
        for name, start in zip(CURVES, ("empty", "full"), strict=True):
            expected = []
            for one, image in zip(maps.flatten(1).numpy(), images.flatten(1).numpy(), strict=True):
                steps = changes(image, np.argsort(-np.abs(one)), start)
                correct = np.concatenate([[0], steps.cumsum()]) / image.sum()
                expected.append(area(correct if start == "empty" else 1 - correct))
            assert score(maps, images, name).tolist() == pytest.approx(expected, rel=1e-12)

    def test_the_truth_reaches_the_optimum(self):
        images = some_images()
        best = images.sum((1, 2)).double() / (2 * PIXELS)
        assert score(images, images, "modulo_deletion").tolist() == pytest.approx(best.tolist())
        found = score(images, images, "modulo_insertion").tolist()
        assert found == pytest.approx((1 - best).tolist())

    @pytest.mark.parametrize("name", CURVES)
    def test_signs_do_not_matter(self, name):
        images = some_images()
        signs = torch.randint(0, 2, images.shape, generator=torch.Generator().manual_seed(0))
        maps = torch.rand(images.shape, generator=torch.Generator().manual_seed(1))
        turned = score(maps * (2 * signs - 1), images, name)
        assert torch.equal(turned, score(maps, images, name))

    @pytest.mark.parametrize("name", CURVES)
    def test_noise_is_worth_one_half(self, name):
        images = some_images(300)
        noise = torch.rand(images.shape, generator=torch.Generator().manual_seed(1))
        found = score(noise, images, name)
        assert abs(found.mean() - 0.5) < 4 * found.std() / math.sqrt(len(found))

    @pytest.mark.parametrize("name", CURVES)
    @pytest.mark.parametrize("value", [0.0, 1.0])
    def test_a_constant_map_is_worth_one_half_exactly(self, name, value):
        images = some_images()
        assert score(torch.full_like(images, value), images, name).tolist() == [0.5] * 6

    def test_ties_are_broken_at_random_for_each_by_itself(self):
        images = some_images(300)
        halves = torch.zeros_like(images)
        halves[:, : SIDE // 2] = 1.0
        inserted, deleted = (score(halves, images, name) for name in CURVES)
        # by chance within each half: its middle step, weighted by how many of the white are there
        top = images[:, : SIDE // 2].sum((1, 2)) / images.sum((1, 2))
        expected = top * 0.75 + (1 - top) * 0.25
        for found in (inserted, 1 - deleted):
            error = (found - expected).std() / math.sqrt(len(found))
            assert 0 < error < 0.01
            assert abs((found - expected).mean()) < 4 * error
        assert not torch.equal(inserted, 1 - deleted)
        assert torch.equal(inserted, score(halves, images, "modulo_insertion"))

    def test_the_curve_is_what_was_found(self):
        images = some_images()
        data = as_dataset((images[:, None], torch.zeros(6, dtype=torch.long), images))
        data = replace(data, has=data.has | {"counted"})
        results = assay.benchmark(NET, data, ["oracle"], list(CURVES), progress=False)
        rows = results.query(
            "select name, x, avg(value) as mean from curves group by all order by x"
        )
        curves = {name: [] for name in ("counted", "to_come")}
        for row in rows.to_pylist():
            curves[row["name"]].append(row["mean"])
        assert curves["counted"][0] == curves["to_come"][-1] == 0
        assert curves["counted"][-1] == curves["to_come"][0] == 1
        share = np.round(np.linspace(0, 1, 21) * PIXELS)
        number = images.sum((1, 2)).numpy()
        expected = np.minimum(share[:, None] / number, 1).mean(1)
        assert curves["counted"] == pytest.approx(expected.tolist())

    @pytest.mark.parametrize("name", [*CURVES, "modulo_sensitivity_n"])
    def test_an_image_without_white_is_left_out(self, name):
        images = some_images()
        images[2] = 0
        maps = torch.rand(images.shape)
        assert score(maps, images, name).isnan().tolist() == [i == 2 for i in range(6)]
        assert score(torch.ones_like(maps), images, name).isnan().tolist() == [
            i == 2 for i in range(6)
        ]


class TestSensitivityN:
    def test_is_what_the_count_says_along_random_orders(self):
        """The same sums, from answers taken pixel by pixel in the same orders."""
        images = some_images(3)
        maps = torch.rand(images.shape, generator=torch.Generator().manual_seed(1))
        data = as_dataset((images[:, None], torch.zeros(3, dtype=torch.long), images))
        batch = data.batch(data.ids)
        expected = []
        for b, (one, image) in enumerate(
            zip(maps.flatten(1).numpy(), images.flatten(1).numpy(), strict=True)
        ):
            orders = batch.stream(b, "orders of pixels").orders(30, PIXELS)
            said = np.array([one[o].astype(float).cumsum() for o in orders])
            found = np.array([changes(image, o, "full").cumsum() for o in orders])
            by_size = [
                np.corrcoef(said[:, n], found[:, n])[0, 1]
                for n in range(PIXELS - 1)
                if found[:, n].std() > 0
            ]
            expected.append(np.mean(by_size))
        found = score(maps, images, "modulo_sensitivity_n", permutations=30)
        assert found.tolist() == pytest.approx(expected, rel=1e-9)

    def test_many_orders_come_near_the_closed_form(self):
        images = some_images(6)
        noise = torch.rand(images.shape, generator=torch.Generator().manual_seed(1))
        maps = images + noise  # neither perfect nor empty
        exact = score(maps, images, "modulo_sensitivity_n")
        expected = [
            np.corrcoef(m.flatten(), i.flatten())[0, 1]
            for m, i in zip(maps.numpy(), images.numpy(), strict=True)
        ]
        assert exact.tolist() == pytest.approx(expected, rel=1e-6)
        near = score(maps, images, "modulo_sensitivity_n", permutations=2000)
        # one size alone misses by (1 - r^2) / sqrt(2000)
        assert ((near - exact).abs() < 4 * (1 - exact.square()) / math.sqrt(2000)).all()

    @pytest.mark.parametrize("permutations", [None, 100])
    def test_the_truth_reaches_one_and_a_constant_map_zero(self, permutations):
        images = some_images()
        found = score(images, images, "modulo_sensitivity_n", permutations=permutations)
        assert found.tolist() == pytest.approx([1.0] * 6)
        flat = torch.ones_like(images)
        found = score(flat, images, "modulo_sensitivity_n", permutations=permutations)
        assert found.tolist() == [0.0] * 6

    def test_signs_do_not_matter(self):
        images = some_images()
        found = score(-images, images, "modulo_sensitivity_n")
        assert found.tolist() == pytest.approx([1.0] * 6)


@pytest.mark.parametrize("name", [*CURVES, "modulo_sensitivity_n"])
def test_data_that_are_not_counted_are_said_to_be_so(name):
    with pytest.raises(NotApplicable, match="every truth pixel counts one"):
        score(some_images(), some_images(), name, has=("truth",))
