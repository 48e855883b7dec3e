"""The import order of the design, and the part that works without torch."""

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from assay import registry
from assay.spec import choose_one

SOURCE = Path(__file__).parents[1] / "src" / "assay"

# Each layer may import its own and the earlier ones.
ORDER = [
    {"errors"},
    {"imports", "identity", "needs", "builtin", "progress", "wanted", "plugins"},
    {"registry"},
    {"spec", "store"},
    {"ranking"},
    {"own", "scaffold"},
    {"pixels", "tokens", "hashing"},
    {"network"},
    {"types"},
    {"data", "models"},
    {"features"},
    {"segments"},
    {"removal", "absent"},
    {"interventions"},
    {"methods"},
    {"training"},
    {"environments"},
    {"protocols"},
    {"plan"},
    {"shelf", "scoring", "checking", "cells", "rehearsal"},
    {"previews", "forecast", "timing", "shard", "executors", "manifest", "run"},
    {"budget"},
    {"api"},
    {"conformance"},
    {"refutation"},
    {"picture"},
    {"best"},
    {"studies"},
    {"commands"},
    {"cli"},
]
TORCH_FREE = {
    "errors",
    "identity",
    "needs",
    "wanted",
    "builtin",
    "imports",
    "plugins",
    "registry",
    "spec",
    "store",
    "results",
    "ranking",
    "report",
}


def imported(path: Path) -> set[str]:
    """The top-level parts of assay that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            if node.module == "assay":
                found |= {alias.name for alias in node.names}
            elif node.module.startswith("assay."):
                found.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("assay.")}
    return found


def part(path: Path) -> str:
    first = path.relative_to(SOURCE).parts[0]
    return first.removesuffix(".py")


FILES = sorted(p for p in SOURCE.rglob("*.py") if p.name != "__init__.py" or p.parent != SOURCE)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_a_file_imports_only_earlier_layers(path: Path) -> None:
    layer = {name: i for i, names in enumerate(ORDER) for name in names}
    mine = part(path)
    if mine in {"ranking", "report", "results", "suites"}:
        assert imported(path) <= TORCH_FREE
        return
    late = {name for name in imported(path) & set(layer) if layer[name] > layer[mine]}
    assert not late
    if mine not in {
        "run",
        "api",
        "conformance",
        "refutation",
        "picture",
        "best",
        "studies",
        "commands",
        "cli",
    }:
        assert not imported(path) & {"report", "results"}


def test_every_file_has_a_place_in_the_order() -> None:
    known = {name for names in ORDER for name in names}
    known |= {"report", "results", "suites"}
    assert {part(p) for p in FILES} <= known


@pytest.mark.parametrize(
    "module",
    [
        "errors",
        "registry",
        "spec",
        "store",
        "ranking.reductions",
        "results",
        "ranking.leaderboard",
        "report.page",
        "studies.shelf",
        "studies.soco",
        "studies.m4",
        "studies.attributionlab",
    ],
)
def test_ranking_and_report_need_no_torch(module: str) -> None:
    code = f"""
import sys
class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError("no torch here")
sys.meta_path.insert(0, NoTorch())
import assay.{module}
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_files_stay_readable() -> None:
    long = {p.name: n for p in FILES if (n := len(p.read_text().splitlines())) > 400}
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
    protocols = [p for p in registry.everything("protocol") if p.family != "truth"]
    assert measured == {p.name for p in protocols}
