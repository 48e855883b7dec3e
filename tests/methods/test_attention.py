"""Attention methods against closed forms, transformers' own attentions and invariances."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import assay
from assay.methods.attending import attended
from assay.methods.attention import beside_itself, carried
from assay.plugins import registry
from small_transformers import OneHead, hf_bert, hf_vit, make_batch, make_ids, make_vit
from small_worlds import make_images

METHODS = tuple(p.name for p in registry.everything("method") if p.family == "attention")
GRADIENTS = tuple(name for name in METHODS if name != "rollout")


def close(ours, expected):
    """To 1e-4 of the largest value."""
    expected = torch.as_tensor(expected, dtype=ours.dtype)
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))


# --- one layer, one head, by hand -----------------------------------------------------------------


@pytest.fixture
def one_head():
    net = OneHead().requires_grad_(False)
    return net, torch.randn(4, 5, generator=torch.Generator().manual_seed(2)), torch.arange(4) % 2


def slopes(net, x, y):
    """df/dA_0j = u_k O v_j: the answer is linear in the attention of the first token."""
    _, _, values = net.parts(x)
    return torch.einsum("bd,btd->bt", net.u[y], net.out(values))


def test_rollout_by_hand(one_head):
    net, x, y = one_head
    _, attention, _ = net.parts(x)
    expected = attention[:, 0] / 2
    expected[:, 0] += 0.5
    close(_explain(net, x, y, "rollout"), expected)


@pytest.mark.parametrize("form", ["chefer", "m4", "bt"])
def test_generic_attention_by_hand(one_head, form):
    net, x, y = one_head
    _, attention, _ = net.parts(x)
    expected = (attention[:, 0] * slopes(net, x, y)).clamp(min=0)
    expected[:, 0] += 1
    close(_explain(net, x, y, "generic_attention", form=form), expected)


def test_attention_gradcam_by_hand(one_head):
    net, x, y = one_head
    _, attention, _ = net.parts(x)
    weight = slopes(net, x, y).mean(1, keepdim=True)
    close(_explain(net, x, y, "attention_gradcam"), (weight * attention[:, 0]).clamp(min=0))


def _explain(net, x, y, name, **options):
    model = assay.model(net)
    model = replace(model, has=model.has | {"attention"})  # nothing in this network is called so
    return assay.explain(model, x, y, name, **options)


# --- against transformers -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def theirs():
    """Attentions and gradients as transformers and autograd give them, in NumPy."""
    pytest.importorskip("transformers")
    x, y = make_images(3)
    said = hf_vit("eager").requires_grad_(True)(pixel_values=x, output_attentions=True)
    scalar = said.logits.gather(1, y[:, None]).sum()
    g = torch.autograd.grad(scalar, said.attentions)
    return x, y, [a.detach().numpy() for a in said.attentions], [s.numpy() for s in g]


def grid(rows):
    """The patches' part of the class token's row as an image of 16 pixels."""
    return np.kron(rows[:, 1:].reshape(-1, 4, 4), np.ones((4, 4)))


@pytest.mark.parametrize("start", [0, 1])
def test_rollout_is_the_product_of_all_rows(theirs, start):
    x, y, attentions, _ = theirs
    expected = []
    for b in range(len(x)):
        product = np.eye(17)
        for a in attentions[start:]:
            step = a[b].mean(0) + np.eye(17)
            product = (step / step.sum(1, keepdims=True)) @ product
        assert product.sum(1) == pytest.approx(np.ones(17), rel=1e-5)
        expected.append(product[0])
    ours = assay.explain(hf_vit(), x, y, "rollout", start=start)
    close(ours, grid(np.array(expected)))


@pytest.mark.parametrize("form", ["chefer", "m4", "bt"])
def test_generic_attention_follows_its_recursion(theirs, form):
    x, y, attentions, gradients = theirs
    expected = []
    for b in range(len(x)):
        relevance = np.eye(17)
        for a, g in zip(attentions[1:], gradients[1:], strict=True):
            step = {
                "chefer": sum(np.maximum(a[b, h] * g[b, h], 0) for h in range(4)) / 4,
                "m4": np.maximum(a[b].mean(0) * g[b].mean(0), 0),
                "bt": np.maximum((a[b] * g[b]).mean(0), 0),
            }[form]  # fmt: skip
            relevance = relevance + step @ relevance
        expected.append(relevance[0])
    ours = assay.explain(hf_vit(), x, y, "generic_attention", form=form, start=1)
    close(ours, grid(np.array(expected)))


def test_attention_gradcam_weighs_heads(theirs):
    x, y, attentions, gradients = theirs
    rows, slope = attentions[-1][:, :, 0], gradients[-1][:, :, 0, 1:].mean(-1, keepdims=True)
    ours = assay.explain(hf_vit(), x, y, "attention_gradcam")
    close(ours, grid(np.maximum((rows * slope).mean(1), 0)))


# --- what must not matter -------------------------------------------------------------------------


def test_rollout_rows_sum_to_one():
    for pool in ("class", "mean"):
        model = assay.model(make_vit(pool=pool))
        ((_, _, _, found, _),) = attended(*make_batch(model, *make_images(3)), 0)
        steps = [beside_itself(a.mean(1)) / 2 for a in found.heads(found.maps)]
        row = carried(found.read()[:, None], steps)[:, 0]
        assert row.sum(1).tolist() == pytest.approx([1, 1, 1])
        x, y = make_images(3)
        ours = assay.explain(model, x, y, "rollout")
        assert torch.allclose(ours[:, ::4, ::4].sum((1, 2)) + row[:, 0], torch.ones(3), atol=1e-5)


@pytest.mark.parametrize("name", [*METHODS, "deeplift", "lrp"])
def test_the_order_of_heads_does_not_matter(name):
    net, (x, y) = make_vit(heads=3).double(), make_images(3)
    x = x.double()
    before = assay.explain(net, x, y, name)
    order = torch.tensor([2, 0, 1])
    with torch.no_grad():
        for block in net.blocks:
            part = block.attention
            for tensor in (part.qkv.weight, part.qkv.bias):
                parted = tensor.unflatten(0, (3, 3, 4))
                tensor.copy_(parted[:, order].flatten(0, 2))
            part.out.weight.copy_(part.out.weight.unflatten(1, (3, 4))[:, order].flatten(1))
    close(assay.explain(net, x, y, name), before)


@pytest.mark.parametrize("name", METHODS)
def test_padding_does_not_matter(name):
    """A text in a padded batch gets the map that it gets alone, and padding gets nothing."""
    pytest.importorskip("transformers")
    model, ids, lengths, y = hf_bert(), make_ids(), (9, 5, 7), torch.tensor([0, 1, 2])
    together = assay.explain(model, ids, y, name)
    assert together.shape == ids.shape
    assert bool((together[ids == 0] == 0).all())
    for b, length in enumerate(lengths):
        alone = assay.explain(model, ids[b : b + 1, :length], y[b : b + 1], name)
        close(alone[0], together[b, :length])


@pytest.mark.parametrize("pool", ["class", "mean"])
def test_only_rollout_is_the_same_for_every_class(pool):
    net, (x, _) = make_vit(pool=pool), make_images(3)
    for name in METHODS:
        one, other = (assay.explain(net, x, torch.full((3,), k), name) for k in (0, 1))
        assert torch.equal(one, other) == (name == "rollout")


@pytest.mark.parametrize("name", METHODS)
def test_how_attention_is_computed_does_not_matter(name):
    pytest.importorskip("transformers")
    x, y = make_images(2)
    close(assay.explain(hf_vit("sdpa"), x, y, name), assay.explain(hf_vit("eager"), x, y, name))
    ids, y = make_ids(), torch.tensor([0, 1, 2])
    close(
        assay.explain(hf_bert("sdpa"), ids, y, name), assay.explain(hf_bert("eager"), ids, y, name)
    )


def test_patches_are_enlarged():
    net, (x, y) = make_vit(), make_images(2)
    sharp = assay.explain(net, x, y, "rollout")
    assert torch.equal(sharp, sharp[:, ::4, ::4].repeat_interleave(4, 1).repeat_interleave(4, 2))
    smooth = assay.explain(net, x, y, "rollout", resize="bilinear")
    expected = nn.functional.interpolate(sharp[:, None, ::4, ::4], (16, 16), mode="bilinear")[:, 0]
    close(smooth, expected)


def test_probabilities_and_noise():
    net, (x, y) = make_vit(), make_images(2)
    logit = assay.explain(net, x, y, "generic_attention")
    assert not torch.equal(
        assay.explain(net, x, y, "generic_attention", output="probability"), logit
    )
    noisy = assay.explain(net, x, y, "generic_attention", noise={"samples": 3, "sigma": 0.01})
    assert not torch.equal(noisy, logit)
    assert torch.allclose(noisy, logit, atol=0.3 * float(logit.max()))
