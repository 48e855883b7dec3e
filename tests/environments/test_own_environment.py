"""An environment of one's own, and what is said where it is taken for something else."""

import warnings

import pytest
import torch
from torch import nn

import assay
from assay.environments.environment import samples_of
from assay.errors import InputError
from assay.suite.spec import choose_one

FILE = """
from typing import Annotated

import assay
from assay.registry import HowOnly
from torch import nn

def number():
    return 3

def bare():
    return assay.Environment("bare", nn.Identity(), lambda n, seed: None)

def drawless():
    return assay.Environment("drawless", assay.model(nn.Identity()), lambda n, seed: (n, seed))

def untyped(store, *, size: int = 3):
    return None

def trains(
    store: assay.TrainedWeights,
    *,
    size: int = 3,
    folder: Annotated[str | None, HowOnly()] = None,
) -> assay.Environment:
    net = nn.Linear(size, 2)
    store.train_once(f"line-{size}", net, lambda: nn.init.constant_(net.weight, 0.5))
    return assay.Environment("trains", assay.model(net), lambda n, seed: None)
"""
QUIET = {"methods": ["input_x_gradient"], "protocols": ["truth_f1"], "progress": False, "limit": 2}


@pytest.fixture(scope="module")
def colors():
    return assay.environment("multi_color_sum", size=24, samples=4, unseen=False)


def test_it_prints_in_one_line(colors):
    assert repr(colors) == f"Environment({colors.name}: 4 samples, ColorCounter)"
    painted = assay.environment("parts")
    assert repr(painted) == "Environment(parts: 100 samples, ResNet-8 for painted parts)"


def test_an_environment_is_no_model_and_no_data(colors):
    for net, data in ((colors, colors.dataset), (colors.model, colors)):
        with pytest.raises(InputError, match=r"Give .*`env\.model, env\.dataset`") as refusal:
            assay.benchmark(net, data, **QUIET)
        assert "Environment(multi_color_sum" in str(refusal.value)


@pytest.mark.parametrize("name", ["multi_color_sum", "single_color_modulo"])
def test_the_bare_network_has_another_output_than_the_truth(name):
    env = assay.environment(name, size=24, samples=4)
    with pytest.warns(RuntimeWarning, match=r"another of its outputs.*`env\.model, env\.dataset`"):
        assay.benchmark(env.net, env.dataset, **QUIET)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        assay.benchmark(env.model, env.dataset, **QUIET)


def test_where_the_bare_network_gives_the_same_nothing_is_said():
    env = assay.environment("multi_color_sum", size=24, samples=4, target="softmax")
    other = nn.Sequential(nn.Flatten(), nn.Linear(3 * 24**2, 4))
    for net in (env.net, other):  # of another network nothing is known
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*another of its outputs is")
            assay.benchmark(net, env.dataset, **QUIET)


@pytest.mark.parametrize("name", [None, 3, ("yellow_patch",)])
def test_what_is_no_name_is_said(name):
    with pytest.raises(InputError, match=r"name or address of the environment, got .*yellow_patch"):
        assay.environment(name)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("number", r"`\./own\.py:number` to give an `assay\.Environment`, got int.*assay new"),
        ("bare", r"`\./own\.py:bare` to be an `assay\.Model`, got Identity.*assay\.model\(net\)"),
    ],
)
def test_what_a_function_must_give_is_said(tmp_path, monkeypatch, name, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(FILE)
    with pytest.raises(InputError, match=said):
        assay.environment(f"./own.py:{name}")


@pytest.fixture
def own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(FILE)


def test_one_that_trains_gets_the_store_by_its_type(own):
    store = assay.TrainedWeights()
    first = assay.environment("./own.py:trains", trained=store)
    assert list(store.packed()) == ["line-3"]
    again = assay.environment("./own.py:trains", trained=store)
    assert again.net is not first.net
    assert torch.equal(again.net.bias, first.net.bias)  # random but for the store
    alone = assay.environment("./own.py:trains")
    assert not torch.equal(alone.net.bias, first.net.bias)


def test_an_option_that_says_only_how_is_in_no_label(own):
    assert assay.environment("./own.py:trains", folder="here").name == "trains"
    assert assay.environment("./own.py:trains", folder="here", size=4).name == "trains[size=4]"
    keys = [choose_one("environment", {"./own.py:trains": {"folder": f}}).key for f in "ab"]
    assert keys[0] == keys[1]


def test_a_parameter_before_the_options_says_its_type(own):
    with pytest.raises(InputError, match=r"`store` of environment .*`assay\.TrainedWeights`"):
        assay.environment("./own.py:untyped")


def test_what_draw_must_give_is_said(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(FILE)
    env = assay.environment("./own.py:drawless")
    with pytest.raises(InputError, match=r"`drawless` to give a `Dataset`, got tuple.*samples_of"):
        env.batch(2)
    with pytest.raises(InputError, match="got tuple"):
        _ = env.dataset


def test_samples_are_told_apart_by_seed_and_content():
    x, y, truth = torch.rand(3, 1, 4, 4), torch.arange(3), torch.rand(3, 4, 4)
    first, second = samples_of(0, x, y, truth, -x), samples_of(1, x, y, truth, -x)
    assert first.ids == ("0-0", "0-1", "0-2")
    assert not set(first.ids) & set(second.ids)
    prints = {d.fingerprint for d in (first, second, samples_of(0, x, y, truth))}
    assert len(prints) == 3
    batch = first.batch(["0-2", "0-0"])
    assert torch.equal(batch.inputs, x[[2, 0]])
    assert torch.equal(batch.truth, truth[[2, 0]])
    assert torch.equal(batch.baseline, -x[[2, 0]])
    assert first.labels == {"0-0": 0, "0-1": 1, "0-2": 2}
    assert samples_of(0, x, None, truth).has == {"truth"}
    assert samples_of(0, x, y, truth).batch(["0-0"]).baseline is None
    with pytest.raises(InputError, match="`baseline` to have the shape of the inputs"):
        samples_of(0, x, y, truth, x[:2])
