"""Extremal perturbation: what its masks must be."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import assay
from assay.data.memory import as_dataset
from assay.errors import InputError, NotApplicable
from assay.methods.attribution import attribute
from assay.methods.extremal import SmoothMasks
from assay.suite.spec import choose_one
from small_worlds import make_images, make_net


def test_sizes_at_224_pixels_are_the_published_ones():
    masks = SmoothMasks.on((224, 224))
    assert (masks.step, masks.sigma, masks.share(20)) == (7, 21.0, 20.0)
    assert (masks.grid, masks.margin, masks.size) == ((32, 32), 21, (260, 260))


@pytest.mark.parametrize("shape", [(5, 5), (8, 8), (17, 31), (48, 40), (80, 99), (224, 300)])
def test_a_mask_covers_its_image(shape):
    masks = SmoothMasks.on(shape)
    whole = masks.smooth(torch.ones(1, *masks.grid))
    assert whole.shape[1:] == masks.size
    assert masks.crop(whole).shape[1:] == shape
    assert masks.crop(whole).min() > 0.5  # every pixel has a point near it


def test_the_area_is_the_one_asked_for(monkeypatch):
    """After the whole schedule the mask is nearly 0 or 1, and 1 on so much of it and its margin."""
    net, (x, y) = make_net(), make_images(1)
    model, data, masks = replace(assay.model(net), micro_batch=1), as_dataset((x, y)), []
    crop = SmoothMasks.crop
    monkeypatch.setattr(SmoothMasks, "crop", lambda s, m: (masks.append(m.detach()), crop(s, m))[1])
    item = {"extremal_perturbation": {"area": 0.1}}
    with model.evaluating(), torch.no_grad():
        found = attribute(model, data.batch(data.ids), choose_one("method", item))
    last = masks[-1]
    assert len(masks) == 800
    assert torch.equal(crop(SmoothMasks.on((16, 16)), last), found)
    assert last.mean((1, 2)).numpy() == pytest.approx(0.1, abs=0.02)
    assert (last > 0.5).float().mean((1, 2)).numpy() == pytest.approx(0.1, abs=0.02)


def test_equal_values_share_the_area():
    masks = SmoothMasks.on((8, 8))
    tenth = torch.tensor([0.1], dtype=torch.float64)
    flat = torch.full((1, *masks.size), 0.7) + 1e-7 * torch.rand(1, *masks.size)
    assert torch.allclose(masks.nearest(flat, tenth), torch.tensor(0.1), atol=1e-6)
    values = torch.rand(1, *masks.size, generator=torch.Generator().manual_seed(0))
    nearest = masks.nearest(values, tenth)
    assert set(nearest.unique().tolist()) == {0.0, 1.0}
    assert nearest.sum() == 10
    assert values[nearest == 1].min() > values[nearest == 0].max()


class Corner(nn.Module):
    """Sees contrast in one corner only: blur takes it away."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        score = 100 * x[:, :, 2:8, 4:12].square().mean((1, 2, 3))
        return torch.stack([score, -score], 1)


def test_it_finds_what_the_network_looks_at():
    """The top, left and right alike: every other step shows the mirrored image."""
    x = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    options = {"steps": 100, "area": 0.2}
    maps = assay.explain(Corner(), x, [0, 0], "extremal_perturbation", **options)
    assert (maps[:, 2:8, 4:12].mean((1, 2)) > 3 * maps[:, 10:].mean((1, 2))).all()


def test_larger_steps_are_blind_to_neighbours_too():
    """Cells of two pixels; in a micro-batch of four, alone or beside others."""
    net, (x, y) = make_net(), make_images(5, size=48)
    model, data = replace(assay.model(net), micro_batch=4), as_dataset((x, y))
    choice = choose_one("method", {"extremal_perturbation": {"steps": 6, "area": [0.1, 0.3]}})
    batch = data.batch(data.ids)
    with model.evaluating(), torch.no_grad():
        together = attribute(model, batch, choice)
        for b in (0, 3, 4):
            assert torch.equal(attribute(model, batch.select([b]), choice)[0], together[b])


def test_several_areas_are_their_mean():
    net, (x, y) = make_net(), make_images(3)
    name, steps = "extremal_perturbation", {"steps": 8}
    both = assay.explain(net, x, y, name, area=[0.1, 0.3], **steps)
    apart = [assay.explain(net, x, y, name, area=a, **steps) for a in (0.1, 0.3)]
    assert torch.allclose(both, (apart[0] + apart[1]) / 2, atol=1e-6)


def test_what_cannot_be():
    net, (x, y) = make_net(), make_images(2)
    for options in ({"area": 0}, {"area": 1.5}, {"area": []}, {"steps": 0}):
        with pytest.raises(InputError, match="extremal_perturbation"):
            assay.explain(net, x, y, "extremal_perturbation", **options)
    with pytest.raises(NotApplicable, match="image"):
        assay.explain(nn.Linear(4, 2), torch.randn(2, 4), [0, 1], "extremal_perturbation")
