"""In-domain single deletion: exact maps score 1, invariances, ties, counted constants, sharing."""

import copy

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from torch import nn

import assay
from assay.conformance.worlds import LinearImages, designed_card, make_images, make_net
from assay.data.memory import as_dataset
from assay.plan.applicable import applicable
from assay.ranking.arithmetic import spearman
from assay.suite.defaults import IN_DOMAIN_METHODS

PROTOCOL = "in_domain_single_deletion"


def carded(net, grid=4, fill="zero"):
    model = assay.model(net)
    return assay.model(model, card=designed_card(grid, fill, model.weights_hash))


class Additive(nn.Module):
    """The sum over grid cells of a non-linear function of each cell alone."""

    def __init__(self, grid=4, side=8, classes=3):
        super().__init__()
        torch.manual_seed(0)
        self.size = side // grid
        self.mix = nn.Conv2d(3, 16, self.size, stride=self.size)
        self.out = nn.Conv2d(16, classes, 1)

    def cells(self, x):  # [B, classes, grid, grid]
        return self.out(torch.tanh(self.mix(x)) ** 2)

    def forward(self, x):
        return self.cells(x).sum((2, 3))


def test_the_exact_map_of_a_linear_network_scores_1():
    net, (x, _) = LinearImages(), make_images(12, size=8)
    y = net(x).argmax(1)
    exact = (x * net.weight[y]).sum(1).detach()
    for grid in (2, 4, 8):
        scores = assay.score(carded(net, grid), x, y, exact, PROTOCOL, grid=grid)
        assert scores.numpy() == pytest.approx(1, abs=1e-9)
    assert assay.score(carded(net), x, y, -exact, PROTOCOL).numpy() == pytest.approx(-1)


def test_the_exact_map_of_an_additive_network_scores_1():
    net, (x, _) = Additive(), make_images(12, size=8)
    y = net(x).argmax(1)
    whole, nothing = net.cells(x), net.cells(torch.zeros_like(x))
    drops = (whole - nothing).gather(1, y[:, None, None, None].expand(-1, 1, 4, 4))[:, 0].detach()
    exact = drops.repeat_interleave(2, 1).repeat_interleave(2, 2) / 4  # each cell has four pixels
    scores = assay.score(carded(net), x, y, exact, PROTOCOL)
    assert scores.numpy() == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("scale", [1e-3, 7.0, 1e3])
def test_the_scale_of_the_logits_does_not_matter(scale):
    net, (x, y) = make_net(), make_images(8)
    scaled = copy.deepcopy(net)
    with torch.no_grad():
        scaled.head.weight *= scale
        scaled.head.bias *= scale
    maps = torch.randn(8, 16, 16, generator=torch.Generator().manual_seed(0))
    first, second = (assay.score(carded(n), x, y, maps, PROTOCOL) for n in (net, scaled))
    assert first.numpy() == pytest.approx(second.numpy(), abs=1e-12)


def test_a_temperature_moves_probabilities_only():
    net, (x, y) = make_net(), make_images(8)
    scaled = copy.deepcopy(net)
    with torch.no_grad():
        scaled.head.weight *= 9
        scaled.head.bias *= 9
    maps = torch.randn(8, 16, 16, generator=torch.Generator().manual_seed(0))
    first, second = (
        assay.score(carded(n), x, y, maps, PROTOCOL, output="probability") for n in (net, scaled)
    )
    assert not np.allclose(first.numpy(), second.numpy())


def test_ties_are_ranked_as_scipy_ranks_them():
    generator = np.random.default_rng(0)
    sums = generator.integers(0, 4, (200, 16)).astype(float)
    drops = generator.integers(0, 5, (200, 16)).astype(float)
    ours = spearman(sums, drops)
    theirs = [spearmanr(a, d).statistic for a, d in zip(sums, drops, strict=True)]
    assert ours == pytest.approx(theirs, abs=1e-12)


def test_ties_of_a_map_too():
    net, (x, _) = LinearImages(), make_images(6, size=8)
    y = net(x).argmax(1)
    coarse = (x * net.weight[y]).sum(1).detach().sign()  # cells with equal sums
    sums = nn.functional.avg_pool2d(coarse, 2).flatten(1) * 4
    exact = nn.functional.avg_pool2d((x * net.weight[y]).sum(1).detach(), 2).flatten(1)
    expected = [spearmanr(a, d).statistic for a, d in zip(sums, exact, strict=True)]
    assert assay.score(carded(net), x, y, coarse, PROTOCOL).numpy() == pytest.approx(expected)


def test_constant_maps_score_0_and_are_counted():
    net, data = make_net(), make_images(6)
    maps = torch.randn(6, 16, 16, generator=torch.Generator().manual_seed(0))
    maps[:2] = 3.0
    results = assay.benchmark(carded(net), data, [{"mine": maps}], [PROTOCOL], progress=False)
    rows = results.query("select value, status from scores where headline and method = 'mine'")
    statuses, values = rows["status"].to_pylist(), rows["value"].to_pylist()
    assert statuses.count("degenerate") == 2
    assert [v for v, s in zip(values, statuses, strict=True) if s == "degenerate"] == [0.0, 0.0]
    row = next(r for r in results.leaderboard().by_protocol if r.method == "mine")
    assert row.mean == pytest.approx(np.mean(values))  # kept in the mean


def test_all_methods_need_the_deletions_of_one():
    """The network sees each image without each cell once, however many methods there are."""
    x = torch.rand(8, 3, 16, 16, generator=torch.Generator().manual_seed(0)) + 0.5
    y = torch.arange(8) % 4
    cheap = {"rise": {"masks": 8}, "rise_uniform": {"masks": 8}}
    model = carded(make_net())
    fits = applicable("method", IN_DOMAIN_METHODS, model, as_dataset((x, y)))
    methods = [{m: cheap[m]} if isinstance(m, str) and m in cheap else m for m in fits]
    assert len(methods) == 19 + 4  # all of the study that a convolutional network has, and controls
    counted = [_deletions(x, y, chosen) for chosen in (methods[:1], methods)]
    assert counted == [8 * 16, 8 * 16]


def _deletions(x, y, methods):
    """How often the network sees one of the images without one cell."""
    net, count = make_net(), [0]
    # A hook keeps the network from being copied, so that it sees every pass of the run.
    net.register_forward_hook(lambda _, inputs, __: count.__setitem__(0, count[0] + look(inputs)))
    whole = x.unfold(2, 4, 4).unfold(3, 4, 4)  # [n, 3, 4, 4, 4, 4]

    def look(inputs):
        cells = inputs[0].detach().unfold(2, 4, 4).unfold(3, 4, 4)
        gone = (cells == 0).all(-1).all(-1).all(1).flatten(1)  # [B, 16]
        same = (cells[:, None] == whole).all(-1).all(-1).all(2).flatten(2)  # [B, n, 16]
        matches = (same | gone[:, None]).all(-1).any(1)
        return int(((gone.sum(1) == 1) & matches).sum())

    results = assay.benchmark(
        carded(net), (x, y), methods, [PROTOCOL, "single_deletion"], progress=False
    )
    assert not results.failures
    assert {c["status"] for c in results.cells} == {"ok"}
    return count[0]
