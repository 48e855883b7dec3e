"""Gradients by other rules: the same however a network is written, and known in closed form."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import assay
from methods.zoo import STYLES, make_zoo, zoo_images
from small_worlds import make_images, make_net

METHODS = ["guided_backprop", "deconvolution", "guided_gradcam", "excitation_backprop"]


WAYS = [
    (name, style)
    for name in METHODS
    for style in STYLES
    # Autograd itself has no gradient of what is written over a rectifier.
    if not (name == "guided_gradcam" and style in ("augmented", "aliased"))
]


@pytest.mark.parametrize(("name", "style"), WAYS)
def test_the_way_a_network_is_written_does_not_matter(name, style):
    x, y = zoo_images()
    options = {"layer": "conv2"} if name == "guided_gradcam" else {}
    plain = assay.explain(make_zoo(), x, y, name, **options)
    assert plain.abs().max() > 0
    styled = assay.explain(make_zoo(style), x, y, name, **options)
    assert torch.allclose(styled, plain, rtol=1e-9, atol=1e-12)


def by_hand(net, x, y, gated):
    """The backward pass of a network of two layers, written out."""
    first, _, second = net
    z = first(x)
    back = second.weight[y].clamp(min=0)
    return (back * (z > 0) if gated else back) @ first.weight


@pytest.mark.parametrize(("name", "gated"), [("guided_backprop", True), ("deconvolution", False)])
def test_two_layers_by_hand(name, gated):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(7, 9), nn.ReLU(), nn.Linear(9, 3))
    x, y = torch.randn(5, 7), torch.arange(5) % 3
    expected = by_hand(net, x, y, gated).detach()
    assert torch.allclose(assay.explain(net, x, y, name), expected, atol=1e-6)


@pytest.mark.parametrize("name", ["guided_backprop", "deconvolution"])
def test_without_rectifiers_they_are_the_gradient(name):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(144, 4))
    x, y = make_images(4, size=8)
    assert torch.equal(assay.explain(net, x, y, name), assay.explain(net, x, y, "saliency"))


@pytest.mark.parametrize("name", ["guided_backprop", "deconvolution"])
def test_relu6_and_clamps_are_rectifiers(name):
    """Cut off above where nothing reaches, they are ReLUs."""

    def build(rectifier):
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(768, 9), rectifier, nn.Linear(9, 4)).eval()

    class Clamp(nn.Module):
        def forward(self, x):
            return torch.clamp(x, 0, 99)

    x, y = make_images(4)
    expected = assay.explain(build(nn.ReLU()), x, y, name)
    for rectifier in (nn.ReLU6(), nn.Hardtanh(0, 99), Clamp()):
        assert torch.equal(assay.explain(build(rectifier), x, y, name), expected)
    other = assay.explain(build(nn.Hardtanh(-99, 99)), x, y, name)
    assert not torch.equal(other, expected)


@pytest.mark.parametrize("name", ["guided_backprop", "deconvolution"])
@pytest.mark.parametrize(
    "smooth",
    [nn.SiLU(), nn.GELU(), nn.ELU(), nn.Mish(), nn.Softplus(), nn.LeakyReLU(), nn.Hardswish()],
    ids=lambda smooth: type(smooth).__name__,
)
def test_other_activations_have_no_rule(name, smooth):
    net = nn.Sequential(nn.Flatten(), nn.Linear(768, 9), smooth, nn.Linear(9, 4))
    x, y = make_images(2)
    reason = f"`{name}` is defined for rectifiers; it has no rule for the operator `"
    with pytest.raises(assay.NotApplicable, match=reason):
        assay.explain(net, x, y, name)


class Written(nn.Module):
    """A network whose rectifier is written by hand."""

    def __init__(self, act):
        super().__init__()
        torch.manual_seed(0)
        self.one, self.other, self.act = nn.Linear(768, 9), nn.Linear(9, 4), act

    def forward(self, x):
        return self.other(self.act(self.one(x.flatten(1))))


@pytest.mark.parametrize("name", ["guided_backprop", "deconvolution"])
def test_rectifiers_in_other_words(name):
    x, y = make_images(4)
    expected = assay.explain(Written(torch.relu), x, y, name)
    assert not torch.allclose(expected, assay.explain(Written(torch.relu), x, y, "saliency"))
    for act in (
        lambda x: torch.maximum(x, torch.zeros_like(x)),
        lambda x: torch.max(torch.zeros(()), x),
        lambda x: x.clamp(min=torch.zeros(())),
        lambda x: F.threshold(x, 0, 0),
        nn.Threshold(0, 0),
    ):
        assert torch.equal(assay.explain(Written(act), x, y, name), expected)
    plain = assay.explain(Written(lambda x: torch.maximum(x, x / 2)), x, y, name)
    assert torch.equal(
        plain, assay.explain(Written(lambda x: torch.maximum(x, x / 2)), x, y, "saliency")
    )


@pytest.mark.parametrize("name", ["guided_backprop", "deconvolution"])
@pytest.mark.parametrize(
    ("act", "operator"),
    [
        (lambda x: x * (x > 0), "gt"),
        (lambda x: torch.where(x <= 0, 0.0, x), "le"),
        (lambda x: x.masked_fill(x < 0, 0), "lt"),
        (lambda x: x * torch.heaviside(x, torch.zeros(())), "heaviside"),
        (lambda x: F.threshold(x, 0.1, 0), "threshold"),
    ],
    ids=["gt", "le", "lt", "heaviside", "threshold"],
)
def test_gates_by_comparison_are_refused(name, act, operator):
    x, y = make_images(2)
    with pytest.raises(assay.NotApplicable, match=f"`{name}` is defined for.*`{operator}`"):
        assay.explain(Written(act), x, y, name)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["deeplift", "deepshap", "lrp", "excitation_backprop"])
def test_half_precision_is_refused_by_name(name, dtype):
    x, y = make_images(2)
    with pytest.raises(assay.NotApplicable, match=r"not exact in half precision.*net.float\(\)"):
        assay.explain(Written(torch.relu).to(dtype), x.to(dtype), y, name)


class WritesIntoAView(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 3, padding=1), nn.Linear(4, 4)

    def forward(self, x):
        x = self.conv(x)
        x[:, :2].relu_()
        return self.head(x.mean((2, 3)))


class SetsAPart(WritesIntoAView):
    def forward(self, x):
        x = self.conv(x)
        x[:, :2] = F.relu(x[:, :2])
        return self.head(x.mean((2, 3)))


class Joins(WritesIntoAView):
    def forward(self, x):
        x = self.conv(x)
        x = torch.cat([x[:, :2].relu(), x[:, 2:]], 1)
        return self.head(x.mean((2, 3)))


def test_what_cannot_be_seen_is_said():
    x, y = make_images(2)
    with pytest.raises(assay.NotApplicable, match="gives other logits"):
        assay.explain(WritesIntoAView().eval(), x, y, "guided_backprop")
    with pytest.raises(assay.NotApplicable, match="is compiled"):
        assay.explain(torch.jit.trace(make_net(), x), x, y, "guided_backprop")


def test_a_part_may_be_set():
    x, y = make_images(2)
    net, twin = SetsAPart(), Joins()
    twin.load_state_dict(net.state_dict())
    ours, expected = (assay.explain(n, x, y, "guided_backprop") for n in (net, twin))
    assert torch.allclose(ours, expected, atol=1e-7)


class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * (ctx.saved_tensors[0] > 0)


def test_an_operator_of_the_networks_own_is_named():
    class Net(WritesIntoAView):
        def forward(self, x):
            return self.head(Own.apply(self.conv(x)).mean((2, 3)))

    x, y = make_images(2)
    with pytest.raises(assay.NotApplicable, match="custom autograd function, `Own`"):
        assay.explain(Net(), x, y, "guided_backprop")


def test_guided_gradcam_is_the_product():
    net, (x, y) = make_net(), make_images(4)
    guided, coarse = (assay.explain(net, x, y, n) for n in ("guided_backprop", "gradcam"))
    found = assay.explain(net, x, y, "guided_gradcam")
    assert torch.allclose(found, guided * coarse, atol=1e-6 * found.abs().max().item())


def walk(x, w, p):
    """The winning probabilities of one dense layer, unit by unit."""
    found = torch.zeros_like(x)
    for n in range(len(x)):
        for j in range(len(w)):
            excites = x[n].clamp(min=0) * w[j].clamp(min=0)
            if excites.sum() > 0:
                found[n] += p[n, j] * excites / excites.sum()
    return found


@pytest.mark.parametrize("contrastive", [False, True])
def test_excitation_backprop_by_hand(contrastive):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(7, 9), nn.ReLU(), nn.Linear(9, 3)).double()
    x, y = torch.randn(5, 7, dtype=torch.float64), torch.arange(5) % 3
    top = F.one_hot(y, 3).double()
    with torch.no_grad():
        hidden = net[:2](x)
        middle = walk(hidden, net[2].weight, top)
        if contrastive:
            middle = middle - walk(hidden, -net[2].weight, top)
        expected = walk(x, net[0].weight, middle)
    found = assay.explain(net, x, y, "excitation_backprop", contrastive=contrastive)
    assert torch.allclose(found, expected, atol=1e-12)


class OneLogit(nn.Module):
    """A binary network; its twin says both scores itself, -z and z, by a layer of two rows."""

    def __init__(self, way="plain"):
        super().__init__()
        torch.manual_seed(0)
        self.body, self.way = nn.Sequential(nn.Linear(7, 9), nn.ReLU()), way
        self.head = nn.Linear(9, 1)
        if way == "twin":
            weight, bias = self.head.weight, self.head.bias
            self.head = nn.Linear(9, 2)
            with torch.no_grad():
                self.head.weight.copy_(torch.cat([-weight, weight]))
                self.head.bias.copy_(torch.cat([-bias, bias]))

    def forward(self, x):
        x = self.body(x)
        match self.way:
            case "squeezed":
                return self.head(x).squeeze(1)
            case "sum":  # of the same two halves
                weight = self.head.weight
                return F.linear(x[:, :4], weight[:, :4]) + F.linear(x[:, 4:], weight[:, 4:])
            case "turned":
                return 1 - (1 - self.head(x)) * -1 / -1
        return self.head(x)


def positive_inputs():
    return torch.rand(6, 7, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("way", ["plain", "squeezed", "turned"])
@pytest.mark.parametrize("contrastive", [False, True])
def test_the_walk_of_a_negated_logit_takes_negative_weights(way, contrastive):
    x, y = positive_inputs(), torch.arange(6) % 2
    maps = [
        assay.explain(OneLogit(w), x, y, "excitation_backprop", contrastive=contrastive)
        for w in (way, "twin")
    ]
    assert maps[1].abs().sum(1).min() > 0
    assert torch.allclose(*maps, atol=1e-6)


def test_a_walk_from_a_negated_sum_goes_to_what_is_negative_in_it():
    net, x = OneLogit("sum").double(), positive_inputs().double()
    with torch.no_grad():
        hidden, w = net.body(x), net.head.weight
        halves = torch.stack([hidden[:, :4] @ w[0, :4], hidden[:, 4:] @ w[0, 4:]], 1)
        against = halves.clamp(max=0)
        top = against / against.sum(1, keepdim=True)
        middle = [
            walk(h, -v, top[:, [i]])
            for i, (h, v) in enumerate(
                zip(hidden.split([4, 5], 1), w.split([4, 5], 1), strict=True)
            )
        ]
        expected = walk(x, net.body[0].weight, torch.cat(middle, 1).nan_to_num())
    found = assay.explain(net, x, torch.zeros(6).long(), "excitation_backprop")
    assert (expected != 0).any()
    assert torch.allclose(found, expected, atol=1e-12)


class Aside(OneLogit):
    """The twin, with another head called after its own."""

    def __init__(self, after):
        super().__init__("twin")
        self.after, self.aside = after, nn.Linear(9, 5)

    def forward(self, x):
        x = self.body(x)
        aside = None if self.after else self.aside(x)
        said = self.head(x)
        return said, self.aside(x) if self.after else aside


def test_contrast_is_to_the_layer_that_made_the_logits():
    x, y = positive_inputs(), torch.arange(6) % 2
    expected = assay.explain(OneLogit("twin"), x, y, "excitation_backprop", contrastive=True)
    assert expected.abs().sum(1).min() > 0
    for after in (False, True):
        model = assay.model(Aside(after), output=0)
        found = assay.explain(model, x, y, "excitation_backprop", contrastive=True)
        assert torch.equal(found, expected)


def test_contrast_needs_a_layer():
    class Means(nn.Module):
        def forward(self, x):
            return x.mean((2, 3))

    x, y = torch.randn(3, 3, 4, 4), torch.arange(3)
    with pytest.raises(assay.NotApplicable, match="no layer with weights"):
        assay.explain(Means(), x, y, "excitation_backprop", contrastive=True)


def test_walks_end_somewhere():
    """Where everything excites, no probability is made or lost, by pools, sums, gates or norms."""
    x, y = zoo_images()
    net = make_zoo()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.abs_()
    maps = assay.explain(net, x.abs(), y, "excitation_backprop")
    assert bool((maps >= 0).all())
    assert torch.allclose(maps.sum((1, 2)), torch.ones(3).double())


def test_walks_may_end_at_a_layer():
    x, y = zoo_images()
    net = make_zoo()
    inside = []
    handle = net.conv2.register_forward_pre_hook(lambda _, given: inside.append(given[0]))
    net(x)
    handle.remove()

    class Tail(nn.Module):
        """What follows the first pool."""

        def __init__(self):
            super().__init__()
            self.net = net
            self.net.conv1, self.net.bn1 = nn.Identity(), nn.Identity()

        def forward(self, x):
            return self.net(x.repeat_interleave(2, 2).repeat_interleave(2, 3))

    found = assay.explain(net, x, y, "excitation_backprop", layer="relus.0")
    assert found.shape == (3, 8, 8)
    coarse = assay.explain(Tail(), inside[0].detach(), y, "excitation_backprop")
    assert torch.allclose(F.avg_pool2d(found[:, None], 2)[:, 0] * 4, coarse, atol=1e-12)
    with pytest.raises(assay.NotApplicable, match="merged with the batch norm"):
        assay.explain(make_zoo(), x, y, "excitation_backprop", layer="conv1")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("excitation_backprop", {"layer": "conv1"}),
        ("excitation_backprop", {"layer": "head"}),
        ("deepshap", {"baselines": 50}),
        ("lrp", {}),
    ],
    ids=["merged", "not_spatial", "too_few", "no_rule"],
)
def test_nothing_is_left_behind_on_errors(name, options):
    x, y = zoo_images()
    net = make_zoo().train()
    if name == "lrp":
        net.up = nn.Sequential(net.up, nn.LayerNorm(6).double())
        net.squeeze = nn.Sequential(nn.GroupNorm(2, 6).double(), net.squeeze)
    before = {k: v.clone() for k, v in net.state_dict().items()}
    with pytest.raises((assay.NotApplicable, assay.InputError)):
        assay.explain(net, x, y, name, **options)
    assert all(m.training for m in net.modules())
    assert all(p.grad is None and p.requires_grad for p in net.parameters())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in net.modules())
    assert all(torch.equal(before[k], v) for k, v in net.state_dict().items())
    assert not torch.overrides._get_current_function_mode_stack()
