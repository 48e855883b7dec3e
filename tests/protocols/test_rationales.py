"""Comprehensiveness and sufficiency against a loop by hand and against closed forms."""

import math

import pytest
import torch

import assay
from small_worlds import length_of, make_images, make_net

SHARES = (0.01, 0.05, 0.1, 0.2, 0.5)  # ERASER's


def by_hand(net, x, target, said, shares, keep: bool):
    """Without an engine: cut one image after the other and ask the network."""
    whole = net(x[None]).softmax(1)[0, target]
    order = said.flatten().argsort(descending=True)
    total = 0.0
    for share in shares:
        top = order[: math.floor(share * len(order) + 0.5)]
        if keep:  # as many as round when the rest leaves
            top = order[: len(order) - math.floor((1 - share) * len(order) + 0.5)]
        chosen = torch.zeros(len(order), dtype=torch.bool)
        chosen[top] = True
        chosen = chosen.reshape(said.shape)
        changed = torch.where(chosen if keep else ~chosen, x, 0.0)
        total += (whole - net(changed[None]).softmax(1)[0, target]).item()
    return total / len(shares)


@pytest.mark.parametrize(
    ("protocol", "keep"), [("comprehensiveness", False), ("sufficiency", True)]
)
@pytest.mark.parametrize("shares", [SHARES, (0.3, 0.9)])
def test_equal_a_loop_by_hand(protocol, keep, shares):
    net, (x, y) = make_net().double(), make_images(4)
    x, maps = x.double(), torch.randn(4, 16, 16, generator=torch.Generator().manual_seed(0))
    ours = assay.score(net, x, y, maps, protocol, shares=shares, units="elements")
    with torch.no_grad():
        theirs = [by_hand(net, x[b], y[b], maps[b], shares, keep) for b in range(4)]
    assert ours.numpy() == pytest.approx(theirs, abs=1e-9)


def test_closed_forms_of_the_exact_map(linear):
    """f(x) = w x: leaving costs the sum of the top entries, staying alone that of the others."""
    net, x, y, exact = linear
    shares = (0.25, 0.5)
    falling = exact.sort(1, descending=True).values
    costs = torch.stack([falling[:, :3].sum(1), falling[:, :6].sum(1)], 1)
    rests = torch.stack([falling[:, 3:].sum(1), falling[:, 6:].sum(1)], 1)
    for protocol, expected in (("comprehensiveness", costs), ("sufficiency", rests)):
        ours = assay.score(net, x, y, exact, protocol, shares=shares, output="logit")
        assert ours.numpy() == pytest.approx(expected.mean(1).numpy(), abs=1e-5)
        exchanged = assay.score(net, x, y, -exact, protocol, shares=shares, output="logit")
        better = exchanged < ours if protocol == "comprehensiveness" else exchanged > ours
        assert better.all()


def test_shares_are_of_the_units_a_sample_has(linear):
    net, x, y, exact = linear
    options = {"shares": (0.4,), "units": "small_worlds:some_entries", "output": "logit"}
    needed = assay.score(net, x, y, exact, "comprehensiveness", **options)
    enough = assay.score(net, x, y, exact, "sufficiency", **options)
    for b, row in enumerate(exact.double()):
        length = length_of(f"{b:04d}", 12)
        rising = row[:length].sort().values
        top, rest = math.floor(0.4 * length + 0.5), math.floor(0.6 * length + 0.5)
        assert needed[b].item() == pytest.approx(rising[length - top :].sum().item(), abs=1e-5)
        assert enough[b].item() == pytest.approx(rising[:rest].sum().item(), abs=1e-5)


def test_only_what_no_curve_asks_for_is_computed():
    net, data = make_net(), make_images(6)
    protocols = ["abpc", "comprehensiveness", "sufficiency"]
    results = assay.benchmark(net, data, ["saliency"], protocols, progress=False, controls="off")
    cost = {c["protocol"]: c["forwards"] for c in results.cells}
    # Both ways share the answers without anything, which are asked first.
    assert cost == {"abpc": 6 * (19 + 19), "comprehensiveness": 6, "sufficiency": 6}


def test_shares_must_rise():
    net, (x, y) = make_net(), make_images(2)
    with pytest.raises(assay.InputError, match="`shares` in rising order"):
        assay.score(net, x, y, torch.rand(2, 16, 16), "sufficiency", shares=(0.5, 0.1))
