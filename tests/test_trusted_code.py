"""Code that runs: what the user typed and what is beside a suite; anything else needs consent."""

import contextlib
import importlib
import json
import os
import pickle
import re
import sys
from pathlib import Path

import pytest
import yaml
from PIL import Image

import assay
from assay.errors import InputError, PrerequisiteError
from assay.plan.resolving import build_one, resolve
from assay.plugins import registry
from assay.plugins.entry_points import _packages, registered
from assay.plugins.origins import TYPED, Origin
from assay.run import dry_run, run
from assay.store import Store
from assay.suite.spec import choose_one, make_suite, parse_suite, read_suite
from assay.types.card import fill_text, in_domain_need

MINE = """
import torch
from torch import nn
import assay

def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(48, 3))

def data(n=12):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(n, 3, 4, 4, generator=generator), torch.arange(n) % 3

@assay.method("mine", needs=["gradients"])
def mine(model, batch):
    "The input."
    return batch.inputs.clone()
"""
SUITE = {
    "datasets": ["./mine.py:data"],
    "models": ["./mine.py:net"],
    "methods": ["./mine.py:mine", "random"],
    "protocols": [{"deletion": {"steps": 2}}],
}
PLAIN = {**SUITE, "methods": ["random"]}
QUIET = {"progress": False}


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The folder of a suite with its code, which is the working folder."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "mine.py").write_text(MINE)
    write(folder / "suite.yaml", SUITE)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def evil(tmp_path, monkeypatch, request):
    """The address of a function in a module whose import leaves a mark, and the mark."""
    name, mark = "evil_" + re.sub(r"\W", "_", request.node.name), tmp_path / "it-ran"
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / f"{name}.py").write_text(
        f"open({str(mark)!r}, 'w').close()\ndef thing(*args, **options):\n    return None\n"
    )
    monkeypatch.syspath_prepend(tmp_path / "code")
    yield f"{name}:thing", mark
    sys.modules.pop(name, None)


def write(path, fields):
    path.write_text(yaml.safe_dump(fields, sort_keys=False))
    return path


def refused(address):
    """The error for code that the user did not type: what, where, and the cure."""
    return pytest.raises(PrerequisiteError, match=rf"`{address}` in `.*`.*`--trust-code`")


def test_a_suite_runs_no_command(home, call):
    mark = home / "it-ran"
    suite = {**SUITE, "models": [{"subprocess:getoutput": {"cmd": f"touch {mark}"}}]}
    write(home / "suite.yaml", suite)
    code, _, error = call("run", "suite.yaml", "--out", "run")
    assert code == 2
    assert "model `subprocess:getoutput` in `suite.yaml`" in error
    assert "--trust-code" in error
    assert not mark.exists()
    assert not (home / "run").exists()
    assert call("run", "suite.yaml", "--dry-run")[0] == 2
    assert not mark.exists()
    code, _, error = call("run", "suite.yaml", "--out", "run", "--trust-code")
    assert (code, mark.exists()) == (2, True)
    assert "to return a torch.nn.Module, got str" in error


PLACES = {
    "dataset": {"datasets": ["X"]},
    "dataset with options": {"datasets": [{"X": {"n": 3}}]},
    "train": {"train": ["X"]},
    "model": {"models": [{"X": {"weights": "w.pt"}}]},
    "environment": {"environments": ["X"]},
    "images of an environment": {"environments": [{"yellow_patch": {"base": "X"}}]},
    "options of these": {"environments": [{"yellow_patch": {"base": {"X": {"n": 3}}}}]},
    "network of an environment": {"environments": [{"number_watermark": {"net": "X"}}]},
    "method": {"methods": ["random", {"X": {"label": "random 2"}}]},
    "method in a method": {"methods": [{"shuffled": {"of": "X"}}]},
    "baseline": {"methods": [{"integrated_gradients": {"baseline": "X"}}]},
    "baseline inside": {"methods": [{"shuffled": {"of": {"occlusion": {"fill": "X"}}}}]},
    "protocol": {"protocols": ["X"]},
    "fill": {"protocols": [{"deletion": {"fill": {"X": {}}}}]},
    "fill in a fill": {"protocols": [{"deletion": {"fill": {"shaken": {"fill": "X"}}}}]},
    "units": {"protocols": [{"sensitivity_n": {"units": "X"}}]},
    "file": {"methods": ["../code/X.py:thing"]},
    "only a file": {"methods": ["../code/X.py"]},
}


def placed(item, address):
    """The fields of a suite with an address in place of X."""
    module = address.partition(":")[0]
    text = json.dumps(item).replace("X.py", f"{module}.py").replace('"X"', f'"{address}"')
    return json.loads(text)


@pytest.mark.parametrize("place", PLACES)
def test_no_part_of_a_suite_imports_code_from_elsewhere(place, home, evil):
    address, mark = evil
    path = write(home / "suite.yaml", {**PLAIN, **placed(PLACES[place], address)})
    with pytest.raises(PrerequisiteError, match=r"in `suite.yaml` is code that you did not type"):
        resolve(read_suite("suite.yaml"))
    with pytest.raises(PrerequisiteError, match=r"is code that you did not type"):
        resolve(parse_suite(path.read_text(), "`a text`"))
    assert not mark.exists()
    with contextlib.suppress(InputError, PrerequisiteError):  # what it makes is of no use
        resolve(read_suite("suite.yaml", trust_code=True))
    assert mark.exists()


def test_no_option_of_any_plugin_imports_code(evil):
    """Also options that choose nothing: datasets and models are built with what was accepted."""
    address, mark = evil
    origin, tried = Origin("`suite.yaml`"), 0
    for kind in registry.TYPES:
        for plugin in registry.everything(kind):
            for option in plugin.options:
                for value in (address, {address: {}}, [address]):
                    tried += 1
                    try:
                        plugin.configure({option: value}, origin)
                        if kind in ("dataset", "model"):
                            build_one(kind, {plugin.name: {option: value}}, origin)
                    except (InputError, PrerequisiteError):
                        pass
                    assert not mark.exists(), (kind, plugin.name, option)
    assert tried > 1000


def test_files_beside_the_suite_run(home, call):
    assert call("run", "suite.yaml", "--out", "run")[0] == 0
    (home / "nets").mkdir()
    (home / "nets" / "own.py").write_text(MINE)
    below = {**SUITE, "models": ["nets/own.py:net"], "datasets": [f"{home}/mine.py:data"]}
    write(home / "below.yaml", below)
    plan = resolve(read_suite("below.yaml"))
    assert plan.models["net"].weights_hash == assay.load("run").entries.models["net"].weights_hash


def test_files_elsewhere_are_not_beside_the_suite(home, tmp_path, evil):
    address, mark = evil
    module = address.partition(":")[0]
    os.symlink(tmp_path / "code" / f"{module}.py", home / "link.py")
    for elsewhere in (f"{tmp_path}/code/{module}.py:thing", "./link.py:thing"):
        write(home / "suite.yaml", {**SUITE, "models": [elsewhere]})
        with refused(elsewhere):
            resolve(read_suite("suite.yaml"))
    assert not mark.exists()


def test_paths_are_relative_to_the_working_folder(home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PrerequisiteError, match=rf"Run the command in `{home}`"):
        resolve(read_suite("home/suite.yaml"))
    (tmp_path / "mine.py").write_text(MINE)  # the user's own, which the suite may not run either
    with refused("./mine.py:data"):
        resolve(read_suite("home/suite.yaml"))


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installed package with a plug-in for assay, and one without."""
    site = tmp_path / "site"
    for name in ("with_plugins", "without_plugins"):
        (site / name).mkdir(parents=True)
        (site / name / "__init__.py").write_text("")
        (site / name / "nets.py").write_text(MINE)
        about = site / f"{name}-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (site / "with_plugins-1.0.dist-info" / "entry_points.txt").write_text(
        "[assay.methods]\nmine = with_plugins.nets:mine\n"
    )
    monkeypatch.syspath_prepend(site)
    importlib.invalidate_caches()
    registered.cache_clear()
    _packages.cache_clear()
    yield site
    registered.cache_clear()
    _packages.cache_clear()
    registry._REGISTERED["method"].pop("mine", None)
    for name in [n for n in sys.modules if n.startswith(("with_plugins", "without_plugins"))]:
        del sys.modules[name]


def test_an_installed_package_with_plugins_runs(home, package):
    write(home / "suite.yaml", {**PLAIN, "models": ["with_plugins.nets:net"], "methods": ["mine"]})
    plan = resolve(read_suite("suite.yaml"))
    assert (list(plan.models), plan.methods[0].label) == (["net"], "mine")
    write(home / "suite.yaml", {**SUITE, "models": ["without_plugins.nets:net"]})
    with refused("without_plugins.nets:net"):
        resolve(read_suite("suite.yaml"))
    assert "without_plugins" not in sys.modules


@pytest.mark.parametrize("file", ["with_plugins.py", "with_plugins/__init__.py"])
def test_a_file_in_the_working_folder_cannot_pass_for_the_package(file, home, package):
    mark = home / "it-ran"
    (home / file).parent.mkdir(exist_ok=True)
    (home / file).write_text(f"open({str(mark)!r}, 'w').close()")
    write(home / "suite.yaml", {**SUITE, "models": ["with_plugins.nets:net"]})
    with refused("with_plugins.nets:net"):
        resolve(read_suite("suite.yaml"))
    assert not mark.exists()


TYPE_IT = ["run", "--model", "./mine.py:net", "--data", "./mine.py:data",
           "--methods", "./mine.py:mine,random", "--protocols", "lerf", "--out", "run"]  # fmt: skip


def test_a_run_continues_with_code_that_is_typed_again(home, call):
    assert call(*TYPE_IT, "--limit", "4")[0] == 0
    spec = assay.load("run").spec
    before = assay.load("run").scores
    again = ["run", "run/spec.yaml", "--out", "run"]
    code, _, error = call(*again)
    assert code == 2
    assert "dataset `./mine.py:data` in `run/spec.yaml`" in error
    for start in (run, dry_run):
        with refused("./mine.py:data"):
            start(spec, "run")
    assert call(*again, "--trust-code")[0] == 0
    assert run(spec, "run", trust_code=True, **QUIET).scores.equals(before)
    assert dry_run(spec, "run", trust_code=True, time_it=False).forwards == 0
    assert call(*TYPE_IT, "--limit", "4")[0] == 0
    assert assay.load("run").scores.equals(before)
    assert call(*TYPE_IT)[0] == 0
    assert len(assay.load("run").scores) == 3 * len(before)


def test_nothing_is_beside_the_suite_of_a_run(home, call):
    """A file that came with the run folder is no file of a suite."""
    run(make_suite(SUITE), "run", **QUIET)
    mark = home / "it-ran"
    Path("run/mine.py").write_text(f"open({str(mark)!r}, 'w').close()\n{MINE}")
    text = Path("run/spec.yaml").read_text().replace("./mine.py", "run/mine.py")
    Path("run/spec.yaml").write_text(text)
    assert call("run", "run/spec.yaml", "--out", "run")[0] == 2
    assert not mark.exists()
    Path("run/manifest.json").unlink()  # then it is a suite with a file beside it
    assert call("run", "run/spec.yaml", "--out", "other")[0] == 0
    assert mark.exists()


def test_what_the_command_adds_to_a_suite_is_typed(home, evil, call):
    address, mark = evil
    write(home / "only.yaml", {"methods": ["random"], "protocols": ["lerf"]})
    command = ["run", "only.yaml", "--out", "run", "--data", "./mine.py:data", "--limit", "4"]
    assert call(*command, "--model", "mine:net")[0] == 0
    write(home / "only.yaml", {"methods": [address], "protocols": ["lerf"]})
    assert call(*command, "--model", "mine:net")[0] == 2
    assert not mark.exists()
    sys.modules.pop("mine")


def test_a_suite_made_in_python_is_typed(home, evil):
    address, mark = evil
    spec = make_suite({**SUITE, "methods": [address]})
    assert spec.origin == TYPED
    resolve(spec)
    assert mark.exists()
    assert resolve(assay.Spec(**SUITE)).methods[0].label == "mine"


@pytest.mark.parametrize("field", ["origin", "_origin", "trust_code", "trusted", "typed"])
def test_a_suite_cannot_trust_itself(field, home):
    write(home / "suite.yaml", {**SUITE, field: True})
    with pytest.raises(InputError, match="Unknown field"):
        read_suite("suite.yaml")


def test_copies_and_workers_have_the_same_origin(home):
    """Workers get the suite by pickle; a cut or limited suite is a copy."""
    for trusted in (False, True):
        spec = read_suite("suite.yaml", trust_code=trusted)
        assert spec.origin == Origin("`suite.yaml`", home, trusted=trusted)
        for copy in (
            pickle.loads(pickle.dumps(spec)),
            spec.model_copy(update={"limit": 3}),
            spec.trusting(False),
        ):
            assert copy.origin == spec.origin
    assert make_suite(SUITE).trusting(True).origin.where == ""


def test_trust_is_no_part_of_a_key(home):
    write(home / "suite.yaml", SUITE)
    plans = [
        resolve(spec)
        for spec in (
            make_suite(SUITE),
            read_suite("suite.yaml"),
            read_suite("suite.yaml", trust_code=True),
        )
    ]
    shards = plans[0].shards
    keys = [[p.cell(s, m, p.protocols[0]) for s in shards for m in p.methods] for p in plans]
    assert keys[0] == keys[1] == keys[2]
    assert len({plan.spec.dump() for plan in plans}) == 1


def read_manifest() -> dict[str, dict[str, dict[str, object]]]:
    """The manifest of the run, without its checksum."""
    return Store.read_json(Path("run/manifest.json"))


def write_manifest(manifest: dict[str, dict[str, dict[str, object]]]) -> None:
    """Another manifest for the run, with the checksum that a stranger would write, too."""
    Store("run").write_json(Path("run/manifest.json"), manifest)


def test_reading_ranking_and_reporting_a_run_imports_nothing(home, evil, call):
    """Every name that a run folder stores is that of the module."""
    address, mark = evil
    # A set-level reduction of the user's own, whose address the manifest holds.
    results = run(make_suite({**SUITE, "protocols": ["lerf", "soundness"]}), "run", **QUIET)
    results.leaderboard()
    text = Path("run/spec.yaml").read_text()
    for old in ("./mine.py:net", "./mine.py:data", "./mine.py:mine", "random", "soundness"):
        text = text.replace(old, address)
    Path("run/spec.yaml").write_text(text)
    manifest = read_manifest()
    for kind in ("methods", "protocols"):
        for entry in manifest[kind].values():
            entry |= {"name": address, "family": "own", "options": {"fill": address}}
    manifest["protocols"]["soundness"]["reduce"] = address
    write_manifest(manifest)
    loaded = assay.load("run")
    assert address in str(loaded.spec.methods)
    with pytest.warns(RuntimeWarning, match="its reduction is evaluated at the end"):
        assert len(loaded.leaderboard()) == 4  # the reduction of another run's code
    for command in ("report", "compare", "trust"):
        call(command, "run")
    assert Path("run/report.html").exists()
    assert not mark.exists()


def test_the_best_method_of_a_run_is_imported_only_with_consent(home, evil, call, monkeypatch):
    address, mark = evil
    (home / "net.py").write_text(
        MINE.replace(
            "nn.Flatten(), nn.Linear(48, 3)", "nn.AdaptiveAvgPool2d(4), nn.Flatten(), first"
        ).replace(
            "    return nn.Seq",
            "    first = nn.Linear(48, 3)\n"
            "    first.bias.data[0] += 2  # right on every image\n    return nn.Seq",
        )
    )
    names = [f"{name}.png" for name in "abcdefghijkl"]
    for name in names:
        Image.effect_noise((8, 8), 50).convert("RGB").save(name)
    Path("list.csv").write_text("\n".join(["path,label", *(f"{name},0" for name in names)]))
    described = ["--model", "./net.py:net", "--size", "8", "--mean", ".5", "--std", ".25"]
    arguments = ["--data", "list.csv", "--methods", "saliency,random", "--protocols", "lerf"]
    assert call("run", *described, *arguments, "--out", "run")[0] == 0
    spec = yaml.safe_load(Path("run/spec.yaml").read_text())
    spec["methods"].insert(0, address)
    write(Path("run/spec.yaml"), spec)
    explain = ["explain", "a.png", *described, "--best", "run"]
    code, output, _ = call(*explain)  # the first method is assay's own: the other stays unknown
    assert (code, "saliency explains it" in output, mark.exists()) == (0, True, False)
    # Now the run's first method is the one at the address.
    spec["methods"] = [address, "random"]
    write(Path("run/spec.yaml"), spec)
    manifest = read_manifest()
    manifest["methods"]["saliency"] |= {"name": "thing", "family": "own"}
    write_manifest(manifest)
    code, _, error = call(*explain)
    assert code == 2
    assert f"method `{address}` in `run/spec.yaml` is code that you did not type" in error
    assert not mark.exists()
    # A stored option names it, of a method that assay has.
    manifest["methods"]["saliency"] |= {
        "name": "integrated_gradients", "options": {"baseline": address},
    }  # fmt: skip
    write_manifest(manifest)
    assert call(*explain)[0] == 2
    assert not mark.exists()
    with pytest.raises(TypeError):  # the fill that it gives is none
        call(*explain, "--trust-code")
    assert mark.exists()


def test_a_card_imports_nothing(evil):
    address, mark = evil
    for fill in (address, {address: {"sigma": 5}}, {"shaken": {"fill": address}}):
        assert address in fill_text(fill)
        assert address in in_domain_need(4, fill)
    assert not mark.exists()
    wanted = choose_one("protocol", {"in_domain_single_deletion": {"fill": address}})
    assert in_domain_need(4, address) in wanted.plugin.required(wanted.options)
