"""Areas are over the shares really removed: only whole units can be."""

import itertools

import pytest
import torch
from torch import nn

import assay
from assay.types import Batch
from assay.units.absent import by_rank, rank_counts
from assay.units.features import make_units

WEIGHTS = torch.tensor([[0.3, 0.25, 0.2, 0.15, 0.1]])  # of five units; all there sums to 1


class Sum(nn.Module):
    """The first logit is the sum of the inputs, the second one zero."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = x.sum(1, keepdim=True)
        return torch.cat([total, torch.zeros_like(total)], 1)


def score(protocol: str, weights: torch.Tensor = WEIGHTS, **options) -> float:
    target = torch.zeros(len(weights), dtype=torch.long)
    return float(assay.score(Sum(), weights, target, weights, protocol, **options)[0])


def test_deletion_of_five_units_in_three_steps():
    """0, 2, 3 and 5 units go: 1, .45, .25, 0 at 0, .4, .6, 1; at thirds it would be .400."""
    assert score("deletion", steps=3, output="logit") == pytest.approx(0.41, abs=1e-6)


def test_insertion_of_five_units_in_three_steps():
    """2, 3 and 5 of them come: 0, .55, .75, 1 at 0, .4, .6, 1."""
    assert score("insertion", steps=3, output="logit") == pytest.approx(0.59, abs=1e-6)


def test_shares_that_divide_the_units_have_the_same_area():
    every = score("deletion", steps=5, output="logit")
    left = [1, 0.7, 0.45, 0.25, 0.1, 0]
    expected = sum((a + b) / 10 for a, b in itertools.pairwise(left))
    assert every == pytest.approx(expected, abs=1e-6)
    assert score("deletion", steps=(0, 0.2, 1), output="logit") == pytest.approx(0.45, abs=1e-6)


@pytest.mark.parametrize(("protocol", "expected"), [("accuracy_morf", 0.5), ("accuracy_lerf", 0.8)])
def test_accuracy_falls_at_the_share_really_removed(protocol, expected):
    """0, 2, 3 and 5 units go; the prediction is right while more than .3 of the sum is left.

    Most relevant first 1, .45, .25 and 0 are left, so it falls between .4 and .6. Least relevant
    first 1, .75, .55 and 0 are left, so it falls between .6 and 1.
    """

    class Threshold(Sum):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) + torch.tensor([-0.3, 0.0])

    labels = torch.zeros(1, dtype=torch.long)
    value = assay.score(Threshold(), WEIGHTS, labels, WEIGHTS, protocol, steps=3)[0]
    assert float(value) == pytest.approx(expected)


@pytest.mark.parametrize("whole", ["nearest", "removed", "kept"])
@pytest.mark.parametrize("descending", [True, False])
def test_counts_are_those_of_the_sets(descending, whole):
    batch = Batch(["a"], WEIGHTS, torch.zeros(1, dtype=torch.long))
    features = make_units(batch, "elements")
    shares = [0, 0.1, 0.3, 1 / 3, 0.5, 2 / 3, 0.9, 1]
    absent = by_rank(batch, features, WEIGHTS, shares, descending=descending, whole=whole)
    rows = torch.arange(len(shares))
    sets = absent.make(torch.zeros_like(rows), rows)
    counts = rank_counts(features, shares, descending=descending, whole=whole)
    assert sets.sum(1).tolist() == counts[0].tolist()


def test_authors_round_numbers_of_pixels_down():
    """K = int(H * W * ratio) of 224 x 224 pixels, as SoCo and ROAD count them."""
    x = torch.zeros(1, 1, 224, 224)
    features = make_units(Batch(("a",), x, torch.zeros(1, dtype=torch.long)), "elements")
    ratios = [k / 100 for k in range(98, 2, -1)]
    expected = [int(224 * 224 * ratio) for ratio in ratios]
    assert expected[:2] + expected[-1:] == [49172, 48670, 1505]
    for descending in (True, False):
        removed = rank_counts(features, ratios, descending=descending, whole="removed")
        assert removed[0].tolist() == expected
        left = [1 - ratio for ratio in ratios]
        kept = 224 * 224 - rank_counts(features, left, descending=descending, whole="kept")
        assert kept[0].tolist() == expected


def test_the_mean_drop_has_no_x():
    """`morf` is a mean over steps, as in the paper: (0 + .55 + .75 + 1) / 4."""
    assert score("morf", steps=3, output="logit") == pytest.approx(0.575, abs=1e-6)
