"""Chefer's relevance, computed again layer by layer as one would by hand."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import assay
from small_transformers import hf_bert, hf_vit, make_ids, make_vit
from small_worlds import make_images


def ratio(above, below):
    return torch.where(below == 0, torch.zeros_like(below), above / (below + 1e-9))


def linear(layer, x, relevance):
    """x [s, i] to y [s, o]: entry by entry the positive contributions."""
    contributions = (x[:, None] * layer.weight).clamp(min=0)  # [s, o, i]
    return torch.einsum("so,soi->si", ratio(relevance, contributions.sum(2)), contributions)


def product(a, b, relevance):
    """C = A B: each factor half of its shares."""
    terms = a[:, :, None] * b[None]  # [i, k, j]
    shares = terms * ratio(relevance, terms.sum(1))[:, None] / 2
    return shares.sum(2), shares.sum(0)


def branches(a, b, relevance):
    part_a, part_b = (x * ratio(relevance, a + b) for x in (a, b))
    sum_a, sum_b = part_a.sum(), part_b.sum()
    both = sum_a.abs() + sum_b.abs()
    total = relevance.sum()
    return (
        part_a * ratio(ratio(sum_a.abs(), both) * total, sum_a),
        part_b * ratio(ratio(sum_b.abs(), both) * total, sum_b),
    )


def by_hand(net, image, label, start):
    """One image: forward with everything kept, then back, block by block and head by head."""
    heads = net.blocks[0].attention.heads
    x = torch.cat([net.first[0], net.patches(image[None]).flatten(2)[0].T]) + net.places[0]
    kept, maps = [], []
    for block in net.blocks:
        n1 = block.norm1(x)
        q, k, v = (t.unflatten(1, (heads, -1)).transpose(0, 1)
                   for t in block.attention.qkv(n1).chunk(3, 1))  # fmt: skip
        a = torch.softmax(q @ k.transpose(1, 2) * q.shape[-1] ** -0.5, -1).requires_grad_(True)
        maps.append(a)
        mixed = (a @ v).transpose(0, 1).flatten(1)
        told = block.attention.out(mixed)
        y = x + told
        n2 = block.norm2(y)
        grown = block.grow(n2)
        said = block.shrink(F.gelu(grown))
        kept.append((x, n1, q, k, v, a, mixed, told, y, n2, grown, said))
        x = y + said
    final = net.norm(x)
    logits = net.head(final[:1] if net.pool == "class" else final[1:].mean(0, keepdim=True))
    gradients = torch.autograd.grad(logits[0, label], maps)

    with torch.no_grad():
        one_hot = F.one_hot(torch.tensor([label]), logits.shape[1]).double()
        relevance = torch.zeros_like(final)
        if net.pool == "class":
            relevance[0] = linear(net.head, final[:1], one_hot)[0]
        else:
            mean = final[1:].mean(0)
            top = linear(net.head, mean[None], one_hot)[0]
            relevance[1:] = final[1:] / 16 * ratio(top, mean)
        of_maps = []
        for block, (x, n1, q, k, v, a, mixed, told, y, n2, grown, said) in zip(
            reversed(net.blocks), reversed(kept), strict=True
        ):
            past, inner = branches(y, said, relevance)
            inner = linear(block.grow, n2, linear(block.shrink, F.gelu(grown), inner))
            past, inner = branches(x, told, past + inner)
            inner = linear(block.attention.out, mixed, inner)
            inner = inner.unflatten(1, (heads, -1)).transpose(0, 1)
            found, parts = [], [[], [], []]
            for h in range(heads):
                r_a, r_v = product(a[h], v[h], inner[h])
                found.append(r_a)
                r_q, r_k = product(q[h], k[h].T, r_a)
                for place, r in zip(parts, (r_q, r_k.T, r_v), strict=True):
                    place.append(r)
            of_maps.insert(0, torch.stack(found))
            relevance = past + linear(
                block.attention.qkv, n1, torch.cat([r for place in parts for r in place], 1)
            )
        result = torch.eye(len(final)).double()
        for g, r in list(zip(gradients, of_maps, strict=True))[start:]:
            result = ((g * r).clamp(min=0).mean(0) + torch.eye(len(final))) @ result
    row = result[0] if net.pool == "class" else result[1:].mean(0)
    return row[1:].reshape(4, 4)


@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize("pool", ["class", "mean"])
def test_it_is_what_one_gets_by_hand(start, pool):
    net, (x, y) = make_vit(pool=pool).double(), make_images(3)
    ours = assay.explain(net, x.double(), y, "chefer_lrp", start=start)[:, ::4, ::4]
    net.requires_grad_(False)
    expected = torch.stack([by_hand(net, x[b].double(), int(y[b]), start) for b in range(len(x))])
    assert float(expected.abs().max()) > 0
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-6 * float(expected.max()))


def test_scales_of_a_residual_share():
    """The two branches together get what came: one's share is by its absolute sum."""
    from assay.methods.attention_lrp import _Branches

    a, b = (torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(i)).double()
            for i in (0, 1))  # fmt: skip
    a, b = a.requires_grad_(True), b.requires_grad_(True)
    came = torch.rand(2, 3, 4).double()
    shares = torch.autograd.grad(_Branches.apply(a, b, 0), (a, b), came)
    total = sum(share.sum((1, 2)) for share in shares)
    torch.testing.assert_close(total, came.sum((1, 2)), rtol=1e-6, atol=1e-9)


class Odd(nn.Module):
    """A transformer that does something else to its answer."""

    def __init__(self, change):
        super().__init__()
        self.vit, self.change = make_vit(depth=2), change

    def forward(self, x):
        return self.change(self.vit(x))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("mul", lambda x: x * x.sigmoid()),
        ("add_", lambda x: x.add_(1)),
        ("div", lambda x: torch.ones_like(x) / x),
        ("exp", torch.exp),
        ("neg", lambda x: x[:, 0]),  # of a single logit z the classes' are -z and z
    ],
)
def test_operations_without_a_rule_are_not_explained(name, change):
    x, y = make_images(2)
    with pytest.raises(assay.NotApplicable, match=f"operation `{name}`"):
        assay.explain(Odd(change), x, y % 2, "chefer_lrp")


def test_a_single_layer_is_explained_without_a_start():
    x, y = make_images(2)
    net = make_vit(depth=1)
    assert torch.equal(
        assay.explain(net, x, y, "chefer_lrp"), assay.explain(net, x, y, "chefer_lrp", start=0)
    )


class Dense(nn.Module):
    """A dense layer as GPT-2 writes it."""

    def __init__(self, layer):
        super().__init__()
        self.weight, self.bias = nn.Parameter(layer.weight.T.clone()), layer.bias

    def forward(self, x):
        rows = torch.addmm(self.bias, x.reshape(-1, x.shape[-1]), self.weight)
        return rows.reshape(*x.shape[:-1], -1)


@pytest.mark.parametrize("name", ["lrp", "chefer_lrp"])
def test_dense_layers_may_be_written_otherwise(name):
    (x, y), net = make_images(2), make_vit()
    for block in net.blocks:
        block.grow, block.shrink = Dense(block.grow), Dense(block.shrink)
    ours, expected = (assay.explain(n, x, y, name) for n in (net, make_vit()))
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-6 * float(expected.abs().max()))


def test_it_works_on_transformers():
    pytest.importorskip("transformers")
    x, y = make_images(2)
    assert float(assay.explain(hf_vit(), x, y, "chefer_lrp").abs().sum()) > 0
    maps = assay.explain(hf_bert(), make_ids(), torch.tensor([0, 1, 2]), "chefer_lrp")
    assert float(maps.abs().sum()) > 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_refused_by_name(dtype):
    x, y = make_images(2)
    with pytest.raises(assay.NotApplicable, match="Chefer LRP is not exact in half precision"):
        assay.explain(make_vit(depth=2).to(dtype), x.to(dtype), y, "chefer_lrp")
