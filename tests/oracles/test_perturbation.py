"""Occlusion, RISE and noisy gradients against captum and naive loops, on a trained network."""

import copy

import pytest
import torch
from torch.nn import functional

import assay
from assay.data.memory import as_dataset
from small_worlds import make_images, make_net

captum_attr = pytest.importorskip("captum.attr")


@pytest.fixture
def precise(resnet):
    """In double precision: rounding alone can switch a ReLU and with it a gradient."""
    return copy.deepcopy(resnet.model.net).double(), resnet.x[:2].double(), resnet.y[:2]


def relative(ours, theirs):
    return ((ours - theirs).abs().max() / theirs.abs().max()).item()


@pytest.mark.parametrize(("size", "stride"), [(8, 8), (8, 4), (16, 8)])
def test_occlusion(precise, size, stride):
    net, x, y = precise
    theirs = captum_attr.Occlusion(net).attribute(
        x, (3, size, size), strides=(3, stride, stride), target=y
    )
    units = {"windows": {"sizes": [size / 32], "stride": stride / 32}}
    ours = assay.explain(net, x, y, "occlusion", units=units)
    assert relative(ours, theirs[:, 0]) < 1e-6
    if size == stride:
        cells = assay.explain(net, x, y, "occlusion", units={"grid": {"side": 32 // size}})
        assert relative(cells, theirs[:, 0]) < 1e-6


@pytest.mark.parametrize("kind", ["smoothgrad", "smoothgrad_sq", "vargrad"])
@pytest.mark.parametrize("name", ["saliency", "input_x_gradient", "integrated_gradients"])
def test_noise_tunnel_with_the_same_noise(precise, monkeypatch, kind, name):
    net, x, y = precise
    copies, sigma = 3, 0.3
    batch = as_dataset((x, y)).batch(["0000", "0001"])
    noise = batch.draw("noise", (copies, *x.shape[1:]), normal=True).flatten(0, 1) * sigma
    monkeypatch.setattr(
        "captum.attr._core.noise_tunnel.torch.normal", lambda mean, deviation: noise
    )
    inner, extra, options = {
        "saliency": (captum_attr.Saliency, {"abs": False}, {}),
        "input_x_gradient": (captum_attr.InputXGradient, {}, {}),
        "integrated_gradients": (captum_attr.IntegratedGradients, {"n_steps": 4}, {"steps": 4}),
    }[name]
    theirs = captum_attr.NoiseTunnel(inner(net)).attribute(
        x, target=y, nt_samples=copies, nt_type=kind, stdevs=sigma, **extra
    )
    settings = {"kind": kind, "samples": copies, "sigma": sigma, "relative": False}
    ours = assay.explain(net, x, y, name, noise=settings, **options)
    assert relative(ours, theirs.sum(1).detach()) < 1e-6


def test_relative_noise_is_a_share_of_the_range():
    net, (x, y) = make_net(), make_images(3)
    spread = (x.flatten(1).amax(1) - x.flatten(1).amin(1)).tolist()
    shared_out = assay.explain(net, x, y, "smoothgrad", noise={"samples": 4, "sigma": 0.1})
    for b, width in enumerate(spread):
        alone = {"samples": 4, "sigma": 0.1 * width, "relative": False}
        own = assay.explain(net, x, y, "smoothgrad", noise=alone)
        assert torch.allclose(own[b], shared_out[b], rtol=1e-4, atol=1e-7)


def test_rise_is_the_weighted_sum_of_its_masks():
    """Masks enlarged by torch itself from the same cells, one network call a mask."""
    net, (x, y) = make_net(), make_images(2)
    batch = as_dataset((x, y)).batch(["0000", "0001"])
    masks, side, keep = 30, 4, 0.3
    cells = (batch.draw(f"rise {side}", (masks, side, side)) < keep).float()
    shift = (batch.draw(f"rise shift {side}", (masks, 2)) * 4).long()  # a cell has 4 pixels
    ours = assay.explain(net, x, y, "rise", masks=masks, side=side, keep=keep)
    even = assay.explain(net, x, y, "rise", masks=masks, side=side, keep=keep, normalise=True)
    for b in range(2):
        total, seen = torch.zeros(16, 16), torch.zeros(16, 16)
        for m in range(masks):
            large = functional.interpolate(cells[b, m][None, None], (20, 20), mode="bilinear")[0, 0]
            top, left = shift[b, m].tolist()
            mask = large[top : top + 16, left : left + 16]
            with torch.no_grad():
                total += net((x[b] * mask)[None]).softmax(1)[0, y[b]] * mask
            seen += mask
        assert torch.allclose(ours[b], total / (masks * keep), atol=1e-5)
        assert torch.allclose(even[b], total / seen, atol=1e-5)


def test_rise_finds_what_a_linear_model_uses():
    """One cell decides: its place stands out."""

    class Corner(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            score = x[:, :, :4, :4].mean((1, 2, 3))
            return torch.stack([-score, score], 1)

    maps = assay.explain(Corner(), torch.ones(1, 3, 16, 16), [1], "rise", masks=400, side=4)
    assert maps[0].argmax() % 16 < 6
    assert maps[0].argmax() // 16 < 6


def test_noise_kinds_share_their_copies():
    """SmoothGrad, its square and VarGrad beside each other cost as much as one of them."""
    net, data = make_net(), make_images(4)
    calls = []
    net.register_forward_hook(lambda m, i, o: calls.append(len(i[0])))
    kinds = ("smoothgrad", "smoothgrad_sq", "vargrad")

    def rows(methods) -> int:
        calls.clear()
        assay.benchmark(net, data, methods, ["single_deletion"], progress=False, micro_batch=4)
        return sum(calls)

    assert rows([{k: {"noise": {"samples": 3}}} for k in kinds]) == rows(
        [{"vargrad": {"noise": {"samples": 3}}}]
    )
