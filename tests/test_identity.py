"""Two different things never share a result: what enters a key, and what is remembered."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import assay
from assay.data.memory import as_dataset
from assay.plugins import registry
from assay.protocols.curves import percentiles
from assay.suite.spec import make_suite
from assay.types import Batch, Dataset, Response, Sample, Scores
from assay.types.hashing import hash_network
from small_worlds import make_images, make_net
from stored_logs import logs, unchanged

QUIET = {"progress": False}


def first_value(*arguments, **options) -> float:
    return (
        assay.benchmark(*arguments, **options, **QUIET, controls="off").scores["value"][0].as_py()
    )


class Scaled(nn.Module):
    def __init__(self, k: int) -> None:
        super().__init__()
        self.inner, self.k = make_net(), k

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) ** self.k


def test_a_network_is_more_than_its_weights():
    def build(activation):
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(3, 4, 3), activation, nn.Flatten(), nn.Linear(784, 4))

    relu, tanh = build(nn.ReLU()), build(nn.Tanh())
    assert hash_network(relu) != hash_network(tanh)
    assert hash_network(build(nn.ReLU())) == hash_network(relu)
    assert hash_network(Scaled(1)) != hash_network(Scaled(3))
    assert hash_network(build(nn.LeakyReLU(0.1))) != hash_network(build(nn.LeakyReLU(0.2)))
    with torch.no_grad():
        relu[0].bias[0] += 1e-6
    assert hash_network(relu) != hash_network(build(nn.ReLU()))


def test_another_network_of_the_same_name_stops_the_run(tmp_path):
    data = make_images(4)
    assay.benchmark(
        Scaled(1), data, ["random"], ["deletion"], out=tmp_path, **QUIET, controls="off"
    )
    with pytest.raises(assay.InputError, match="changed since the run"):
        assay.benchmark(
            Scaled(3), data, ["random"], ["deletion"], out=tmp_path, **QUIET, controls="off"
        )


@pytest.fixture
def comparing():
    """A protocol that ranks something else than the map itself."""
    from assay.units.absent import by_rank
    from assay.units.features import make_units

    @registry.protocol("comparing", higher_is_better=True, range=(-1, 1), cite="x", title="C")
    def comparing(case) -> Scores:
        """Both signs of a map in one protocol."""
        units = make_units(case.batch, "elements")
        values = units.sum(case.attribution)
        asked = [
            case.respond(units, by_rank(case.batch, units, v, [0.3], descending=True), "zero")
            for v in (values, -values)
        ]
        return Scores((asked[0].logit - asked[1].logit)[:, 0])

    yield
    registry._REGISTERED["protocol"].pop("comparing")


@pytest.mark.usefixtures("comparing")
def test_rows_ranked_by_other_values_are_other_rows():
    net, (x, y) = make_net(), make_images(4)
    maps = assay.explain(net, x, y, "saliency")
    alone = assay.score(net, x, y, maps, "comparing")
    assert alone.abs().min() > 0
    both = assay.benchmark(
        net, (x, y), ["saliency"], ["deletion", "comparing"], **QUIET, controls="off"
    )
    after = both.query("select value from scores where protocol = 'comparing' order by sample")
    assert after["value"].to_numpy() == pytest.approx(alone.numpy())


SIGN = 1.0


def uses_a_global(model, batch):
    return SIGN * helper(batch)


def helper(batch):
    return batch.inputs


def test_callables_are_known_by_what_they_use(tmp_path, monkeypatch):
    def make(sign):
        def scaled(model, batch):
            return sign * batch.inputs

        return scaled

    net, data = make_net(), make_images(3)
    plus = first_value(net, data, [make(1.0)], ["single_deletion"], out=tmp_path / "a")
    minus = first_value(net, data, [make(-1.0)], ["single_deletion"], out=tmp_path / "a")
    assert plus == pytest.approx(-minus)
    plus = first_value(net, data, [uses_a_global], ["single_deletion"], out=tmp_path / "b")
    monkeypatch.setitem(globals(), "SIGN", -1.0)
    minus = first_value(net, data, [uses_a_global], ["single_deletion"], out=tmp_path / "b")
    assert plus == pytest.approx(-minus)


def test_a_decorated_method_of_ones_own_may_take_gradients_as_it_likes():
    @assay.method("plain_autograd", needs=["gradients"], cite="x")
    def plain_autograd(model, batch):
        """Gradients by hand."""
        x = batch.inputs.clone().requires_grad_(True)
        return torch.autograd.grad(model(x).gather(1, batch.targets[:, None]).sum(), x)[0]

    try:
        net, (x, y) = make_net(), make_images(3)
        ours = assay.explain(net, x, y, "plain_autograd")
        assert torch.allclose(ours, assay.explain(net, x, y, "saliency"), atol=1e-6)
    finally:
        registry._REGISTERED["method"].pop("plain_autograd")


def test_an_object_with_a_state_is_never_taken_from_another_process():
    class Explainer:
        def __call__(self, model, batch):
            return batch.inputs

    assert registry.code_identity(Explainer()).startswith("process")
    assert registry.code_identity(helper) == registry.code_identity(helper)
    assert not registry.code_identity(helper).startswith("process")


def test_options_without_content_are_refused():
    with pytest.raises(assay.InputError, match="plain values, arrays or tensors"):
        registry.identity({"x": object()})
    assert registry.identity([torch.float16 == torch.float16]) is not None


def test_a_dataset_needs_a_fingerprint():
    with pytest.raises(assay.InputError, match="fingerprint"):
        Dataset("d", "vector", ("a",), lambda i: Sample(torch.zeros(3)))


def test_layers_are_known_by_name():
    net, (x, y) = make_net(), make_images(3)
    methods = [{"gradcam": {"layer": net.relu1}}, {"gradcam": {"layer": net.relu2}}]
    results = assay.benchmark(net, (x, y), methods, ["single_deletion"], **QUIET, controls="off")
    assert set(results.scores["method"].to_pylist()) == {
        "gradcam[layer=relu1]",
        "gradcam[layer=relu2]",
    }


class TestBrokenNetworks:
    def test_nan_answers_are_failures_not_degenerate(self):
        class Fragile(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = make_net()

            def forward(self, x):
                holes = (x == 0).flatten(1).sum(1, keepdim=True) > 20
                return torch.where(holes, torch.nan, self.inner(x))

        with pytest.warns(RuntimeWarning):
            results = assay.benchmark(
                Fragile(), make_images(3), ["random"], ["single_deletion"], **QUIET, controls="off"
            )
        assert set(results.scores["status"].to_pylist()) == {"failed"}
        assert "network give NaN" in results.failures[0]["message"]

    def test_a_fill_with_nan_is_refused(self):
        fill = torch.tensor([math.nan, 0, 0])
        with pytest.raises(assay.InputError, match="finite"):
            assay.score(make_net(), *make_images(2), torch.rand(2, 16, 16), "deletion", fill=fill)

    def test_gradcam_before_an_in_place_operation(self):
        torch.manual_seed(0)
        layers = [nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(784, 4)]
        x, y = make_images(3)
        maps = assay.explain(nn.Sequential(*layers), x, y, "gradcam", layer="0")
        plain = [layers[0], nn.ReLU(), *layers[2:]]
        assert torch.allclose(
            maps, assay.explain(nn.Sequential(*plain), x, y, "gradcam", layer="0")
        )

    def test_a_network_that_only_breaks_in_larger_batches_stays_plain(self):
        class Merging(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv, self.head = nn.Conv2d(3, 4, 3), nn.Linear(196, 4)

            def forward(self, x):
                x = self.conv(x)
                return self.head(x.view(len(x) * 4, -1)).view(len(x), 4, 4).mean(1)

        results = assay.benchmark(
            Merging(), make_images(5), ["saliency"], ["deletion"], **QUIET, controls="off"
        )
        assert not results.failures

    def test_a_parametrised_convolution_is_left_alone(self):
        net = make_net()
        nn.utils.parametrizations.weight_norm(net.conv1)
        results = assay.benchmark(
            net, make_images(5), ["saliency"], ["deletion"], **QUIET, controls="off"
        )
        assert not results.failures

    def test_half_precision_networks_are_stored(self):
        x, y = make_images(4)
        net = nn.Sequential(nn.Flatten(), nn.Linear(768, 4)).bfloat16()
        results = assay.benchmark(
            net, (x, y), ["random"], ["single_deletion"], **QUIET, controls="off"
        )
        assert not results.failures

    def test_a_confident_network_has_finite_log_odds(self):
        torch.manual_seed(0)
        net = nn.Linear(6, 3, bias=False)
        x = torch.randn(4, 6)
        y = net(x).argmax(1)
        with torch.no_grad():
            net.weight *= 100
        logits = net(x).detach().double()
        assert torch.isfinite(assay.explain(net, x, y, "saliency", output="log_odds")).all()
        others = logits.scatter(1, y[:, None], -torch.inf).logsumexp(1)
        exact = logits.gather(1, y[:, None])[:, 0] - others
        log_prob = torch.log_softmax(logits, 1).gather(1, y[:, None])
        found = Response(log_prob, log_prob, y[:, None]).log_odds[:, 0]
        close = exact < 30
        assert found[close].numpy() == pytest.approx(exact[close].numpy(), rel=1e-3)
        assert torch.isfinite(found).all()


@pytest.mark.parametrize("size", [16, 49, 256, 1000])
@pytest.mark.parametrize("steps", [10, 100])
def test_percentiles_are_those_of_exact_ranks(size, steps):
    from fractions import Fraction

    values = torch.randperm(size, generator=torch.Generator().manual_seed(size)).double()[None]
    shares = [Fraction(k, steps) for k in range(steps + 1)]
    ours = percentiles(values, shares)[0].numpy()
    assert ours == pytest.approx(np.percentile(values[0].numpy(), [float(100 * s) for s in shares]))
    exact = [k * (size - 1) // steps for k in range(steps + 1) if k * (size - 1) % steps == 0]
    hit = [ours[k] for k in range(steps + 1) if k * (size - 1) % steps == 0]
    assert hit == exact


class TestMisuse:
    def test_protocols_come_in_every_form(self):
        net, data = make_net(), make_images(3)
        for protocols in ("deletion", ["deletion"], {"deletion": {}}):
            found = assay.benchmark(net, data, "random", protocols, **QUIET, controls="off")
            assert set(found.scores["protocol"].to_pylist()) == {"deletion"}
        found = assay.benchmark(
            net, data, "random", {"deletion": {"steps": 5}}, **QUIET, controls="off"
        )
        assert set(found.scores["protocol"].to_pylist()) == {"deletion[steps=5]"}

    def test_options_are_never_dropped(self):
        net, (x, y) = make_net(), make_images(3)
        signed = assay.explain(net, x, y, {"gradcam": {}}, relu=False)
        assert (signed < 0).any()
        with pytest.raises(assay.InputError, match="no options with"):
            assay.explain(net, x, y, lambda model, batch: batch.inputs, steps=3)
        with pytest.raises(assay.InputError, match="Unknown option"):
            assay.score(net, x, y, torch.rand(3, 16, 16), {"abpc": {}}, nonsense=3)

    @pytest.mark.parametrize(
        "wrong", [{"methods": []}, {"protocols": []}, {"target": "labels"}, {"limit": 0},
                  {"micro_batch": -1}, {"device": "gpu"}],
        ids=str,
    )  # fmt: skip
    def test_wrong_arguments_are_input_errors(self, wrong):
        arguments = {"methods": ["random"], "protocols": ["deletion"], **wrong}
        with pytest.raises(assay.InputError, match=next(iter(wrong))):
            assay.benchmark(make_net(), make_images(3), **arguments, **QUIET, controls="off")

    def test_channels_must_fit_mean_and_std(self):
        model = assay.model(make_net(), mean=[0.5] * 2, std=[0.2] * 2)
        with pytest.raises(assay.InputError, match="inputs with 2 channels"):
            assay.benchmark(
                model, make_images(3), ["random"], ["deletion"], **QUIET, controls="off"
            )

    def test_seeds_are_given_once(self):
        fields = {"datasets": ["a"], "models": ["b"], "methods": ["c"], "protocols": ["d"]}
        with pytest.raises(assay.InputError, match="each seed once"):
            make_suite({**fields, "seeds": [0, 0]})

    def test_a_grid_finer_than_the_image_is_refused(self):
        with pytest.raises(assay.InputError, match="at most 16 cells a side"):
            assay.score(
                make_net(), *make_images(2), torch.rand(2, 16, 16), "single_deletion", grid=50
            )

    def test_maps_with_one_channel_and_callables_that_give_arrays(self):
        def as_array(model, batch):
            x = batch.inputs.clone().requires_grad_(True)
            model(x).gather(1, batch.targets[:, None]).sum().backward()
            return x.grad.numpy()

        net, (x, y) = make_net(), make_images(3)
        methods = [as_array, {"one": torch.rand(3, 1, 16, 16)}]
        results = assay.benchmark(
            net, (x, y), methods, ["single_deletion"], **QUIET, controls="off"
        )
        assert not results.failures
        expected = assay.score(net, x, y, assay.explain(net, x, y, "saliency"), "single_deletion")
        assert results.scores["value"].to_numpy()[:3] == pytest.approx(expected.numpy())


def test_a_larger_limit_keeps_the_shards_there_are(tmp_path):
    net, data = make_net(), make_images(40)
    assay.benchmark(
        net, data, ["random"], ["single_deletion"], limit=16, out=tmp_path, **QUIET, controls="off"
    )
    before = logs(tmp_path)
    grown = assay.benchmark(
        net, data, ["random"], ["single_deletion"], limit=32, out=tmp_path, **QUIET, controls="off"
    )
    assert len(grown.scores) == 32
    assert unchanged(before)


def test_a_forecast_leaves_out_what_does_not_apply():
    net = nn.Sequential(nn.Linear(12, 5), nn.ReLU(), nn.Linear(5, 3))
    rows = []
    net.register_forward_hook(lambda m, i, o: rows.append(len(i[0])))
    data = (torch.randn(4, 12), torch.arange(4) % 3)
    methods = ["gradcam", "saliency", "edge", {"random": {"grid": 7}}]
    expected = assay.dry_run(
        net, data, methods, ["morf"], micro_batch=4, time_it=False, controls="off"
    )
    assay.benchmark(net, data, methods, ["morf"], micro_batch=4, **QUIET, controls="off")
    assert sum(rows) == expected.forwards
    assert f"{expected.forwards:,} forward passes" in str(expected)


def test_batches_of_no_dataset_say_so():
    batch = Batch(("a",), torch.zeros(1, 3), torch.zeros(1, dtype=torch.long))
    with pytest.raises(assay.InputError, match="Expected a batch with a dataset"):
        batch.reference(2)
    assert as_dataset((torch.zeros(1, 3), None)).ids == ("0000",)
