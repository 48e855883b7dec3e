"""CAM methods against torchcam on real networks, before its min-max normalisation."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional

import assay
from assay.data.memory import as_dataset

methods = pytest.importorskip("torchcam.methods")


def torchcam(kind: type, real) -> torch.Tensor:  # [B, H, W]
    """Torchcam's map, enlarged as ours are."""
    with kind(real.model.net, real.layer) as extractor, torch.enable_grad():
        scores = real.model.net(real.x.clone().requires_grad_())
        (coarse,) = extractor(real.y.tolist(), scores, normalized=False)
    return enlarged(coarse.detach(), real)


def enlarged(coarse: torch.Tensor, real) -> torch.Tensor:
    size = real.x.shape[2:]
    return functional.interpolate(coarse[:, None], size, mode="bilinear", align_corners=False)[:, 0]


def activations(real) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Each sample's activation [C, h, w] and its gradient, one at a time."""
    module: nn.Module = dict(real.model.net.named_modules())[real.layer]
    for x, y in zip(real.x, real.y, strict=True):
        seen = []
        handle = module.register_forward_hook(lambda m, i, o, seen=seen: seen.append(o))
        with torch.enable_grad():
            logit = real.model.net(x[None].clone().requires_grad_())[0, y]
        handle.remove()
        (gradient,) = torch.autograd.grad(logit, seen[0])
        yield seen[0][0].detach(), gradient[0]


def relative(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return ((ours - theirs).abs().max() / theirs.abs().max()).item()


@pytest.mark.parametrize(
    ("name", "kind"), [("gradcam", "GradCAM"), ("xgradcam", "XGradCAM"), ("layercam", "LayerCAM")]
)
def test_equals_torchcam(real, name, kind):
    ours = assay.explain(real.model, real.x, real.y, name)
    assert ours.abs().amax((1, 2)).min() > 0
    assert relative(ours, torchcam(getattr(methods, kind), real)) < 1e-4


def test_gradcam_pp_equals_its_formula(real):
    """Torchcam divides a copy, so its weights are sum(g^2 relu(g)): no reference for this one."""
    paper, without_division = [], []
    for a, g in activations(real):
        a, g = a.double(), g.double()
        below = 2 * g**2 + (g**3 * a).sum((1, 2), keepdim=True)
        alpha = torch.where(g == 0, 0.0, g**2 / torch.where(g == 0, 1.0, below))
        for maps, share in ((paper, alpha), (without_division, g**2)):
            weight = (share * g.relu()).sum((1, 2))
            maps.append(torch.einsum("k,khw->hw", weight, a).relu().float())
    ours = assay.explain(real.model, real.x, real.y, "gradcam_pp")
    assert relative(ours, enlarged(torch.stack(paper), real)) < 1e-4
    theirs = torchcam(methods.GradCAMpp, real)
    assert relative(theirs, enlarged(torch.stack(without_division), real)) < 1e-4
    variant = assay.explain(real.model, real.x, real.y, "gradcam_pp", variant="torchcam")
    assert relative(variant, theirs) < 1e-4


def test_smooth_gradcam_pp_as_torchcam_runs_it(real):
    """With the same noise; the map is that of its last noisy copy."""
    dataset = as_dataset((real.x, real.y))
    drawn = dataset.batch(dataset.ids).draw(
        "smooth_gradcam_pp", (4, *real.x.shape[1:]), normal=True
    )
    copies = iter(0.3 * drawn.unbind(1)[s] for s in range(4))
    with methods.SmoothGradCAMpp(real.model.net, real.layer) as extractor, torch.enable_grad():
        extractor._distrib = SimpleNamespace(sample=lambda size: next(copies))
        real.model.net(real.x.clone())
        (coarse,) = extractor(real.y.tolist(), normalized=False)
    ours = assay.explain(real.model, real.x, real.y, "smooth_gradcam_pp", variant="torchcam")
    assert ours.abs().amax((1, 2)).min() > 0
    assert relative(ours, enlarged(coarse.detach(), real)) < 1e-4


def test_cam_equals_torchcam(resnet, efficientnet):
    for world in (resnet, efficientnet):
        (head,) = (n for n, m in world.model.net.named_modules() if isinstance(m, nn.Linear))
        with methods.CAM(world.model.net, world.layer, head) as extractor, torch.no_grad():
            world.model.net(world.x)
            (coarse,) = extractor(world.y.tolist(), normalized=False)
        ours = assay.explain(world.model, world.x, world.y, "cam")
        assert relative(ours, enlarged(coarse, world)) < 1e-4


def test_cam_of_squeezenet_is_its_class_channel(squeezenet):
    """It has no linear head: the answer is the mean of the class's own channel."""
    with torch.no_grad():
        channels = squeezenet.model.net.classifier[:3](squeezenet.model.net.features(squeezenet.x))
    coarse = channels[torch.arange(len(squeezenet.y)), squeezenet.y]
    assert coarse.amax((1, 2)).min() > 0
    ours = assay.explain(squeezenet.model, squeezenet.x, squeezenet.y, "cam", layer="classifier.2")
    assert relative(ours, enlarged(coarse, squeezenet)) < 1e-4


def test_scorecam_equals_torchcam_where_nothing_is_enlarged(resnet):
    """Torchcam stretches masks before it enlarges them: at the input's size that is the same."""
    with methods.ScoreCAM(resnet.model.net, "layer1") as extractor, torch.no_grad():
        resnet.model.net(resnet.x)
        (theirs,) = extractor(resnet.y.tolist(), normalized=False)
    assert theirs.shape[1:] == resnet.x.shape[2:]
    ours = assay.explain(resnet.model, resnet.x, resnet.y, "scorecam", layer="layer1")
    assert relative(ours, theirs) < 1e-4


def test_gradcam_is_xgradcam_on_a_global_average_pool(resnet):
    plain, other = (
        assay.explain(resnet.model, resnet.x, resnet.y, name) for name in ("gradcam", "xgradcam")
    )
    assert relative(other, plain) < 1e-5
