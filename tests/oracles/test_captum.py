"""Methods and metrics against captum, on the same network and the same perturbations."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

import assay
from assay.data.memory import as_dataset
from assay.removal import all_absent
from assay.types import Batch
from assay.units.absent import each, random_subsets
from assay.units.features import make_units
from small_worlds import make_images, make_net

captum_attr = pytest.importorskip("captum.attr")
captum_metrics = pytest.importorskip("captum.metrics")


def make_batch(x: torch.Tensor, y: torch.Tensor) -> Batch:
    dataset = as_dataset((x, y))
    return dataset.batch(dataset.ids)


def relative(ours, theirs):
    return ((ours - theirs).abs().max() / theirs.abs().max()).item()


def test_saliency_and_input_x_gradient():
    net, (x, y) = make_net(), make_images(5)
    theirs = captum_attr.Saliency(net).attribute(x, target=y, abs=False).sum(1)
    assert relative(assay.explain(net, x, y, "saliency"), theirs) < 1e-5
    theirs = captum_attr.InputXGradient(net).attribute(x, target=y).sum(1)
    assert relative(assay.explain(net, x, y, "input_x_gradient"), theirs) < 1e-5


@pytest.mark.parametrize("steps", [5, 50])
def test_integrated_gradients(steps):
    net, (x, y) = make_net(), make_images(5)
    theirs = (
        captum_attr.IntegratedGradients(net).attribute(x, target=y, n_steps=steps).sum(1).detach()
    )
    assert (
        relative(assay.explain(net, x, y, "integrated_gradients", steps=steps), theirs.float())
        < 1e-4
    )


def test_integrated_gradients_are_complete():
    net, (x, y) = make_net(), make_images(5)
    maps = assay.explain(net, x, y, "integrated_gradients", steps=200)
    with torch.no_grad():
        change = (net(x) - net(torch.zeros_like(x))).gather(1, y[:, None])[:, 0]
    assert maps.sum((1, 2)).numpy() == pytest.approx(
        change.numpy(), abs=0.02 * change.abs().max().item()
    )


@pytest.mark.parametrize("layer", ["relu2", "relu1"])
def test_gradcam(layer):
    net, (x, y) = make_net(), make_images(5)
    module = dict(net.named_modules())[layer]
    theirs = captum_attr.LayerGradCam(net, module).attribute(x, target=y, relu_attributions=True)
    theirs = captum_attr.LayerAttribution.interpolate(theirs, (16, 16), "bilinear")[:, 0].detach()
    for given in (layer, module):
        assert relative(assay.explain(net, x, y, "gradcam", layer=given), theirs) < 1e-4
    if layer == "relu2":
        assert relative(assay.explain(net, x, y, "gradcam"), theirs) < 1e-4  # found by itself


SIZES = {"sizes": (0.25, 0.5), "stride": 0.25}


def windows_of(x, y):
    """Our windows as masks, each sample's the same: `[B, P, C, H, W]`."""
    dataset = as_dataset((x, y))
    windows = make_units(dataset.batch(dataset.ids), {"windows": SIZES})
    rows = torch.arange(windows.count)
    gone = windows.spread(each(windows).make(rows * 0, rows), rows * 0)  # [P, H, W]
    return gone[None, :, None].expand(len(x), -1, *x.shape[1:])


def subsets_of(x, y, subsets):
    """Our random sets on vectors, each sample's its own: `[B, K, D]`."""
    dataset = as_dataset((x, y))
    batch = dataset.batch(dataset.ids)
    units = make_units(batch, "elements")
    sets = random_subsets(batch, units, [round(s * x.shape[1]) for s in SIZES["sizes"]], subsets)
    rows = torch.arange(len(sets.rows))
    return torch.stack([sets.make(torch.full_like(rows, b), rows) for b in range(len(x))])


def captum_infidelity(net, x, y, maps, gone, *, local=False, **options):
    """Captum's metric with our sets replayed in turn."""
    turn = iter(range(gone.shape[1]))

    def remove(inputs):
        return torch.where(gone[:, next(turn)], 0.0, inputs)

    decorate = captum_metrics.infidelity_perturb_func_decorator(multiply_by_inputs=not local)
    perturb = decorate(remove)
    return captum_metrics.infidelity(
        net, perturb, x, maps, target=y, n_perturb_samples=gone.shape[1],
        max_examples_per_batch=len(x), **options,
    ).detach()  # fmt: skip


FORMS = [
    ({"variant": "m4"}, {"normalize": True}),
    ({"variant": "captum", "normalize": True}, {"normalize": True}),
    ({"variant": "captum"}, {"normalize": False}),
]


@pytest.mark.parametrize(("ours", "theirs"), FORMS, ids=str)
def test_infidelity_of_maps_with_the_input_in_them_on_images(ours, theirs):
    """Captum sums over channels; our map is that sum."""
    net, (x, y) = make_net(), make_images(5)
    channels = torch.randn(5, 3, 16, 16, generator=torch.Generator().manual_seed(2)) / 10
    expected = captum_infidelity(net, x, y, channels, windows_of(x, y), **theirs)
    found = assay.score(net, x, y, channels.sum(1), "infidelity", **SIZES, **ours)
    assert found.numpy() == pytest.approx(expected.numpy(), rel=1e-5)


@pytest.mark.parametrize(("ours", "theirs"), FORMS, ids=str)
def test_infidelity_of_maps_with_the_input_in_them_on_vectors(ours, theirs):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(12, 9), nn.Tanh(), nn.Linear(9, 3))
    x, y, maps = torch.randn(6, 12), torch.arange(6) % 3, torch.randn(6, 12)
    expected = captum_infidelity(net, x, y, maps, subsets_of(x, y, 20), **theirs)
    options = {"sizes": SIZES["sizes"], "subsets": 20, **ours}
    found = assay.score(net, x, y, maps, "infidelity", **options)
    assert found.numpy() == pytest.approx(expected.numpy(), rel=1e-5)


def test_infidelity_of_a_gradient_is_ours_of_the_input_times_it():
    """Captum's form for local maps weighs them by the input's change, here x itself."""
    net, (x, y) = make_net(), make_images(5)
    local = captum_attr.Saliency(net).attribute(x, target=y, abs=False)
    expected = captum_infidelity(net, x, y, local, windows_of(x, y), local=True)
    maps = assay.explain(net, x, y, "input_x_gradient")
    found = assay.score(net, x, y, maps, "infidelity", variant="captum", **SIZES)
    assert found.numpy() == pytest.approx(expected.numpy(), rel=1e-5)


class TestRealNetworks:
    @pytest.mark.parametrize("baseline", ["zero", "uniform"])
    def test_integrated_gradients_from_the_same_baseline(self, resnet, baseline):
        """In double precision: in single, points that differ in the last bit flip rectifiers.

        Captum's quadrature weights stay single, which leaves about 1e-8.
        """
        net, x, y = copy.deepcopy(resnet.model.net).double(), resnet.x[:2].double(), resnet.y[:2]
        model = replace(resnet.model, net=net)
        start = all_absent(make_batch(x, y), baseline)
        theirs = captum_attr.IntegratedGradients(net).attribute(x, start, target=y, n_steps=6)
        told = {"integrated_gradients": {"steps": 6, "baseline": baseline}}
        ours = assay.explain(model, x, y, told)
        assert relative(ours, theirs.sum(1)) < 1e-6
        if baseline == "uniform":
            told = {"integrated_gradients_uniform": {"steps": 6}}
            assert torch.equal(assay.explain(model, x, y, told), ours)

    def test_gradients(self, real):
        """In double: of nearly equal values rounding decides which one a max-pool takes."""
        net, x, y = copy.deepcopy(real.model.net).double(), real.x[:1].double(), real.y[:1]
        theirs = captum_attr.InputXGradient(net).attribute(x.clone().requires_grad_(), target=y)
        ours = assay.explain(net, x, y, "input_x_gradient")
        assert relative(ours, theirs.detach().sum(1)) < 1e-4
