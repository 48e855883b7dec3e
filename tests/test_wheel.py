"""The wheel carries everything: code, suites, and what the page is made of."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> zipfile.ZipFile:
    pytest.importorskip("build")
    pytest.importorskip("hatchling")
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", str(out)]
    subprocess.run([*command, str(ROOT)], check=True, stdout=subprocess.DEVNULL)
    (made,) = out.glob("assay-*.whl")
    return zipfile.ZipFile(made)


def test_every_file_of_the_package_is_inside_as_it_is(wheel):
    source = ROOT / "src"
    files = [p for p in (source / "assay").rglob("*") if p.is_file() and p.suffix != ".pyc"]
    assert {p.suffix for p in files} >= {".py", ".yaml", ".j2", ".css", ".js", ".typed"}
    for path in files:
        assert wheel.read(path.relative_to(source).as_posix()) == path.read_bytes()


def test_nothing_else_is_inside(wheel):
    strange = [
        name
        for name in wheel.namelist()
        if not name.startswith(("assay/", "assay-")) or "__pycache__" in name
    ]
    assert not strange


def test_its_metadata_name_the_command_and_the_extras(wheel):
    def read(name: str) -> str:
        (path,) = [n for n in wheel.namelist() if n.endswith(f".dist-info/{name}")]
        return wheel.read(path).decode()

    assert "assay = assay.cli:main" in read("entry_points.txt")
    extras = {line.split(": ")[1] for line in read("METADATA").splitlines() if "Extra: " in line}
    assert {"demo", "segments", "vision", "dev"} <= extras
