"""Objects by address: files that import what lies beside them, packages in the working folder."""

import subprocess
import sys
from pathlib import Path

import pytest

import assay
from assay.plugins.addresses import load_object


def write(folder: Path, helper: str) -> str:
    """A file that imports one beside it, and its address."""
    folder.mkdir(exist_ok=True)
    (folder / "beside_it.py").write_text(helper)
    (folder / "mine.py").write_text("from beside_it import VALUE\n\ndef value(): return VALUE\n")
    return f"{folder}/mine.py:value"


def test_a_file_beside_the_file(tmp_path):
    path = list(sys.path)
    function, _ = load_object(write(tmp_path, "VALUE = 1"))
    assert function() == 1
    assert sys.path == path


def test_two_folders_hold_files_of_one_name(tmp_path):
    first, _ = load_object(write(tmp_path / "a", "VALUE = 1"))
    second, _ = load_object(write(tmp_path / "b", "VALUE = 2"))
    assert (first(), second()) == (1, 2)


def test_what_is_imported_is_part_of_the_source(tmp_path):
    address = write(tmp_path, "VALUE = 1")
    before, known = load_object(address)
    assert load_object(address) == (before, known)
    write(tmp_path, "VALUE = 22")
    after, changed = load_object(address)
    assert after() == 22
    assert changed != known


def test_relative_imports_of_a_package_beside_the_file(tmp_path):
    package = tmp_path / "lying_beside"
    package.mkdir()
    (package / "__init__.py").write_text("from .inner import VALUE\n")
    (package / "inner.py").write_text("VALUE = 1\n")
    (tmp_path / "mine.py").write_text("import lying_beside as p\ndef value(): return p.VALUE\n")
    address = f"{tmp_path}/mine.py:value"
    _, known = load_object(address)
    (package / "inner.py").write_text("VALUE = 22\n")
    after, changed = load_object(address)
    assert after() == 22
    assert changed != known


def test_a_package_in_the_working_folder(tmp_path):
    """In a process of its own, started as the console script is: without '' on the path."""
    (tmp_path / "here").mkdir()
    (tmp_path / "here/net.py").write_text("VALUE = 1\n")
    source = str(Path(assay.__file__).parents[1])
    code = (
        f"import sys; sys.path[:1] = [{source!r}]\n"
        "from assay.plugins.addresses import load_object\n"
        "print(load_object('here.net:VALUE')[0])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "1\n"


def test_no_such_module():
    with pytest.raises(assay.PrerequisiteError, match=r"`\./no_such/net\.py:object`"):
        load_object("no_such.net:build")


def test_a_module_that_lacks_another(tmp_path, monkeypatch):
    (tmp_path / "lacking.py").write_text("import no_such_dependency\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(assay.InputError, match=r"`lacking` cannot be imported.*no_such_dependency"):
        load_object("lacking:build")


def test_a_file_without_a_name_is_told_what_it_defines(tmp_path, call):
    path = tmp_path / "methods.py"
    path.write_text(
        "import torch\nfrom assay import method\nnet = torch.nn.Identity()\n"
        "def helper(x): return x\n"
        "@method('mine')\ndef mine(model, batch): return batch.inputs\n"
    )
    for command in ("check", "doctor"):
        code, _, errors = call(command, str(path))
        said = " ".join(errors.split())
        assert code == 2
        assert f"`{path}:mine`, got only the file" in said
        assert said.endswith("It defines: mine, net, helper.")
    with pytest.raises(assay.InputError, match="Available: helper, mine, net"):
        load_object(f"{path}:mime")
    with pytest.raises(assay.PrerequisiteError, match="There is no file"):
        load_object(f"{tmp_path}/gone.py")


def test_a_function_of_a_builtin_type_belongs_to_no_file(tmp_path):
    path = tmp_path / "words.py"
    path.write_text("lower = str.lower\ndef upper(x): return x.upper()\n")
    with pytest.raises(assay.InputError, match=r"Available: upper\b"):
        load_object(f"{path}:uper")
