"""Networks that are not functions of their input are noticed before a run, with the size of it."""

import re
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional

import assay
from assay.conformance.counting import counting
from assay.conformance.worlds import make_images, make_net
from assay.errors import InputError
from assay.run import run
from assay.suite.spec import make_suite

CALL = {"methods": ["saliency", "random"], "protocols": [{"single_deletion": {"grid": 2}}]}
NOTICED = "is not a function of its input"
pytestmark = pytest.mark.filterwarnings("ignore:.*hardly above chance")


class Around(nn.Module):
    """A good network with something around it."""

    def __init__(self, size: float = 0.5) -> None:
        super().__init__()
        self.net, self.size = make_net(), size


class Dropout(Around):
    def forward(self, x):
        return self.net(functional.dropout(x, self.size))


class Counter(Around):
    def __init__(self, size: float = 0.5) -> None:
        super().__init__(size)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return self.net(x) * (1 + self.size * self.calls)


class PlainCounter(Around):
    calls = 0

    def forward(self, x):
        self.calls += 1
        return self.net(x) * (1 + self.size * self.calls)


class BatchStatistics(Around):
    def forward(self, x):
        return self.net(x - self.size * x.mean(0))


class InPlace(Around):
    def forward(self, x):
        return self.net(x.mul_(self.size))


class Softmax(Around):
    def forward(self, x):
        return self.net(x).softmax(1)


class TrackingNoStatistics(Around):
    """torch's own layer that uses the statistics of a batch, also in evaluation mode."""

    def __init__(self, size: float = 0.5) -> None:
        super().__init__(size)
        self.norm = nn.BatchNorm2d(3, track_running_stats=False)

    def forward(self, x):
        return self.net(self.norm(x))


CAUSES = {
    Dropout: r"draws random numbers.*`F\.dropout\(x, p\)` is not",
    Counter: r"changes the buffer `calls`",
    PlainCounter: "or on earlier calls",
    BatchStatistics: "depend on the other samples of the batch",
    TrackingNoStatistics: "batch normalisation without running statistics",
}


def said_of(net, samples=10, **call):
    """The warnings of a run that are about its network."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        results = assay.benchmark(net, make_images(samples), **CALL, progress=False, **call)
    assert not results.failures
    texts = [str(w.message) for w in caught]
    return [t for t in texts if NOTICED in t or "in place" in t or "probabilities" in t]


@pytest.mark.parametrize("kind", CAUSES)
def test_a_large_effect_is_refused_with_its_cause_and_the_way_out(kind, tmp_path):
    with pytest.raises(InputError, match=NOTICED) as error:
        assay.benchmark(kind(), make_images(10), **CALL, out=tmp_path / "run", progress=False)
    assert re.search(CAUSES[kind], str(error.value))
    assert "`assay.model(net, stochastic=True)`" in str(error.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("kind", CAUSES)
def test_it_is_accepted_where_declared(kind):
    assert said_of(assay.model(kind(), stochastic=True)) == []


def test_the_size_is_that_of_the_effect():
    """A counter whose effect is known: outputs (1 + s c), asked in the calls c and c + 1."""
    size = 0.0002
    with torch.no_grad():
        outputs = make_net()(make_images(10)[0][:4])
    expected = size * outputs[:2].abs().max() / (outputs.amax(0) - outputs.amin(0)).max()
    (text,) = said_of(Counter(size))
    assert float(re.search(r"differ by (\S+) of", text)[1]) == pytest.approx(
        float(expected), rel=0.1
    )


@pytest.mark.parametrize(
    ("kind", "size"), [(Counter, 0.001), (PlainCounter, 0.001), (BatchStatistics, 0.01)]
)
def test_a_small_effect_is_warned_of(kind, size):
    (text,) = said_of(kind(size))
    assert NOTICED in text


def test_a_change_in_place_is_named_and_harms_no_method():
    def at_the_inputs(model, batch):
        model(batch.inputs)
        return batch.inputs

    data = make_images(10)
    expected = data[0].clone()
    with pytest.warns(RuntimeWarning, match=r"`inplace` changes its own input.*x\.clone\(\)"):
        results = assay.benchmark(
            InPlace(), data, [at_the_inputs, "saliency"], CALL["protocols"], progress=False
        )
    assert torch.equal(data[0], expected)
    assert not results.failures


def test_probabilities_are_named_with_the_cure():
    (text,) = said_of(Softmax())
    assert "Remove the last layer" in text
    cured = assay.model(Softmax(), output=lambda p: p.clamp_min(1e-12).log())
    assert said_of(cured) == []


@pytest.mark.parametrize("samples", [1, 2, 3, 10])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_network_in_order_gives_nothing(dtype, samples):
    """Batch normalisation and dropout in evaluation mode, in every number type and batch size."""
    net = nn.Sequential(make_net(), nn.Dropout(0.5)).to(dtype)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        X, y = make_images(samples)
        assay.benchmark(net, (X.to(dtype), y), ["random"], CALL["protocols"], progress=False)
    assert not [w for w in caught if NOTICED in str(w.message)]


def test_one_sample_is_enough_for_what_does_not_depend_on_others():
    with pytest.raises(InputError, match=NOTICED):
        assay.benchmark(PlainCounter(), make_images(1), **CALL, progress=False)


class TestItsCost:
    @pytest.mark.parametrize(("samples", "rows"), [(1, 2), (2, 3), (3, 4), (10, 6)])
    def test_a_dry_run_counts_it(self, samples, rows):
        net, data = make_net(), make_images(samples)
        call = {**CALL, "micro_batch": 1}
        expected = assay.dry_run(net, data, **call, time_it=False)
        with counting(net) as made:
            results = assay.benchmark(net, data, **call, progress=False)
        assert expected.repeated == expected.repeated_calls == rows
        assert (expected.forwards, expected.calls) == (made.forward, made.calls)
        assert results.manifest["forwards"] == expected.forwards - expected.looked

    def test_it_is_asked_once_in_a_folder(self, tmp_path):
        net, data = make_net(), make_images(10)
        assay.benchmark(net, data, **CALL, out=tmp_path, progress=False)
        more = {**CALL, "methods": ["edge"]}
        again = assay.dry_run(net, data, **more, out=tmp_path, time_it=False)
        assert (again.repeated, again.repeated_calls) == (0, 0)

    def test_answers_and_scores_do_not_depend_on_it(self):
        data = make_images(10)
        plain, declared = (
            assay.benchmark(m, data, **CALL, progress=False).scores.to_pylist()
            for m in (make_net(), assay.model(make_net(), stochastic=True))
        )
        assert plain == declared


class TestAsAnOption:
    def test_in_a_suite(self, tmp_path, monkeypatch):
        (tmp_path / "n.py").write_text(
            "import torch\nfrom torch import nn\n"
            "class Net(nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.head = nn.Linear(768, 4)\n"
            "    def forward(self, x):\n"
            "        return nn.functional.dropout(self.head(x.flatten(1)), 0.5)\n"
        )
        monkeypatch.chdir(tmp_path)
        torch.manual_seed(0)
        fields = {"datasets": [make_images(6)], **CALL}
        refused = make_suite({**fields, "models": ["./n.py:Net"]})
        with pytest.raises(InputError, match=NOTICED):
            run(refused, "one", progress=False)
        declared = make_suite({**fields, "models": [{"./n.py:Net": {"stochastic": True}}]})
        assert not run(declared, "two", progress=False).failures

    def test_it_is_true_or_false(self):
        with pytest.raises(
            InputError, match="Expected `stochastic` to be true or false, got 'yes'"
        ):
            assay.model(make_net(), stochastic="yes")

    def test_on_the_command_line(self):
        from assay.suite.from_options import ModelOptions, model_item

        item = model_item("small_vit", ModelOptions(stochastic=True))
        assert item == {"small_vit": {"stochastic": True}}
