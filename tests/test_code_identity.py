"""Code is known by what it means: comments, docstrings, layout and place change no key."""

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, make_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import assay
from assay.data.memory import as_dataset
from assay.plan.plan import Plan
from assay.plan.resolving import resolve
from assay.plugins import registry
from assay.plugins.addresses import load_object
from assay.suite.spec import choose_one, make_suite
from assay.types.hashing import hash_network, own_classes
from assay.types.pixels import Pixels, Preprocess
from assay.types.tokens import Tokenize, Tokens
from old_runs import filled, torch_net
from small_texts import bag_of_words, make_texts
from small_worlds import make_images, make_net
from stored_logs import stored_cells

SOURCE = '''"""A network and a method."""

import torch
from torch import nn

SCALE = 2.0
SHIFT = SCALE + 1
TABLE = {"power": 3}
UNUSED = 1


def helper(x):
    """Doubles."""
    return x * SCALE  # here


def unused(x):
    return x


class Slope:
    def of(self, x):
        return 0.5 * x


class Base(nn.Module):
    def act(self, x):
        return torch.relu(x)


class Net(Base):
    """A network."""

    def __init__(self, k: int = 3) -> None:
        super().__init__()
        self.head, self.k = nn.Linear(4, 2), k

    def forward(self, x):
        """The logits."""
        return self.act(self.head(helper(x)) + SHIFT) ** self.k + Slope().of(x) * TABLE["power"]


def build(k: int = 3):
    torch.manual_seed(0)
    return Net(k)


def mine(model, batch, *, power: int = 2):
    """A method."""
    return helper(batch.inputs) ** power + Slope().of(batch.inputs) + TABLE["power"]
'''

SAME = {
    "comment": ("# here", "# elsewhere"),
    "docstring": ('"""A network."""', '"""Another word for it."""'),
    "no docstring": ('        """The logits."""\n', ""),
    "new docstring": ("def unused(x):\n", 'def unused(x):\n    """Says nothing."""\n'),
    "the file's docstring": ('"""A network and a method."""', ""),
    "blank lines": ("def helper", "\n\n\ndef helper"),
    "layout": ("return x * SCALE", "return (\n        x\n        * SCALE\n    )"),
    "quotes": ('"power"', "'power'"),
}
UNUSED = {
    "unused constant": ("UNUSED = 1", "UNUSED = 2"),
    "unused function": ("return x\n\n\nclass Slope", "return -x\n\n\nclass Slope"),
}
OTHER = {
    "operation": ("x * SCALE", "x / SCALE"),
    "constant": ("SCALE = 2.0", "SCALE = 2.5"),
    "content of a constant": ('{"power": 3}', '{"power": 4}'),
    "class it uses": ("0.5 * x", "0.25 * x"),
}
OTHER_NET = {
    **OTHER,
    "operation of its own": ("** self.k", "* self.k"),
    "constant made of another": ("SCALE + 1", "SCALE - 1"),
    "base": ("torch.relu(x)", "torch.tanh(x)"),
}
OTHER_METHOD = {**OTHER, "default": ("power: int = 2", "power: int = 3")}


def write(folder: Path, edit: tuple[str, str] = ("", ""), name: str = "own") -> str:
    """The file with one edit, and the way to it."""
    old, new = edit
    assert old in SOURCE
    folder.mkdir(exist_ok=True, parents=True)
    (folder / f"{name}.py").write_text(SOURCE.replace(old, new) if old else SOURCE)
    return f"{folder}/{name}.py"


def net_hash(place: str, **options: Any) -> str:
    return hash_network(load_object(f"{place}:build")[0](**options))


def function_identity(place: str) -> str:
    found = registry.code_identity(load_object(f"{place}:mine")[0])
    assert not found.startswith("process")
    return found


def method_key(place: str) -> str:
    return registry.identity(choose_one("method", f"{place}:mine").key)


WAYS = {"network": net_hash, "function": function_identity, "address": method_key}
ways = pytest.mark.parametrize("known", WAYS.values(), ids=WAYS)


@ways
@pytest.mark.parametrize("edit", SAME.values(), ids=SAME)
def test_what_changes_no_meaning_changes_no_key(
    tmp_path: Path, known: Callable[[str], str], edit: tuple[str, str]
) -> None:
    assert known(write(tmp_path / "a")) == known(write(tmp_path / "b", edit))


@pytest.mark.parametrize("known", [net_hash, function_identity], ids=["network", "function"])
@pytest.mark.parametrize("edit", UNUSED.values(), ids=UNUSED)
def test_what_is_not_used_changes_no_key(
    tmp_path: Path, known: Callable[[str], str], edit: tuple[str, str]
) -> None:
    assert known(write(tmp_path / "a")) == known(write(tmp_path / "b", edit))


CHANGES = [
    *((net_hash, name, edit) for name, edit in OTHER_NET.items()),
    *((function_identity, name, edit) for name, edit in OTHER_METHOD.items()),
    *((method_key, name, edit) for name, edit in OTHER_METHOD.items()),
]


@pytest.mark.parametrize(
    ("known", "edit"),
    [(known, edit) for known, _, edit in CHANGES],
    ids=[f"{known.__name__}-{name}" for known, name, _ in CHANGES],
)
def test_another_meaning_is_another_key(
    tmp_path: Path, known: Callable[[str], str], edit: tuple[str, str]
) -> None:
    assert known(write(tmp_path / "a")) != known(write(tmp_path / "b", edit))


@ways
def test_the_same_file_changed_where_it_lies(tmp_path: Path, known: Callable[[str], str]) -> None:
    before = known(write(tmp_path))
    assert known(write(tmp_path, SAME["comment"])) == before
    assert known(write(tmp_path, OTHER["operation"])) != before


@ways
def test_a_moved_file_and_another_module_path_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: Callable[[str], str]
) -> None:
    before = known(write(tmp_path))
    assert known(write(tmp_path / "deep" / "down", name="renamed")) == before
    monkeypatch.syspath_prepend(tmp_path)
    for place in ("first_package", "second_package/inner"):
        write(tmp_path / place, name="nets")
        module = f"{place.replace('/', '.')}.nets"
        importlib.invalidate_caches()
        importlib.import_module(module)
        assert known(module) == before
        sys.modules.pop(module)


def test_options_of_a_network_are_part_of_it(tmp_path: Path) -> None:
    place = write(tmp_path)
    assert net_hash(place, k=3) == net_hash(place) != net_hash(place, k=4)


def test_a_base_in_another_file_counts(tmp_path: Path) -> None:
    def known(folder: str, edit: tuple[str, str]) -> str:
        write(tmp_path / folder, edit, name="bases")
        path = tmp_path / folder / "derived.py"
        path.write_text("from bases import Net\nclass Derived(Net):\n    pass\n")
        torch.manual_seed(0)
        return hash_network(load_object(f"{path}:Derived")[0]())

    first = known("a", SAME["comment"])
    assert known("b", SAME["docstring"]) == first
    assert known("c", OTHER_NET["base"]) != first
    assert known("d", OTHER_NET["constant"]) != first


# --- networks ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Options:
    slope: float = 1.0


class Chosen(nn.Module):
    def __init__(self, **given: Any) -> None:
        super().__init__()
        self.head = filled(nn.Linear(2, 2))
        vars(self).update(given)


def test_functions_and_dataclasses_a_network_was_given_are_part_of_it() -> None:
    given = [
        {},
        {"act": torch.relu},
        {"act": torch.tanh},
        {"act": lambda x: x + 1},
        {"act": lambda x: x + 2},
        {"acts": [torch.relu, torch.tanh]},
        {"acts": [nn.LeakyReLU(0.1)]},
        {"acts": [nn.LeakyReLU(0.2)]},
        {"options": Options()},
        {"options": Options(slope=2.0)},
    ]
    hashes = [hash_network(Chosen(**one)) for one in given]
    assert len(set(hashes)) == len(given)
    assert hashes == [hash_network(Chosen(**one)) for one in given]


def test_what_a_class_closed_over_is_part_of_it() -> None:
    def make(power: int) -> nn.Module:
        class Local(nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return x**power

        return Local()

    assert hash_network(make(1)) == hash_network(make(1)) != hash_network(make(2))


CALLS = 0


class Counting(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        global CALLS
        CALLS += 1
        return x + 0 * CALLS


def test_a_state_outside_a_network_is_no_part_of_it() -> None:
    net = Counting()
    before = hash_network(net)
    net(torch.zeros(1))
    assert CALLS
    assert hash_network(net) == before


def test_classes_of_a_notebook_are_known_by_code_and_values() -> None:
    """Cells have lines that can be read, but no file, and constants in other cells."""
    import linecache

    cell = "class Net(nn.Module):\n    def forward(self, x):\n        return x * SCALE\n"

    def run_cell(number: int, text: str, **names: Any) -> nn.Module:
        file = f"<cell {number}>"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        space = {"__name__": "some_notebook", "nn": nn, **names}
        exec(compile(text, file, "exec"), space)
        return space["Net"]()

    first = hash_network(run_cell(1, cell, SCALE=2.0))
    assert hash_network(run_cell(2, f"# the same\n\n{cell}", SCALE=2.0)) == first
    assert hash_network(run_cell(3, cell, SCALE=3.0)) != first
    assert hash_network(run_cell(4, cell.replace("*", "/"), SCALE=2.0)) != first


def test_without_source_a_class_is_known_by_its_name() -> None:
    def made(name: str) -> nn.Module:
        return type(name, (nn.Linear,), {"__module__": "nowhere"})(2, 2)

    hashes = [hash_network(filled(made(name))) for name in ("One", "One", "Other")]
    assert hashes[0] == hashes[1] != hashes[2]


# Of commit cd1b507, before identity 2: `assay.model(net).weights_hash` of these networks.
BEFORE = {
    "convolutions": (torch_net, "feaa9f093a20d202"),
    "recurrent": (
        lambda: filled(
            nn.ModuleDict(
                {"words": nn.Embedding(7, 3), "state": nn.GRU(3, 2), "act": nn.LeakyReLU(0.2)}
            )
        ),
        "2a4882cb30b0ef8f",
    ),
    "parametrized": (
        lambda: filled(
            nn.Sequential(
                nn.utils.parametrizations.weight_norm(nn.Linear(3, 2)), nn.Softplus(beta=2)
            )
        ),
        "b36fe211bf84cf57",
    ),
}


@pytest.mark.parametrize(("build", "known"), BEFORE.values(), ids=BEFORE)
def test_networks_of_torchs_own_modules_keep_their_hash(
    build: Callable[[], nn.Module], known: str
) -> None:
    assert own_classes(build()) == []
    assert assay.model(build()).weights_hash == known


def test_a_users_class_that_torch_wrapped_is_still_the_users(tmp_path: Path) -> None:
    def build(folder: str, edit: tuple[str, str]) -> nn.Module:
        net = load_object(f"{write(tmp_path / folder, edit)}:build")[0]()
        net.extra = nn.Parameter(torch.zeros(2))
        nn.utils.parametrize.register_parametrization(net, "extra", nn.Identity())
        return net

    net = build("a", SAME["comment"])
    assert own_classes(net) == ["ParametrizedNet"]
    assert hash_network(net) == hash_network(build("b", SAME["docstring"]))
    assert hash_network(net) != hash_network(build("c", OTHER["operation"]))


# --- functions --------------------------------------------------------------------------------


def test_two_lambdas_in_one_line_are_two() -> None:
    one, other = (lambda model, batch: batch.inputs), (lambda model, batch: -batch.inputs)
    inner = [make(2) for make in (lambda k: lambda x: x * k, lambda k: lambda x: x + k)]
    found = [registry.code_identity(f) for f in (one, other, *inner)]
    assert len(set(found)) == 4
    assert not any(f.startswith("process") for f in found)


def test_a_method_of_an_object_has_a_state() -> None:
    kept: list[Any] = []
    note, floor = kept.append, torch.Tensor.floor

    def noting(model: Any, batch: Any) -> Any:
        return note(batch)

    def flooring(model: Any, batch: Any) -> Any:
        return floor(batch.inputs)

    assert registry.code_identity(noting).startswith("process")
    assert not registry.code_identity(flooring).startswith("process")


def test_helpers_of_inner_functions_count(tmp_path: Path) -> None:
    text = (
        "def helper(x): return x + {}\ndef mine(xs): return [(lambda x: helper(x))(x) for x in xs]"
    )
    found = []
    for number in (1, 1, 2):
        path = tmp_path / f"f{len(found)}.py"
        path.write_text(text.format(number))
        found.append(registry.code_identity(load_object(f"{path}:mine")[0]))
    assert found[0] == found[1] != found[2]


def test_annotations_need_no_content() -> None:
    def mine(model: Any, batch: "list[Options]") -> Callable[..., Any]:
        x: Path = batch
        return x

    assert not registry.code_identity(mine).startswith("process")


# --- plug-ins by address ----------------------------------------------------------------------


def beside(folder: Path, helper: str) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "lying_beside.py").write_text(helper)
    (folder / "taken.py").write_text(
        "from lying_beside import factor\n"
        "def mine(model, batch): return factor() * batch.inputs\n"
        "def fill(batch): return 0 * factor() * batch.inputs\n"
        "def units(batch):\n"
        "    from assay.features import elements\n"
        "    return elements(batch)\n"
    )
    return f"{folder}/taken.py"


def test_what_a_file_imports_from_beside_it_counts_by_meaning(tmp_path: Path) -> None:
    keys = [
        choose_one("method", f"{beside(tmp_path / name, text)}:mine").key
        for name, text in {
            "a": "def factor(): return 2",
            "b": '"""New."""\n\ndef factor():\n    """Two."""\n    return 2  # two\n',
            "c": "def factor(): return 3",
        }.items()
    ]
    assert keys[0] == keys[1] != keys[2]


def test_a_new_docstring_is_read_all_the_same(tmp_path: Path) -> None:
    before = registry.get("method", f"{write(tmp_path)}:mine")
    write(tmp_path, ('"""A method."""', '"""The best method."""'))
    after = registry.get("method", f"{tmp_path}/own.py:mine")
    assert (before.summary, after.summary) == ("A method.", "The best method.")
    assert before.code == after.code


@pytest.mark.parametrize("option", ["fill", "units"])
def test_a_plug_in_inside_options_is_known_by_code_wherever_it_lies(
    tmp_path: Path, option: str
) -> None:
    def key(folder: str, text: str) -> dict[str, Any]:
        address = f"{beside(tmp_path / folder, text)}:{option}"
        protocol = choose_one("protocol", {"single_deletion": {option: address}})
        return {"key": protocol.key, "formula": protocol.formula_key}

    first = key("a", "def factor(): return 2")
    assert key("b", "def factor():\n    return 2  # here") == first
    assert key("c", "def factor(): return 3") != first
    assert choose_one("protocol", "single_deletion").key != first["key"]


def test_a_comment_in_ones_own_files_lets_a_run_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "import torch\nfrom torch import nn\nfrom assay.conformance.worlds import make_net\n"
    text += "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    text += (
        "        self.inner = make_net()\n    def forward(self, x):\n        return self.inner(x)\n"
    )
    text += "def mine(model, batch): return batch.inputs\n"

    def run(text: str) -> tuple[set[tuple[str, str]], Any]:
        (tmp_path / "own.py").write_text(text)
        results = assay.benchmark(
            load_object(f"{tmp_path}/own.py:Net")[0](), make_images(4), [f"{tmp_path}/own.py:mine"],
            ["single_deletion"], out=tmp_path / "run", progress=False, controls="off",
        )  # fmt: skip
        assert results.manifest["identity"] == 2
        return stored_cells(tmp_path / "run"), results

    before, first = run(text)
    after, second = run(text.replace("def mine", "# a comment\ndef mine"))
    assert after == before
    assert second.scores.equals(first.scores)
    changed, _ = run(text.replace("return batch.inputs", "return -batch.inputs"))
    assert len(changed) == 2 * len(before)
    with pytest.raises(assay.InputError, match="changed since the run"):
        run(text.replace("self.inner(x)", "2 * self.inner(x)"))


# --- dataclasses ------------------------------------------------------------------------------


def plan_of(model: assay.Model, data: Any = None) -> Plan:
    told = {"datasets": [as_dataset(data or make_images(2))], "models": [model]}
    return resolve(make_suite({**told, "methods": ["random"], "protocols": ["deletion"]}))


def maps_key(model: assay.Model, data: Any = None) -> str:
    plan = plan_of(model, data)
    return plan.maps_key(plan.shards[0], plan.methods[0])


def test_what_is_said_of_a_models_inputs_is_part_of_the_key() -> None:
    torch.manual_seed(0)
    net = make_net()
    pixels = Pixels((0.5,) * 3, (0.25,) * 3)
    prepare = Preprocess(16, pixels)
    plain = assay.model(net, prepare=prepare, name="net")
    others = [
        replace(plain, prepare=Preprocess(16, pixels, resize=20)),
        replace(plain, prepare=Preprocess(16, pixels, squash=True)),
        replace(plain, pixels=Pixels((0.5,) * 3, (0.5,) * 3)),
        replace(plain, cam_layer="relu1"),
    ]
    keys = [maps_key(model) for model in (plain, *others)]
    assert len(set(keys)) == len(keys)
    assert maps_key(replace(plain, prepare=Preprocess(16, pixels, None, False))) == keys[0]


def test_tokenizers_are_known_by_what_they_say_of_themselves() -> None:
    data = make_texts(4)
    model = bag_of_words()
    assert isinstance(model.prepare, Tokenize)
    named = replace(model.prepare, identity="mine")

    def key(**changes: Any) -> str:
        return maps_key(replace(model, prepare=replace(named, **changes)), data)

    assert key() == key(encode=lambda text: [1, 2])  # hidden, and told by `identity`
    assert len({key(), key(identity="other"), key(longest=3)}) == 3
    special = replace(model, tokens=replace(model.tokens, special=frozenset({1, 2, 3})))
    assert maps_key(special, data) != maps_key(model, data)


def test_dataclasses_by_their_fields() -> None:
    def made(*fields: Any, **values: Any) -> Any:
        return registry.canonical(make_dataclass("Thing", fields)(**values))

    a, b = ("a", int), ("b", int)
    first = made(a, b, a=1, b=2)
    assert made(b, a, a=1, b=2) == first == {"Thing": {"a": 1, "b": 2}}
    assert made(a, b, ("new", int, 5), a=1, b=2) == first
    assert made(a, b, ("new", list, field(default_factory=list)), a=1, b=2) == first
    assert made(a, b, ("new", int, 5), a=1, b=2, new=6) != first
    assert made(a, b, ("note", str, field(default="", compare=False)), a=1, b=2, note="x") == first
    assert made(a, b, a=1, b=3) != first
    assert registry.canonical(Tokens(0)) != registry.canonical(Tokens(0, special=frozenset({1})))


def test_the_name_of_a_dataclass_tells_but_not_its_module() -> None:
    def made(name: str, module: str) -> Any:
        return registry.canonical(make_dataclass(name, ["x"], namespace={"__module__": module})(1))

    assert made("Thing", "one.place") == made("Thing", "another") != made("Other", "another")


def test_sets_have_no_order() -> None:
    words = [f"word {i}" for i in range(20)]
    assert registry.identity(frozenset(words)) == registry.identity(set(reversed(words)))
    assert registry.identity({1, 2}) != registry.identity({1, 3})
    assert registry.identity({1, 2}) != registry.identity([1, 2])


def test_a_function_in_a_dataclass_by_its_code() -> None:
    kind = make_dataclass("Thing", ["act"])
    found = [registry.identity(kind(act)) for act in (lambda x: x + 1, lambda x: x + 2)]
    assert found[0] != found[1]
