"""ROAD: exact shares whatever ties, the share removed on both axes, what imputation leaves."""

import pytest
import torch

import assay
from assay.removal import imputation
from small_worlds import make_images, make_net

QUIET = {"noisy_linear": {"noise": 0.0}}


@pytest.mark.parametrize("protocol", ["road_morf", "road_lerf"])
def test_exactly_the_stated_share_is_removed_though_half_is_zero(protocol, monkeypatch):
    """A percentile of such a map removes all or half of it, whatever share was asked for."""
    x, y = make_images(1)
    half = torch.rand(1, 16, 16, generator=torch.Generator().manual_seed(0)) - 0.5
    maps = half.clamp(min=0)
    assert 0.3 < float((maps == 0).float().mean()) < 0.7
    shares, solve = set(), imputation.linear

    def watch(images, keep, *rest):
        shares.update((~keep).float().mean((1, 2)).tolist())
        return solve(images, keep, *rest)

    monkeypatch.setattr(imputation, "linear", watch)
    assay.score(make_net(), x, y, maps, protocol, steps=10)
    assert sorted(shares) == pytest.approx([k / 10 for k in range(1, 11)], abs=0.5 / 256)


def curves(protocol, **options):
    results = assay.benchmark(
        make_net(), make_images(6), ["saliency"], [{protocol: options}], progress=False
    )
    rows = results.query("select sample, name, x, value from curves order by all").to_pylist()
    return {(r["sample"], r["name"], round(r["x"], 3)): r["value"] for r in rows}, results


@pytest.mark.filterwarnings("ignore:.*hardly above chance")
@pytest.mark.parametrize("protocol", ["road_morf", "road_lerf"])
def test_the_authors_axis_is_the_share_kept_for_least_relevant_first(protocol):
    """They remove, or keep, int(256 x) of 256 pixels."""
    shares = (0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 0.9)
    pixels = {x: int(256 * x) if protocol == "road_morf" else 256 - int(256 * x) for x in shares}
    assert 256 * 0.7 - pixels[0.7] != pytest.approx(0, abs=0.1)  # not a whole number
    ours, _ = curves(protocol, steps=[0, *sorted(n / 256 for n in pixels.values()), 1])
    theirs, _ = curves(protocol, variant="road")
    assert {x for _, _, x in theirs} == set(shares)
    for (sample, name, x), value in theirs.items():
        assert value == ours[sample, name, round(pixels[x] / 256, 3)]


@pytest.mark.filterwarnings("ignore:.*hardly above chance")
def test_accuracy_and_probability_are_kept_for_every_sample_with_area_and_time():
    found, results = curves("road_morf", steps=10)
    assert {name for _, name, _ in found} == {"correct", "probability"}
    metrics = results.query("select distinct metric, headline from scores order by all").to_pylist()
    assert metrics == [
        {"metric": "area", "headline": True},
        {"metric": "probability_area", "headline": False},
    ]
    assert all(cell["seconds"] > 0 for cell in results.cells)


def test_of_a_plain_image_nothing_can_be_removed():
    """Its neighbours say what a pixel was: without noise the curves stay where they began."""
    net = make_net()
    x = torch.randn(4, 3, 1, 1).expand(-1, -1, 16, 16).contiguous()
    y = net(x).argmax(1)
    maps = torch.rand(4, 16, 16)
    for protocol in ("road_morf", "road_lerf"):
        steps = (0.0, 0.3, 0.9, 1.0)
        value = assay.score(net, x, y, maps, protocol, steps=steps, fill=QUIET)
        empty = (net(torch.zeros(1, 3, 16, 16)).argmax(1) == y).double()
        # Only when everything is gone is the colour gone too; the last tenth of the axis.
        assert torch.allclose(value, 0.9 + 0.1 * (1 + empty) / 2)
