"""Squares and bands made of another method's map: where they lie and what they hold."""

import pytest
import torch
from torch import nn

import assay


class Weighted(nn.Module):
    """F(x) = sum w x: integrated gradients are w x, so a map can be had as one likes."""

    def __init__(self, weight: torch.Tensor):
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer = (x * self.weight).sum((1, 2, 3))
        return torch.stack([answer, -answer], 1)


def with_map(map_: torch.Tensor) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """A network and one image whose integrated gradients are this map."""
    return Weighted(map_[None]), torch.ones(1, 1, *map_.shape), torch.zeros(1, dtype=torch.long)


def square(size: int, top: int, left: int, side: int) -> torch.Tensor:
    map_ = torch.zeros(size, size)
    map_[top : top + side, left : left + side] = 1
    return map_


def test_the_square_lies_around_the_centre_of_positive_mass():
    map_ = torch.zeros(32, 32)
    map_[10, 12], map_[14, 20] = 3.0, 1.0  # centre of mass: 11, 14
    map_[25:] = -100  # what speaks against does not count
    ours = assay.explain(*with_map(map_), "rect")[0]
    assert torch.equal(ours, square(32, 7, 10, 9))
    ours = assay.explain(*with_map(map_), "rect", side=3)[0]
    assert torch.equal(ours, square(32, 10, 13, 3))


@pytest.mark.parametrize("size", [224, 32])
def test_its_side_keeps_its_share_of_the_image(size):
    ours = assay.explain(*with_map(torch.ones(size, size)), "rect")[0]
    assert ours.sum() == {224: 60, 32: 9}[size] ** 2


def test_at_the_border_it_is_shifted_inside():
    for place, start in (((0, 0), 0), ((31, 31), 23)):
        map_ = torch.zeros(32, 32)
        map_[place] = 1
        ours = assay.explain(*with_map(map_), "rect")[0]
        assert torch.equal(ours, square(32, start, start, 9))


def test_without_positive_values_it_lies_in_the_middle():
    ours = assay.explain(*with_map(-torch.ones(15, 15)), "rect", side=5)[0]
    assert torch.equal(ours, square(15, 5, 5, 5))


def test_bands_hold_their_mean():
    torch.manual_seed(0)
    map_ = torch.randn(28, 8)
    ours = assay.explain(*with_map(map_), "pooling")[0]
    expected = map_.reshape(7, 4 * 8).mean(1).repeat_interleave(4)[:, None].expand(28, 8)
    assert torch.allclose(ours, expected, atol=1e-6)
    assert ours.sum().item() == pytest.approx(map_.sum().item(), abs=1e-4)


def test_bands_of_a_height_that_is_no_multiple_differ_by_one_row():
    ours = assay.explain(*with_map(torch.arange(16.0)[:, None].expand(16, 4)), "pooling")[0]
    heights = torch.unique_consecutive(ours[:, 0], return_counts=True)[1]
    assert len(heights) == 7
    assert set(heights.tolist()) == {2, 3}


def test_another_method_may_be_taken_and_what_does_not_fit_is_refused():
    map_ = square(32, 2, 20, 4)
    ours = assay.explain(*with_map(map_), "rect", of={"saliency": {"abs": True}}, side=4)[0]
    assert torch.equal(ours, map_)
    with pytest.raises(assay.NotApplicable, match="40 pixels"):
        assay.explain(*with_map(map_), "rect", side=40)
    with pytest.raises(assay.NotApplicable, match="50 bands"):
        assay.explain(*with_map(map_), "pooling", bands=50)
