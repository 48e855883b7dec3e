"""What is read of a network's attention, against transformers' own words and differences."""

import copy

import pytest
import torch
from torch import nn
from torch.overrides import _get_current_function_mode_stack

import assay
from assay.methods.attending import Attending, attended, layout
from assay.types import Batch
from small_transformers import hf_bert, hf_vit, make_batch, make_ids, make_vit
from small_worlds import make_images, make_net

METHODS = ("rollout", "generic_attention", "attention_gradcam", "chefer_lrp", "bt_head", "bt_token")


def read(model, batch, start=0, **options):
    ((_, _, _, found, _),) = attended(model, batch, start, **options)
    return found


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_attention_and_gradients_are_those_of_transformers(attention):
    pytest.importorskip("transformers")
    x, y = make_images(3)
    model = assay.model(hf_vit(attention))
    found = read(*make_batch(model, x, y))
    theirs = hf_vit("eager").requires_grad_(True)(pixel_values=x, output_attentions=True)
    scalar = theirs.logits.gather(1, y[:, None]).sum()
    slopes = torch.autograd.grad(scalar, theirs.attentions)
    assert len(found.maps) == len(theirs.attentions) == found.depth == 3
    pairs = zip(found.heads(found.maps), found.gradients("logit"), strict=True)
    for (ours, slope), a, g in zip(pairs, theirs.attentions, slopes, strict=True):
        torch.testing.assert_close(ours, a, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(slope, g, rtol=1e-4, atol=1e-5 * float(g.abs().max()))
    torch.testing.assert_close(found.logits, theirs.logits, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_padding_is_not_attended_to(attention):
    pytest.importorskip("transformers")
    ids, model = make_ids(), hf_bert(attention)
    found = read(*make_batch(model, ids, torch.tensor([0, 1, 2])))
    theirs = hf_bert("eager").net(
        input_ids=ids, attention_mask=(ids != 0).long(), output_attentions=True
    )
    for ours, a in zip(found.heads(found.maps), theirs.attentions, strict=True):
        torch.testing.assert_close(ours, a, rtol=1e-4, atol=1e-6)
        assert bool((ours.transpose(-1, -2)[(ids == 0)[:, None].expand(-1, 2, -1)] == 0).all())


class Moved(Attending):
    """One number of one layer's attention moved."""

    def __init__(self, rows, layer, place, by):
        super().__init__(rows)
        self.layer, self.place, self.by = layer, place, by

    def take(self, attention):
        if self.depth == self.layer:
            attention = attention.clone()
            attention[(slice(None), *self.place)] += self.by
        return super().take(attention)


@pytest.mark.parametrize("output", ["logit", "probability", "log_odds"])
def test_gradients_are_differences(output):
    """In double precision, with the answer as a function of single attentions."""
    net, (x, y) = make_vit().double(), make_images(2)
    model = assay.model(net)
    model, batch = make_batch(model, x.double(), y)
    slopes = read(model, batch).gradients(output)

    def answer(layer, place, by):
        from assay.methods.gradients import explained

        with Moved(2, layer, place, by), torch.no_grad():
            return explained(model, model.logits(batch.inputs), batch.targets, output)

    for layer, place in ((0, (1, 3, 5)), (1, (0, 0, 16)), (2, (1, 0, 2)), (2, (0, 4, 4))):
        up, down = (answer(layer, place, by) for by in (1e-5, -1e-5))
        expected = (up - down) / 2e-5
        torch.testing.assert_close(slopes[layer][(slice(None), *place)], expected,
                                   rtol=1e-5, atol=1e-9)  # fmt: skip


def test_gradients_do_not_depend_on_where_they_stop():
    model = assay.model(make_vit())
    model, batch = make_batch(model, *make_images(2))
    whole, part = read(model, batch), read(model, batch, 2)
    assert len(part.maps) == 1
    assert part.maps[0].is_leaf
    assert torch.equal(whole.gradients("logit")[2], part.gradients("logit")[0])


class Words(nn.Module):
    """Words through PyTorch's own encoder, behind a token of the network's own."""

    def __init__(self, batch_first=True, norm_first=False, activation="gelu"):
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.turned = nn.Embedding(30, 8), not batch_first
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                8, 2, 12, 0.0, activation, batch_first=batch_first, norm_first=norm_first
            )
            for _ in range(2)
        )
        self.head, self.first = nn.Linear(8, 3), nn.Parameter(torch.randn(8))

    def forward(self, ids):
        x, absent = self.begin(ids)
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=absent)
        return self.head(x[0] if self.turned else x[:, 0])

    def begin(self, ids):
        words = self.embedding(ids)
        x = torch.cat([self.first.expand(len(ids), 1, 8), words], 1)
        absent = nn.functional.pad(ids == 0, (1, 0), value=False)
        return x.transpose(0, 1) if self.turned else x, absent


@pytest.mark.parametrize("batch_first", [True, False])
def test_pytorchs_own_attention_is_seen(batch_first):
    """Its maps are what `need_weights` gives, the logits are unchanged."""
    net = Words(batch_first).eval()
    model = assay.model(net, tokens=assay.Tokens(0, special=frozenset({1, 2})))
    ids = make_ids()
    found = read(*make_batch(model, ids, torch.tensor([0, 1, 2])))
    torch.testing.assert_close(found.logits, net(ids), rtol=1e-4, atol=1e-5)
    x, absent = net.begin(ids)
    _, weights = net.layers[0].self_attn(
        x, x, x, key_padding_mask=absent, average_attn_weights=False
    )
    torch.testing.assert_close(found.heads(found.maps)[0], weights, rtol=1e-4, atol=1e-6)
    both = [
        assay.explain(assay.model(Words(first).eval(), tokens=model.tokens), ids, [0, 1, 2], name)
        for first in (True, False)
        for name in METHODS
    ]
    for one, other in zip(both[:6], both[6:], strict=True):  # the layout is nobody's business
        assert one.shape == ids.shape
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6 * float(one.abs().max()))


class Padded(Words):
    """The layers in PyTorch's own stack, which packs texts of different lengths when it may."""

    def __init__(self, packs):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 12, 0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=packs)

    def forward(self, ids):
        x, absent = self.begin(ids)
        return self.head(self.layers(x, src_key_padding_mask=absent)[:, 0])


def test_texts_that_are_packed_are_explained():
    ids, tokens = make_ids(), assay.Tokens(0, special=frozenset({1, 2}))
    for name in ("rollout", "lrp"):
        packed, plain = (
            assay.explain(assay.model(Padded(packs), tokens=tokens), ids, [0, 1, 2], name)
            for packs in (True, False)
        )
        torch.testing.assert_close(packed, plain, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["rollout", "lrp", "deeplift"])
def test_self_attention_may_compute_its_tokens_thrice(name):
    class Block(nn.Module):
        def __init__(self, thrice):
            super().__init__()
            torch.manual_seed(0)
            self.patches, self.head = nn.Conv2d(3, 8, 4, 4), nn.Linear(8, 4)
            self.norm, self.thrice = nn.LayerNorm(8), thrice
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x):
            x = self.patches(x).flatten(2).transpose(1, 2)
            one = [self.norm(x)] * 3
            told = [self.norm(x) for _ in range(3)] if self.thrice else one
            return self.head((x + self.attention(*told)[0]).mean(1))

    x, y = make_images(2)
    once, thrice = (assay.explain(Block(t), x, y, name) for t in (False, True))
    torch.testing.assert_close(thrice, once, rtol=1e-4, atol=1e-6)


def test_the_tokens_that_are_read_are_found():
    for pool, expected in (("class", range(1)), ("mean", range(1, 17))):
        model = assay.model(make_vit(pool=pool))
        row = read(*make_batch(model, *make_images(2))).read()[1]
        assert row.nonzero().flatten().tolist() == list(expected)
        assert row.sum() == pytest.approx(1)


def test_tokens_are_laid_out_over_the_input():
    def image(height, width):
        return Batch(("a",), torch.zeros(1, 3, height, width), torch.zeros(1))

    assert layout(image(224, 224), 197) == (1, (14, 14))
    assert layout(image(224, 224), 198) == (2, (14, 14))  # a token for distillation
    assert layout(image(224, 224), 261) == (5, (16, 16))  # registers
    assert layout(image(32, 32), 64) == (0, (8, 8))
    assert layout(image(32, 64), 33) == (1, (4, 8))
    assert layout(image(32, 32), 25, (4, 4)) == (9, (4, 4))  # a convolution says so
    with pytest.raises(assay.NotApplicable, match=r"16 tokens, but .* into 8 x 8 patches"):
        layout(image(32, 32), 16, (8, 8))  # a window of them
    words = Batch(("a",), torch.zeros(1, 7), torch.zeros(1))
    assert layout(words, 8) == (1, (7,))
    with pytest.raises(assay.NotApplicable, match="tokens"):
        layout(words, 6)


@pytest.mark.parametrize("name", METHODS)
def test_nothing_stays_behind(name):
    """No hook, gradient, mode or changed configuration, also after an error on the way."""
    pytest.importorskip("transformers")
    net, (x, y) = hf_vit("sdpa").train(), make_images(2)
    before, config = copy.deepcopy(net.state_dict()), net.config.to_dict()
    assay.explain(net, x, y, name)

    def break_down(module, inputs, output):
        if torch.is_grad_enabled():
            raise RuntimeError("broken down")

    handle = net.classifier.register_forward_hook(break_down)
    with pytest.raises(RuntimeError, match="broken down"):
        assay.explain(net, x, y, name)
    handle.remove()
    assert net.training
    assert net.config._attn_implementation == "sdpa"
    assert net.config.to_dict() == config
    assert all(torch.equal(before[k], v) for k, v in net.state_dict().items())
    assert all(p.grad is None and p.requires_grad for p in net.parameters())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in net.modules())
    assert not _get_current_function_mode_stack()


class Odd(nn.Module):
    """A network whose attention these methods cannot use."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.conv = kind, nn.Conv2d(3, 4, 4, 4)
        self.attention, self.head = nn.Identity(), nn.Linear(4, 4)
        self.cross = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x):
        x = self.conv(x).flatten(2).transpose(1, 2)  # [B, 16, 4]
        if self.kind == "windows":
            parts = x.reshape(-1, 1, 4, 4)
            x = nn.functional.scaled_dot_product_attention(parts, parts, parts).reshape(x.shape)
        if self.kind == "narrow":
            x = x + nn.functional.scaled_dot_product_attention(x[:, None], x[:, None, :8],
                                                               x[:, None, :8])[:, 0]  # fmt: skip
        if self.kind == "cross":
            x = x + self.cross(x, x.flip(1), x)[0]
        return self.head(x.mean(1))


class OneAxisAttention(nn.Module):
    """Several attentions of a sample in one axis with the samples: of its heads, or windows."""

    def __init__(self, kind):
        super().__init__()
        torch.manual_seed(0)
        self.kind, self.patches = kind, nn.Conv2d(3, 8, 2, 2)
        self.pool = nn.MaxPool2d(2) if kind == "pooled heads" else nn.Identity()
        self.attention, self.head = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x):
        x = self.pool(self.patches(x)).flatten(2).transpose(1, 2)  # [n, s, 8]
        count, length, _ = x.shape
        if "heads" in self.kind:  # [n 2, s, 4]
            parts = x.reshape(count, length, 2, 4).transpose(1, 2).reshape(-1, length, 4)
        else:  # [n 4, s / 4, 8]
            parts = x.reshape(count * 4, -1, 8)
        said = (parts @ parts.mT).softmax(-1) @ parts
        if "heads" in self.kind:
            said = said.reshape(count, 2, length, 4).transpose(1, 2).flatten(2)
        elif self.kind == "windows, joined first":
            said = said.reshape(x.shape)
        return self.head((x + self.attention(said).reshape(x.shape)).mean(1))


@pytest.mark.parametrize("kind", ["windows", "windows, joined first"])
@pytest.mark.parametrize("name", METHODS)
def test_windows_are_not_taken_for_heads(kind, name):
    x, y = make_images(3)
    with pytest.raises(assay.NotApplicable, match=r"windows|output projection"):
        assay.explain(OneAxisAttention(kind), x, y, name)


@pytest.mark.parametrize("kind", ["heads", "pooled heads"])
def test_heads_in_one_axis_with_samples_are_explained(kind):
    x, y = make_images(3)
    assert float(assay.explain(OneAxisAttention(kind), x, y, "rollout").abs().sum()) > 0


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("windows", "windows"), ("narrow", "16 tokens to 8"), ("cross", "self-attention"),
     ("none", "No attention was seen")],
)  # fmt: skip
def test_other_attention_is_not_explained(kind, reason):
    x, y = make_images(3)
    with pytest.raises(assay.NotApplicable, match=reason):
        assay.explain(Odd(kind), x, y, "rollout")


def test_networks_without_attention_are_not_explained():
    x, y = make_images(2)
    with pytest.raises(assay.NotApplicable, match="needs attention"):
        assay.explain(make_net(), x, y, "rollout")


def test_a_start_beyond_the_last_layer_is_refused():
    x, y = make_images(2)
    with pytest.raises(assay.InputError, match="below 3"):
        assay.explain(make_vit(), x, y, "rollout", start=3)
