"""Methods and metrics against captum, on the same network and the same perturbations."""

import copy
from dataclasses import replace

import pytest
import torch

import assay
from assay.absent import each
from assay.data.memory import as_dataset
from assay.features import make_units
from assay.removal import all_absent
from assay.types import Batch
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


def test_infidelity_under_the_same_windows():
    """Captum's normalised infidelity fits a free scale, as the variant m4 does."""
    net, (x, y) = make_net(), make_images(5)
    maps = torch.randn(5, 16, 16, generator=torch.Generator().manual_seed(2))
    dataset = as_dataset((x, y))
    windows = make_units(
        dataset.batch(dataset.ids), {"windows": {"sizes": (0.25, 0.5), "stride": 0.25}}
    )
    rows = torch.arange(windows.count)
    gone = windows.spread(each(windows).make(rows * 0, rows), rows * 0).float()  # [P, H, W]
    turn = iter(range(windows.count))

    def perturb(inputs):
        mask = gone[next(turn)][None, None].expand_as(inputs)
        return mask, inputs * (1 - mask)

    channels = maps[:, None].expand_as(x) / 3  # captum sums over channels, our map is their sum
    theirs = captum_metrics.infidelity(
        net, perturb, x, channels, target=y, n_perturb_samples=windows.count,
        max_examples_per_batch=5, normalize=True,
    )  # fmt: skip
    ours = assay.score(net, x, y, maps, "infidelity", sizes=(0.25, 0.5), stride=0.25, variant="m4")
    assert ours.numpy() == pytest.approx(theirs.detach().numpy(), rel=1e-5)


class TestRealNetworks:
    @pytest.mark.parametrize("baseline", ["zero", "uniform"])
    def test_integrated_gradients_from_the_same_baseline(self, resnet, baseline):
        """In double precision: in single, points that differ in the last bit flip rectifiers.

        Captum's quadrature weights stay single, which leaves about 1e-8.
        """
        net, x, y = copy.deepcopy(resnet.model.net).double(), resnet.x.double(), resnet.y
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
        x = real.x.clone().requires_grad_()
        theirs = captum_attr.InputXGradient(real.model.net).attribute(x, target=real.y)
        ours = assay.explain(real.model, real.x, real.y, "input_x_gradient")
        assert relative(ours, theirs.detach().sum(1)) < 1e-4
