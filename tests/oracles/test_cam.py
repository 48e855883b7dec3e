"""CAM methods against closed forms on a global-average-pool head, and against their definitions."""

import pytest
import torch
from torch.nn import functional

import assay
from assay.conformance.methods import CHEAP
from assay.plugins import registry
from small_worlds import make_images, make_net


@pytest.fixture
def world():
    """Network, images, classes, last activations [B, K, h, w] and their gradients."""
    net, (x, y) = make_net(), make_images(5)
    seen = []
    handle = net.relu2.register_forward_hook(lambda m, i, o: seen.append(o))
    logits = net(x)
    handle.remove()
    seen[0].retain_grad()
    logits.gather(1, y[:, None]).sum().backward()
    return net, x, y, seen[0].detach(), seen[0].grad


def enlarged(coarse: torch.Tensor) -> torch.Tensor:
    return functional.interpolate(coarse[:, None], (16, 16), mode="bilinear", align_corners=False)[
        :, 0
    ]


def test_gradients_are_constant_on_such_a_head(world):
    net, _, y, _, gradient = world
    expected = net.head.weight[y].detach()[:, :, None, None] / 64
    assert torch.allclose(gradient, expected.expand_as(gradient), atol=1e-7)


def test_gradcam_equals_xgradcam(world):
    net, x, y, _, _ = world
    plain, other = (assay.explain(net, x, y, name) for name in ("gradcam", "xgradcam"))
    assert torch.allclose(plain, other, atol=1e-5 * plain.abs().max().item())


def test_gradcam_is_the_class_activation_map(world):
    net, x, y, activation, _ = world
    cam = torch.einsum("bk,bkhw->bhw", net.head.weight[y].detach(), activation) / 64
    assert torch.allclose(assay.explain(net, x, y, "gradcam", relu=False), enlarged(cam), atol=1e-6)
    assert torch.allclose(assay.explain(net, x, y, "gradcam"), enlarged(cam.relu()), atol=1e-6)


def test_layercam_keeps_only_positive_weights(world):
    net, x, y, activation, _ = world
    cam = torch.einsum("bk,bkhw->bhw", net.head.weight[y].detach().relu(), activation) / 64
    assert torch.allclose(assay.explain(net, x, y, "layercam"), enlarged(cam.relu()), atol=1e-6)


def test_gradcam_pp_follows_its_definition_place_by_place(world):
    net, x, y, activation, gradient = world
    maps = []
    for a, g in zip(activation, gradient, strict=True):
        total = torch.zeros(8, 8)
        for k in range(len(a)):
            below = 2 * g[k] ** 2 + (g[k] ** 3 * a[k]).sum()
            alpha = torch.where(below == 0, torch.zeros(()), g[k] ** 2 / below)
            total += (alpha * g[k].clamp(min=0)).sum() * a[k]
        maps.append(total.clamp(min=0))
    expected = enlarged(torch.stack(maps))
    assert torch.allclose(assay.explain(net, x, y, "gradcam_pp"), expected, rtol=1e-4, atol=1e-6)


def test_a_layer_of_another_resolution_is_taken(world):
    net, x, y, _, _ = world
    fine = assay.explain(net, x, y, "layercam", layer="relu1")
    assert fine.shape == (5, 16, 16)
    assert not torch.allclose(fine, assay.explain(net, x, y, "layercam"))


def test_uniform_integrated_gradients_are_complete_from_their_baseline(world):
    from assay.data.memory import as_dataset
    from assay.removal import all_absent

    net, x, y, _, _ = world
    maps = assay.explain(net, x, y, "integrated_gradients_uniform", steps=200)
    dataset = as_dataset((x, y))
    start = all_absent(dataset.batch(dataset.ids), "uniform")
    with torch.no_grad():
        change = (net(x) - net(start)).gather(1, y[:, None])[:, 0]
    scale = change.abs().max().item()
    assert maps.sum((1, 2)).numpy() == pytest.approx(change.numpy(), abs=0.02 * scale)


@pytest.mark.parametrize(
    "name", [m.name for m in registry.everything("method") if "layer" in m.options]
)
def test_a_layer_is_given_by_name_or_as_a_module(name):
    """For every method that looks at one; another layer shows something else."""
    net, (x, y) = make_net(), make_images(2)

    def explain(layer) -> torch.Tensor:
        return assay.explain(net, x, y, name, layer=layer, **CHEAP.get(name, {}))

    last = explain("relu2")
    assert last.abs().amax((1, 2)).min() > 0
    assert torch.equal(explain(net.relu2), last)
    if name == "cam":  # it reads the weights of the head, which the other layer does not feed
        for layer in ("relu1", net.relu1):
            with pytest.raises(assay.NotApplicable, match="not such a function of the layer"):
                explain(layer)
    else:
        assert torch.equal(explain(net.relu1), explain("relu1"))
        assert not torch.allclose(explain("relu1"), last)
