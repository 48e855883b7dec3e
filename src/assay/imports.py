"""Objects by address: `package.module:object` or `./file.py:object`, wherever a name may stand."""

import hashlib
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from assay.errors import InputError, PrerequisiteError, unknown

FILE_MODULE = "assay_file_"  # how modules made from files are named


def is_address(name: str) -> bool:
    """Whether a name is an address rather than a registered name."""
    return ":" in name


def load_object(address: str) -> tuple[Any, str]:
    """The object at an address, and a hash of the source it stands in.

    Raises:
        PrerequisiteError: There is no such file or module.
        InputError: It cannot be imported, or holds no such object.
    """
    place, _, name = address.rpartition(":")
    if not place or not name.isidentifier():
        raise InputError(
            f"Expected `package.module:object` or `./file.py:object`, got `{address}`."
        )
    module = _from_file(Path(place)) if _is_file(place) else _from_package(place)
    if not hasattr(module, name):
        public = [n for n in vars(module) if not n.startswith("_")]
        raise unknown(f"object in `{place}`:", name, public)
    return getattr(module, name), _hash(module)


def _is_file(place: str) -> bool:
    return place.endswith(".py") or "/" in place


def _from_file(path: Path) -> ModuleType:
    path = path.expanduser().resolve()
    if not path.is_file():
        raise PrerequisiteError(f"There is no file `{path}`.")
    name = f"{FILE_MODULE}{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    known = sys.modules.get(name)
    if known is not None and vars(known).get("__assay_hash__") == _file_hash(path):
        return known
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"Expected `{path}` to be a Python file.")
    module = importlib.util.module_from_spec(spec)
    vars(module)["__assay_hash__"] = _file_hash(path)
    sys.modules[name] = module  # so that its classes and functions can be found by name
    try:
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
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        raise PrerequisiteError(
            f"There is no module `{place}` ({error}). For a file write `./{place}.py:object`."
        ) from error
    except Exception as error:
        raise InputError(
            f"`{place}` cannot be imported: {type(error).__name__}: {error}"
        ) from error


def _hash(module: ModuleType) -> str:
    file = getattr(module, "__file__", None)
    return _file_hash(Path(file)) if file else ""


def _file_hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
