"""Bidirectional attribution by hand and against transformers."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import assay
from assay.methods.attending import attend, attended
from assay.methods.bidirectional import Streams, _weigh_heads
from assay.methods.entering import Entering, Scaled
from small_transformers import OneHead, hf_bert, hf_vit, make_batch, make_ids
from small_worlds import make_images

STEPS = 4


def close(ours, expected):
    expected = torch.as_tensor(expected, dtype=ours.dtype)
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))


@pytest.mark.parametrize("name", ["bt_head", "bt_token"])
def test_one_layer_by_hand(name):
    """R = I + A (D), and the gradient u O v_j is linear in the input: its mean is that at half."""
    net = OneHead().requires_grad_(False)
    model = assay.model(net)
    model = replace(model, has=model.has | {"attention"})
    x, y = torch.randn(4, 5, generator=torch.Generator().manual_seed(2)), torch.arange(4) % 2
    h, attention, values = net.parts(x)
    _, _, half = net.parts(x / 2)
    feedback = torch.einsum("bd,btd->bt", net.u[y], net.out(half)).clamp(min=0)
    perception = attention[:, 0]
    if name == "bt_token":
        perception = perception * net.out(values).norm(dim=-1) / h.norm(dim=-1)
    perception = perception + torch.eye(5)[0]
    close(assay.explain(model, x, y, name, steps=STEPS), perception * feedback)


def theirs(x, y, output):
    """Attentions, gradients and block inputs as transformers and autograd give them."""
    net = hf_vit("eager").requires_grad_(True)
    said = net(pixel_values=x, output_attentions=True, output_hidden_states=True)
    scores = said.logits if output == "logit" else said.logits.softmax(-1)
    scalar = scores.gather(1, y[:, None]).sum()
    return net, said, torch.autograd.grad(scalar, said.attentions)


@pytest.mark.parametrize("output", ["logit", "probability"])
@pytest.mark.parametrize("name", ["bt_head", "bt_token"])
def test_it_follows_its_recursion(name, output):
    pytest.importorskip("transformers")
    x, y = make_images(2)
    net, said, gradients = theirs(x, y, output)
    feedback = np.mean(
        [theirs(x * a, y, output)[2][-1].numpy() for a in np.linspace(0, 1, STEPS)], axis=0
    )
    feedback = np.maximum(feedback, 0).mean(1)
    expected = []
    for b in range(len(x)):
        relevance = np.eye(17)
        for number in (1, 2):  # a third of three layers is left out
            a = said.attentions[number][b].detach().numpy()
            g = gradients[number][b].numpy()
            if name == "bt_head":
                weight = np.array([np.abs(p.T @ q).mean() for p, q in zip(a, g, strict=True)])
                step = np.tensordot(weight / weight.sum(), a, 1)
            else:
                layer, z = net.vit.layers[number], said.hidden_states[number][b].detach()
                with torch.no_grad():
                    v = layer.attention.v_proj(layer.layernorm_before(z))
                    passed = v @ layer.attention.o_proj.weight.T
                step = a.mean(0) * (passed.norm(dim=1) / z.norm(dim=1)).numpy()
            relevance = relevance + step @ relevance
        expected.append((relevance * feedback[b])[0, 1:])
    ours = assay.explain(hf_vit(), x, y, name, steps=STEPS, output=output)
    close(ours, np.kron(np.array(expected).reshape(-1, 4, 4), np.ones((4, 4))))


def test_what_enters_a_block_that_normalises_behind_it():
    """Of BERT it is the block's input, not what its norm gets."""
    pytest.importorskip("transformers")
    model, ids = hf_bert(), make_ids()
    model, batch = make_batch(model, ids, torch.tensor([0, 1, 2]))
    ((_, _, _, _, watch),) = attended(model, batch, 0, kind=Streams)
    said = model.net(
        input_ids=ids, attention_mask=(ids != 0).long(), output_hidden_states=True
    ).hidden_states
    for number, layer in enumerate(model.net.bert.encoder.layer):
        z = said[number]
        passed = layer.attention.self.value(z) @ layer.attention.output.dense.weight.T
        close(watch.passed[number], passed.norm(dim=-1) / z.norm(dim=-1))


def test_texts_are_scaled_behind_their_embedding():
    """Words, places and norm together, as a hook on the embeddings would do it."""
    pytest.importorskip("transformers")
    model, ids, y = hf_bert(), make_ids((6, 6), 6), torch.tensor([0, 1])
    net = hf_bert("eager").net
    total = 0
    for a in np.linspace(0, 1, STEPS):
        handle = net.bert.embeddings.register_forward_hook(lambda m, i, o, a=a: o * a)
        said = net(input_ids=ids, attention_mask=torch.ones_like(ids), output_attentions=True)
        handle.remove()
        scalar = said.logits.gather(1, y[:, None]).sum()
        total = total + torch.autograd.grad(scalar, said.attentions[-1])[0]
    feedback = (total / STEPS).clamp(min=0).mean(1)[:, 0]
    maps = assay.explain(model, ids, y, "bt_token", steps=STEPS, start=2)
    last = said.attentions[-1].mean(1)[:, 0].detach()
    ratio = maps[:, 1:] / (last * feedback)[:, 1:].clamp(min=1e-30)  # what tokens pass on
    assert bool((maps[:, 1:][feedback[:, 1:] == 0] == 0).all())
    model, batch = make_batch(model, ids, y)
    ((_, _, _, _, watch),) = attended(model, batch, 2, kind=Streams)
    there = feedback[:, 1:] > 0
    close(ratio[there], watch.passed[-1][:, 1:][there])


class Embedding(nn.Module):
    """Words and places."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(30, 8), nn.Parameter(torch.randn(9, 8))

    def forward(self, ids):
        return self.words(ids) + self.places


class Text(nn.Module):
    """The same network with its words at the root or inside; its blocks one after another or not.

    `parallel` blocks add their attention to the MLP of what enters them, and both to that.
    """

    def __init__(self, kind="inside", parallel=False):
        super().__init__()
        torch.manual_seed(0)
        self.kind, self.parallel, embedding = kind, parallel, Embedding()
        if kind == "root":
            self.words, self.places = embedding.words, embedding.places
        else:
            self.embedding = embedding
        self.attentions = nn.ModuleList(nn.MultiheadAttention(8, 2) for _ in range(2))
        self.mlps = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))
        self.head = nn.Linear(8, 3)

    def begin(self, ids):
        x = self.words(ids) + self.places if self.kind == "root" else self.embedding(ids)
        if self.kind == "normed":  # by hand, before any block
            x = (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True)
        return x.transpose(0, 1)

    def forward(self, ids):
        x = self.begin(ids)
        for attention, mlp in zip(self.attentions, self.mlps, strict=True):
            said = attention(x, x, x)[0]
            x = said + mlp(x).relu() + x if self.parallel else (x + said) + mlp(x + said).relu()
        return self.head(x[0])


def as_text(net, embedding="embedding.words"):
    return assay.model(net.eval(), tokens=assay.Tokens(0, embedding=embedding))


@pytest.mark.parametrize("name", ["bt_head", "bt_token"])
def test_it_matters_not_where_the_embedding_stands(name):
    ids, y = make_ids((9, 9, 9)), torch.tensor([0, 1, 2])
    inside, root = as_text(Text()), as_text(Text("root"), "words")
    assert torch.equal(inside.net(ids), root.net(ids))
    maps = assay.explain(inside, ids, y, name)
    assert float(maps.abs().sum()) > 0
    assert torch.equal(assay.explain(root, ids, y, name), maps)


@pytest.mark.parametrize("kind", ["root", "inside", "normed"])
def test_what_enters_the_first_block_is_scaled(kind):
    net = Text(kind).eval()
    model = as_text(net, "words" if kind == "root" else "embedding.words")
    ids = make_ids((9, 9, 9))
    model, batch = make_batch(model, ids, torch.tensor([0, 1, 2]))
    ((samples, at, _, found, watch),) = attended(model, batch, 0, kind=Entering)
    scaled = Scaled(3, 0, watch.entry(found.logits), 0.3)
    ours = attend(model, batch, samples, at, scaled)
    first, _ = ours.heads(ours.maps)
    x = net.begin(ids) * 0.3
    _, expected = net.attentions[0](x, x, x, average_attn_weights=False)
    close(first, expected)


def test_without_a_way_past_the_attention_nothing_enters():
    class Bare(Text):
        def forward(self, ids):
            x = self.begin(ids)
            return self.head(self.attentions[0](x, x, x)[0][0])

    with pytest.raises(assay.NotApplicable, match="first block cannot be found"):
        assay.explain(as_text(Bare()), make_ids((9, 9, 9)), [0, 1, 2], "bt_head")


def test_blocks_whose_parts_stand_side_by_side():
    """What enters the block is divided by, not what its MLP gives."""
    net = Text(parallel=True).eval()
    model, ids = as_text(net), make_ids((9, 9, 9))
    model, batch = make_batch(model, ids, torch.tensor([0, 1, 2]))
    ((_, _, _, _, watch),) = attended(model, batch, 0, kind=Streams)
    z, attention = net.begin(ids), net.attentions[0]
    values = z @ attention.in_proj_weight[16:].T + attention.in_proj_bias[16:]
    passed = values @ attention.out_proj.weight.T
    close(watch.passed[0], (passed.norm(dim=-1) / z.norm(dim=-1)).T)


def test_heads_without_gradient_count_alike():
    a = torch.rand(2, 3, 4, 4).softmax(-1)
    torch.testing.assert_close(_weigh_heads(a, torch.zeros_like(a)), a.mean(1))


def test_passes_are_as_many_as_steps():
    for name in ("bt_head", "bt_token"):
        assert assay.plugins.registry.get("method", name).passes({"steps": 7}).forward == 7
