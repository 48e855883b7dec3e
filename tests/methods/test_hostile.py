"""Methods that change what is not theirs: they fail with the reason, and nothing else changes."""

import os
import random

import numpy as np
import pytest
import torch
from torch import nn

import assay
from assay.conformance.worlds import make_images, make_net
from assay.errors import HarmError
from assay.plugins import registry

SAMPLES, SHARDS = 10, 2
pytestmark = pytest.mark.filterwarnings("ignore:.*hardly above chance", "ignore:.*cells failed")


def maps(model, batch):
    """What an innocent method gives."""
    x = batch.inputs.clone().requires_grad_()
    return torch.autograd.grad(model(x).gather(1, batch.targets[:, None]).sum(), x)[0]


def innocent(model, batch):
    return maps(model, batch)


def weight(model, batch):
    with torch.no_grad():
        model.net.head.weight.mul_(-1)
    return maps(model, batch)


def weight_data(model, batch):
    model.net.head.weight.data.mul_(-1)
    return maps(model, batch)


def turned_around(model, batch):
    """The sum of all bits stays the same."""
    model.net.head.weight.data = model.net.head.weight.data.flip(0)
    return maps(model, batch)


def half(model, batch):
    model.net.half()
    return torch.ones_like(batch.inputs)


def running_mean(model, batch):
    model.net.bn1.running_mean.add_(1)
    return maps(model, batch)


def new_buffer(model, batch):
    model.net.bn1.running_var = torch.ones(8)
    return maps(model, batch)


def inputs(model, batch):
    batch.inputs.mul_(-1)
    return maps(model, batch)


def inputs_as_numpy(model, batch):
    batch.inputs.numpy()[:] = 0
    return batch.inputs


def targets(model, batch):
    batch.targets.fill_(0)
    return maps(model, batch)


def labels(model, batch):
    batch.labels.fill_(0)
    return maps(model, batch)


def forward_hook(model, batch):
    model.net.head.register_forward_hook(lambda module, args, output: -output)
    return maps(model, batch)


def backward_hook(model, batch):
    model.net.relu1.register_full_backward_hook(lambda module, grads, _: (-grads[0],))
    return maps(model, batch)


def hook_of_all(model, batch):
    nn.modules.module.register_module_forward_hook(lambda module, args, output: output * 2)
    return maps(model, batch)


def train_mode(model, batch):
    model.net.train()
    return torch.ones_like(batch.inputs)


def swapped_layer(model, batch):
    model.net.relu2 = nn.Tanh()
    return maps(model, batch)


def setting(model, batch):
    model.net.conv1.stride = (2, 2)
    return torch.ones_like(batch.inputs)


def own_forward(model, batch):
    model.net.head.forward = lambda x: -torch.nn.functional.linear(x, model.net.head.weight)
    return maps(model, batch)


def default_type(model, batch):
    torch.set_default_dtype(torch.float64)
    return maps(model, batch)


def threads(model, batch):
    torch.set_num_threads(torch.get_num_threads() + 1)
    return maps(model, batch)


def working_folder(model, batch):
    """Files of a run in a relative folder would be written elsewhere."""
    os.chdir(os.path.dirname(os.getcwd()))
    return maps(model, batch)


def autocast(model, batch):
    torch.set_autocast_enabled("cpu", True)
    return maps(model, batch)


def deterministic(model, batch):
    torch.use_deterministic_algorithms(True)
    return maps(model, batch)


def weights_with_gradients(model, batch):
    model.net.requires_grad_(True)
    return maps(model, batch)


def backward(model, batch):
    model.net.head.weight.requires_grad_(True)
    model(batch.inputs).sum().backward()
    model.net.head.weight.requires_grad_(False)
    return torch.ones_like(batch.inputs)


def answers(model, batch, engine):
    engine.memory["clean"]["none"][0].data.mul_(-1)
    return maps(model, batch)


def other_answers(model, batch, engine):
    """The weights are wrong while the engine is asked, and its answers would be stored."""
    model.net.head.weight.data.mul_(-1)
    engine.memory["clean"].clear()
    engine._ask_clean()
    return maps(model, batch)


HOSTILE = {
    weight: "the parameter `head.weight` of the network",
    weight_data: "the parameter `head.weight` of the network",
    turned_around: "the parameter `head.weight` of the network",
    half: "the buffer `running_mean` of the layer `bn1`",
    running_mean: "the buffer `bn1.running_mean` of the network",
    new_buffer: "the buffer `running_var` of the layer `bn1`",
    inputs: "`batch.inputs`",
    inputs_as_numpy: "`batch.inputs`",
    targets: "`batch.targets`",
    labels: "`batch.targets`",  # the same tensor: the labels are explained
    forward_hook: "the hooks of the layer `head`",
    backward_hook: "the hooks of the layer `relu1`",
    hook_of_all: "the hooks of all modules",
    train_mode: "the mode of the layer `the network itself`, which was left in training mode",
    swapped_layer: "the layer `relu2` of the layer `the network itself`",
    setting: "the setting `stride` of the layer `conv1`",
    own_forward: "the function `forward` of the layer `head`",
    default_type: "the default number type of torch",
    threads: "the number of threads of torch",
    working_folder: "the working folder",
    autocast: "the autocast mode of torch on cpu",
    deterministic: "`torch.use_deterministic_algorithms`",
    weights_with_gradients: "`requires_grad` of the parameter `conv1.weight` of the network",
    backward: "the gradient of the parameter `head.weight` of the network",
    answers: "the answers that the engine keeps",
    other_answers: "the parameter `head.weight` of the network",
}
NAMES = {method.__name__ for method in HOSTILE}
BY_NAME = {"answers": "answers", "other_answers": "other_answers"}  # they take the engine
OTHERS = [innocent, "input_x_gradient", "random"]
PROTOCOLS = [{"single_deletion": {"grid": 2}}]


def item(method):
    return BY_NAME.get(method.__name__, method)


def run(methods, out=None, net=None):
    data = make_images(SAMPLES)
    net = make_net() if net is None else net
    return assay.benchmark(net, data, methods, PROTOCOLS, out=out, progress=False)


def scores(results, skipped=()):
    rows = results.scores.to_pylist()
    key = ("method", "protocol", "sample", "metric")
    return {
        tuple(row.get(k) for k in key): (row["value"], row["status"])
        for row in rows
        if row["method"] not in skipped
    }


@pytest.fixture(scope="module", autouse=True)
def registered():
    """Methods that take the engine are registered; not for the tests of other modules."""
    for function in (answers, other_answers):
        assay.method(function.__name__)(function)
    yield
    for function in (answers, other_answers):
        registry._REGISTERED["method"].pop(function.__name__)


@pytest.fixture(scope="module")
def alone():
    """The scores of the others in a run of their own."""
    return scores(run(OTHERS))


@pytest.fixture(scope="module")
def beside(tmp_path_factory):
    """The run of the others after all hostile methods, its network, and its folder."""
    net, folder = make_net(), tmp_path_factory.mktemp("beside") / "run"
    state = {name: value.clone() for name, value in net.state_dict().items()}
    results = run([*map(item, HOSTILE), *OTHERS], folder, net)
    return results, net, state, folder


def test_others_are_scored_as_without_them(beside, alone):
    results, net, state, _ = beside
    assert scores(results, NAMES) == alone
    after = net.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in state.items())


@pytest.mark.parametrize("method", HOSTILE, ids=lambda method: method.__name__)
def test_each_fails_with_its_reason(method, beside):
    name = method.__name__
    reasons = [f["message"] for f in beside[0].failures if f["method"] == name]
    assert len(reasons) == len(PROTOCOLS) * SHARDS
    assert all(f"`{name}` changed {HOSTILE[method]}" in reason for reason in reasons)
    mine = {row["status"] for row in beside[0].scores.to_pylist() if row["method"] == name}
    assert mine == {"failed"}


def test_nothing_of_them_is_stored(beside, alone):
    """A later run in the folder gets the same, and it is as if they had never run."""
    _, net, _, folder = beside
    assert len(list((folder / "attributions").iterdir())) == len(OTHERS)
    later = run(["saliency", *OTHERS], folder, net)
    assert scores(later, {"saliency"}) == alone


@pytest.mark.parametrize("method", [weight_data, inputs, forward_hook, default_type])
def test_explain_raises_and_undoes(method):
    net, (X, y, *_) = make_net(), make_images(4)
    X = X.clone()
    expected = assay.explain(net, X, y, innocent)
    unchanged = X.clone()
    with pytest.raises(HarmError, match=f"`{method.__name__}` changed"):
        assay.explain(net, X, y, method)
    assert torch.equal(X, unchanged)
    assert torch.equal(assay.explain(net, X, y, innocent), expected)


def test_a_method_that_fails_half_way_is_undone_too(alone):
    def breaks(model, batch):
        model.net.head.weight.data.mul_(-1)
        raise KeyError("half way")

    results = run([breaks, *OTHERS])
    assert scores(results, {"breaks"}) == alone
    assert "KeyError: 'half way'" in results.failures[0]["message"]


def test_samples_that_a_method_reads_are_its_own(alone):
    def blackens(model, batch):
        for sample in batch.dataset.ids:
            batch.dataset.fetch(sample).input.zero_()
        return batch.inputs

    results = run([blackens, *OTHERS])
    assert not results.failures
    assert scores(results, {"blackens"}) == alone


def test_gradients_at_the_inputs_themselves_are_no_harm(alone):
    """The usual way to write it: `requires_grad_` on what the method was given."""

    def usual(model, batch):
        x = batch.inputs.requires_grad_()
        return torch.autograd.grad(model(x).gather(1, batch.targets[:, None]).sum(), x)[0]

    results = run([usual, *OTHERS])
    assert not results.failures
    assert scores(results, {"usual"}) == alone


def drawing(source):
    def draws(model, batch):
        return torch.from_numpy(np.asarray(source(tuple(batch.inputs.shape)))).float()

    return draws


STREAMS = {
    "the random numbers of torch": lambda shape: torch.randn(shape).numpy(),
    "the random numbers of `numpy.random`": lambda shape: np.random.randn(*shape),
    "the random numbers of `random`": lambda shape: np.full(shape, random.random()),
}


class TestSharedRandomNumbers:
    @pytest.mark.parametrize("stream", STREAMS)
    def test_who_draws_is_warned_and_others_get_the_same(self, stream, alone):
        methods = [drawing(STREAMS[stream]), *OTHERS]
        with pytest.warns(RuntimeWarning, match="`draws` uses the random numbers") as caught:
            results = run(methods)
        said = [str(w.message) for w in caught if "`draws` uses" in str(w.message)]
        assert len(said) == 1  # once, not once per shard
        assert stream in said[0]
        assert "`batch.draw(purpose, shape)`" in said[0]
        assert not results.failures
        assert scores(results, {"draws"}) == alone

    @pytest.mark.filterwarnings("ignore:`draws` uses")
    def test_its_own_numbers_do_not_depend_on_what_ran_before(self):
        method = drawing(STREAMS["the random numbers of torch"])
        torch.manual_seed(1)
        first = run([method, *OTHERS])
        torch.manual_seed(2)
        assert scores(first) == scores(run([*OTHERS, method]))

    def test_a_seed_is_warned_of_and_undone(self, alone):
        def seeds(model, batch):
            torch.manual_seed(0)
            return maps(model, batch)

        net = make_net()
        torch.manual_seed(5)
        state = torch.get_rng_state()
        with pytest.warns(RuntimeWarning, match="`seeds` uses the random numbers of torch"):
            results = run([seeds, *OTHERS], net=net)
        assert torch.equal(state, torch.get_rng_state())
        assert scores(results, {"seeds"}) == alone

    def test_who_draws_from_the_batch_is_not_warned(self, recwarn):
        def draws_well(model, batch):
            return batch.draw("mine", batch.map_shape)

        run([draws_well, *OTHERS])
        assert not [w for w in recwarn if "random numbers" in str(w.message)]


def test_a_run_in_a_deleted_working_folder(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert not run(["saliency", innocent], tmp_path / "run").failures


def test_a_method_that_deletes_the_working_folder_fails_alone(tmp_path, monkeypatch):
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)

    def deletes(model, batch):
        here.rmdir()
        return maps(model, batch)

    results = run([deletes, "saliency"], tmp_path / "run")
    failures = {(f["method"], f["message"].split(",")[0]) for f in results.failures}
    assert ("deletes", "`deletes` changed the working folder") in failures
    assert {method for method, _ in failures} == {"deletes"}
