"""`assay new`: what it writes runs as it stands."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import assay
from assay.plugins.scaffold import NEXT, write_plugin


def test_the_written_tests_pass_as_they_stand(call, tmp_path):
    folder, written = tmp_path / "my plug ins", set()
    for kind in NEXT:
        code, output, _ = call("new", kind, f"my_{kind}", "--out", str(folder))
        assert code == 0
        assert f"my_{kind}.py:my_{kind}" in output
        written |= {f"my_{kind}.py", f"test_my_{kind}.py"}
        assert {p.name for p in folder.iterdir()} == written
    source = str(Path(assay.__file__).parents[1])
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", str(folder), "-p", "no:cacheprovider"],
        check=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": source},
        stdout=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["method", "protocol", "environment"])
def test_doctor_finds_nothing_wrong_with_it(call, tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    call("new", kind, "mine")
    code, output, _ = call("doctor", "./mine.py:mine")
    assert code == 0
    assert output.count("ok") >= 5
    assert "FAILED" not in output


def test_the_suggested_run_works(call, tmp_path, monkeypatch):
    """Method, protocol and model together, on a folder of the method's own making."""
    monkeypatch.chdir(tmp_path)
    for kind in NEXT:
        call("new", kind, f"my_{kind}")
    (tmp_path / "list.csv").write_text("path,label\na.png,0\nb.png,1\n")
    from PIL import Image

    for name, colour in (("a", "red"), ("b", "blue")):
        Image.new("RGB", (32, 32), colour).save(tmp_path / f"{name}.png")
    code, output, errors = call(
        "run", "--model", "./my_model.py:my_model", "--methods", "./my_method.py:my_method,random",
        "--protocols", "./my_protocol.py:my_protocol", "--data", "list.csv", "--size", "32",
        "--mean", ".5", "--std", ".5", "--out", "run",
    )  # fmt: skip
    assert code == 0, output + errors
    assert "Nothing can be ranked" in output  # of two images
    assert "my_method" in Path("run/report.html").read_text()


def test_what_is_said_next_of_an_environment_runs(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, output, _ = call("new", "environment", "my_world")
    words = shlex.split(output.strip().splitlines()[-1])
    assert words[0] == "python"
    source = str(Path(assay.__file__).parents[1])
    found = subprocess.run(
        [sys.executable, *words[1:]], check=True, cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": source},
    )  # fmt: skip
    assert "input_x_gradient" in found.stdout


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("method", "my method", "Python function"),
        ("method", "2nd", "Python function"),
        ("method", "class", "Python function"),
        ("method", "../x", "Python function"),
        ("metod", "mine", "Did you mean `method`"),
    ],
)
def test_wrong_names_are_refused(call, tmp_path, monkeypatch, kind, name, message):
    monkeypatch.chdir(tmp_path)
    code, _, errors = call("new", kind, name)
    assert code == 2
    assert message in errors
    assert not list(tmp_path.iterdir())


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "test_mine.py").write_text("precious")
    with pytest.raises(assay.InputError, match=r"test_mine\.py` already exists"):
        write_plugin("method", "mine", tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["test_mine.py"]
    assert (tmp_path / "test_mine.py").read_text() == "precious"


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(assay.PrerequisiteError, match="Cannot write"):
        write_plugin("method", "mine", tmp_path / "file")
