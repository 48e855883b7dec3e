"""Designed networks: their counts, colours and remainders against plain arithmetic."""

import itertools

import pytest
import torch

import assay
from assay.environments.colors import PALETTE
from assay.environments.designed import (
    ColorCounter,
    ModuloCounter,
    color_detector,
    modulo_network,
    stages,
)
from assay.errors import InputError, PrerequisiteError

BACKGROUND = (20, 20, 20)


def layers_with_weights(net):
    return [m for m in net.modules() if isinstance(m, torch.nn.Conv2d | torch.nn.Linear)]


def test_the_single_color_model_is_as_large_as_published():
    net = assay.environment("single_color_modulo").net
    assert sum(p.numel() for p in net.parameters()) == 675_033
    assert len(layers_with_weights(net)) == 17


def test_the_multi_color_model_is_as_large_as_its_shapes_say():
    net = ColorCounter(PALETTE[:4], BACKGROUND, 224)
    assert sum(p.numel() for p in net.parameters()) == 4_365
    assert len(layers_with_weights(net)) == 15


@torch.no_grad()
def test_modulo_is_exact_in_its_whole_range():
    counts = torch.arange(4921.0)
    assert torch.equal(modulo_network(30, 164)(counts[:, None])[:, 0], counts % 30)


@torch.no_grad()
@pytest.mark.parametrize(("modulus", "multiples"), [(2, 9), (7, 5), (30, 3), (100, 2)])
def test_modulo_is_exact_for_other_moduli(modulus, multiples):
    counts = torch.arange(modulus * multiples + 1.0)
    found = modulo_network(modulus, multiples)(counts[:, None])[:, 0]
    assert torch.equal(found, counts % modulus)


@torch.no_grad()
def test_between_integers_modulo_is_a_sawtooth():
    """Slope 1 up to the last integer of a tooth, then back to zero at once."""
    x = torch.linspace(0, 300, 4801)[:-1]
    rest = x % 30
    expected = torch.where(rest <= 29, rest, 29 * (30 - rest))
    assert torch.allclose(modulo_network(30, 20)(x[:, None])[:, 0], expected, atol=2e-3)


@torch.no_grad()
def test_a_color_is_told_from_all_its_neighbours():
    colors = [*PALETTE[:4], BACKGROUND]
    near = [
        tuple(v + d for v, d in zip(color, step, strict=True))
        for color in colors
        for step in itertools.product((-1, 0, 1), repeat=3)
    ]
    detector = color_detector(colors, redundant=2)
    found = detector(torch.tensor(near).float().T.reshape(1, 3, 1, -1))[0, :, 0]  # [6, n]
    for i, color in enumerate(near):
        expected = [float(color == one) for one in colors[:-1]]
        unseen = float(color not in colors)
        assert found[:, i].tolist() == [*expected, unseen, unseen]


@torch.no_grad()
@pytest.mark.parametrize("reach", [2, 32])
def test_a_near_color_counts_in_proportion_to_its_distance(reach):
    colors = [*PALETTE[:4], BACKGROUND]
    random = torch.Generator().manual_seed(1)
    near = torch.cat([torch.tensor(c) + torch.randint(-40, 41, (500, 3), generator=random)
                      for c in colors]).float()  # fmt: skip
    detector = color_detector(colors, redundant=2, reach=reach)
    found = detector(near.T.reshape(1, 3, 1, -1))[0, :, 0]  # [6, n]
    hats = (1 - (near[:, None] - torch.tensor(colors)).abs() / reach).clamp(min=0)
    known = (hats.sum(2) - 2).clamp(min=0)  # [n, 5]
    assert torch.allclose(found[:4], known.T[:4], atol=1e-6)
    assert torch.allclose(found[4:], (1 - known.sum(1)).clamp(min=0).expand(2, -1), atol=1e-6)


@torch.no_grad()
def test_random_colors_are_unseen_unless_they_are_meant():
    random = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (3, 1, 90_000), generator=random)
    meant = torch.tensor([*PALETTE[:4], BACKGROUND])
    places = torch.randint(0, 90_000, (400,), generator=random)
    pixels[:, 0, places] = meant[torch.randint(0, 5, (400,), generator=random)].T
    found = color_detector([*PALETTE[:4], BACKGROUND], redundant=1)(pixels[None].float())[0, :, 0]
    is_one = (pixels[:, 0].T[:, None] == meant).all(2)  # [n, 5]
    assert torch.equal(found[:4].T.bool(), is_one[:, :4])
    assert torch.equal(found[4].bool(), ~is_one.any(1))
    assert set(found.unique().tolist()) == {0.0, 1.0}


@torch.no_grad()
@pytest.mark.parametrize("uniform", [True, False])
@pytest.mark.parametrize("size", [2, 5, 16, 27, 31, 64, 100, 224])
def test_counts_are_exact_at_every_density(size, uniform):
    net = ModuloCounter(size, 30, 4920, uniform=uniform, seed=1)
    random = torch.Generator().manual_seed(size)
    densities = torch.tensor([0.0, 1e-4, 0.01, 0.1, 0.3, 0.5, 0.9, 1.0])
    images = (torch.rand(8, 1, size, size, generator=random) < densities[:, None, None, None]) * 1.0
    assert torch.equal(net.layers(images).flatten(), images.sum((1, 2, 3)))


def test_every_pixel_lies_in_one_window():
    """Of windows as wide as their stride: those that begin in the padding reach to the end."""
    for size in range(2, 226):
        for side, padding in stages(size):
            windows = (side + 2 * padding) // 3
            assert 3 * windows >= side + padding, size


@torch.no_grad()
@pytest.mark.parametrize("uniform", [True, False])
@pytest.mark.parametrize("unseen", [True, False])
def test_colors_are_counted_exactly(uniform, unseen):
    net = ColorCounter(PALETTE[:4], BACKGROUND, 50, uniform=uniform, unseen=unseen)
    random = torch.Generator().manual_seed(0)
    which = torch.randint(0, 5, (6, 50, 50), generator=random)
    colors = torch.tensor([*PALETTE[:4], BACKGROUND]).float()
    counts = torch.stack([(which == i).sum((1, 2)) for i in range(4)], 1).float()
    assert torch.equal(net(colors[which].permute(0, 3, 1, 2)), counts)


@torch.no_grad()
def test_unseen_colors_disturb_only_where_they_shall():
    black = torch.zeros(1, 3, 50, 50)
    assert not torch.any(ColorCounter(PALETTE[:4], BACKGROUND, 50, unseen=False)(black))
    assert torch.any(ColorCounter(PALETTE[:4], BACKGROUND, 50, unseen=True)(black) > 50)


@torch.no_grad()
@pytest.mark.parametrize("size", [32, 224])
def test_the_background_gives_zero_logits(size):
    env = assay.environment("multi_color_sum", size=size)
    baseline = env.batch(1).baseline
    assert not torch.any(env.net(baseline))


def test_gradients_are_one_where_something_is_and_zero_in_empty_windows():
    net = ModuloCounter(27, 30, 4920)
    images = torch.zeros(1, 1, 27, 27)
    images[0, 0, 4, 13] = 1
    images.requires_grad_(True)
    (gradient,) = torch.autograd.grad(net.layers(images).sum(), images)
    expected = torch.zeros(27, 27)
    expected[3:6, 12:15] = 1
    assert torch.equal(gradient[0, 0], expected)


def test_rounding_is_refused():
    env = assay.environment("multi_color_sum", size=16)
    images = env.batch(1).inputs
    with (
        torch.autocast("cpu", dtype=torch.bfloat16),
        pytest.raises(PrerequisiteError, match="autocast"),
    ):
        env.net(images)
    with pytest.raises(InputError, match="single or double precision"):
        env.net(images.half())


def test_double_precision_gives_the_same():
    env = assay.environment("multi_color_sum", size=32)
    images = env.batch(3).inputs
    with torch.no_grad():
        single, double = env.net(images), env.net.double()(images.double())
    assert torch.equal(single.double(), double)
