"""The store of trained weights: nothing twice, nothing from elsewhere, everything bit for bit."""

import ast
from pathlib import Path

import pytest
import torch
from safetensors.torch import load
from torch import nn

import assay

SOURCE = Path(assay.__file__).parent


def trainer(net, times):
    """Training that sets every weight to a number and counts how often it ran."""

    def train():
        times.append(1)
        net.train()
        with torch.no_grad():
            for weight in net.parameters():
                weight.fill_(len(times))

    return train


def brought(store, key, times, cache=None):
    net = nn.Linear(3, 2)
    store.train_once(key, net, trainer(net, times), cache)
    assert not net.training
    return net.state_dict()


def same(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


def test_a_key_is_trained_once_in_a_store():
    store, times = assay.TrainedWeights(), []
    first, again = brought(store, "a", times), brought(store, "a", times)
    assert len(times) == 1
    assert same(first, again)
    assert not same(first, brought(store, "b", times))
    assert same(first, brought(assay.TrainedWeights(), "a", []))
    assert len(times) == 2


def test_stores_know_nothing_of_each_other():
    times = []
    for _ in range(2):
        brought(assay.TrainedWeights(), "a", times)
    assert len(times) == 2


def test_a_trained_network_can_change_and_its_weights_stay():
    store, net = assay.TrainedWeights(), nn.Linear(3, 2)
    store.train_once("a", net, trainer(net, []))
    net.weight.data.zero_()
    assert bool((load(store.packed()["a"])["weight"] == 1).all())


def test_only_what_was_used_is_packed():
    whole, times = assay.TrainedWeights(), []
    for key in ("a", "b"):
        brought(whole, key, times)
    other = assay.TrainedWeights(whole.packed())
    assert other.packed() == {}
    brought(other, "b", times)
    assert other.packed() == {"b": whole.packed()["b"]}
    assert len(times) == 2


def test_damaged_weights_are_left_out_and_do_not_replace_whole_ones():
    store, times = assay.TrainedWeights(), []
    brought(store, "a", times)
    damaged = {"a": store.packed()["a"][:-3]}
    store.add(damaged)
    brought(store, "a", times)
    assert len(times) == 1
    brought(assay.TrainedWeights(damaged), "a", times)
    assert len(times) == 2


def test_a_cache_folder_is_read_and_written(tmp_path):
    times, cache = [], tmp_path / "made" / "when needed"
    first = brought(assay.TrainedWeights(), "a", times, cache)
    assert [file.name for file in cache.iterdir()] == ["a.safetensors"]
    store = assay.TrainedWeights()
    assert same(first, brought(store, "a", times, cache))
    assert store.packed()["a"] == (cache / "a.safetensors").read_bytes()
    assert len(times) == 1


def test_what_a_store_knows_goes_before_the_cache(tmp_path):
    store, times = assay.TrainedWeights(), [0]
    known = brought(store, "a", times)
    brought(assay.TrainedWeights(), "a", [], tmp_path)
    assert same(known, brought(store, "a", times, tmp_path))


class Tied(nn.Module):
    """Two names for one weight, and a convolution in another order of memory."""

    def __init__(self):
        super().__init__()
        self.one = nn.Linear(2, 2)
        self.two = nn.Linear(2, 2)
        self.two.weight = self.one.weight
        self.conv = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)


def test_shared_and_strided_weights_are_packed():
    store, net = assay.TrainedWeights(), Tied()
    store.train_once("a", net, lambda: None)
    assert same(load(store.packed()["a"]), net.state_dict())


@pytest.mark.parametrize(
    "path",
    [file for folder in ("training", "environments") for file in (SOURCE / folder).glob("*.py")],
    ids=lambda path: f"{path.parent.name}/{path.stem}",
)
def test_no_module_remembers_anything_between_calls(path):
    """No module-level cache, context variable or container that functions could fill."""
    tree = ast.parse(path.read_text())
    values = [node.value for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)]
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    written = [ast.unparse(value) for value in values if value is not None]
    assert not [w for w in written if w in ("{}", "[]", "set()", "dict()") or "ContextVar" in w]
    decorators = [ast.unparse(d) for function in functions for d in function.decorator_list]
    assert not [decorator for decorator in decorators if "cache" in decorator]
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Global)]
