"""Captum's objects as methods: the numbers captum gives by hand, and never a stale one."""

import functools
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import assay
from assay.methods.attributors import attributor
from small_worlds import make_images, make_net

attr = pytest.importorskip("captum.attr")
QUIET = {"progress": False, "controls": "off"}


@pytest.fixture
def world():
    return make_net(), *make_images(7)


def relative(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return ((ours - theirs).abs().max() / theirs.abs().max()).item()


OBJECTS = [
    (attr.Saliency, {}),
    (attr.Saliency, {"abs": False}),
    (attr.InputXGradient, {}),
    (attr.IntegratedGradients, {"n_steps": 7, "method": "riemann_trapezoid"}),
    (attr.IntegratedGradients, {"n_steps": 4, "baselines": torch.full((1, 3, 16, 16), 0.3)}),
    (attr.DeepLift, {}),
    (attr.GuidedBackprop, {}),
    (attr.Occlusion, {"sliding_window_shapes": (3, 8, 8), "strides": (3, 8, 8)}),
]


@pytest.mark.parametrize(("kind", "options"), OBJECTS, ids=str)
def test_equals_captum_by_hand(world, kind, options):
    net, x, y = world
    theirs = kind(net).attribute(x.clone().requires_grad_(), target=y, **options).detach().sum(1)
    assert relative(assay.explain(net, x, y, {kind(net): options}), theirs) < 1e-5


def test_equals_our_own_methods(world):
    net, x, y = world
    for theirs, options, ours in (
        (attr.IntegratedGradients(net), {"n_steps": 20}, {"integrated_gradients": {"steps": 20}}),
        (attr.Saliency(net), {"abs": False}, "saliency"),
        (attr.LayerGradCam(net, net.relu2), {"relu_attributions": True}, "gradcam"),
    ):
        expected = assay.explain(net, x, y, ours)
        assert relative(assay.explain(net, x, y, theirs, **options), expected) < 1e-4


def test_layers_are_enlarged_and_their_channels_summed(world):
    net, x, y = world
    cam = attr.LayerGradCam(net, net.conv2)
    coarse = cam.attribute(x, target=y).detach()  # [7, 1, 8, 8]
    expected = functional.interpolate(coarse, (16, 16), mode="bilinear")[:, 0]
    assert relative(assay.explain(net, x, y, cam), expected) < 1e-5
    layer = attr.LayerGradientXActivation(net, net.conv2)
    coarse = layer.attribute(x, target=y).detach().sum(1, keepdim=True)  # from [7, 8, 8, 8]
    expected = functional.interpolate(coarse, (16, 16), mode="bilinear")[:, 0]
    assert relative(assay.explain(net, x, y, layer), expected) < 1e-5


def test_in_a_benchmark_by_label_with_options_and_alone(world):
    net, x, y = world
    methods = [
        attr.IntegratedGradients(net),
        {"mine": attr.Saliency(net)},
        {attr.IntegratedGradients(net): {"n_steps": 5, "reduce": "abs_sum"}},
        {attr.Saliency(net): {"label": "signed", "abs": False}},
        "saliency",
    ]
    results = assay.benchmark(net, (x, y), methods, ["single_deletion", "deletion"], **QUIET)
    scores = {
        (r["method"], r["protocol"], r["sample"]): r["value"] for r in results.scores.to_pylist()
    }
    assert {m for m, _, _ in scores} == {
        "captum_integrated_gradients",
        "captum_integrated_gradients[n_steps=5,reduce=abs_sum]",
        "mine",
        "signed",
        "saliency",
    }
    for (method, protocol, sample), value in scores.items():
        if method == "signed":
            assert value == pytest.approx(scores["saliency", protocol, sample], abs=1e-6)
    alone = assay.benchmark(net, (x, y), attr.Saliency(net), ["single_deletion"], **QUIET)
    assert set(alone.scores["method"].to_pylist()) == {"captum_saliency"}


def test_one_map_does_not_depend_on_the_micro_batch(world):
    net, x, y = world
    maps = []
    for size in (1, 4, 7):
        model = replace(assay.model(net), micro_batch=size)
        maps.append(assay.explain(model, x, y, attr.IntegratedGradients(net), n_steps=6))
    assert torch.allclose(maps[0], maps[1], atol=1e-6)
    assert torch.allclose(maps[0], maps[2], atol=1e-6)


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (lambda net: attr.NoiseTunnel(attr.Saliency(net)), {"nt_samples": 3}),
        (attr.GradientShap, {"baselines": torch.zeros(4, 3, 16, 16), "stdevs": 0.5}),
    ],
)
def test_a_seed_decides_everything_random_and_leaves_the_worlds_alone(world, make, options):
    net, x, y = world
    np.random.seed(3)
    torch.manual_seed(3)
    expected = (np.random.rand(), torch.rand(()).item())
    first = assay.explain(net, x, y, make(net), **options)
    np.random.seed(3)
    torch.manual_seed(3)
    assert torch.equal(assay.explain(net, x, y, make(net), **options), first)
    assert (np.random.rand(), torch.rand(()).item()) == expected
    assert not torch.equal(assay.explain(net, x, y, make(net), seed=1, **options), first)


class TestOneLogit:
    def test_is_not_applicable_with_the_cure(self):
        net, x = nn.Sequential(nn.Linear(6, 1)), torch.randn(5, 6)
        with pytest.raises(assay.NotApplicable, match=r"one logit.*torch\.cat"):
            assay.explain(net, x, torch.tensor([0, 1, 1, 0, 1]), attr.InputXGradient(net))

    def test_the_cure_works(self):
        net, x, y = nn.Sequential(nn.Linear(6, 1)), torch.randn(5, 6), torch.tensor([0, 1, 1, 0, 1])
        both = attr.InputXGradient(lambda x: torch.cat([-net(x), net(x)], 1))
        sign = torch.where(y == 1, 1.0, -1.0)[:, None]
        expected = (sign * x * net[0].weight).detach()
        assert torch.allclose(assay.explain(net, x, y, both), expected, atol=1e-6)


def source_hash(net: nn.Module, source: object, **options: object) -> str:
    return str(attributor(source, options, assay.model(net)).options["source_hash"])


class TestIdentity:
    """Maps on disk are used again only where nothing unknown went into them."""

    def test_what_wraps_only_the_network_is_known(self, world):
        net = world[0]
        for make in (
            attr.Saliency,
            lambda net: attr.LayerGradCam(net, net.relu2),
            lambda net: attr.NoiseTunnel(attr.IntegratedGradients(net)),
        ):
            assert source_hash(net, make(net)) == source_hash(net, make(net))
            assert "process" not in source_hash(net, make(net))

    def test_settings_and_layers_count(self, world):
        net = world[0]
        hashes = {
            source_hash(net, source)
            for source in (
                attr.IntegratedGradients(net),
                attr.IntegratedGradients(net, multiply_by_inputs=False),
                attr.LayerGradCam(net, net.relu2),
                attr.LayerGradCam(net, net.relu1),
                attr.NoiseTunnel(attr.Saliency(net)),
                attr.NoiseTunnel(attr.InputXGradient(net)),
            )
        }
        assert len(hashes) == 6

    def test_what_wraps_anything_else_is_good_for_this_process_only(self, world):
        class Own(attr.Saliency):
            pass

        net = world[0]
        hooked = attr.Saliency(net)
        hooked.gradient_func = lambda *a: None
        for source in (
            attr.Saliency(lambda x: net(x)), attr.Saliency(make_net(1)), Own(net), hooked,
            attr.LayerGradCam(net, make_net().relu2), attr.NoiseTunnel(attr.Saliency(make_net())),
        ):  # fmt: skip
            assert source_hash(net, source).startswith("process ")

    def test_maps_are_taken_from_disk_by_what_they_are(self, world, tmp_path, monkeypatch):
        (net, *data), calls, plain = world, [], attr.Saliency.attribute

        @functools.wraps(plain)
        def counted(*arguments, **options):
            calls.append(1)
            return plain(*arguments, **options)

        monkeypatch.setattr(attr.Saliency, "attribute", counted)
        for source, protocol, explains in (
            ({attr.Saliency(net): {}}, "single_deletion", True),
            ({attr.Saliency(net): {}}, "deletion", False),
            ({attr.Saliency(net): {"abs": False}}, "deletion", True),
            ({attr.Saliency(lambda x: net(x)): {}}, "deletion", True),
            ({attr.Saliency(lambda x: -net(x)): {}}, "deletion", True),
        ):
            calls.clear()
            assay.benchmark(net, tuple(data), [source], [protocol], out=tmp_path, **QUIET)
            assert bool(calls) == explains


def test_mistakes_name_the_cure(world):
    net, x, y = world
    with pytest.raises(assay.InputError, match=r"class `Saliency`.*`Saliency\(net\)`"):
        assay.explain(net, x, y, attr.Saliency)
    with pytest.raises(assay.InputError, match=r"`n_stepz`\. Did you mean `n_steps`"):
        assay.explain(net, x, y, attr.IntegratedGradients(net), n_stepz=3)
    with pytest.raises(assay.InputError, match=r"option of `Saliency.attribute`: `target`"):
        assay.explain(net, x, y, attr.Saliency(net), target=3)
    with pytest.raises(assay.InputError, match="return a tensor, got tuple"):
        assay.explain(net, x, y, attr.IntegratedGradients(net), return_convergence_delta=True)


def test_any_object_that_attributes_will_do(world):
    class Brightness:
        def attribute(self, inputs, target, *, power=1):
            return inputs.abs() ** power

    net, x, y = world
    found = assay.explain(net, x, y, Brightness(), power=2)
    assert torch.equal(found, x.abs().square().sum(1))
