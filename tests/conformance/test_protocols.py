"""Every registered protocol, against maps whose worth is known: tested by existing."""

import math

import pytest
import torch
from torch import nn

import assay
from assay import registry
from small_worlds import LinearImages, make_images, make_net

# Options beside the defaults that change what a protocol computes; all kept cheap.
LOGIT = {"steps": 8, "output": "logit"}
COARSE = {"steps": (0, 0.3, 1), "output": "log_odds", "units": {"grid": {"side": 4}}}
RATIONALE = {"shares": (0.2, 0.6), "units": {"grid": {"side": 4}}}
FEW = {"stride": 0.25, "subsets": 20}
M4, CAPTUM, FITTED = {"variant": "m4"}, {"variant": "captum"}, {"normalize": True}
CHEAP = {
    **{name: [LOGIT, {**LOGIT, "variant": "m4"}] for name in ("morf", "lerf", "abpc")},
    **{name: [LOGIT, COARSE] for name in ("deletion", "insertion")},
    "accuracy_morf": [{"steps": 8}],
    "accuracy_lerf": [{"steps": 8}],
    "incremental_deletion": [LOGIT, COARSE, {"steps": "idsds"}],
    "comprehensiveness": [{}, {**RATIONALE, "output": "logit"}],
    "sufficiency": [{}, {**RATIONALE, "output": "log_odds"}],
    "single_deletion": [{"grid": 4}],
    "infidelity": [FEW, *({**FEW, **other} for other in (M4, CAPTUM, {**CAPTUM, **FITTED}))],
    "faithfulness_correlation": [{"subsets": 40}, {"subsets": 40, "grid": 4, "share": 0.5}],
    "sensitivity_n": [{"subsets": 20, "grid": 4}],
}
ITEMS = [
    (name, options) for name in registry.names("protocol") for options in CHEAP.get(name, [{}])
]


def forgives_signs(options) -> bool:
    """Variants of infidelity whose fitted scale may be negative."""
    return options.get("variant") == "m4" or options.get("normalize", False)


def takes_maps_at_their_word(options) -> bool:
    """Captum's infidelity fits no scale unless told so."""
    return options.get("variant") == "captum" and not options.get("normalize")


def images():
    net, (x, y) = LinearImages(), make_images(12, size=8)
    y = net(x).argmax(1)  # labels the model gets right, so that accuracy can fall
    return net, x, y, (x * net.weight[y]).sum(1).detach()


def vectors():
    torch.manual_seed(0)
    net, x = nn.Linear(16, 3, bias=False), torch.randn(12, 16)
    y = net(x).argmax(1)
    return net, x, y, (x * net.weight[y]).detach()


@pytest.fixture(params=[images, vectors], ids=["images", "vectors"])
def world(request):
    return request.param()


def mean(world, maps, name, options) -> float:
    """The mean score, turned so that higher is better."""
    net, x, y, _ = world
    values = assay.score(net, x, y, maps, name, **options)
    sign = 1 if registry.get("protocol", name).higher_is_better else -1
    return sign * values.nanmean().item()


@pytest.mark.parametrize(("name", "options"), ITEMS, ids=str)
def test_the_oracle_beats_noise(world, name, options):
    truth = world[3]
    noise = [torch.rand(truth.shape, generator=torch.Generator().manual_seed(s)) for s in range(3)]
    best = mean(world, truth, name, options)
    assert all(best > mean(world, n, name, options) for n in noise)


@pytest.mark.parametrize(("name", "options"), ITEMS, ids=str)
def test_signs_matter_where_the_protocol_says_so(world, name, options):
    truth = world[3]
    right, flipped = mean(world, truth, name, options), mean(world, -truth, name, options)
    blind = name == "infidelity" and forgives_signs(options)
    if registry.get("protocol", name).sign_sensitive and not blind:
        assert right > flipped
    else:
        assert right == pytest.approx(flipped, abs=1e-9)


@pytest.mark.parametrize(("name", "options"), ITEMS, ids=str)
def test_a_score_does_not_depend_on_its_neighbours(world, name, options):
    """The data here are matched by id, so every sample is scored alone by its own position."""
    net, x, y, truth = world
    together = assay.score(net, x, y, truth, name, **options)
    half = assay.score(net, x[:5], y[:5], truth[:5], name, **options)
    assert torch.equal(half, together[:5])


@pytest.mark.parametrize(("name", "options"), ITEMS, ids=str)
def test_a_score_is_the_same_twice_and_maps_are_not_touched(world, name, options):
    net, x, y, truth = world
    before = truth.clone()
    first = assay.score(net, x, y, truth, name, **options)
    assert torch.equal(first, assay.score(net, x, y, truth, name, **options))
    assert torch.equal(truth, before)


@pytest.mark.parametrize(("name", "options"), ITEMS, ids=str)
def test_scores_stay_in_their_range(name, options):
    protocol = registry.get("protocol", name)
    x, y = make_images(6)
    options = {k: v for k, v in options.items() if k != "output"}
    values = assay.score(make_net(), x, y, torch.randn(6, 16, 16), name, **options)
    low, high = protocol.range
    assert ((values >= low - 1e-9) & (values <= high + 1e-9)).all()


@pytest.mark.parametrize(("name", "options"), ITEMS, ids=str)
def test_order_protocols_see_only_the_order(name, options):
    """Pixels as units: a rising transform changes nothing."""
    if (
        registry.get("protocol", name).uses != "order"
        or "units" in options
        or name == "single_deletion"
    ):
        pytest.skip("uses more than the order of single entries")
    x, y = make_images(6)
    maps = torch.randn(6, 16, 16)
    first = assay.score(make_net(), x, y, maps, name, **options)
    second = assay.score(make_net(), x, y, maps.double().mul(3).exp(), name, **options)
    # Percentiles interpolate between values, so the strict rule may move by one unit.
    tolerance = 0.05 if options.get("variant") == "m4" else 0
    assert first.numpy() == pytest.approx(second.numpy(), abs=tolerance)


@pytest.mark.parametrize(("name", "options"), ITEMS, ids=str)
@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_a_positive_scale_of_the_map_changes_nothing(world, name, options, scale):
    net, x, y, truth = world
    first = assay.score(net, x, y, truth, name, **options)
    scaled = assay.score(net, x, y, truth * scale, name, **options)
    if takes_maps_at_their_word(options):
        assert (scaled > first + 1e-3).all()
        return
    assert scaled.numpy() == pytest.approx(first.numpy(), abs=1e-6)


@pytest.mark.parametrize(("name", "options"), ITEMS, ids=str)
def test_a_constant_map_is_scored_and_marked(world, name, options):
    net, x, y, truth = world
    flat = {"flat": torch.ones_like(truth)}
    results = assay.benchmark(net, (x, y), [flat], [{name: options}], progress=False)
    headline = results.query("select value, status from scores where headline")
    assert set(headline["status"].to_pylist()) == {"degenerate"}
    assert not any(math.isnan(v) for v in headline["value"].to_pylist())
    chance = registry.get("protocol", name).chance
    if isinstance(chance, float):
        assert set(headline["value"].to_pylist()) == {chance}


@pytest.mark.parametrize("name", registry.names("protocol"))
def test_every_protocol_describes_itself(name):
    protocol = registry.get("protocol", name)
    assert protocol.summary.endswith(".")
    assert protocol.title
    assert protocol.cite
    assert protocol.metric
    low, high = protocol.range
    assert low < high
    assert protocol.chance == "measured" or low <= protocol.chance <= high


@pytest.mark.parametrize("fill", registry.names("fill"))
@pytest.mark.parametrize(
    "protocol", ["deletion", "sufficiency", "single_deletion", "infidelity", "sensitivity_n"]
)
def test_every_fill_serves_every_protocol(fill, protocol):
    model = assay.model(make_net(), mean=[0.5] * 3, std=[0.2] * 3)
    x, y = make_images(4)
    values = assay.score(model, x, y, torch.rand(4, 16, 16), protocol, fill=fill)
    assert torch.isfinite(values).all()
