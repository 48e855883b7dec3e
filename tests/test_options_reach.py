"""Every option of every plug-in reaches its function, whatever assay itself reads of an item."""

import functools
import inspect
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from assay.errors import InputError
from assay.plan.resolving import build_one, resolve
from assay.plugins import registry
from assay.plugins.options import checked
from assay.removal import make_removal
from assay.suite.spec import choose_one, make_suite
from assay.types import Batch
from assay.units.features import make_units

KINDS = ("dataset", "model", "environment", "method", "protocol", "fill", "units")
VALUES = (
    False, True, 1, 2, 3, 4, 8, 9, 13, 16, 17, 33, 64, 128, 1000, 20_000, 0.5, 0.25, 2.5, "other",
    ["a", "b"], [0.5, 0.5], [0, 0.5, 1], (0.1, 0.2), [1, 2, 3], {"a": 1},
    ["square"] * 4, ["square"],
)  # fmt: skip


class Reached(Exception):
    """Raised in place of a plug-in: the options that came to it."""


def options() -> Iterator[tuple[str, str, str]]:
    for kind in KINDS:
        for plugin in registry.everything(kind):
            yield from ((kind, plugin.name, option) for option in plugin.options)


def other_value(plugin: registry.Plugin, option: str) -> object:
    """A value that its type allows and that is not the default."""
    parameter = plugin.options[option]
    default = {**plugin.defaults, **plugin.preset}.get(option)
    words = [w for w in str(parameter.annotation).replace("'", '"').split('"')[1::2] if w]
    nested = plugin.nested().get(option)
    names = registry.names(nested) if nested else []
    for value in (*names, *words, *VALUES):
        try:
            taken = value if nested else checked(parameter.annotation, value, option)
        except InputError:
            continue
        if registry.canonical(taken) != registry.canonical(default):
            return value
    return pytest.fail(f"no other value for {plugin.kind} {plugin.name}: {option}")


def spied(monkeypatch: pytest.MonkeyPatch, plugin: registry.Plugin) -> None:
    @functools.wraps(plugin.function)
    def spy(*_: object, **given: object) -> object:
        raise Reached(given)

    spy.__signature__ = inspect.signature(plugin.function)
    settled = {"settle": None} if plugin.kind == "method" else {}  # it would read the file
    known = {
        **registry._REGISTERED[plugin.kind],
        plugin.name: replace(plugin, function=spy, **settled),
    }
    monkeypatch.setitem(registry._REGISTERED, plugin.kind, known)


def use(kind: str, item: object) -> None:
    """The item as a run uses it."""
    batch = Batch(("a",), torch.zeros(1, 3, 8, 8), torch.zeros(1, dtype=torch.long))
    if kind in ("dataset", "model"):
        build_one(kind, item)
    elif kind == "environment":
        suite = {"environments": [item], "methods": ["random"], "protocols": ["deletion"]}
        resolve(make_suite(suite))
    elif kind == "fill":
        make_removal(batch, item)
    elif kind == "units":
        make_units(batch, item)
    else:
        choice = choose_one(kind, item)
        choice.plugin.function(*[batch] * _before(choice.plugin), **choice.options)


def _before(plugin: registry.Plugin) -> int:
    """How many parameters come before the options."""
    return len(inspect.signature(plugin.function).parameters) - len(plugin.options)


@pytest.mark.parametrize(("kind", "name", "option"), list(options()))
def test_an_option_that_is_set_reaches_the_function(kind, name, option, monkeypatch):
    plugin = registry.get(kind, name)
    required = {n: other_value(plugin, n) for n in plugin.options if n not in plugin.defaults}
    value = other_value(plugin, option)
    spied(monkeypatch, plugin)
    named = {} if kind in ("fill", "units") else {"as": "a name"}
    with pytest.raises(Reached) as reached:
        use(kind, {name: {**required, option: value, **named}})
    taken = reached.value.args[0]
    assert set(taken) == set(plugin.options)
    expected = registry.get(kind, name).configure({**required, option: value})[option]
    assert registry.canonical(taken[option]) == registry.canonical(expected)
    assert registry.canonical(expected) != registry.canonical(plugin.defaults.get(option))


OWN = """
import assay, torch
from assay.registry import dataset, environment, method, model, protocol
from assay.types import Scores

class Reached(Exception):
    pass

def net(label="none", classes=2):
    raise Reached(label)

def data(*, label: str = "none"):
    raise Reached(label)

def world(*, label: str = "none"):
    raise Reached(label)

def way(model, batch, *, label: str = "none"):
    raise Reached(label)

@protocol("own_rule", higher_is_better=True)
def rule(case, *, label: str = "none"):
    raise Reached(label)

def short(model, batch, *, abs: bool = False):
    return batch.inputs

def carded(card=None):
    return None
"""
PLACES = {"dataset": "data", "model": "net", "environment": "world", "method": "way",
          "protocol": "rule"}  # fmt: skip


@pytest.fixture
def own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(OWN)


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("kind", PLACES)
def test_an_own_option_called_label_is_an_option(kind):
    address = f"./own.py:{PLACES[kind]}"
    for written in ({"label": "fine"}, {"label": "fine", "as": "shown"}):
        with pytest.raises(Exception, match="fine"):
            use(kind, {address: written})


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(("kind", "name", "key"), [("method", "short", "abs"),
                                                   ("model", "carded", "card")])  # fmt: skip
def test_a_plugin_may_not_take_a_key_that_assay_reads(kind, name, key):
    with pytest.raises(InputError, match=f"no option `{key}`.*Rename"):
        build_one(kind, f"./own.py:{name}") if kind == "model" else choose_one(
            kind, f"./own.py:{name}"
        )


def test_both_keys_name_an_item_whose_plugin_has_no_such_option():
    for key in ("as", "label"):
        assert choose_one("method", {"saliency": {key: "mine"}}).label == "mine"
    keys = [choose_one("method", {"saliency": w}).key for w in ({}, {"as": "a"}, {"label": "b"})]
    assert keys[0] == keys[1] == keys[2]  # a name is no part of what identifies results
