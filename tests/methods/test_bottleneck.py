"""Information bottlenecks against plain re-computations, and on networks with known needs."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence
from torch.nn import functional

import assay
from assay.conformance.methods import neighbours_do_not_matter
from assay.conformance.worlds import small_image_network
from assay.data.memory import as_dataset
from assay.engine.engine import network_engine
from assay.methods import statistics
from assay.methods.adversary import generated_mask
from assay.methods.attribution import attribute
from assay.methods.bottleneck import blur, information
from assay.models.prepare import prepare_network
from assay.suite.spec import choose_one
from assay.types import Batch
from small_worlds import make_images, make_net

pytestmark = pytest.mark.filterwarnings("ignore:The mean and spread of a layer")


@pytest.fixture(autouse=True)
def _nothing_estimated():
    statistics._ESTIMATES.clear()


def batch_of(x: Tensor, y: Tensor) -> Batch:
    dataset = as_dataset((x, y))
    return dataset.batch(dataset.ids)


class LeftHalf(nn.Module):
    """Sees both halves in its layer, answers by the brightness of the left one."""

    def __init__(self, strength: float = 20.0):
        super().__init__()
        self.layer = nn.Conv2d(3, 3, 1, bias=False)
        self.layer.weight.data = torch.eye(3)[:, :, None, None].clone()  # gives what it sees
        self.strength = strength

    def forward(self, x: Tensor) -> Tensor:
        seen = self.layer(x)
        answer = self.strength * seen[..., : x.shape[3] // 2].mean((1, 2, 3))
        return torch.stack([-answer, answer], 1)


@pytest.fixture
def halves() -> tuple[nn.Module, Tensor, Tensor]:
    """Images whose left half says the class and whose right half is as lively."""
    torch.manual_seed(0)
    y = torch.arange(40) % 2
    return LeftHalf(), (2.0 * y - 1)[:, None, None, None] + 0.5 * torch.randn(40, 3, 8, 8), y


def plain_blur(mask: Tensor) -> Tensor:  # [C, h, w], sigma 1
    """A Gaussian of five places, by a sum over shifts."""
    total, weights = torch.zeros_like(mask), 0.0
    padded = functional.pad(mask[None], (2, 2, 2, 2), mode="reflect")[0]
    for i in range(-2, 3):
        for j in range(-2, 3):
            weight = math.exp(-(i * i + j * j) / 2)
            rows, columns = slice(2 + i, 2 + i + mask.shape[1]), slice(2 + j, 2 + j + mask.shape[2])
            total, weights = total + weight * padded[:, rows, columns], weights + weight
    return total / weights


def test_blur_is_a_sum_over_shifts():
    mask = torch.rand(3, 5, 6, dtype=torch.float64)
    assert torch.allclose(blur(mask, 1.0), plain_blur(mask), atol=1e-12)
    assert torch.equal(blur(mask, 0.0), mask)
    tiny = torch.rand(3, 2, 2)  # too small to be mirrored
    assert torch.allclose(blur(torch.ones_like(tiny), 1.0), torch.ones_like(tiny))


def test_information_is_the_divergence_of_two_normals():
    torch.manual_seed(0)
    share, r = torch.rand(1000, dtype=torch.float64), torch.randn(1000, dtype=torch.float64)
    expected = kl_divergence(Normal(share * r, 1 - share), Normal(0.0, 1.0))
    assert torch.allclose(information(share, 1 - share, r), expected, atol=1e-9)
    assert information(share, 1 - share, r).min() >= 0


def test_iba_equals_a_plain_recomputation():
    net, (x, y) = make_net().double(), make_images(12)
    x = x.double()
    samples, steps, beta = 4, 6, 0.05
    batch = batch_of(x, y)
    seen = []
    handle = net.relu2.register_forward_hook(lambda m, i, o: seen.append(o.detach()))
    with torch.no_grad():
        net(x)
    handle.remove()
    mean, std = seen[0].mean(0), seen[0].std(0).clamp(min=0.01)
    active = ((seen[0] != 0).double().mean(0) > 0.3).double()
    assert 0 < active.mean() < 1
    for b in range(2):
        r = seen[0][b]
        alpha = torch.full_like(r, 5.0).requires_grad_()
        adam = torch.optim.Adam([alpha], lr=1.0)
        for step in range(steps):
            noise = mean + std * batch.draw(f"iba {step}", (samples, *r.shape), normal=True)[b]
            share = plain_blur(torch.sigmoid(alpha))
            z = (share * r + (1 - share) * noise) * active
            loss = functional.cross_entropy(
                net.head(z.mean((2, 3))), y[b].expand(samples)
            )  # what follows the layer
            prior = Normal(mean, std)
            bits = kl_divergence(Normal(share * r + (1 - share) * mean, (1 - share) * std), prior)
            bits = bits * active
            adam.zero_grad()
            (loss + beta * bits.mean()).backward()
            adam.step()
        coarse = bits.detach().sum(0) / math.log(2) * 64 / 256
        expected = functional.interpolate(
            coarse[None, None], (16, 16), mode="bilinear", align_corners=False
        )[0, 0]
        ours = assay.explain(net, x, y, "iba", samples=samples, steps=steps, beta=beta, active=0.3)[
            b
        ]
        assert torch.allclose(ours, expected, atol=1e-6 * expected.max().item())


def test_the_price_of_information_decides_how_much_passes(halves):
    whole, free, cheap, dear = (
        assay.explain(*halves, "iba", layer="layer", **options).sum((1, 2))
        for options in ({"steps": 1}, {"beta": 0.0}, {"beta": 1.0}, {"beta": 1e6})
    )
    assert (free > 0.9 * whole).all()  # nothing is gained by noise here: all stays
    assert (cheap < 0.5 * whole).all()
    assert (dear < 0.01 * whole).all()
    assert dear.min() >= 0


def test_what_the_answer_does_not_use_does_not_pass(halves):
    maps = assay.explain(*halves, "iba", layer="layer", beta=1.0, sigma=0.0, steps=30)
    left, right = maps[:, :, :4].mean((1, 2)), maps[:, :, 4:].mean((1, 2))
    assert (left > 20 * right).all()
    assert (right < 1e-4).all()  # bits a place


def test_a_saturated_gate_is_not_infinite(halves):
    for alpha in (30.0, 200.0):  # in single precision the sigmoid of either is 1
        maps = assay.explain(*halves, "iba", layer="layer", alpha0=alpha, steps=2)
        assert torch.isfinite(maps).all()
        assert maps.min() > 0


def test_statistics_are_those_of_the_data():
    net, (x, y) = make_net(), make_images(7)
    model, batch = assay.model(net), batch_of(x, y)
    with model.evaluating(), torch.no_grad():
        model = replace(prepare_network(model, x[:1]).model, micro_batch=3)
        engine = network_engine(model, batch)
        found = statistics.usual(model, batch.select([2]), engine, "relu1", 1000)
        some = statistics.usual(model, batch.select([2]), engine, "relu1", 4)
        seen = net.relu1(net.bn1(net.conv1(x)))
        chosen = net.relu1(net.bn1(net.conv1(batch.reference(4))))
    assert torch.allclose(found.mean, seen.mean(0), atol=1e-6)
    assert torch.allclose(found.std, seen.std(0), atol=1e-6)
    assert torch.allclose(found.active, (seen != 0).float().mean(0))
    assert torch.allclose(some.mean, chosen.mean(0), atol=1e-6)


def test_statistics_are_estimated_once_for_each_network_and_not_kept_for_ever():
    net, (x, y) = make_net(), make_images(6)
    rows = []
    net.conv1.register_forward_hook(lambda m, i, o: rows.append(len(o)))
    options = {"steps": 1, "samples": 1}

    def passes() -> int:
        rows.clear()
        assay.explain(net, x, y, "iba", **options)
        return len(rows)

    first, again = passes(), passes()
    assert first > again
    with torch.no_grad():
        net.conv1.weight += 0.1
    assert passes() == first
    assert passes() == again
    for n in range(2, 2 + 2 * statistics.MOST_ESTIMATES):
        assay.explain(net, x.repeat(3, 1, 1, 1)[:n], y.repeat(3)[:n], "iba", **options)
    assert len(statistics._ESTIMATES) == statistics.MOST_ESTIMATES


def test_too_few_samples_are_told():
    net, (x, y) = make_net(), make_images(6)
    with pytest.warns(RuntimeWarning, match="only 6 samples"):
        assay.explain(net, x, y, "iba", steps=1, samples=1)
    with pytest.raises(assay.NotApplicable, match="at least two"):
        assay.explain(net, x[:1], y[:1], "iba")


class Again(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.relu = nn.Conv2d(3, 3, 3, padding=1), nn.ReLU()
        self.head = nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.relu(self.conv(self.relu(self.conv(x)))).mean((2, 3)))


@pytest.mark.parametrize("name", ["iba", "input_iba"])
def test_layers_without_a_bottleneck_are_refused(name):
    net, (x, y) = Again(), make_images(4)
    with pytest.raises(assay.NotApplicable, match="runs several times"):
        assay.explain(net, x, y, name, layer="relu")
    assert not any(m._forward_hooks for m in net.modules())
    model = assay.model(make_net(), cam_reshape=(8, 8))
    with pytest.raises(assay.NotApplicable, match="class token"):
        assay.explain(model, x, y, name, layer="relu2")


def test_input_iba_finds_the_half_that_is_used(halves):
    net, x, y = halves
    options = {"layer": "layer", "epochs": 0, "beta": 1.0, "sigma": 0.0, "steps": 20}
    maps = assay.explain(net, x[:4], y[:4], "input_iba", **options)
    assert (maps[:, :, :4].mean((1, 2)) > 10 * maps[:, :, 4:].mean((1, 2))).all()
    assert maps.min() >= 0
    assert maps.max() <= 1


def test_the_generated_mask_follows_what_passes_the_layer():
    """Where the layer's examples are the image itself, more of it is let through."""
    net, y = LeftHalf(), torch.zeros(1, dtype=torch.long)
    x = torch.full((1, 3, 8, 8), 3.0)
    model, batch = assay.model(net), batch_of(x, y)
    passed = torch.zeros(1, 3, 8, 8)
    passed[..., :4] = 1
    with model.evaluating(), torch.no_grad():
        start = torch.zeros(1, 8, 8)
        mask = generated_mask(model, batch, net.layer, x, passed, start, 40, 64)
        untouched = generated_mask(model, batch, net.layer, x, passed, start, 0, 64)
    assert torch.equal(untouched, torch.full((1, 3, 8, 8), 0.5))
    assert mask[..., :4].mean() > mask[..., 4:].mean() + 0.02


def test_nobody_elses_random_numbers_are_used(halves):
    net, x, y = halves
    state = torch.get_rng_state()
    cheap = {"layer": "layer", "epochs": 1, "synthetic": 40, "steps": 1, "feature_steps": 1}
    first = assay.explain(net, x[:3], y[:3], "input_iba", **cheap)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(7)
    assert torch.equal(assay.explain(net, x[:3], y[:3], "input_iba", **cheap), first)


@pytest.mark.parametrize("name", ["iba", "input_iba"])
def test_samples_fitted_together_are_those_fitted_alone(name):
    net, (x, y) = make_net().double(), make_images(6)
    few = {"steps": 3, "samples": 2}
    few |= {"feature_steps": 3, "epochs": 2, "synthetic": 40} if name == "input_iba" else {}
    maps, choice = [], choose_one("method", {name: few})
    for size in (2, 128):
        model = replace(assay.model(net), micro_batch=size)
        with model.evaluating(), torch.no_grad():
            model = prepare_network(model, x[:1].double()).model
            maps.append(attribute(model, batch_of(x.double(), y), choice))
    assert torch.allclose(*maps, atol=1e-9)
    assert maps[0].std() > 1e-3


def test_who_is_fitted_together_does_not_matter_in_any_bit():
    world = small_image_network()
    model = replace(world.model, micro_batch=128)  # four samples to a group of critics
    world = replace(world, ready=replace(world.ready, model=model))
    few = {"steps": 3, "samples": 3, "feature_steps": 2, "epochs": 2, "synthetic": 64}
    for name, told in (("iba", {"steps": 3}), ("input_iba", few)):
        neighbours_do_not_matter(world, {name: told})


@pytest.mark.parametrize("name", ["iba", "input_iba"])
def test_in_half_precision_they_are_fitted_in_single(name):
    net, (x, y) = make_net(), make_images(6)
    few = {"steps": 20, "samples": 4}
    few |= {"feature_steps": 5, "epochs": 2, "synthetic": 40} if name == "input_iba" else {}
    exact = assay.explain(net, x, y, name, **few).flatten(1)
    rough = assay.explain(make_net().bfloat16(), x.bfloat16(), y, name, **few).float().flatten(1)
    for ours, theirs in zip(rough, exact, strict=True):
        assert torch.corrcoef(torch.stack([ours, theirs]))[0, 1] > 0.9


class Pair(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x.mean((2, 3))


def test_a_layer_of_two_tensors_is_refused():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.block, self.head = nn.Conv2d(3, 3, 3), Pair(), nn.Linear(3, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.block(self.conv(x))[1])

    x, y = make_images(4)
    with pytest.raises(assay.NotApplicable, match="this one returns a tuple"):
        assay.explain(Net(), x, y, "iba", layer="block")
