"""No hidden channels: a protocol cannot reach a network, and a model does not change."""

from dataclasses import FrozenInstanceError, fields, is_dataclass, replace
from functools import partial

import pytest
import torch
from torch import nn

import assay
from assay.engine.engine import Engine, network_engine
from assay.engine.respondent import NetworkRespondent
from assay.plan.finished import Finished
from assay.plan.plan import Plan
from assay.plan.prepared_networks import Networks
from assay.plugins import registry
from assay.run.shard import ShardTask, ShardWork
from assay.store import Store
from assay.types import Model
from small_worlds import make_images, make_net

FORBIDDEN = (
    nn.Module,
    Model,
    Engine,
    NetworkRespondent,
    Networks,
    Plan,
    Finished,
    Store,
    ShardTask,
    ShardWork,
)


def reachable(start: object) -> list[tuple[str, object]]:
    """All that public attributes, fields, items and `__self__` lead to, with the way there."""
    found, seen, ways = [], set(), [("case", start)]
    while ways:
        path, value = ways.pop()
        if id(value) in seen or isinstance(value, str | int | float | bool | bytes | torch.Tensor):
            continue
        seen.add(id(value))
        found.append((path, value))
        if isinstance(value, dict):
            ways += [(f"{path}[{key!r}]", item) for key, item in list(value.items())[:8]]
        elif isinstance(value, tuple | list | set | frozenset):
            ways += [(f"{path}[{i}]", item) for i, item in enumerate(list(value)[:8])]
        elif isinstance(value, partial):
            ways += [(f"{path}.args", value.args), (f"{path}.func", value.func)]
        elif callable(value) and not isinstance(value, type):
            owner = getattr(value, "__self__", None)
            ways += [(f"{path}.__self__", owner)] if owner is not None else []
        if is_dataclass(value):
            ways += [(f"{path}.{f.name}", getattr(value, f.name)) for f in fields(value)]
        if type(value).__module__.split(".")[0] in ("assay", "__main__"):
            names = [n for n in dir(value) if not n.startswith("_")]
            ways += [(f"{path}.{n}", read) for n in names if (read := _read(value, n)) is not None]
    return found


def _read(value: object, name: str) -> object:
    try:
        return getattr(value, name)
    except Exception:  # a property that does not apply here
        return None


@pytest.fixture
def spying(monkeypatch):
    """A protocol that keeps every case it sees."""
    cases = []

    @registry.protocol("spy")
    def spy(case):
        cases.append(case)
        return assay.Scores(torch.zeros(len(case.batch)))

    yield cases
    registry._REGISTERED["protocol"].pop("spy")


@pytest.mark.parametrize("world", ["images", "modulo", "colors", "parts", "yellow_patch"])
def test_nothing_public_of_a_case_leads_to_a_network(spying, world):
    if world == "images":
        net, data = make_net(), make_images(4)
    else:
        options = {
            "modulo": ("single_color_modulo", {"samples": 4, "size": 32}),
            "colors": ("multi_color_sum", {"samples": 4, "size": 32}),
            "parts": ("parts", {"samples": 4}),
            "yellow_patch": ("yellow_patch", {"samples": 4}),
        }[world]
        made = _environment(*options)
        net, data = made.model, made.dataset
    assay.benchmark(net, data, ["saliency", "occlusion"], ["spy"], progress=False, controls="off")
    assert len(spying) >= 2
    for case in spying:
        ways = reachable(case)
        assert len(ways) > 10
        assert [path for path, value in ways if isinstance(value, FORBIDDEN)] == []


def _environment(name, options):
    known = registry.get("environment", name).options
    return assay.environment(name, **{k: v for k, v in options.items() if k in known})


def test_the_walk_finds_what_is_hidden():
    net, (x, y) = make_net(), make_images(2)
    data = assay.types.Dataset("d", "vector", ("a",), lambda i: None, "f")
    engine = network_engine(assay.model(net), replace(data_batch(x, y)))
    assert any(isinstance(v, nn.Module) for _, v in reachable({"respond": engine.respond}))
    assert not any(isinstance(v, nn.Module) for _, v in reachable({"respond": engine.verb}))
    assert not any(isinstance(v, nn.Module) for _, v in reachable(data))


def data_batch(x, y):
    from assay.data.memory import as_dataset

    dataset = as_dataset((x, y))
    return dataset.batch(dataset.ids)


def test_a_model_does_not_change():
    model = assay.model(make_net())
    for name, value in (("micro_batch", 1), ("observed", None), ("name", "other")):
        with pytest.raises(FrozenInstanceError):
            setattr(model, name, value)


def test_a_run_leaves_the_model_as_it_was():
    """What preparing found is the run's: the model that was given knows nothing of it."""
    model = assay.model(make_net())
    before = dict(vars(model))
    assay.benchmark(
        model, make_images(4), ["gradcam"], ["single_deletion"], progress=False, controls="off"
    )
    assert vars(model) == before
    assert model.observed is None


def test_two_classes_are_not_taken_for_a_binary_pair_before_a_look():
    model = assay.model(nn.Linear(3, 2))
    with pytest.raises(assay.InputError, match="observed first"):
        model.log_probs(torch.zeros(1, 2))
    assert model.log_probs(torch.zeros(1, 3)).exp().sum() == pytest.approx(1)
