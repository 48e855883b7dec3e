"""What starting imports, and the packaged table that makes listing quick."""

import ast
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

import assay
from assay.commands import listing
from assay.plugins import registry
from assay.plugins.builtin import BUILTIN

ROOT = Path(__file__).parents[1]
HEAVY = {"torch", "numpy", "scipy", "pyarrow", "duckdb", "yaml", "PIL", "jinja2"}
LIST = """
import json, sys
from assay.cli import app

for what in sys.argv[1:]:
    app(["list", what], standalone_mode=False)
    app(["list", what, "--json"], standalone_mode=False)
    print("---")
"""
MODULES = "\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"


def run(code: str, *arguments: str) -> str:
    """What a fresh process prints."""
    command = [sys.executable, "-W", "ignore", "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def packages(modules: list[str]) -> set[str]:
    return {module.partition(".")[0] for module in modules}


@pytest.fixture(scope="module")
def table():
    spec = importlib.util.spec_from_file_location("listing", ROOT / "docs" / "listing.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def test_import_assay_imports_nothing_heavy():
    modules = json.loads(run("import assay" + MODULES))
    assert not packages(modules) & {*HEAVY, "rich", "typer", "pydantic"}
    assert "multiprocessing" not in modules


def test_lists_import_no_plugin_and_print_what_the_code_says(table):
    kinds = [*listing.KINDS, listing.SUITES]
    *outputs, modules = run(LIST + MODULES, *kinds).split("---\n")
    loaded = json.loads(modules)
    assert not packages(loaded) & HEAVY
    rooms = {module.split(".")[1] for module in loaded if module.startswith("assay.")}
    assert not rooms & {module.split(".")[1] for modules in BUILTIN.values() for module in modules}
    for output, (what, rows) in zip(outputs, table.built_in().items(), strict=True):
        printed = json.loads(output[output.index("[\n {") :])
        assert printed == json.loads(json.dumps(rows)), what
        assert all(row["name"] in output.partition("[\n {")[0] for row in rows)


def test_help_imports_nothing_heavy():
    code = "from assay.cli import app\napp(sys.argv[1:], standalone_mode=False)"
    for command in ((), ("run",), ("check",), ("zoo",)):
        output = run(f"import sys\n{code}{MODULES}", *command, "--help")
        assert not packages(json.loads(output.splitlines()[-1])) & HEAVY, command


def test_the_packaged_table_is_made_from_this_code(table):
    assert table.PATH.read_text() == table.table(), "Run `make listing`."


def test_no_module_imports_scipy_stats_before_it_is_used():
    code = """
import importlib, pkgutil, sys, assay
for module in pkgutil.walk_packages(assay.__path__, "assay."):
    if not module.name.endswith("triton_kernels"):  # needs a package for graphics cards
        importlib.import_module(module.name)
"""
    modules = json.loads(run(code + MODULES))
    assert "assay.ranking.intervals" in modules
    assert not {m for m in modules if m.startswith(("scipy.stats", "scipy.ndimage"))}


def test_scipy_is_used_through_its_lazy_submodules():
    """Also inside `if TYPE_CHECKING` and in modules that another package has imported before."""
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            named = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            named += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.startswith("scipy.") for name in named), path


def test_what_is_registered_is_described_from_its_code(monkeypatch):
    known = dict(registry._REGISTERED["units"]) if registry.names("units") else {}
    monkeypatch.setitem(registry._REGISTERED, "units", {})
    assert listing.rows_of("units") == listing.packaged_rows()["units"]

    monkeypatch.setitem(registry._REGISTERED, "units", known)

    @registry.units("halves")
    def halves(batch, *, across: bool = True):
        """Two halves of each image."""

    rows = {row["name"]: row for row in listing.rows_of("units")}
    assert rows.keys() == {*known, "halves"}
    assert rows["halves"]["options"] == {"across": True}


def test_an_entry_point_is_listed_beside_what_is_built_in(monkeypatch):
    class Entry:
        name = "from_another_package"

        @staticmethod
        def load():
            @registry.units("from_another_package", title="Outside")
            def from_another_package(batch):
                """One unit."""

    def registered(kind):
        return {Entry.name: Entry} if kind == "units" else {}

    known = dict(registry._REGISTERED["units"]) if registry.names("units") else {}
    monkeypatch.setitem(registry._REGISTERED, "units", known)
    monkeypatch.setattr("assay.plugins.registry.registered", registered)
    rows = {row["name"]: row for row in listing.rows_of("units")}
    assert rows["from_another_package"]["title"] == "Outside"
    assert rows.keys() > {row["name"] for row in listing.packaged_rows()["units"]}


def test_a_name_that_the_table_lacks_is_looked_up_in_the_code(monkeypatch):
    rows = {"units": [], "suites": []}
    monkeypatch.setattr(listing, "packaged_rows", lambda: rows)
    monkeypatch.setattr(listing, "_all_packaged", lambda what: True)
    (row,) = listing.rows_of("units", ["grid"])
    assert row["name"] == "grid"
    with pytest.raises(assay.InputError, match="Did you mean `grid`"):
        listing.rows_of("units", ["gridd"])
