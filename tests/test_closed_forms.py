"""For f(x) = w x every score of the exact map is known in closed form."""

import itertools
import math

import pytest
import torch
from torch import nn

import assay


@pytest.fixture(params=["vectors", "images"])
def case(request):
    return request.getfixturevalue("linear" if request.param == "vectors" else "linear_images")


@pytest.mark.parametrize(
    "protocol", ["single_deletion", "sensitivity_n", "faithfulness_correlation"]
)
def test_the_exact_map_correlates_perfectly(case, protocol):
    net, x, y, exact = case
    assert assay.score(net, x, y, exact, protocol).numpy() == pytest.approx(1.0, abs=1e-6)
    assert assay.score(net, x, y, -exact, protocol).numpy() == pytest.approx(-1.0, abs=1e-6)


def test_the_exact_map_has_no_infidelity(case):
    net, x, y, exact = case
    assert assay.score(net, x, y, exact, "infidelity").max() < 1e-6
    assert assay.score(net, x, y, 7 * exact, "infidelity").max() < 1e-6


def test_a_negated_map_forecasts_nothing(linear):
    """With a scale of at least zero the best forecast is none, so the error is the mean cost."""
    net, x, y, exact = linear
    negated = assay.score(net, x, y, -exact, "infidelity")
    m4 = assay.score(net, x, y, -exact, "infidelity", variant="m4")
    silent = assay.score(net, x, y, torch.zeros_like(exact), "infidelity")
    assert negated.numpy() == pytest.approx(silent.numpy())
    assert negated.min() > 1e-3
    assert m4.max() < 1e-6


@pytest.mark.parametrize("sign", [1, -1])
def test_the_deletion_curve_is_the_sorted_cumulative_sum(linear, sign):
    net, x, y, exact = linear
    results = assay.benchmark(
        net,
        (x, y),
        [{"exact": sign * exact}],
        [{"deletion": {"output": "logit", "steps": 12}}],
        progress=False,
        controls="off",
    )
    curve = results.curves["value"].to_numpy().reshape(len(x), 13)
    leaving = exact.sort(1, descending=sign > 0).values
    expected = exact.sum(1, keepdim=True) - torch.cat(
        [torch.zeros(len(x), 1), leaving.cumsum(1)], 1
    )
    assert curve == pytest.approx(expected.numpy(), abs=1e-5)


@pytest.mark.parametrize(("protocol", "better"), [("deletion", min), ("insertion", max)])
def test_no_order_beats_the_exact_one_and_none_is_worse_than_its_reverse(linear, protocol, better):
    net, x, y, exact = linear
    options = {"output": "logit", "steps": 12}
    best = assay.score(net, x, y, exact, protocol, **options)
    worst = assay.score(net, x, y, -exact, protocol, **options)
    for seed in range(5):
        order = torch.rand(exact.shape, generator=torch.Generator().manual_seed(seed))
        other = assay.score(net, x, y, order, protocol, **options)
        assert all(better(b, o) == b for b, o in zip(best, other, strict=True))
        assert all(better(o, w) == o for o, w in zip(other, worst, strict=True))
    # Deleting one order and inserting the reverse one are the same curve read from both ends.
    assert (best + worst).numpy() == pytest.approx(exact.sum(1).numpy(), abs=1e-5)


def test_negated_maps_are_the_pessimum_of_single_deletion(linear):
    net, x, y, exact = linear
    assert assay.score(net, x, y, -exact, "single_deletion").numpy() == pytest.approx(-1)


# TorchCAM's metric is specified by hand-made vectors: f is the sum, the map is the input.
HAND = [
    ([0.4, 0.3, 0.2, 0.1], 2, [1, 0.3, 0], [0, 0.7, 1], 0.4, 0.6),
    (
        [0.3, 0.25, 0.2, 0.15, 0.1],
        (0, 0.4, 0.8, 1),
        [1, 0.45, 0.1, 0],
        [0, 0.55, 0.9, 1],
        0.41,
        0.59,
    ),
]


@pytest.mark.parametrize(("values", "steps", "falling", "rising", "low", "high"), HAND)
def test_hand_vectors_of_deletion_and_insertion(values, steps, falling, rising, low, high):
    total = nn.Linear(len(values), 1, bias=False)
    nn.init.ones_(total.weight)
    x = torch.tensor([values])
    for protocol, curve, area in (("deletion", falling, low), ("insertion", rising, high)):
        setting = {protocol: {"output": "logit", "steps": steps}}
        results = assay.benchmark(
            total, (x, [1]), [{"map": x}], [setting], progress=False, controls="off"
        )
        assert results.curves["value"].to_pylist() == pytest.approx(curve, abs=1e-6)
        assert results.scores["value"].to_pylist() == pytest.approx([area], abs=1e-6)


def test_one_logit_means_binary():
    net = nn.Linear(3, 1, bias=False)
    x = torch.randn(4, 3)
    z = net(x)[:, 0].detach()
    for label, sign in ((1, 1), (0, -1)):
        y = [label] * 4
        whole = {"output": "logit", "steps": 1}
        results = assay.benchmark(
            net, (x, y), ["random"], [{"deletion": whole}], progress=False, controls="off"
        )
        first = results.curves["value"].to_numpy()[::2]
        assert first == pytest.approx((sign * z).numpy(), abs=1e-6)
        gradient = assay.explain(net, x, y, "saliency")
        assert torch.allclose(gradient, sign * net.weight.expand(4, 3))
        results = assay.benchmark(
            net, (x, y), ["random"], [{"deletion": {"steps": 1}}], progress=False, controls="off"
        )
        first = results.curves["value"].to_numpy()[::2]
        assert first == pytest.approx(torch.sigmoid(sign * z).numpy(), abs=1e-6)


@pytest.mark.parametrize("value", [0.0, 1 / 3, -5.0])
@pytest.mark.parametrize(
    "protocol", ["single_deletion", "sensitivity_n", "faithfulness_correlation"]
)
def test_a_constant_map_correlates_with_nothing_and_is_kept(case, protocol, value):
    net, x, y, exact = case
    maps = torch.full_like(exact, value)
    results = assay.benchmark(
        net, (x, y), [{"flat": maps}], [protocol], progress=False, controls="off"
    )
    assert results.scores["value"].to_pylist() == [0.0] * len(x)
    assert set(results.scores["status"].to_pylist()) == {"degenerate"}


def test_a_constant_map_takes_part_in_curves_by_random_order(linear):
    """Its expectation over tie orders is the straight line from f(x) to 0."""
    net, x, y, exact = linear
    flat = torch.ones_like(exact)
    areas = torch.stack(
        [assay.score(net, x, y, flat, "deletion", output="logit", seed=s) for s in range(60)]
    )
    expected = exact.sum(1).double() / 2
    error = areas.std(0) / math.sqrt(60)
    assert ((areas.mean(0) - expected).abs() < 4 * error).all()


def test_m4_strict_percentiles_never_remove_a_constant_map(linear):
    net, x, y, exact = linear
    for protocol in ("morf", "lerf", "abpc"):
        flat = assay.score(net, x, y, torch.ones_like(exact), protocol, variant="m4")
        assert flat.abs().max() == 0


def test_m4_random_map_gap_is_one_lagging_step(linear_images):
    """MoRF_j removes j %, LeRF_j only (j - 1) %: a random order gains (m_0 - m_N) / 101."""
    net, x, y, _ = linear_images
    times, options = 200, {"variant": "m4", "steps": 100, "output": "logit"}
    maps = torch.rand(times * 6, 8, 8, generator=torch.Generator().manual_seed(0))
    gap = assay.score(net, x.repeat(times, 1, 1, 1), y.repeat(times), maps, "abpc", **options)
    gap = gap.reshape(times, 6)
    drops = net(x).gather(1, y[:, None])[:, 0].detach().double()
    error = gap.std(0) / math.sqrt(times)
    assert ((gap.mean(0) - drops / 101).abs() < 4 * error + 1e-3 * drops.abs()).all()


def test_a_model_that_never_reacts_is_left_out_for_every_method():
    class Deaf(nn.Module):
        def forward(self, x):
            return torch.tensor([[1.0, 2.0]]).expand(len(x), 2) + 0 * x.sum()

    x = torch.randn(5, 8)
    results = assay.benchmark(
        Deaf(),
        (x, [0] * 5),
        ["random", "constant"],
        ["single_deletion"],
        progress=False,
        controls="off",
    )
    assert all(math.isnan(v) for v in results.scores["value"].to_pylist())
    assert set(results.scores["status"].to_pylist()) == {"degenerate"}


def test_occlusion_is_single_deletion_and_said_to_be_circular(linear_images):
    net, x, _, _ = linear_images
    y = net(x).argmax(1)  # a network at chance is not ranked
    cells = {"units": {"grid": {"side": 4}}}
    finer = {"units": {"grid": {"side": 8}}, "label": "finer"}
    results = assay.benchmark(
        net,
        (x, y),
        [{"occlusion": cells}, {"occlusion": finer}, "saliency", "random"],
        ["single_deletion", {"deletion": {"steps": 4}}],
        progress=False,
        controls="off",
    )
    single = {
        (row["method"], row["status"]): row["value"]
        for row in results.scores.to_pylist()
        if row["protocol"] == "single_deletion"
    }
    assert single["occlusion", "circular"] == pytest.approx(1.0)
    assert ("finer", "ok") in single
    rows = {(r["method"], r["protocol"]): r for r in results.leaderboard()}
    assert rows["occlusion", "single_deletion"]["rank"] is None
    assert rows["occlusion", "single_deletion"]["mean"] == pytest.approx(1.0)
    overall = {r["method"]: r for r in results.leaderboard().overall}
    assert {"occlusion", "finer", "saliency", "random"} <= set(overall)


@pytest.mark.parametrize("fill", ["zero", "blur"])
def test_occlusion_holds_the_drops_of_single_deletion(net, images, fill):
    """On a network that is not linear, with the same cells and the same fill."""
    cells = {"units": {"grid": {"side": 4}}, "fill": fill}
    results = assay.benchmark(
        net, images, [{"occlusion": cells}], [{"single_deletion": {"grid": 4, "fill": fill}}],
        target="label", progress=False, controls="off",
    )  # fmt: skip
    assert results.scores["value"].to_pylist() == pytest.approx([1.0] * len(images[0]))
    assert set(results.scores["status"].to_pylist()) == {"circular"}
    if fill == "zero":
        x, y = images
        maps = assay.explain(net, x, y, {"occlusion": cells})
        for i, j in itertools.product(range(4), repeat=2):
            without = x.clone()
            without[:, :, 4 * i : 4 * i + 4, 4 * j : 4 * j + 4] = 0
            with torch.no_grad():
                drop = (net(x) - net(without)).gather(1, y[:, None])[:, 0]
            assert torch.allclose(maps[:, 4 * i, 4 * j], drop, atol=1e-5)


def test_occlusion_asks_nothing_that_single_deletion_asked(linear_images):
    net, x, y, _ = linear_images
    alone = assay.dry_run(
        net, (x, y), ["random"], ["single_deletion"], time_it=False, controls="off"
    )
    both = assay.dry_run(
        net, (x, y), ["random", "occlusion"], ["single_deletion"], time_it=False, controls="off"
    )
    assert both.forwards == alone.forwards


def test_occlusion_shares_sum_to_what_is_lost(linear_images):
    """On f(x) = w x the sum over a cell is the cell's own w x."""
    net, x, y, exact = linear_images
    maps = assay.explain(net, x, y, "occlusion", units={"grid": {"side": 3}}, spread="share")
    assert maps.sum((1, 2)).numpy() == pytest.approx(exact.sum((1, 2)).numpy(), abs=1e-4)
