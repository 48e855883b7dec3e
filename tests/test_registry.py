"""Names, options and labels."""

import re
from typing import Annotated, Literal

import numpy as np
import pytest
import torch
from pydantic import Field

import assay
from assay.plugins import registry
from assay.plugins.entry_points import registered
from assay.suite.spec import (
    Spec,
    choose,
    choose_one,
    explains_nothing,
    make_suite,
    parse_suite,
    read_suite,
    suite_fields,
    suites,
)


@pytest.fixture
def plugin():
    def function(
        case,
        *,
        steps: Annotated[int, Field(ge=1)] = 5,
        mode: Literal["a", "b"] = "a",
        x: float = 0.5,
    ):
        """What it does.

        More.
        """

    return registry.Protocol("thing", function)


def test_options_are_checked_against_the_signature(plugin):
    assert plugin.configure({"steps": 7}) == {"steps": 7, "mode": "a", "x": 0.5}
    with pytest.raises(
        assay.InputError,
        match=r"`steps` of protocol `thing` to be greater than or equal to 1, got 0",
    ):
        plugin.configure({"steps": 0})
    with pytest.raises(assay.InputError, match=r"`mode`.*'a' or 'b', got 'c'"):
        plugin.configure({"mode": "c"})
    with pytest.raises(assay.InputError, match="Did you mean `steps`"):
        plugin.configure({"step": 3})
    assert plugin.summary == "What it does."


@pytest.mark.parametrize(
    ("annotation", "value", "said"),
    [
        (tuple[int, int], [1], "a list of 2, each a whole number"),
        (tuple[int, str], [1], "a list of 2: a whole number, a word"),
        (tuple[int, ...], [1, "a"], "a list, each a whole number"),
        (tuple[Literal["a", "b"], ...], ["c"], "a list, each a or b"),
        (int | tuple[float, ...], "x", "a whole number or a list, each a number"),
        (Annotated[float, Field(gt=0, lt=1)], float("nan"), "a number above 0 and below 1"),
        (Annotated[int | str, Field(description="a colour")], None, "a colour"),
        (Annotated[int, Field(ge=1)], 0, "greater than or equal to 1"),
        (torch.Tensor, 3, "an instance of Tensor"),
    ],
    ids=str,
)
def test_what_was_expected_is_said_in_words(annotation, value, said):
    def function(case, *, x=None):
        """What it does."""

    function.__annotations__["x"] = annotation
    wanted = re.escape(f"Expected option `x` of protocol `thing` to be {said}, got {value!r}.")
    with pytest.raises(assay.InputError, match=f"^{wanted}$"):
        registry.Protocol("thing", function).configure({"x": value})


@pytest.mark.parametrize("kind", ["method", "protocol", "fill", "units", "dataset", "model"])
def test_unknown_names_get_a_hint_and_the_list(kind):
    name = registry.names(kind)[0]
    with pytest.raises(
        assay.InputError, match=f"Unknown {kind} `{name}x`. Did you mean .*`{name}`.*Available"
    ):
        registry.get(kind, f"{name}x")


def test_nested_choices_are_checked_too():
    with pytest.raises(assay.InputError, match=r"Unknown fill `blurr`. Did you mean `blur`"):
        choose_one("protocol", {"deletion": {"fill": "blurr"}})
    with pytest.raises(
        assay.InputError, match=r"Unknown option of fill `blur`: `sigmaa`. Did you mean `sigma`"
    ):
        choose_one("protocol", {"deletion": {"fill": {"blur": {"sigmaa": 3}}}})


def test_labels_name_only_what_differs():
    assert choose_one("protocol", "deletion").label == "deletion"
    assert (
        choose_one("protocol", {"deletion": {"steps": 20, "fill": {"zero": None}}}).label
        == "deletion"
    )
    label = choose_one("protocol", {"deletion": {"steps": 5, "fill": {"blur": {"sigma": 3}}}}).label
    assert label == "deletion[steps=5,fill=blur(sigma=3)]"
    assert choose_one("method", {"saliency": {"abs": True}}).label == "saliency[abs=True]"
    assert choose_one("method", {"saliency": {"label": "mine"}}).label == "mine"


def test_tensors_are_known_by_their_content():
    a, b = (choose_one("protocol", {"deletion": {"fill": torch.full((3,), v)}}) for v in (1.0, 2.0))
    assert a.key != b.key
    assert a.label != b.label
    assert a.key == choose_one("protocol", {"deletion": {"fill": torch.ones(3)}}).key


def test_the_same_thing_twice_is_an_error():
    with pytest.raises(assay.InputError, match="Expected each method once"):
        choose("method", ["saliency", {"saliency": {"output": "logit"}}])
    with pytest.raises(assay.InputError, match="same label"):
        choose("method", ["saliency", {"random": {"label": "saliency"}}])


def test_every_option_has_a_type_that_takes_its_default():
    for kind in registry.TYPES:
        for plugin in registry.everything(kind):
            for name, value in plugin.defaults.items():
                assert value is None or plugin._check(name, value) == value


def test_an_option_without_a_default_must_be_given():
    with pytest.raises(assay.InputError, match="Expected dataset `parquet` to be given `path`"):
        registry.get("dataset", "parquet").configure({})


def test_reductions_are_checked():
    with pytest.raises(assay.InputError, match="`reduce` to be one of sum"):
        choose_one("method", {"saliency": {"reduce": "max"}})
    with pytest.raises(assay.InputError, match="`abs` to be true or false"):
        choose_one("method", {"saliency": {"abs": "yes"}})


def test_a_name_taken_by_another_module_is_refused():
    def saliency(model, batch):
        """Not it."""

    with pytest.raises(assay.InputError, match=r"already registered by assay.methods.gradients"):
        assay.method("saliency")(saliency)


def test_entry_points_are_found_and_loaded_when_asked_for(monkeypatch):
    class Entry:
        name = "from_outside"

        @staticmethod
        def load():
            @assay.method("from_outside", title="Outside", family="test", cite="x")
            def from_outside(model, batch):
                """Zeros."""
                return batch.inputs * 0

            return from_outside

    registered.cache_clear()
    monkeypatch.setattr(
        "assay.plugins.entry_points.entry_points",
        lambda group: [Entry] if group == "assay.methods" else [],
    )
    try:
        assert "from_outside" in registry.names("method")
        assert "from_outside" not in registry._REGISTERED["method"]
        assert registry.get("method", "from_outside").title == "Outside"
    finally:
        registry._REGISTERED["method"].pop("from_outside", None)
        registered.cache_clear()


class TestSuites:
    def test_the_packaged_ones_resolve(self):
        assert "demo" in suites()
        for name in suites():
            fields, where = suite_fields(name)
            if explains_nothing(fields):
                with pytest.raises(assay.InputError, match="--model M --data D"):
                    read_suite(name)
                fields |= {"models": ["a"], "datasets": ["b"]}
            spec = make_suite(fields, where)
            assert spec.title
            assert choose("method", spec.methods)
            assert choose("protocol", spec.protocols)
            assert choose("environment", spec.environments) or spec.models

    def test_dumping_and_reading_is_the_identity(self):
        spec = read_suite("demo")
        assert parse_suite(spec.dump(), "here").model_dump() == spec.model_dump()

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("methods: [", "Expected YAML"),
            ("- a", "Expected the fields of a suite"),
            ("datasetts: [a]", "Did you mean `datasets`"),
            ("datasets: [a]\nmodels: [b]\nmethods: []\nprotocols: [d]", "methods"),
            ("datasets: [a]\nmodels: [b]\nmethods: [c]\nprotocols: [d]\nlimit: 0", "limit"),
            ("datasets: [a]\nmodels: [b]\nmethods: [c]\nprotocols: [d]\ntarget: -1", "target"),
        ],
    )
    def test_mistakes_are_named(self, text, message):
        with pytest.raises(assay.InputError, match=message):
            parse_suite(text, "`suite.yaml`")

    def test_a_missing_file_and_an_unknown_name(self):
        with pytest.raises(assay.PrerequisiteError, match="no suite file"):
            read_suite("nowhere.yaml")
        with pytest.raises(assay.InputError, match=r"Unknown suite `demos`. Did you mean `demo`"):
            read_suite("demos")

    @pytest.mark.parametrize("layer", [torch.nn.ReLU(), np.float64(0.5)], ids=["module", "number"])
    def test_one_thing_of_python_in_place_of_a_list_is_told_the_form(self, layer):
        methods = {"gradcam": {"layer": layer}}
        said = f"expected a list, `methods: [{methods!r}]`, got"
        with pytest.raises(assay.InputError, match=re.escape(said)):
            make_suite({"environments": ["a"], "methods": methods, "protocols": ["d"]})

    def test_items_of_a_wrong_form(self):
        spec = Spec(datasets=["a"], models=["b"], methods=[{"a": 1, "b": 2}], protocols=["d"])
        with pytest.raises(assay.InputError, match="Expected a name or one"):
            choose("method", spec.methods)


def test_a_slip_in_a_need_is_not_silent():
    with pytest.raises(assay.InputError, match="Did you mean `image`"):

        @assay.method("slip", needs=["images"])
        def slip(model, batch):
            return batch.inputs.sum(1)
