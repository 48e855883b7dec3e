"""Objects by address: `package.module:object` or `./file.py:object`, accepted in place of a name.

A file may import modules from its own folder, as a script may. A package may be in the working
folder.
"""

import ast
import contextlib
import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from assay.errors import InputError, PrerequisiteError, unknown
from assay.paths import user_path
from assay.plugins.code import says
from assay.plugins.moved import MOVED
from assay.plugins.origins import TYPED, Origin, is_file
from assay.plugins.origins import is_address as is_address

FILE_MODULE = "assay_file_"  # prefix of the names of modules loaded from files
ARGUMENTS: dict[str, tuple[str, ...]] = {  # of plain functions; a method may take an engine, too
    "method": ("model", "batch"),
    "fill": ("batch",),
    "units": ("batch",),
    "dataset": (),
}
_BESIDE: dict[str, tuple[Path, str]] = {}  # modules imported from a file's folder: path, hash


def load_object(address: str, origin: Origin = TYPED, kind: str = "object") -> tuple[Any, str]:
    """The object at an address, and a hash of the code of its source file.

    Raises:
        PrerequisiteError: There is no such file or module, or its code may not run.
        InputError: The source cannot be imported, or does not define the object.
    """
    origin.check(kind, address)
    if address.endswith(".py"):
        raise _nameless(address)
    place, _, name = address.rpartition(":")
    if not place or not name.isidentifier():
        raise InputError(
            f"Expected `package.module:object` or `./file.py:object`, got `{address}`."
        )
    place = MOVED.get(place, place)  # the address in suites of earlier versions
    module = _from_file(Path(place)) if is_file(place) else _from_package(place)
    if not hasattr(module, name):
        raise unknown(f"object in `{place}`:", name, _defined(module))
    return getattr(module, name), _hash(module)


def _nameless(file: str) -> InputError:
    """The error for a file without an object name."""
    defined = _defined(_from_file(Path(file)))
    return InputError(
        f"Expected the name of an object after the file, `{file}:{(*defined, 'NAME')[0]}`, got "
        f"only the file. It defines: {', '.join(defined) or 'nothing'}."
    )


def _defined(module: ModuleType) -> list[str]:
    """The public names a module defines, plug-ins first; imported names are left out."""
    members = vars(module).items()
    public = {n: v for n, v in members if not n.startswith("_") and not isinstance(v, ModuleType)}
    own = [name for name, value in public.items() if _made_in(module, value)]
    return sorted(own, key=lambda name: not hasattr(public[name], "__assay__"))


def _made_in(module: ModuleType, value: Any) -> bool:
    imported = inspect.isclass(value) or inspect.isroutine(value)
    return not imported or getattr(value, "__module__", None) == module.__name__


def _from_file(path: Path) -> ModuleType:
    path = user_path(path, "the file").resolve()
    if not path.is_file():
        raise PrerequisiteError(f"There is no file `{path}`.")
    name = f"{FILE_MODULE}{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    known = sys.modules.get(name)
    files = _sources(path)
    bytes_now = _joined(map(_file_hash, files))
    if known is not None and vars(known).get("__assay_bytes__") == bytes_now:
        return known
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"Expected `{path}` to be a Python file.")
    module = importlib.util.module_from_spec(spec)
    vars(module)["__assay_bytes__"] = bytes_now  # a new docstring reloads, but changes no key
    vars(module)["__assay_hash__"] = _joined(map(_code_hash, files))
    sys.modules[name] = module  # so that classes and functions can be looked up by name
    try:
        with _beside(path.parent):
            spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if not isinstance(error, Exception):
            raise
        text = f"`{path}` cannot be imported: {type(error).__name__}: {error}"
        raise InputError(text) from error
    return module


def _from_package(place: str) -> ModuleType:
    try:
        with _importable(Path.cwd()):
            return importlib.import_module(place)
    except Exception as error:
        absent = error.name if isinstance(error, ModuleNotFoundError) else None
        if absent and f"{place}.".startswith(f"{absent}."):
            raise PrerequisiteError(
                f"There is no module `{place}` ({error}), neither installed nor in the working "
                f"folder. For a file write `./{place.replace('.', '/')}.py:object`."
            ) from error
        raise InputError(
            f"`{place}` cannot be imported: {type(error).__name__}: {error}"
        ) from error


@contextlib.contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Make the modules of a folder importable inside the context."""
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(folder))


@contextlib.contextmanager
def _beside(folder: Path) -> Iterator[None]:
    """Make a file's own folder importable; two folders may hold different files of one name."""
    stale = {
        name.partition(".")[0]
        for name, (file, known) in _BESIDE.items()
        for here in _files(folder.joinpath(*name.split(".")))
        if here != file or _file_hash(here) != known
    }
    for name in [n for n in _BESIDE if n.partition(".")[0] in stale]:
        del _BESIDE[name]
        sys.modules.pop(name, None)
    before = set(sys.modules)
    try:
        with _importable(folder):
            yield
    finally:
        for name in set(sys.modules) - before:
            file = Path(getattr(sys.modules[name], "__file__", None) or "")
            if file in _files(folder.joinpath(*name.split("."))):
                _BESIDE[name] = (file, _file_hash(file))


def _files(place: Path) -> list[Path]:
    """The existing files of a module, from its path without a suffix."""
    return [file for file in (place / "__init__.py", place.with_suffix(".py")) if file.is_file()]


def check_call(kind: str, function: Callable[..., object], address: str) -> None:
    """Refuse a function of the user's own that cannot be called as plug-ins of its kind are.

    Raises:
        InputError: It takes other arguments.
    """
    names = ARGUMENTS.get(kind)
    if names is None:
        return
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # compiled code may have no signature
        return
    several = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = sum(p.default is p.empty for p in places)
    if required > len(names) + (kind == "method") or (len(places) < len(names) and not several):
        listed = ", ".join(names)
        raise InputError(
            f"Expected `{address}` to be a function `({listed})` for a {kind}, with its options "
            f"after a `*`, got one of {len(places)} arguments before them."
        )


def _hash(module: ModuleType) -> str:
    file = getattr(module, "__file__", None)
    if module.__name__.startswith(FILE_MODULE):
        return str(vars(module)["__assay_hash__"])
    return _joined([_code_hash(Path(file))]) if file else ""


def _sources(path: Path) -> list[Path]:
    """A file and all files it imports from its folder: they are part of its code."""
    files = [path]
    for file in files:  # grows during the loop
        files += [f for f in dict.fromkeys(_imported(file, path.parent)) if f not in files]
    return files


def _imported(file: Path, folder: Path) -> Iterator[Path]:
    """The files that a file imports from a folder, by absolute or relative names."""
    try:
        tree = ast.parse(file.read_bytes())
    except SyntaxError:  # reported when the file is imported
        return
    for node in ast.walk(tree):
        names, start = [], folder
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [".".join(filter(None, (node.module, alias.name))) for alias in node.names]
            start = file.parents[node.level - 1] if node.level else folder
        for name in names:
            parts = name.split(".")
            for end in range(1, len(parts) + 1):
                yield from _files(start.joinpath(*parts[:end]))


def _joined(hashes: Iterable[str]) -> str:
    return hashlib.sha256("".join(hashes).encode()).hexdigest()[:16]


def _code_hash(path: Path) -> str:
    """The hash of a file's code, without comments, docstrings and layout."""
    try:
        return hashlib.sha256(says(path.read_bytes()).encode()).hexdigest()[:16]
    except (SyntaxError, ValueError):  # compiled, or broken: reported at import
        return _file_hash(path)


def _file_hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
