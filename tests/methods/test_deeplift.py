"""DeepLIFT: its shares add up, on every network it has rules for, and are Shapley's where known."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import assay
import real_networks
from assay.data.memory import as_dataset
from assay.methods.attribution import raw_map
from assay.suite.spec import choose_one
from methods.zoo import STYLES, make_zoo, zoo_images
from small_worlds import make_images, make_net


def answers(net, x, y, output="logit"):
    with torch.no_grad():
        logits = net(x)
        log_probs = logits.log_softmax(1)
    if output == "log_odds":
        return torch.logit(log_probs.exp()).gather(1, y[:, None])[:, 0]
    return (logits if output == "logit" else log_probs.exp()).gather(1, y[:, None])[:, 0]


def assert_complete(net, x, y, output="logit", start=None, atol=1e-12, **options):
    maps = assay.explain(net, x, y, "deeplift", output=output, **options)
    start = torch.zeros_like(x) if start is None else start
    change = answers(net, x, y, output) - answers(net, start, y, output)
    assert change.abs().max() > 1e-3
    assert torch.allclose(maps.flatten(1).sum(1), change, atol=atol)


@pytest.mark.parametrize("style", STYLES)
def test_the_way_a_network_is_written_does_not_matter(style):
    x, y = zoo_images()
    plain, styled = (assay.explain(make_zoo(s), x, y, "deeplift") for s in ("plain", style))
    assert plain.abs().max() > 0
    assert torch.allclose(styled, plain, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("output", ["logit", "probability", "log_odds"])
def test_shares_add_up_through_gates_pools_and_sums(output):
    x, y = zoo_images()
    assert_complete(make_zoo(), x, y, output)
    fill = torch.tensor([0.3, -0.2, 0.1], dtype=torch.float64)
    start = fill[:, None, None].expand_as(x)
    assert_complete(make_zoo(), x, y, output, start=start, baseline=fill)


class Attending(nn.Module):
    """Attention between the rows of an image, with layer norms, by hand or by the operator."""

    def __init__(self, fused: bool, smooth: nn.Module) -> None:
        super().__init__()
        self.fused, self.smooth = fused, smooth
        self.read, self.norm = nn.Linear(24, 12), nn.LayerNorm(12)
        self.query, self.key, self.value = (nn.Linear(12, 12) for _ in range(3))
        self.group, self.head = nn.GroupNorm(2, 8), nn.Linear(12, 4)

    def forward(self, x):
        x = self.norm(self.read(x.transpose(1, 2).flatten(2)))  # [B, rows, 12]
        q, k, v = self.query(x), self.key(x), self.value(x)
        if self.fused:
            mixed = F.scaled_dot_product_attention(q, k, v)
        else:
            mixed = torch.softmax(q @ k.mT / math.sqrt(12), -1) @ v
        x = self.group(x + self.smooth(mixed))
        return self.head(x.amax(1) / (1 + x.square().sum(1)))


@pytest.mark.parametrize("smooth", [nn.GELU(), nn.SiLU(), nn.Tanh(), nn.ELU()], ids=repr)
def test_shares_add_up_through_attention(smooth):
    x, y = zoo_images()
    maps = []
    for fused in (False, True):
        torch.manual_seed(0)
        net = Attending(fused, smooth).double()
        assert_complete(net, x, y)
        maps.append(assay.explain(net, x, y, "deeplift"))
    assert torch.allclose(*maps, atol=1e-12)


class Masked(nn.Module):
    """The first token looks at all that are not masked; the logits are what it finds."""

    def __init__(self, mask: torch.Tensor, fused: bool) -> None:
        super().__init__()
        self.mask, self.fused = mask, fused
        self.query, self.key, self.value = (nn.Linear(5, 5) for _ in range(3))

    def forward(self, x):  # [B, tokens, 5]
        q, k, v = self.query(x[:, :1]), self.key(x), self.value(x)
        if self.fused:
            return F.scaled_dot_product_attention(q, k, v, self.mask)[:, 0]
        scores = q @ k.mT / math.sqrt(5)
        if self.mask.dtype == torch.bool:
            return (scores.masked_fill(~self.mask, -torch.inf).softmax(-1) @ v)[:, 0]
        return ((scores + self.mask).softmax(-1) @ v)[:, 0]


SEEN = torch.tensor([True, True, False, True, False])


@pytest.mark.parametrize("fused", [False, True], ids=["by_hand", "fused"])
@pytest.mark.parametrize(
    "mask",
    [
        SEEN,
        torch.where(SEEN, 0.0, -torch.inf).double(),
        torch.where(SEEN, 0.0, torch.finfo(torch.float32).min).double(),
    ],
    ids=["boolean", "minus_infinity", "smallest"],
)
def test_what_is_masked_has_no_share(mask, fused):
    torch.manual_seed(0)
    net = Masked(mask, fused).double()
    x, y = torch.randn(3, 5, 5, dtype=torch.float64), torch.arange(3)
    assert_complete(net, x, y)
    maps = assay.explain(net, x, y, "deeplift", reduce="none")
    assert (maps[:, ~SEEN] == 0).all()
    assert (maps[:, SEEN] != 0).all()


def test_who_sees_nothing_changes_nothing():
    net = Masked(torch.zeros(5, dtype=torch.bool), fused=True).double()
    x, y = torch.randn(3, 5, 5, dtype=torch.float64), torch.arange(3)
    assert (assay.explain(net, x, y, "deeplift", reduce="none") == 0).all()


def test_shares_add_up_through_multi_head_attention():
    """PyTorch's own layer, whose attention is one operator."""

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.TransformerEncoderLayer(6, 2, 8, 0.0, "gelu", batch_first=True)

        def forward(self, x):
            return self.layer(x, src_key_padding_mask=~SEEN.expand(len(x), -1))[:, 0]

    torch.manual_seed(0)
    net, x = Encoder().double().eval(), torch.randn(3, 5, 6, dtype=torch.float64)
    assert_complete(net, x, torch.arange(3))


@pytest.mark.parametrize("scale", [1.0, 1e2, 1e4])
def test_scores_may_lie_far_apart_in_the_two_runs(scale):
    """Where the powers of one run vanish beside the other's; a shift of all changes nothing."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(scale).double())

        def forward(self, x):
            return torch.softmax(self.scale * (x[:, :3] + x[:, 3:]), -1)

    x = torch.tensor([[0.1, -0.2, 0.3, 2.0, 2.0, 2.0], [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]])
    x = x.double()
    maps = assay.explain(Net(), x, torch.tensor([2, 2]), "deeplift")
    change = torch.softmax(scale * x[:, :3], 1)[:, 2] - 1 / 3
    assert torch.allclose(maps.sum(1), change, atol=1e-9)
    assert maps.abs().max() < 10 * scale


@pytest.mark.parametrize("network", [real_networks.minilm, real_networks.bert, real_networks.vit])
def test_shares_add_up_on_transformers(network):
    model, batch = (world := network()).model, world.batch
    if model.tokens is not None:  # the end of one text is padding, which is masked
        batch.inputs[1, -5:] = model.tokens.pad
    for method in ("deeplift", {"deepshap": {"baselines": 2}}):
        choice = choose_one("method", method)
        with model.evaluating(), torch.no_grad():
            maps = raw_map(model, batch, choice)
            gaps = choice.promise.function(model, batch, maps, choice.options)
        assert float(gaps.max()) < 1e-3
        if method == "deeplift" and model.tokens is not None:
            told = (maps != 0).any(2)
            assert told[0].all()
            assert not told[1, -5:].any()


def test_rescale_by_hand():
    """f = 2 relu(3 a - b): the ratio of the rectifier between x and the baseline, times 2 w."""
    net = nn.Sequential(nn.Linear(2, 1), nn.ReLU(), nn.Linear(1, 2, bias=False)).double()
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([[3.0, -1.0]]))
        net[0].bias.fill_(-1)
        net[2].weight.copy_(torch.tensor([[2.0], [0.0]]))
    x, y = torch.tensor([[2.0, 1.0], [0.1, 1.0]], dtype=torch.float64), torch.zeros(2).long()
    # Before the rectifier: -1 at the baseline, 4 and -1.7 at the samples.
    expected = torch.tensor([[2 * 4 / 5 * 6, 2 * 4 / 5 * -1], [0, 0]], dtype=torch.float64)
    assert torch.allclose(assay.explain(net, x, y, "deeplift"), expected)


def test_the_winner_takes_the_change_of_a_maximum():
    net = nn.Sequential(nn.Unflatten(1, (1, 3)), nn.MaxPool1d(3), nn.Flatten())
    net.append(nn.Linear(1, 2, bias=False)).double()
    with torch.no_grad():
        net[3].weight.copy_(torch.tensor([[1.0], [0.0]]))
    x = torch.tensor([[5.0, 1.0, 2.0], [0.5, -2.0, 0.7]], dtype=torch.float64)
    start = torch.tensor([1.0, 3.0, 2.0], dtype=torch.float64)
    maps = assay.explain(net, x, torch.zeros(2).long(), "deeplift", baseline=start)
    # It rises from 3 to 5 by the first, and falls from 3 to 0.7 as the second leaves.
    expected = torch.tensor([[2.0, 0, 0], [0, -2.3, 0]], dtype=torch.float64)
    assert torch.allclose(maps, expected)


class Additive(nn.Module):
    """f(x) = the sum of functions of one input each."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(0.3, dtype=torch.float64))

    def forward(self, x):
        a, b, c, d = x.unbind(1)
        one = F.relu(a) + torch.sigmoid(2 * b) + c.square() + torch.exp(d) * self.factor
        return torch.stack([one, -one], 1)


def shapley(net, x, y, references):
    """Exact values of the game whose absent players come from the references."""
    players = x.shape[1]
    found = torch.zeros_like(x)
    for row, target in enumerate(y):
        worth = {}
        for size in range(players + 1):
            for present in itertools.combinations(range(players), size):
                mixed = references.clone()
                mixed[:, list(present)] = x[row, list(present)]
                worth[frozenset(present)] = net(mixed)[:, target].mean()
        for order in itertools.permutations(range(players)):
            for k, player in enumerate(order):
                gained = worth[frozenset(order[: k + 1])] - worth[frozenset(order[:k])]
                found[row, player] += gained / math.factorial(players)
    return found


def test_deepshap_gives_shapley_values_of_an_additive_game():
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = torch.arange(6) % 2
    dataset = as_dataset((x, y))
    references = dataset.batch(dataset.ids).reference(3)
    maps = assay.explain(Additive(), x, y, "deepshap", baselines=3)
    assert torch.allclose(maps, shapley(Additive(), x, y, references).detach(), atol=1e-12)


def test_deepshap_from_one_baseline_is_deeplift():
    net, (x, y) = make_net(), make_images(4)
    ours, plain = (assay.explain(net, x, y, name) for name in ("deepshap", "deeplift"))
    assert torch.equal(ours, plain)


def test_too_few_samples_for_so_many_baselines():
    net, (x, y) = make_net(), make_images(4)
    with pytest.raises(assay.NotApplicable, match="takes 9 samples as baselines"):
        assay.explain(net, x, y, "deepshap", baselines=9)


class Sorting(nn.Module):
    def forward(self, x):
        return x.flatten(1).sort(1).values[:, :3]


class Choosing(nn.Module):
    """A rectifier whose condition no rule can see."""

    def forward(self, x):
        flat = x.flatten(1) + 1
        return torch.where(flat > 1, flat, 0.3 * flat)[:, :3]


class Wandering(nn.Module):
    def forward(self, x):
        flat = x.flatten(1)[:, :3]
        return flat.relu() if bool(flat.abs().max() > 0) else flat.sigmoid()


@pytest.mark.parametrize(
    ("net", "reason"),
    [
        (Sorting(), "DeepLIFT has no rule for the operator `sort`"),
        (Choosing(), "The shares add up to"),
        (Wandering(), "other operators at the baseline"),
    ],
    ids=["sorting", "choosing", "wandering"],
)
def test_what_has_no_rule_is_said(net, reason):
    x, y = torch.linspace(-2, 2, 18).reshape(2, 1, 3, 3), torch.zeros(2).long()
    with pytest.raises(assay.NotApplicable, match=reason):
        assay.explain(net, x, y, "deeplift")


def test_what_only_looks_on_needs_no_rule():
    class Looking(nn.Module):
        def forward(self, x):
            flat = x.flatten(1)
            flat.sort(1)
            return flat[:, :3] * (flat.argmax(1, keepdim=True) >= 0)

    x, y = torch.randn(2, 1, 3, 3), torch.zeros(2).long()
    expected = assay.explain(Looking(), x, y, "input_x_gradient")
    assert torch.allclose(assay.explain(Looking(), x, y, "deeplift"), expected)


class Normed(nn.Module):
    """A residual step behind a layer norm, which is at its steepest where the stream is zero."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(32)
        self.grow, self.shrink = (nn.Linear(*s, bias=False) for s in ((32, 64), (64, 32)))

    def forward(self, x):
        return x + self.shrink(F.relu(self.grow(self.norm(x))))


@pytest.mark.parametrize("depth", [4, 8, 12])
def test_shares_that_drown_in_rounding_are_refused(depth):
    """Each norm multiplies by 1 / sqrt(eps): large shares are no reason to miss by more."""
    torch.manual_seed(0)
    first, steps = nn.Linear(16, 32, bias=False), [Normed() for _ in range(depth)]
    net = nn.Sequential(first, *steps, nn.Linear(32, 4))
    x, y = torch.randn(3, 16), torch.arange(3)
    with pytest.raises(assay.NotApplicable, match=r"too much for torch.float32.*uniform, blur"):
        assay.explain(net, x, y, "deeplift")
    start = torch.randn(16)
    assert_complete(net, x, y, start=start.expand_as(x), atol=1e-4, baseline=start)


def test_an_answer_near_zero_is_no_reason_to_refuse():
    """Its shares are as exact as those of larger answers."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(99, 50, bias=False), nn.ReLU(), nn.Linear(50, 2, bias=False))
    x, y = torch.randn(1, 99), torch.zeros(1).long()
    hidden, head = net[:2](x).detach(), net[2].weight
    with torch.no_grad():  # the first answer is what rounding makes of zero
        head[0] -= (head[0] @ hidden[0]) / hidden.square().sum() * hidden[0]
    assert answers(net, x, y).abs() < 1e-6
    maps = assay.explain(net, x, y, "deeplift")
    assert maps.abs().sum() > 0.1
    assert maps.sum().abs() < 1e-5
