"""LRP: the same however a network is written, conserving, and by hand where hands suffice."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import assay
from methods.zoo import STYLES, make_homogeneous, make_zoo, zoo_images
from small_transformers import hf_bert, hf_vit, make_ids, make_vit
from small_worlds import make_images

RULES = [
    {"rule": "zero"},
    {"rule": "epsilon"},
    {"rule": "alpha_beta", "alpha": 2},
    {"rule": "alpha_beta", "alpha": 1},
    {"rule": "epsilon_plus"},
    {"rule": "epsilon_plus_flat"},
    {"rule": "epsilon_alpha_beta"},
    {"rule": "epsilon_alpha_beta_flat"},
]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("options", RULES, ids=str)
def test_the_way_a_network_is_written_does_not_matter(style, options):
    x, y = zoo_images()
    plain, styled = (assay.explain(make_zoo(s), x, y, "lrp", **options) for s in ("plain", style))
    assert plain.abs().max() > 0
    assert torch.allclose(styled, plain, rtol=1e-9, atol=1e-14)


def test_without_biases_lrp_is_input_x_gradient_and_integrated_gradients():
    net, (x, y) = make_homogeneous(), zoo_images()
    lrp = assay.explain(net, x, y, "lrp", rule="zero")
    for name in ("input_x_gradient", "integrated_gradients"):
        assert torch.allclose(lrp, assay.explain(net, x, y, name), rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("options", RULES, ids=str)
def test_without_biases_relevance_is_conserved(options):
    net, (x, y) = make_homogeneous(), zoo_images()
    maps = assay.explain(net, x, y, "lrp", **options)
    answers = net(x).gather(1, y[:, None])[:, 0].detach()
    assert answers.abs().min() > 0.05
    # What the epsilons take is about a millionth of each sum that is shared out.
    assert torch.allclose(maps.sum((1, 2)), answers, rtol=1e-4)
    assert not torch.allclose(maps, assay.explain(net, x, y, "lrp"), rtol=1e-2) or (
        options["rule"] == "epsilon_plus"
    )


def dense(x, w, b, relevance, share):
    """The relevance of each input of one dense layer, product by product."""
    found = torch.zeros_like(x)
    for n in range(len(x)):
        for j in range(len(w)):
            found[n] += share(x[n] * w[j], b[j], relevance[n, j])
    return found


def epsilon(parts, bias, relevance):
    z = parts.sum() + bias
    return parts / (z + torch.copysign(torch.tensor(0.1), z)) * relevance


def alpha_beta(parts, bias, relevance):
    positive, negative = parts.clamp(min=0), parts.clamp(max=0)
    gain = positive / (positive.sum() + bias.clamp(min=0))
    loss = negative / (negative.sum() + bias.clamp(max=0))
    return (2 * gain.nan_to_num() - loss.nan_to_num()) * relevance  # 0 / 0: nobody to give to


@pytest.mark.parametrize(
    ("options", "share"),
    [({"rule": "epsilon", "epsilon": 0.1}, epsilon), ({"rule": "alpha_beta"}, alpha_beta)],
    ids=["epsilon", "alpha_beta"],
)
def test_two_layers_by_hand(options, share):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 3)).double()
    x, y = torch.randn(4, 5, dtype=torch.float64), torch.arange(4) % 3
    with torch.no_grad():
        hidden = net[:2](x)
        top = torch.zeros(4, 3, dtype=torch.float64)
        top[range(4), y] = net(x)[range(4), y]
        middle = dense(hidden, net[2].weight, net[2].bias, top, share)
        expected = dense(x, net[0].weight, net[0].bias, middle, share)
    found = assay.explain(net, x, y, "lrp", **options)
    assert torch.allclose(found, expected, rtol=1e-4, atol=1e-6 * expected.abs().max())


def test_a_batch_norm_is_part_of_the_layer_before_it():
    """The same as after folding it into the weights."""
    net, (x, y) = make_zoo(), zoo_images()
    folded = make_zoo()
    for conv, norm in (("conv1", "bn1"), ("conv2", "bn2")):
        merged = nn.utils.fuse_conv_bn_eval(getattr(net, conv), getattr(net, norm))
        setattr(folded, conv, merged)
        setattr(folded, norm, nn.Identity())
    for options in RULES:
        maps = [assay.explain(n, x, y, "lrp", **options) for n in (net, folded)]
        assert torch.allclose(*maps, rtol=1e-6, atol=1e-9 * maps[0].abs().max())


class NormedTokens(nn.Module):
    """A dense layer over channels, then a batch-norm over tokens, or its scale and shift."""

    def __init__(self, tokens, written_out):
        super().__init__()
        torch.manual_seed(0)
        self.dense, self.norm, self.head = nn.Linear(6, 8), nn.BatchNorm1d(tokens), nn.Linear(8, 3)
        self.written_out = written_out
        with torch.no_grad():
            self.norm.running_mean.normal_()
            for spread in (self.norm.running_var, self.norm.weight):
                spread.uniform_(0.2, 3)

    def forward(self, x):  # [B, tokens, 6]
        x, norm = self.dense(x), self.norm
        if self.written_out:
            scale = norm.weight * (norm.running_var + norm.eps).rsqrt()
            shift = norm.bias - norm.running_mean * scale
            x = x * scale[:, None] + shift[:, None]
        else:
            x = norm(x)
        return self.head(F.relu(x).mean(1))


@pytest.mark.parametrize("tokens", [5, 8])
@pytest.mark.parametrize("rule", ["epsilon", "alpha_beta"])
def test_a_batch_norm_along_another_axis_stands_alone(tokens, rule):
    x, y = torch.randn(3, tokens, 6, dtype=torch.float64), torch.arange(3)
    nets = [NormedTokens(tokens, written_out).double() for written_out in (False, True)]
    assert torch.allclose(*(net.eval()(x) for net in nets))
    maps = [assay.explain(net, x, y, "lrp", rule=rule) for net in nets]
    assert torch.allclose(*maps, rtol=1e-4, atol=1e-6 * maps[1].abs().max())


class TwoNorms(nn.Module):
    """Two batch-norms of what one convolution gave, or of what two equal ones gave."""

    def __init__(self, convolutions):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.head = nn.Conv2d(3, 6, 3), nn.Linear(6, 4)
        self.one, self.other = nn.BatchNorm2d(6), nn.BatchNorm2d(6)
        self.convolutions = convolutions

    def forward(self, x):
        z = self.conv(x)
        again = z if self.convolutions == 1 else self.conv(x)
        return self.head(F.relu(self.one(z) + 2 * self.other(again)).mean((2, 3)))


def test_two_batch_norms_may_follow_one_layer():
    x, y = zoo_images()
    maps = [assay.explain(TwoNorms(n).double(), x, y, "lrp") for n in (1, 2)]
    assert maps[0].abs().max() > 0
    assert torch.allclose(*maps, rtol=1e-9, atol=1e-14)


class Gated(nn.Module):
    """A product of a signal and a gate; the gate alone knows the second half of the input."""

    def forward(self, x):
        signal, hint = x[:, :4], x[:, 4:]
        return signal * torch.sigmoid(hint)


def test_gates_get_no_relevance():
    x = torch.rand(3, 8, generator=torch.Generator().manual_seed(0)) + 0.1
    maps = assay.explain(Gated(), x, torch.arange(3), "lrp")
    expected = torch.zeros(3, 8)
    for n in range(3):
        expected[n, n] = Gated()(x)[n, n]
    assert torch.allclose(maps, expected, atol=1e-6)


class Normalised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.head = nn.GroupNorm(2, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.norm(x))


class Multiplied(nn.Module):
    def forward(self, x):
        return x[:, :4] * x[:, 4:]


@pytest.mark.parametrize(
    ("net", "operator"), [(Normalised(), "group_norm"), (Multiplied(), "mul")], ids=str
)
def test_what_has_no_rule_is_named(net, operator):
    x = torch.randn(2, 8)
    with pytest.raises(assay.NotApplicable, match=f"LRP has no rule for the operator `{operator}`"):
        assay.explain(net, x, torch.zeros(2).long(), "lrp")


def test_a_gate_may_be_anything():
    """No relevance comes to the gate, so nothing in it needs a rule."""

    class Net(nn.Module):
        def forward(self, x):
            shares = F.softmax(torch.cos(x).cumsum(1).sort(1).values, 1)
            return (x * shares)[:, :3]

    x = torch.rand(2, 8) + 0.1
    maps = assay.explain(Net(), x, torch.zeros(2).long(), "lrp")
    assert torch.allclose(maps.sum(1), Net()(x)[:, 0], atol=1e-5)


# --- transformers ---------------------------------------------------------------------------------


def held(net, x):
    """A small ViT in which attention, deviations and what GELUs let through are constants."""

    def normed(norm, x):
        deviation = (x.var(-1, correction=0, keepdim=True) + norm.eps).sqrt()
        return (x - x.mean(-1, keepdim=True)) / deviation.detach() * norm.weight + norm.bias

    x = net.patches(x).flatten(2).transpose(1, 2)
    x = torch.cat([net.first.expand(len(x), -1, -1), x], 1) + net.places
    for block in net.blocks:
        heads = block.attention.qkv(normed(block.norm1, x)).unflatten(
            -1, (3, block.attention.heads, -1)
        )
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        attention = (query @ key.mT / query.shape[-1] ** 0.5).softmax(-1).detach()
        x = x + block.attention.out((attention @ value).transpose(1, 2).flatten(2))
        inner = block.grow(normed(block.norm2, x))
        x = x + block.shrink(inner * (F.gelu(inner) / inner).detach())
    return net.head(normed(net.norm, x)[:, 0])


def test_in_a_transformer_all_but_the_stream_is_held():
    """LRP-0 is then input x gradient, and with what constants keep the whole answer is there."""
    net = make_vit().double()
    x, y = make_images(1)
    x = x.double()
    maps = assay.explain(net, x, y, "lrp", rule="zero", reduce="none")
    at = x.clone().requires_grad_(True)
    answer = held(net, at)[0, y[0]]
    assert torch.allclose(answer, net(x)[0, y[0]])
    keep = [p for n, p in net.named_parameters() if n.endswith(("bias", "first", "places"))]
    slope, *slopes = torch.autograd.grad(answer, [at, *keep])
    expected = (at * slope).detach()
    assert torch.allclose(maps, expected, atol=1e-9 * expected.abs().max())
    kept = sum((p * s).sum() for p, s in zip(keep, slopes, strict=True))
    assert abs(kept) > 0.1 * abs(answer)
    assert torch.allclose(maps.sum() + kept, answer)


def without_constants(net):
    """The same network where nothing but the input speaks."""
    silent = ("bias", "cls_token", "position_embeddings", "token_type_embeddings.weight")
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if name.endswith((*silent, "position_embeddings.weight")):
                parameter.zero_()
    return net.double()


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("rule", ["zero", "epsilon", "epsilon_plus", "epsilon_plus_flat"])
def test_without_constants_transformers_conserve(rule, attention):
    pytest.importorskip("transformers")
    vit, bert, (x, y) = hf_vit(attention), hf_bert(attention), make_images(3)
    for net, inputs in ((vit, x.double()), (bert, make_ids())):
        model = assay.model(net)
        without_constants(model.net)
        maps = assay.explain(model, inputs, y % 3, "lrp", rule=rule)
        with torch.no_grad():
            answers = model.logits(inputs).gather(1, y[:, None] % 3)[:, 0]
        assert answers.abs().min() > 0.05
        assert torch.allclose(maps.flatten(1).sum(1), answers, rtol=1e-4)


class Encoder(nn.Module):
    """PyTorch's own layer, whose attention is one operator."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x):  # [B, s, 8]
        hidden = torch.arange(x.shape[1]).expand(x.shape[:2]) > 3
        return self.head(self.layer(x, src_key_padding_mask=hidden)[:, 0])


def test_attention_in_one_operator_is_seen_through():
    torch.manual_seed(0)
    net, x = without_constants(Encoder().eval()), torch.randn(2, 6, 8).double()
    maps = assay.explain(net, x, torch.tensor([0, 1]), "lrp", rule="zero", reduce="none")
    assert torch.allclose(maps.sum((1, 2)), net(x)[[0, 1], [0, 1]])
    assert (maps[:, :4] != 0).all()
    assert (maps[:, 4:] == 0).all()
