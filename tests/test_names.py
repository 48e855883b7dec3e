"""One name, one thing: no file name and no type name exists twice in the package."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "assay"
DOORS = {"registry.py", "spec.py"}  # root files that pass on the names of a room


def place(path: Path) -> str:
    """What a file counts as: `studies/soco/runs.py` and `studies/m4/runs.py` count as one."""
    of_a_paper = len(path.parts) == 3 and path.parts[0] == "studies"
    return f"studies/<paper>/{path.name}" if of_a_paper else str(path)


def files(root: Path) -> list[Path]:
    return sorted(path.relative_to(root) for path in root.rglob("*.py"))


def named_twice(places: dict[str, set[str]]) -> dict[str, list[str]]:
    return {name: sorted(where) for name, where in places.items() if len(where) > 1}


def files_named_twice(root: Path) -> dict[str, list[str]]:
    places = defaultdict(set)
    for path in files(root):
        door = len(path.parts) == 1 and path.name in DOORS
        if path.name != "__init__.py" and path.parts[0] != "commands" and not door:
            places[path.name].add(place(path))
    return named_twice(places)


def types_named_twice(root: Path) -> dict[str, list[str]]:
    places = defaultdict(set)
    for path in files(root):
        for name in types_of(ast.parse((root / path).read_text())):
            places[name].add(place(path))
    return named_twice(places)


def types_of(tree: ast.AST) -> Iterator[str]:
    """The classes and aliases that a module defines itself, also under `if` and `try`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (t.id for t in node.targets if is_type_name(t))
        elif isinstance(node, ast.AnnAssign) and is_type_name(node.target):
            yield node.target.id
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from types_of(node)


def is_type_name(target: ast.expr) -> bool:
    """Whether it is written like a type: `Name` or `_Name`, not a `CONSTANT`."""
    if not isinstance(target, ast.Name):
        return False
    name = target.id.lstrip("_")
    return name[:1].isupper() and not name.isupper()


def test_no_file_name_exists_twice() -> None:
    assert files_named_twice(SOURCE) == {}


def test_no_type_name_exists_twice() -> None:
    assert types_named_twice(SOURCE) == {}


def write(root: Path, **texts: str) -> None:
    for name, text in texts.items():
        path = root / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


class TestTheRuleItself:
    def test_a_file_name_in_two_folders_is_found(self, tmp_path: Path) -> None:
        write(tmp_path, run__cells="", plan__cells="", plan__shards="")
        assert files_named_twice(tmp_path) == {"cells.py": ["plan/cells.py", "run/cells.py"]}

    def test_a_paper_may_not_take_the_name_of_another_folder(self, tmp_path: Path) -> None:
        write(tmp_path, studies__soco__trust="", ranking__trust="")
        assert set(files_named_twice(tmp_path)) == {"trust.py"}

    def test_only_the_root_has_doors(self, tmp_path: Path) -> None:
        write(tmp_path, plugins__registry="", data__registry="")
        assert set(files_named_twice(tmp_path)) == {"registry.py"}

    def test_doors_commands_and_parallel_files_may(self, tmp_path: Path) -> None:
        write(tmp_path, registry="", plugins__registry="", commands__trust="", ranking__trust="")
        write(tmp_path, studies__soco__runs="", studies__m4__runs="")
        assert files_named_twice(tmp_path) == {}

    @pytest.mark.parametrize(
        "text",
        [
            "class Row: ...",
            "Row = dict[str, int]",
            "Row: TypeAlias = 'dict[str, int]'",
            "Row = NewType('Row', int)",
            "if TYPE_CHECKING:\n    Row = int",
            "try:\n    Row = int\nexcept ImportError:\n    Row = str",
        ],
    )
    def test_a_type_of_any_kind_is_found(self, tmp_path: Path, text: str) -> None:
        write(tmp_path, report__board=text, ranking__table="class Row:\n    pass")
        assert types_named_twice(tmp_path) == {"Row": ["ranking/table.py", "report/board.py"]}

    def test_imports_constants_and_what_is_inside_functions_are_free(self, tmp_path: Path) -> None:
        write(tmp_path, a="class Row: ...\nSIZE = 1", b="from a import Row as Row\nSIZE = 2")
        write(tmp_path, c="def make():\n    Row = int\n    class Row: ...")
        assert types_named_twice(tmp_path) == {}
