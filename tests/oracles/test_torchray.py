"""Extremal perturbation against a plain loop over one image, written from its description."""

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

import assay
from assay.data.memory import as_dataset
from assay.methods.attribution import attribute
from assay.suite.spec import choose_one
from small_worlds import make_images, make_net


def plain_blur(image, sigma):  # [C, H, W]
    """Gaussian of half-width ceil(4 sigma), zero beyond the border, pixel by pixel."""
    if sigma == 0:
        return image
    half = math.ceil(4 * sigma)
    taps = torch.tensor([math.exp(-(t**2) / (2 * sigma**2)) for t in range(-half, half + 1)])
    taps = (taps / taps.sum()).to(image)
    height, width = image.shape[1:]
    rows = functional.pad(image, (0, 0, half, half))
    image = sum(taps[t] * rows[:, t : t + height] for t in range(2 * half + 1))
    columns = functional.pad(image, (half, half))
    return sum(taps[t] * columns[:, :, t : t + width] for t in range(2 * half + 1))


class PlainMask:
    """The mask by its definition: for every pixel all points of the grid within reach."""

    def __init__(self, side: int, step: int, sigma: float, dtype: torch.dtype) -> None:
        self.side, self.margin = side, round(sigma)
        radius, padding = 1 + math.ceil(sigma / step), 1 + math.ceil((self.margin + sigma) / step)
        self.points = math.ceil(side / step)
        length = step * (self.points + 2 * padding - 2 * radius) - step + 1
        self.length = length
        pixel, near = torch.arange(length), torch.arange(2 * radius + 1)
        point = pixel[:, None] // step + near - padding  # [pixels, points near it]
        far = (pixel[:, None] - self.margin - step * point).to(dtype)
        far = (far[:, None, :, None] ** 2 + far[None, :, None, :] ** 2).sqrt() / sigma
        inside = ((point >= 0) & (point < self.points)).to(dtype)
        inside = inside[:, None, :, None] * inside[None, :, None, :]
        self.weight = torch.exp(-2 * (far - 0.5).clamp(min=0) ** 2) * inside
        self.point = point.clamp(0, self.points - 1)

    def __call__(self, grid):
        values = grid[self.point[:, None, :, None], self.point[None, :, None, :]] * self.weight
        values = values.flatten(2)
        return (values * torch.softmax(20 * values, -1)).sum(-1).clamp(0, 1)

    def crop(self, mask):
        end = self.margin + self.side
        return mask[self.margin : end, self.margin : end]


def shared(mask, wanted):
    """The sorted reference, given to the values in their order; equal ones get its mean."""
    values = (mask.detach().flatten() * 1e5).round().numpy()
    given = np.empty(len(values))
    given[values.argsort()] = wanted.numpy()
    _, group = np.unique(values, return_inverse=True)
    return torch.from_numpy((np.bincount(group, given) / np.bincount(group))[group]).to(wanted)


def plain_loop(net, image, target, area, steps, sizes, *, keep=True):
    """One image, one area: torch's own optimiser, blur levels one pixel at a time."""
    step, sigma, blur = sizes
    mask_of = PlainMask(image.shape[1], step, sigma, image.dtype)
    levels = torch.stack([plain_blur(image, blur * (1 - k / 7)) for k in range(8)])
    grid = torch.ones(mask_of.points, mask_of.points, dtype=image.dtype, requires_grad=True)
    descent = torch.optim.SGD([grid], lr=0.01, momentum=0.9, dampening=0.9)
    entries = mask_of.length**2
    wanted = torch.ones(entries, dtype=image.dtype)
    wanted[: int(entries * (1 - area))] = 0
    penalty = 300.0
    for number in range(steps):
        whole = mask_of(grid)
        mask = mask_of.crop(whole)
        height = 7 * (mask if keep else 1 - mask)
        shown = 0
        for k in range(8):  # a hat function around every level
            shown = shown + levels[k] * (1 - (height - k).abs()).clamp(min=0)
        shown = shown.flip(2) if number % 2 == 0 else shown
        reward = net(shown[None])[0, target] * (1 if keep else -1)
        off = ((whole.flatten() - shared(whole, wanted)) ** 2).mean()
        descent.zero_grad()
        (penalty * off - reward).backward()
        descent.step()
        grid.data.clamp_(0, 1)
        penalty *= 1.0035
    return mask.detach()


def relative(ours, theirs):
    return ((ours - theirs).abs().max() / theirs.abs().max()).item()


@pytest.mark.parametrize(("side", "sizes", "steps"), [(16, (1, 1.5, 10 / 7), 25),
                                                      (48, (2, 4.5, 30 / 7), 6)])  # fmt: skip
@pytest.mark.parametrize("variant", ["preserve", "delete"])
def test_it_is_the_plain_loop(side, sizes, steps, variant):
    net, (x, y) = make_net().double(), make_images(2, size=side)
    net.requires_grad_(False)
    x = x.double()
    ours = assay.explain(net, x, y, "extremal_perturbation", area=0.2, steps=steps, variant=variant)
    for b in range(2):
        keep = variant == "preserve"
        theirs = plain_loop(net, x[b], int(y[b]), 0.2, steps, sizes, keep=keep)
        assert relative(ours[b], theirs) < 1e-4


def test_on_a_trained_network(resnet):
    """ResNet-20 on an image: steps of one pixel, kernels of 3."""
    net = copy.deepcopy(resnet.model.net).double().requires_grad_(False)
    x, y = resnet.x[:1].double(), resnet.y[:1]
    model, data = replace(assay.model(net), micro_batch=1), as_dataset((x, y))
    choice = choose_one("method", {"extremal_perturbation": {"steps": 15}})
    with model.evaluating(), torch.no_grad():
        ours = attribute(model, data.batch(data.ids), choice)
    theirs = plain_loop(net, x[0], int(y[0]), 0.1, 15, (1, 3.0, 20 / 7))
    assert relative(ours[0], theirs) < 1e-4
