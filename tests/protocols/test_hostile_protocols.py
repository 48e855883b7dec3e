"""Protocols and fills that change what is not theirs: they fail, and nothing else changes."""

import re

import numpy as np
import pytest
import torch

import assay
from assay.conformance.worlds import make_images, make_net
from assay.plugins import registry
from assay.types import Scores

SAMPLES, SHARDS = 10, 2
pytestmark = pytest.mark.filterwarnings("ignore:.*hardly above chance", "ignore:.*cells failed")
METHODS = ["saliency", "input_x_gradient", "random"]
OTHERS = [{"single_deletion": {"grid": 2}}, {"deletion": {"steps": 3}}, "infidelity"]


def scores(case):
    """What an innocent protocol gives."""
    return Scores(case.attribution.flatten(1).mean(1).double())


def maps(case):
    case.attribution.mul_(-1)
    return scores(case)


def inputs(case):
    case.batch.inputs.mul_(-1)
    return scores(case)


def inputs_before_asking(case):
    """Its answers would be stored, and read by all others."""
    case.batch.inputs.mul_(-1)
    protocol = registry.get("protocol", "single_deletion")
    return protocol.function(case, **{**protocol.defaults, "grid": 2})


def targets(case):
    case.batch.targets.fill_(0)
    return scores(case)


def labels(case):
    case.batch.labels.fill_(0)
    return scores(case)


def answers(case):
    case.clean.logit.mul_(-1)
    return scores(case)


def half_way(case):
    case.batch.inputs.zero_()
    raise KeyError("half way")


def default_type(case):
    torch.set_default_dtype(torch.float64)
    return scores(case)


def threads(case):
    torch.set_num_threads(torch.get_num_threads() + 1)
    return scores(case)


def hook_of_all(case):
    torch.nn.modules.module.register_module_forward_hook(lambda module, args, output: output * 2)
    return scores(case)


def gradient_mode(case):
    torch.set_grad_enabled(True)
    return scores(case)


HOSTILE = {
    gradient_mode: "`gradient_mode` changed the gradient mode of torch",
    maps: "`maps` changed `case.attribution`",
    inputs: "`inputs` changed `batch.inputs`",
    inputs_before_asking: "`inputs_before_asking` changed `batch.inputs`",
    targets: "`targets` changed `batch.targets`",
    labels: "`labels` changed `batch.targets`",  # the same tensor: the labels are explained
    answers: "`answers` changed `case.clean.logit`",
    half_way: "KeyError: 'half way'",
    default_type: "`default_type` changed the default number type of torch",
    threads: "`threads` changed the number of threads of torch",
    hook_of_all: "`hook_of_all` changed the hooks of all modules",
}


def harmful_fill(batch):
    """The usual fill, after it changed the inputs of all."""
    batch.inputs.mul_(-1)
    return registry.get("fill", "zero").function(batch)


def trained_network(trial):
    """Trains the network that is scored instead of a copy."""
    trial.model.net.head.weight.data.mul_(-1)
    return Scores(trial.maps().flatten(1).mean(1).double())


def changed_samples(trial):
    trial.batch().inputs.zero_()
    trial.maps().zero_()
    return Scores(trial.maps().flatten(1).mean(1).double())


def seen(trial):
    """What other set protocols see."""
    whole = trial.batch().inputs.flatten(1).sum(1) + trial.model(trial.batch().inputs)[:, 0]
    return Scores(whole.double() + trial.maps().flatten(1).mean(1).double())


FILLED = [
    {"deletion": {"steps": 2, "fill": "harmful_fill", "as": "filled"}},
    {"single_deletion": {"grid": 3, "as": "later"}},
]


@pytest.fixture(scope="module", autouse=True)
def registered():
    """The plug-ins are registered, not for the tests of other modules."""
    for function in HOSTILE:
        assay.protocol(function.__name__, metric="m")(function)
    for function in (trained_network, changed_samples, seen):
        assay.protocol(function.__name__, metric="m", scope="set")(function)
    registry.fill("harmful_fill")(harmful_fill)
    yield
    for function in (*HOSTILE, trained_network, changed_samples, seen):
        registry._REGISTERED["protocol"].pop(function.__name__)
    registry._REGISTERED["fill"].pop("harmful_fill")


def run(protocols, methods=METHODS, out=None, net=None):
    net = make_net() if net is None else net
    return assay.benchmark(
        net, make_images(SAMPLES), methods, protocols, out=out, progress=False, controls="off"
    )


def values(results, skipped=()):
    key = ("method", "protocol", "sample", "metric")
    return {
        tuple(row[k] for k in key): (np.float64(row["value"]).tobytes(), row["status"])
        for row in results.scores.to_pylist()
        if row["protocol"] not in skipped
    }


@pytest.fixture(scope="module")
def alone():
    return values(run(OTHERS))


@pytest.fixture(scope="module")
def beside(tmp_path_factory):
    """The run of the others after all hostile protocols, its network, and its folder."""
    net, folder = make_net(), tmp_path_factory.mktemp("beside") / "run"
    results = run([*(f.__name__ for f in HOSTILE), *OTHERS], out=folder, net=net)
    return results, net, folder


NAMES = {function.__name__ for function in HOSTILE}


def test_others_are_scored_as_without_them(beside, alone):
    assert values(beside[0], NAMES) == alone


@pytest.mark.parametrize("protocol", HOSTILE, ids=lambda protocol: protocol.__name__)
def test_each_fails_with_its_reason(protocol, beside):
    name = protocol.__name__
    reasons = [f["message"] for f in beside[0].failures if f["protocol"] == name]
    assert len(reasons) == len(METHODS) * SHARDS
    assert all(HOSTILE[protocol] in reason for reason in reasons)
    mine = {row["status"] for row in beside[0].scores.to_pylist() if row["protocol"] == name}
    assert mine == {"failed"}


def test_nothing_of_them_is_stored(beside):
    """A method that is added later gets the same as in a run without them."""
    _, net, folder = beside
    more = [*METHODS, "edge"]
    later = run([*(f.__name__ for f in HOSTILE), *OTHERS], more, folder, net)
    assert values(later, NAMES) == values(run(OTHERS, more))


def test_a_fill_that_changes_the_inputs_fails_its_protocol_only():
    results = run(FILLED)
    assert {f["protocol"] for f in results.failures} == {"filled"}
    assert all("`filled` changed `batch.inputs`" in f["message"] for f in results.failures)
    assert values(results, {"filled"}) == values(run(FILLED[1:]))


def test_a_fill_that_changes_the_inputs_fails_its_method_only():
    methods = [{"occlusion": {"fill": "harmful_fill", "units": "grid"}}, "saliency"]
    results = run(OTHERS, methods)
    assert {f["method"].split("[")[0] for f in results.failures} == {"occlusion"}
    assert all("changed `batch.inputs`" in f["message"] for f in results.failures)
    mine = {key: value for key, value in values(results).items() if key[0] == "saliency"}
    assert mine == values(run(OTHERS, ["saliency"]))


B = SAMPLES  # more than a shard has
WRONG = {
    "None": (None, "Scores with one value per sample, got NoneType"),
    "a tensor": (torch.zeros(2), "Scores with one value per sample, got Tensor"),
    "no value": (Scores(None), "`value` .* got NoneType"),
    "a list": (Scores([1.0, 2.0]), "`value` .* got list"),
    "too many": (Scores(torch.zeros(B)), r"`value` .* of shape \(8,\).* shape \(10,\)"),
    "complex": (Scores(torch.zeros(8) + 1j), "`value` .* real numbers .*complex64"),
    "extra": (Scores(torch.zeros(8), extra={"e": torch.zeros(2)}), r"`extra\['e'\]`"),
    "empty maps": (Scores(torch.zeros(8), degenerate=torch.zeros(2)), "`degenerate`"),
    "curves without x": (Scores(torch.zeros(8), {"c": torch.zeros(8, 2)}), "to have `x`"),
    "curves of others": (
        Scores(torch.zeros(8), {"c": torch.zeros(3, 2)}, torch.zeros(2)), r"`curves\['c'\]`"),
    "x of a number": (Scores(torch.zeros(8), {"c": torch.zeros(8, 2)}, torch.tensor(1)), "`x`"),
    "half a name": (Scores(torch.zeros(8), extra={"\ud800": torch.zeros(8)}), "half of a char"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("scope", ["batch", "set"])
def test_what_is_no_score_fails_its_cells_in_words(name, scope):
    returned, reason = WRONG[name]
    assay.protocol("wrong", metric="m", scope=scope)(lambda case: returned)
    try:
        results = assay.benchmark(
            make_net(),
            make_images(8),
            ["random"],
            ["wrong", *OTHERS],
            progress=False,
            controls="off",
        )
    finally:
        registry._REGISTERED["protocol"].pop("wrong")
    assert {f["protocol"] for f in results.failures} == {"wrong"}
    assert all(re.search(f"Expected .*{reason}", f["message"]) for f in results.failures)


def test_a_set_protocol_that_trains_the_scored_network_fails(tmp_path):
    net = make_net()
    before = net.head.weight.clone()
    results = run(["trained_network", "changed_samples", "seen"], net=net)
    assert torch.equal(net.head.weight, before)
    assert {f["protocol"] for f in results.failures} == {"trained_network"}
    assert "the parameter `head.weight` of the network" in results.failures[0]["message"]
    assert values(results, {"trained_network", "changed_samples"}) == values(run(["seen"]))


def test_a_dry_run_changes_nothing_either():
    before = torch.get_default_dtype()
    names = [f.__name__ for f in HOSTILE]
    net = make_net()
    counted = assay.dry_run(
        net, make_images(SAMPLES), METHODS, [*names, *OTHERS], time_it=False, controls="off"
    )
    plain = assay.dry_run(net, make_images(SAMPLES), METHODS, OTHERS, time_it=False, controls="off")
    assert torch.get_default_dtype() == before
    assert {n: counted.rows[n] for n in plain.rows} == plain.rows


def test_a_score_in_python_is_refused_and_undone():
    (X, y, *_), net = make_images(4), make_net()
    before, given = X.clone(), torch.randn(4, *X.shape[2:])
    kept = given.clone()
    for name in ("inputs", "maps"):
        with pytest.raises(assay.InputError, match=f"`{name}` changed"):
            assay.score(net, X, y, given, name)
    assert torch.equal(X, before)
    assert torch.equal(given, kept)


def test_random_numbers_that_are_shared_are_named_and_the_same_whatever_ran_before():
    def draws(case):
        return Scores(scores(case).value + torch.rand(len(case.batch)))

    assay.protocol("draws", metric="m")(draws)
    try:
        with pytest.warns(RuntimeWarning, match="`draws` uses the random numbers of torch.*score"):
            first = values(run(["draws", *OTHERS]))
        with pytest.warns(RuntimeWarning, match="`draws` uses"):
            assert values(run([*OTHERS, "draws"])) == first
    finally:
        registry._REGISTERED["protocol"].pop("draws")


def test_what_a_protocol_marks_for_gradients_reaches_no_other(registered):
    seen_marks = []

    def marks(case):
        case.attribution.requires_grad_(True)
        case.clean.logit.requires_grad_(True)
        return scores(case)

    def looks(case):
        seen_marks.append(case.attribution.requires_grad or case.clean.logit.requires_grad)
        return scores(case)

    for function in (marks, looks):
        assay.protocol(function.__name__, metric="m")(function)
    try:
        run(["marks", "looks"])
    finally:
        for function in (marks, looks):
            registry._REGISTERED["protocol"].pop(function.__name__)
    assert seen_marks
    assert not any(seen_marks)
