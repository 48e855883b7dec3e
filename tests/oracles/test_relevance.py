"""Rules of the backward pass against captum and zennit, on trained networks.

In double precision, where nothing flips; both libraries need the networks rewritten with a module
of its own for every step, ours takes them as they are.
"""

import copy
import functools
import importlib.util
import sys
import types
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import assay
from assay.data.memory import as_dataset
from assay.methods.deeplift import deeplift
from assay.models.shim import ensure_torchvision
from assay.types import Model
from oracles.networks import Sum, WindowedPool, inner_pool, plain_resnet
from squeezenet import LooseFire, trained_squeezenet

captum_attr = pytest.importorskip("captum.attr")
pytestmark = pytest.mark.filterwarnings("ignore")  # captum warns of its hooks

TOLERANCE = 1e-4


def relative(ours, theirs):
    return ((ours - theirs).abs().max() / theirs.abs().max()).item()


@pytest.fixture(scope="module")
def residual(resnet):
    """The residual network in double precision, two images, and the network written out."""
    net = copy.deepcopy(resnet.model.net).double()
    model = replace(resnet.model, net=net, micro_batch=2)
    x, y = resnet.x[:2].double(), resnet.y[:2]

    def written_out(join=Sum):
        twin = plain_resnet(copy.deepcopy(net), join)
        assert relative(twin(x), net(x)) < 1e-10
        return twin

    return model, x, y, written_out


@pytest.fixture(scope="module")
def squeezed(resnet):
    """SqueezeNet full of functions in place, two images, and the network written out."""
    net = trained_squeezenet(LooseFire, inner_pool).double()
    x = F.interpolate(resnet.x[:2].double(), (63, 63), mode="bilinear")
    x += 0.01 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))  # breaks ties
    y = net(x.clone()).argmax(1)

    def written_out(pool=inner_pool):
        twin = trained_squeezenet(pool=pool).double()
        assert relative(twin(x), net(x.clone())) < 1e-10
        return twin

    return Model(net, micro_batch=2), x, y, written_out


@pytest.mark.parametrize(
    ("name", "theirs"), [("guided_backprop", "GuidedBackprop"), ("deconvolution", "Deconvolution")]
)
@pytest.mark.parametrize("world", ["residual", "squeezed"])
def test_rectifiers_against_captum(request, world, name, theirs):
    model, x, y, written_out = request.getfixturevalue(world)
    expected = getattr(captum_attr, theirs)(written_out()).attribute(x, target=y).sum(1)
    assert relative(assay.explain(model, x, y, name), expected) < TOLERANCE


@pytest.mark.parametrize("start", [0.0, 0.5])
def test_deeplift_against_captum_on_resnet(residual, start):
    model, x, y, written_out = residual
    theirs = captum_attr.DeepLift(written_out()).attribute(x, torch.full_like(x, start), target=y)
    fill = torch.full((3,), start, dtype=torch.float64)
    ours = assay.explain(model, x, y, {"deeplift": {"baseline": fill}})
    assert relative(ours, theirs.sum(1).detach()) < TOLERANCE


def test_deeplift_against_captum_on_squeezenet(squeezed):
    """With every window of a pool laid out on its own, and from noise, where nothing ties."""
    model, x, y, written_out = squeezed
    start = torch.randn(x.shape[1:], generator=torch.Generator().manual_seed(3)).double()
    captum = captum_attr.DeepLift(written_out(WindowedPool))
    theirs = captum.attribute(x, start.expand_as(x), target=y).sum(1).detach()
    ours = assay.explain(model, x, y, {"deeplift": {"baseline": start}})
    assert relative(ours, theirs) < TOLERANCE


def answers_differ(net, x, y, start):
    with torch.no_grad():
        return (net(x.clone()) - net(start.expand_as(x).clone())).gather(1, y[:, None])[:, 0]


def test_deeplift_where_all_is_tied(squeezed):
    """From one colour, values in a window of a pool are equal: which was the largest is chance.

    For captum too it differs between two ways to read a window. In the same order of memory both
    choose alike, and a millionth of noise in the baseline settles it for all.
    """
    model, x, y, written_out = squeezed
    dataset = as_dataset((x, y))
    batch = dataset.batch(dataset.ids)
    plain = replace(model.observed, channels_last=False) if model.observed else None
    model = replace(model, observed=plain)  # as captum runs it
    captum = [
        captum_attr.DeepLift(written_out(functools.partial(WindowedPool, backwards)))
        for backwards in (False, True)
    ]

    def maps(start):
        change = answers_differ(model.net, x, y, start)
        with model.evaluating(), torch.no_grad():
            found = [deeplift(model, batch, baseline=start).sum(1)]
        start = start.expand_as(x).contiguous()
        found += [c.attribute(x, start, target=y).sum(1).detach() for c in captum]
        assert all(torch.allclose(f.sum((1, 2)), change, rtol=1e-10) for f in found)
        return found

    black = torch.zeros_like(x[0])
    ours, theirs, backwards = maps(black)
    assert relative(ours, theirs) < 1e-10
    assert relative(backwards, theirs) > 1e-3
    noise = torch.randn(black.shape, generator=torch.Generator().manual_seed(3)).double()
    ours, theirs, backwards = maps(1e-6 * noise)
    assert relative(ours, theirs) < 1e-10
    assert relative(backwards, theirs) < 1e-10


def test_captum_loses_what_windows_of_a_pool_share(squeezed):
    """Its shares do not add up on the network as it is; ours do, and are those of the windows."""
    model, x, y, written_out = squeezed
    start = torch.randn(x.shape[1:], generator=torch.Generator().manual_seed(3)).double()
    theirs = captum_attr.DeepLift(written_out()).attribute(x, start.expand_as(x), target=y)
    ours = assay.explain(model, x, y, {"deeplift": {"baseline": start}})
    change = answers_differ(model.net, x, y, start)
    assert ((theirs.sum((1, 2, 3)) - change).abs() > 0.5 * change.abs()).all()
    assert torch.allclose(ours.sum((1, 2)), change, rtol=1e-10)


@pytest.mark.parametrize("world", ["residual", "squeezed"])
def test_deeplift_is_complete(request, world):
    """In single precision as well."""
    model, x, y, _ = request.getfixturevalue(world)
    model = replace(model, net=copy.deepcopy(model.net).float())
    x = x.float()
    maps = assay.explain(model, x, y, "deeplift")
    with torch.no_grad():
        change = model.net(x.clone()) - model.net(torch.zeros_like(x))
    change = change.gather(1, y[:, None])[:, 0]
    assert torch.allclose(maps.sum((1, 2)), change, rtol=1e-3)


def test_deepshap_against_captum(residual):
    model, x, y, written_out = residual
    dataset = as_dataset((x, y))
    references = dataset.batch(dataset.ids).reference(2)
    theirs = captum_attr.DeepLiftShap(written_out()).attribute(x, references, target=y).sum(1)
    ours = assay.explain(model, x, y, "deepshap", baselines=2)
    assert relative(ours, theirs.detach()) < TOLERANCE


class TestZennit:
    """Batch-norms folded by hand, sums as zennit's own module."""

    @pytest.fixture(autouse=True)
    def library(self, monkeypatch):
        """It asks torchvision for two classes when imported, to know them: not needed here."""
        if importlib.util.find_spec("torchvision") is None:
            for name in ("torchvision", "torchvision.models", "torchvision.models.resnet"):
                monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
            blocks = sys.modules["torchvision.models.resnet"]
            blocks.Bottleneck = blocks.BasicBlock = None
        else:
            ensure_torchvision()
        pytest.importorskip("zennit")

    def composite(self, rule: str):
        from zennit import composites, layer, rules
        from zennit import types as kinds

        if rule in ("epsilon", "alpha_beta"):
            chosen = rules.Epsilon() if rule == "epsilon" else rules.AlphaBeta(2, 1)
            others = [(kinds.Activation, rules.Pass()), (layer.Sum, rules.Norm())]
            pools = [(kinds.AvgPool, rules.Norm())]
            return composites.LayerMapComposite([*others, *pools, (kinds.Linear, chosen)])
        return {
            "epsilon_plus": composites.EpsilonPlus,
            "epsilon_plus_flat": composites.EpsilonPlusFlat,
            "epsilon_alpha_beta": composites.EpsilonAlpha2Beta1,
            "epsilon_alpha_beta_flat": composites.EpsilonAlpha2Beta1Flat,
        }[rule]()

    def theirs(self, net, x, y, rule):
        at = x.clone().requires_grad_()
        with self.composite(rule).context(net) as changed:
            logits = changed(at)
            top = torch.zeros_like(logits).scatter(1, y[:, None], 1) * logits.detach()
            return torch.autograd.grad(logits, at, top)[0].sum(1)

    RULES = (
        "epsilon", "alpha_beta", "epsilon_plus", "epsilon_plus_flat", "epsilon_alpha_beta",
        "epsilon_alpha_beta_flat",
    )  # fmt: skip

    @pytest.mark.parametrize("rule", RULES)
    def test_lrp_on_resnet(self, residual, rule):
        from zennit import layer

        class Join(nn.Module):
            def __init__(self):
                super().__init__()
                self.sum = layer.Sum()

            def forward(self, x, y):
                return self.sum(torch.stack([x, y], -1))

        model, x, y, written_out = residual
        expected = self.theirs(written_out(Join), x, y, rule)
        assert relative(assay.explain(model, x, y, "lrp", rule=rule), expected) < TOLERANCE

    @pytest.mark.parametrize("rule", RULES)
    def test_lrp_on_squeezenet(self, squeezed, rule):
        model, x, y, written_out = squeezed
        expected = self.theirs(written_out(), x, y, rule)
        assert relative(assay.explain(model, x, y, "lrp", rule=rule), expected) < TOLERANCE
