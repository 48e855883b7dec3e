"""The order of the rooms: what each folder may import, no cycles, and what works without torch."""

import ast
import importlib
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import assay
from assay.plugins import registry
from assay.plugins.builtin import BUILTIN
from assay.plugins.moved import MOVED
from assay.suite.spec import choose_one

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "assay"

# What each folder (or file of the root) may import, in the order of the data's way. The rows up to
# `results` work without torch.
ALLOWED = {
    "errors": "",
    "progress": "",
    "paths": "errors",
    "processes": "",
    "plugins": "errors paths",
    "suite": "errors paths plugins",
    "store": "errors paths",
    "ranking": "errors plugins suite store",
    "report": "errors store ranking",
    "results": "errors paths suite store ranking report",
    "aggregation": "errors plugins store ranking results",
    "types": "errors plugins",
    "data": "errors progress paths plugins store types",
    "models": "errors paths plugins types",
    "units": "errors plugins store types",
    "removal": "errors plugins types units",
    "engine": "errors store types models units removal",
    "methods": "errors paths plugins suite types models units removal engine",
    "training": "errors progress plugins store types data models units removal methods",
    "environments": "errors plugins suite types data models training",
    "protocols": "errors plugins store ranking types units removal engine",
    "plan": "errors progress processes plugins suite store ranking types data models units removal "
    "engine methods training environments",
    "run": "errors progress processes plugins suite store ranking results types models engine "
    "methods training plan",
    "api": "errors plugins suite store results types data engine methods plan run",
    "answers": "errors plugins suite store ranking report results types data environments "
    "protocols plan run api",
    "conformance": "errors plugins suite store results types data models engine methods "
    "environments protocols plan run api",
    "studies": "errors progress plugins suite store ranking aggregation results types models units "
    "removal engine methods training environments protocols plan run api",
    "commands": "errors processes plugins suite store ranking aggregation report results types "
    "training plan run answers conformance studies",
    "cli": "errors commands",
    # The doors.
    "registry": "plugins",
    "spec": "suite",
}
TORCH_FREE = list(ALLOWED)[: list(ALLOWED).index("types")]
# The kernel is optional: the solver asks whether it is there, and it uses the solver's types.
CYCLE_ALLOWED = {"assay.removal.multigrid", "assay.removal.triton_kernels"}


def module_of(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_of(path): path for path in sorted(SOURCE.rglob("*.py"))}


def imported(path: Path) -> Iterator[str]:
    """The modules of assay that a file imports, also inside functions and for types only."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "assay":
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in FILES else str(node.module)
        elif isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.split(".")[0] == "assay")


GRAPH = {module: set(imported(path)) - {module} for module, path in FILES.items()}


def room(module: str) -> str:
    """The folder, or file of the root, that a module is in."""
    return (*module.split("."), "")[1]


@pytest.mark.parametrize("folder", ALLOWED)
def test_a_folder_imports_only_what_it_may(folder: str) -> None:
    modules = {m: i for m, i in GRAPH.items() if room(m) == folder}
    assert modules
    wrong = {
        (module, name)
        for module, names in modules.items()
        for name in names
        if room(name) and room(name) not in {folder, *ALLOWED[folder].split()}
    }
    assert not wrong


def test_every_folder_has_a_row_and_no_row_is_idle() -> None:
    assert {room(m) for m in FILES} - {""} == set(ALLOWED)
    used = {(room(m), room(i)) for m, names in GRAPH.items() for i in names}
    allowed = {(folder, other) for folder, row in ALLOWED.items() for other in row.split()}
    assert allowed <= used


def test_rows_stand_in_the_order_of_the_data() -> None:
    order = list(ALLOWED)
    for folder, row in ALLOWED.items():
        assert all(order.index(other) < order.index(folder) for other in row.split()), folder


def test_there_is_no_cycle() -> None:
    """Modules are taken away while one imports nothing that is left; a cycle would stay."""
    # The package itself leads everywhere, but loads a name only when it is first used.
    left = {m: {i for i in names if i in GRAPH} for m, names in GRAPH.items() if m != "assay"}
    for module in CYCLE_ALLOWED:
        left[module] -= CYCLE_ALLOWED
    while free := {m for m, names in left.items() if not names & left.keys()}:
        left = {m: names for m, names in left.items() if m not in free}
    assert not left


def test_the_map_is_drawn_from_this_code() -> None:
    spec = importlib.util.spec_from_file_location("rooms", ROOT / "docs" / "rooms.py")
    rooms = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(rooms)
    assert [*rooms.ORDER, "registry", "spec"] == list(ALLOWED)
    assert rooms.PICTURE.read_text() == rooms.draw(), "Run `make rooms`."


def test_protocols_know_neither_models_nor_methods() -> None:
    assert not {"models", "methods", "plan", "run"} & set(ALLOWED["protocols"].split())


def test_the_root_is_small() -> None:
    assert len(list(SOURCE.glob("*.py"))) <= 10


def test_public_names_resolve_and_come_from_rooms() -> None:
    for name, module in assay._PUBLIC.items():
        assert module in FILES, name
        assert getattr(assay, name) is getattr(importlib.import_module(module), name)
    assert set(assay.__all__) == set(assay._PUBLIC)
    types_only = {a for m in imported(SOURCE / "__init__.py") for a in [m]} - {"assay"}
    assert types_only - {"assay.plugins.moved"} == set(assay._PUBLIC.values())


def test_builtin_modules_exist() -> None:
    assert {module for modules in BUILTIN.values() for module in modules} <= set(FILES)


@pytest.mark.parametrize("old", sorted(MOVED))
def test_an_old_path_names_the_new_one(old: str) -> None:
    assert MOVED[old] in FILES
    with pytest.raises(ImportError, match=MOVED[old].replace(".", r"\.")):
        importlib.import_module(old)


def test_old_addresses_and_names_still_help() -> None:
    from assay.plugins.addresses import load_object
    from assay.studies.soco.modified import modified

    assert load_object("assay.studies.modified:modified")[0] is modified
    with pytest.raises(ImportError, match=r"assay\.plan\.resolving"):
        from assay.plan import resolve  # noqa: F401
    with pytest.raises(ImportError, match=r"assay\.units\.features"):
        from assay import features  # noqa: F401


@pytest.mark.parametrize(
    "module",
    [
        *(m for m in FILES if room(m) in TORCH_FREE),
        "assay.registry",
        "assay.spec",
        "assay.studies.published_claims",
        "assay.studies.soco.study",
        "assay.studies.m4.study",
        "assay.studies.attributionlab.study",
        "assay.studies.metarank.study",
    ],
)
def test_what_ranks_and_reports_imports_no_torch(module: str) -> None:
    """By the graph: nothing that a module leads to imports torch when it is loaded."""
    seen, ways = set(), [module]
    while ways:
        current = ways.pop()
        if current in seen or current not in FILES:
            continue
        seen.add(current)
        tree = ast.parse(FILES[current].read_text())
        top = [n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
        for node in top:
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module]
            assert not any(str(name).split(".")[0] == "torch" for name in names), current
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("assay"):
                ways += [f"{node.module}.{a.name}" for a in node.names] + [str(node.module)]
        ways += [current.rpartition(".")[0]]


def test_results_are_read_and_rendered_without_torch() -> None:
    code = """
import sys
class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError("no torch here")
sys.meta_path.insert(0, NoTorch())
import assay.results, assay.report.page, assay.ranking.leaderboard, assay.registry, assay.spec
import assay.studies.published_claims, assay.studies.soco.study, assay.studies.m4.study
import assay.studies.attributionlab.study, assay.studies.metarank.study
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_files_stay_readable() -> None:
    long = {p.name: n for p in FILES.values() if (n := len(p.read_text().splitlines())) > 400}
    assert not long


def test_every_method_and_protocol_is_benchmarked():
    """Controls, maps of a file and truth run no network; the others are held against the floor."""
    spec = importlib.util.spec_from_file_location(
        "bench", Path(__file__).parents[1] / "benchmarks" / "__main__.py"
    )
    bench = importlib.util.module_from_spec(spec)
    sys.modules["bench"] = bench
    spec.loader.exec_module(bench)
    measured = {choose_one("method", item).plugin.name for item in bench.METHODS}
    methods = {m.name for m in registry.everything("method") if not m.control} - {"maps"}
    assert measured == methods
    measured = {
        choose_one("protocol", item).plugin.name for item in (*bench.PROTOCOLS, *bench.IMPUTING)
    }
    # What trains networks has no floor of forward passes: `benchmarks/roar.py` measures it.
    protocols = [
        p for p in registry.everything("protocol") if p.family != "truth" and p.scope == "batch"
    ]
    assert measured == {p.name for p in protocols}
