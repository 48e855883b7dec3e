"""What code says: its syntax tree as text, without docstrings, comments and layout."""

import ast
import contextlib
import functools
import inspect
import symtable
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType, FunctionType, ModuleType
from weakref import WeakKeyDictionary

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True)
class Code:
    """A piece of code: what it says, and the names it takes from its surroundings."""

    text: str
    names: tuple[str, ...]
    rebound: frozenset[str] = frozenset()  # by `global`: they hold a state


# To find code in its file takes longer than to hash a small network, and the file may change
# while a run goes on; what is gone is forgotten.
_KNOWN: WeakKeyDictionary[FunctionType | type, Code] = WeakKeyDictionary()
_ASSIGNED: WeakKeyDictionary[ModuleType, dict[str, list[ast.AST]]] = WeakKeyDictionary()


def code_of(source: FunctionType | type) -> Code:
    """The code of a function or a class.

    Raises:
        OSError: Its file is not there, or not as it was.
        TypeError: It was not written in Python.
    """
    if source not in _KNOWN:
        _KNOWN[source] = _as_code([_node(source)])
    return _KNOWN[source]


def assigned(module: ModuleType, name: str) -> Code | None:
    """What a module assigns to a name outside its functions and classes, where that can be read."""
    if module not in _ASSIGNED:
        try:
            _ASSIGNED[module] = _assignments(_file_of(module).tree)
        except (OSError, TypeError):  # a notebook, or a module made by hand
            return None
    found = _ASSIGNED[module].get(name)
    return _as_code(found) if found else None


def says(source: str | bytes) -> str:
    """What a whole file says.

    Raises:
        SyntaxError: It is not Python.
        ValueError: It is not text.
    """
    return _text(_bare(ast.parse(source)))


# --- finding code in its file -----------------------------------------------------------------


@dataclass(frozen=True)
class _File:
    """A file with its functions, classes and lambdas by the lines and names they begin with."""

    tree: ast.Module
    functions: dict[tuple[int, str], list[ast.AST]] = field(default_factory=dict)
    classes: dict[str, list[ast.AST]] = field(default_factory=dict)  # by their whole names
    lambdas: dict[int, list[ast.Lambda]] = field(default_factory=dict)

    def index(self, node: ast.AST, inside: str = "") -> None:
        """Note all that lies in a node, which itself lies in this function or class."""
        for child in ast.iter_child_nodes(node):
            within = inside
            if isinstance(child, ast.ClassDef):
                self.classes.setdefault(f"{inside}{child.name}", []).append(child)
                within = f"{inside}{child.name}."
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                line = min(part.lineno for part in (child, *child.decorator_list))
                self.functions.setdefault((line, child.name), []).append(child)
                within = f"{inside}{child.name}.<locals>."
            elif isinstance(child, ast.Lambda):
                self.lambdas.setdefault(child.lineno, []).append(child)
            self.index(child, within)


@functools.lru_cache(maxsize=64)
def _read(text: str) -> _File:
    try:
        file = _File(_bare(ast.parse(text)))
    except SyntaxError as error:
        raise OSError("the file is not as it was") from error
    file.index(file.tree)
    return file


def _file_of(place: FunctionType | ModuleType) -> _File:
    return _read("".join(inspect.findsource(place)[0]))


def _node(source: FunctionType | type) -> ast.AST:
    if isinstance(source, type):
        found = _class_nodes(source)
    elif source.__code__.co_name == "<lambda>":
        found = _lambda_nodes(_file_of(source), source.__code__)
    else:
        code = source.__code__
        found = _file_of(source).functions.get((code.co_firstlineno, code.co_name), [])
    if len(found) != 1:
        raise OSError(f"`{source.__qualname__}` is not to be found in its file")
    return found[0]


def _class_nodes(kind: type) -> list[ast.AST]:
    """A class by its methods, which know their file also in a notebook; else by its module."""
    for method in map(inspect.unwrap, filter(inspect.isfunction, vars(kind).values())):
        with contextlib.suppress(OSError):  # it was made, not written, as those of a dataclass
            named = _file_of(method).classes.get(kind.__qualname__, [])
            if found := [node for node in named if _spans(node, method.__code__)]:
                return found
    module = sys.modules.get(kind.__module__)
    return [] if module is None else _file_of(module).classes.get(kind.__qualname__, [])


def _spans(node: ast.AST, code: CodeType) -> bool:
    return bool(node.lineno <= code.co_firstlineno <= node.end_lineno)  # type: ignore[attr-defined]


def _lambda_nodes(file: _File, code: CodeType) -> list[ast.AST]:
    """The lambda that was compiled to this code; several may stand in one line."""
    found = file.lambdas.get(code.co_firstlineno, [])
    if len(found) < 2:
        return [*found]
    around = [node for node in found if _holds(node.body, code)]
    return [min(around, key=_size)] if around else []


def _holds(body: ast.expr, code: CodeType) -> bool:
    """Whether all that the code does was written inside an expression."""
    begin, end = (body.lineno, body.col_offset), (body.end_lineno, body.end_col_offset)
    places = [
        ((line, column), (last, until))
        for line, last, column, until in code.co_positions()
        if None not in (line, last, column, until) and (line, column) != (last, until)
    ]
    return bool(places) and all(begin <= a and b <= end for a, b in places)


def _size(node: ast.Lambda) -> tuple[int, int]:
    return (node.end_lineno or 0) - node.lineno, (node.end_col_offset or 0) - node.col_offset


def _assignments(tree: ast.Module) -> dict[str, list[ast.AST]]:
    """The statements that assign to each name outside functions and classes, in order."""
    found: dict[str, list[ast.AST]] = {}
    for statement in _outside(tree):
        targets: list[ast.expr] = []
        if isinstance(statement, ast.Assign):
            targets = statement.targets
        elif isinstance(statement, ast.AnnAssign | ast.AugAssign):
            targets = [statement.target]
        for name in {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}:
            found.setdefault(name, []).append(statement)
    return found


def _outside(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a module but those inside functions and classes."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, DEFINITIONS):
            yield child
            yield from _outside(child)


# --- what it says -----------------------------------------------------------------------------


def _as_code(nodes: list[ast.AST]) -> Code:
    inside = [part for node in nodes for part in ast.walk(node)]
    rebound = {name for part in inside if isinstance(part, ast.Global) for name in part.names}
    return Code("\n".join(map(_text, nodes)), _names(nodes), frozenset(rebound))


def _text(node: ast.AST) -> str:
    """A syntax tree as text, which changes less between versions of Python than its dump."""
    try:
        return ast.unparse(node)
    except ValueError:  # quotes in quotes that cannot be written again
        return ast.dump(node)


def _bare(tree: ast.Module) -> ast.Module:
    """The tree without its docstrings, and without the other strings that stand alone."""
    for node in ast.walk(tree):
        for part in ("body", "orelse", "finalbody"):
            block = getattr(node, part, None)
            if isinstance(block, list):
                kept = [statement for statement in block if not _is_string(statement)]
                setattr(node, part, kept if kept or not block else [ast.Pass()])
    return tree


def _is_string(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _names(nodes: list[ast.AST]) -> tuple[str, ...]:
    """The names a piece of code takes from its surroundings; annotations change no number."""
    try:
        bare = _unannotated(ast.parse("\n".join(map(ast.unparse, nodes))))
        found = _taken(symtable.symtable(ast.unparse(bare), "<code>", "exec"))
    except (SyntaxError, ValueError):  # it cannot stand alone: `nonlocal`
        found = {n.id for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name)}
    return tuple(sorted(found))


def _taken(table: symtable.SymbolTable) -> set[str]:
    """Global names that are read, in this scope and in those inside it."""
    outermost = table.get_type() == "module"
    found = {
        symbol.get_name()
        for symbol in table.get_symbols()
        if symbol.is_referenced() and (outermost or symbol.is_global())
    }
    return found.union(*map(_taken, table.get_children()))


def _unannotated(tree: ast.AST) -> ast.AST:
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
    return tree
