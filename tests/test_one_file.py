"""A new built-in method is one module: everything else is made from the registry.

Besides its module it needs its citation in `docs/references.yml` and a line in `benchmarks`.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
METHOD = '''"""A method that is nowhere named but here."""

from torch import Tensor

from assay.plugins.registry import Passes, method
from assay.types import Batch, Model


@method(
    "squared_input",
    family="gradients",
    cite="simonyan2014",
    title="Squared input",
    passes=lambda options: Passes(),
)
def squared_input(model: Model, batch: Batch, *, power: float = 2.0) -> Tensor:
    """The input to a power.

    Formula: x ** power.

    Differs from the paper: it is only an example.
    """
    return model.continuous(batch.inputs).abs() ** power
'''
# In a process of its own: built-in modules are imported once.
LOOK = """
import importlib.util, json, sys
from pathlib import Path

import assay.methods

assay.methods.__path__.append(sys.argv[1])  # as if the file were in the folder

import torch
from assay.commands.listing import rows_of
from assay.conformance import examine


def script(name):
    spec = importlib.util.spec_from_file_location(name, Path("docs") / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


torch.manual_seed(0)
net, data = torch.nn.Linear(6, 3), (torch.randn(8, 6), torch.arange(8) % 3)
results = assay.benchmark(net, data, ["squared_input", "random"], ["deletion"], progress=False)
print(json.dumps({
    "listed": rows_of("methods", ["squared_input"]),
    "rules": [[finding.status, finding.reason] for finding in examine("squared_input")],
    "counts": script("counts").counts(),
    "drawn": [method.name for method in script("gallery").drawable()],
    "page": script("reference").pages()["reference/methods/gradients.md"],
    "ranked": [row["method"] for row in results.leaderboard().rows],
}))
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory) -> dict:
    """What the commands make of the method."""
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("methods")
    (folder / "squared_input.py").write_text(METHOD)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LOOK, str(folder)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_it_is_listed_with_its_options(seen):
    (row,) = seen["listed"]
    assert (row["family"], row["cite"]) == ("gradients", "simonyan2014")
    assert row["options"] == {"power": 2.0}


def test_its_conformance_is_tested(seen):
    statuses = [status for status, _ in seen["rules"]]
    assert statuses.count("ok") >= 5
    assert "FAILED" not in statuses, seen["rules"]


def test_it_is_counted_drawn_and_ranked(seen):
    before = (ROOT / "README.md").read_text().partition("<!-- counts -->")[2].split()[0]
    assert seen["counts"].startswith(f"{int(before) + 1} methods, ")
    assert "squared_input" in seen["drawn"]
    assert set(seen["ranked"]) == {"squared_input", "random"}


def test_it_is_in_the_reference(seen):
    entry = seen["page"].partition("\n## squared_input\n")[2].partition("\n## ")[0]
    assert "The input to a power." in entry
    assert "| `power` | `2` |" in entry
    assert "**Formula:** x ** power." in entry
