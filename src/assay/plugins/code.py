"""Code as normalised text: its syntax tree without docstrings, comments and layout."""

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
    """A piece of code: its normalised text, and the names it reads from its surroundings."""

    text: str
    names: tuple[str, ...]
    rebound: frozenset[str] = frozenset()  # names assigned with `global`: they hold state


# Finding code in its file takes longer than hashing a small network, and the file may change during
# a run. Entries are dropped with the objects they describe.
_KNOWN: WeakKeyDictionary[FunctionType | type, Code] = WeakKeyDictionary()
_ASSIGNED: WeakKeyDictionary[ModuleType, dict[str, list[ast.AST]]] = WeakKeyDictionary()


def code_of(source: FunctionType | type) -> Code:
    """The code of a function or a class.

    Raises:
        OSError: Its file is missing or has changed.
        TypeError: It was not written in Python.
    """
    if source not in _KNOWN:
        _KNOWN[source] = _as_code([_node(source)])
    return _KNOWN[source]


def assigned(module: ModuleType, name: str) -> Code | None:
    """The code a module assigns to a name at top level; None where the source cannot be read."""
    if module not in _ASSIGNED:
        try:
            _ASSIGNED[module] = _assignments(_file_of(module).tree)
        except (OSError, TypeError):  # a notebook, or a module made by hand
            return None
    statements = _ASSIGNED[module].get(name)
    return _as_code(statements) if statements else None


def says(source: str | bytes) -> str:
    """The normalised text of a whole file.

    Raises:
        SyntaxError: It is not Python.
        ValueError: It is not text.
    """
    return _text(_bare(ast.parse(source)))


# --- finding code in its file -----------------------------------------------------------------


@dataclass(frozen=True)
class _File:
    """A file with its functions, classes and lambdas, indexed by first line or name."""

    tree: ast.Module
    functions: dict[tuple[int, str], list[ast.AST]] = field(default_factory=dict)
    classes: dict[str, list[ast.AST]] = field(default_factory=dict)  # by qualified name
    lambdas: dict[int, list[ast.Lambda]] = field(default_factory=dict)

    def index(self, node: ast.AST, inside: str = "") -> None:
        """Index everything in a node; `inside` is the qualified name of its surroundings."""
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
        raise OSError("the file has changed") from error
    file.index(file.tree)
    return file


def _file_of(place: FunctionType | ModuleType) -> _File:
    return _read("".join(inspect.findsource(place)[0]))


def _node(source: FunctionType | type) -> ast.AST:
    if isinstance(source, type):
        nodes = _class_nodes(source)
    elif source.__code__.co_name == "<lambda>":
        nodes = _lambda_nodes(_file_of(source), source.__code__)
    else:
        code = source.__code__
        nodes = _file_of(source).functions.get((code.co_firstlineno, code.co_name), [])
    if len(nodes) != 1:
        raise OSError(f"`{source.__qualname__}` cannot be found in its file")
    return nodes[0]


def _class_nodes(kind: type) -> list[ast.AST]:
    """The nodes of a class, found by its methods (also in a notebook) or by its module."""
    for method in map(inspect.unwrap, filter(inspect.isfunction, vars(kind).values())):
        with contextlib.suppress(OSError):  # a generated method, as in a dataclass
            named = _file_of(method).classes.get(kind.__qualname__, [])
            if nodes := [node for node in named if _spans(node, method.__code__)]:
                return nodes
    module = sys.modules.get(kind.__module__)
    return [] if module is None else _file_of(module).classes.get(kind.__qualname__, [])


def _spans(node: ast.AST, code: CodeType) -> bool:
    return bool(node.lineno <= code.co_firstlineno <= node.end_lineno)  # type: ignore[attr-defined]


def _lambda_nodes(file: _File, code: CodeType) -> list[ast.AST]:
    """The lambda that was compiled to this code; one line may hold several."""
    candidates = file.lambdas.get(code.co_firstlineno, [])
    if len(candidates) < 2:
        return [*candidates]
    around = [node for node in candidates if _holds(node.body, code)]
    return [min(around, key=_size)] if around else []


def _holds(body: ast.expr, code: CodeType) -> bool:
    """Whether every instruction of the code comes from inside an expression."""
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
    statements: dict[str, list[ast.AST]] = {}
    for statement in _outside(tree):
        targets: list[ast.expr] = []
        if isinstance(statement, ast.Assign):
            targets = statement.targets
        elif isinstance(statement, ast.AnnAssign | ast.AugAssign):
            targets = [statement.target]
        for name in {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}:
            statements.setdefault(name, []).append(statement)
    return statements


def _outside(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a module except those inside functions and classes."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, DEFINITIONS):
            yield child
            yield from _outside(child)


# --- normalised text --------------------------------------------------------------------------


def _as_code(nodes: list[ast.AST]) -> Code:
    inside = [part for node in nodes for part in ast.walk(node)]
    rebound = {name for part in inside if isinstance(part, ast.Global) for name in part.names}
    return Code("\n".join(map(_text, nodes)), _names(nodes), frozenset(rebound))


def _text(node: ast.AST) -> str:
    """A syntax tree as source text, which is more stable across Python versions than a dump."""
    try:
        return ast.unparse(node)
    except ValueError:  # nested quotes that `unparse` cannot write
        return ast.dump(node)


def _bare(tree: ast.Module) -> ast.Module:
    """The tree without docstrings and other string statements."""
    for node in ast.walk(tree):
        for part in ("body", "orelse", "finalbody"):
            block = getattr(node, part, None)
            if isinstance(block, list):
                statements = [statement for statement in block if not _is_string(statement)]
                setattr(node, part, statements if statements or not block else [ast.Pass()])
    return tree


def _is_string(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _names(nodes: list[ast.AST]) -> tuple[str, ...]:
    """The names a piece of code reads from its surroundings; annotations do not affect results."""
    try:
        bare = _unannotated(ast.parse("\n".join(map(ast.unparse, nodes))))
        taken = _taken(symtable.symtable(ast.unparse(bare), "<code>", "exec"))
    except (SyntaxError, ValueError):  # it cannot be compiled alone: `nonlocal`
        taken = {n.id for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name)}
    return tuple(sorted(taken))


def _taken(table: symtable.SymbolTable) -> set[str]:
    """Global names that are read in this scope and in nested scopes."""
    outermost = table.get_type() == "module"
    referenced = {
        symbol.get_name()
        for symbol in table.get_symbols()
        if symbol.is_referenced() and (outermost or symbol.is_global())
    }
    return referenced.union(*map(_taken, table.get_children()))


def _unannotated(tree: ast.AST) -> ast.AST:
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
    return tree
