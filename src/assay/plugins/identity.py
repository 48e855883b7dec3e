"""Identities of options and code, and how options are written in suites and labels."""

import contextlib
import hashlib
import inspect
import json
import os
import re
import sys
from collections import ChainMap
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import PurePath
from types import FunctionType, ModuleType
from typing import Any

from assay.errors import InputError
from assay.plugins.code import Code, assigned, code_of
from assay.plugins.options import refuse_deep

# The version of all random numbers: part of every key. 1: torch's Mersenne twister, by sample id.
DRAWS = 2


def canonical(value: Any) -> Any:
    """The value as plain JSON; tensors and arrays become a hash of their numbers."""
    if isinstance(value, Mapping):
        return {str(k): canonical(v) for k, v in sorted(value.items())}
    if isinstance(value, list | tuple):
        return [canonical(v) for v in value]
    if isinstance(value, set | frozenset):
        return {"set": sorted((canonical(v) for v in value), key=json.dumps)}
    if _is_record(value):
        return {type(value).__name__: _fields(value)}
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = (value.float() if str(value.dtype) == "torch.bfloat16" else value).numpy()
    if hasattr(value, "tobytes"):
        digest = hashlib.sha256(f"{value.dtype}{value.shape}".encode() + value.tobytes())
        return {"array": digest.hexdigest()[:16]}
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, PurePath):
        return str(value)
    raise InputError(
        f"Expected plain values, arrays or tensors in options, got {type(value).__name__}: its "
        f"content cannot be hashed to identify results."
    )


def _is_record(value: object) -> bool:
    return is_dataclass(value) and not isinstance(value, type)


def _fields(record: Any) -> dict[str, object]:
    """The fields of a dataclass that are not at their defaults: a new field changes no old key."""
    described = {}
    for field in fields(record):
        value = getattr(record, field.name)
        identified_elsewhere = callable(value) and not _is_record(value) and not field.repr
        if field.compare and not identified_elsewhere:
            content = _content(value)
            if content != _default(field):
                described[field.name] = content
    return described


def _default(field: Field[Any]) -> object:
    """The content of a field's default; for a required field the field itself, equal to nothing."""
    if field.default is not MISSING:
        return _content(field.default)
    return field if field.default_factory is MISSING else _content(field.default_factory())


def _content(value: object) -> object:
    return code_identity(value) if callable(value) and not _is_record(value) else canonical(value)


# --- code -------------------------------------------------------------------------------------


def code_identity(source: object) -> str:
    """Identify a callable by its code and by the values and functions it uses.

    If these cannot be determined (an object with its own state), the identity holds for this
    process only. Results of an earlier run are then never reused by mistake.
    """
    try:
        if not inspect.isfunction(source):
            raise TypeError("an object has a state of its own")
        return identity(_Uses().function(source, exact=True))
    except (OSError, TypeError, ValueError):  # ValueError: an InputError, or an empty cell
        return f"process {os.getpid()} object {id(source)}"


def lasts(text: str) -> bool:
    """Whether identities in a text mean the same in other processes."""
    return re.search(r"\bprocess \d+ object \d+", text) is None


def class_identity(kind: type) -> str:
    """Identify a class by its code, its bases, and what these use from their modules.

    The identity is the same in every process. Values without hashable content are identified by the
    statements that create them.
    """
    return identity(_Uses().kind(kind))


def setting_identity(value: object, kind: type) -> str:
    """Identify the value of an attribute of an object of this class."""
    return identity(_Uses().value("", value, kind, exact=False))


def from_elsewhere(kind: type) -> bool:
    """Whether a class belongs to torch or Python, and is identified by that version."""
    return kind.__module__.split(".")[0] in ("torch", *sys.stdlib_module_names)


class _Uses:
    """Describes code with everything it uses from its own module, each definition once.

    With `exact`, values without hashable content are an error. Otherwise they are identified by the
    statements that create them.
    """

    def __init__(self) -> None:
        self._seen: set[object] = set()

    def function(self, source: FunctionType, exact: bool) -> object:
        """Describe a function by its code, its defaults and what it uses."""
        self._seen.add(id(source))
        try:
            code = code_of(source)
        except (OSError, TypeError):
            if exact:
                raise
            return source.__qualname__
        defaults = [*(source.__defaults__ or ()), *(source.__kwdefaults__ or {}).values()]
        described = [self.value("", value, source, exact) for value in defaults]
        return [code.text, described, self._used(code, source, exact)]

    def kind(self, source: type) -> object:
        """Describe a class by its code, bases and what it uses; by name if it has no source."""
        self._seen.add(id(source))
        bases = [b.__name__ if from_elsewhere(b) else self._once(b) for b in source.__bases__]
        try:
            code = code_of(source)
        except (OSError, TypeError):
            return [f"{source.__module__}.{source.__qualname__}", bases]
        return [code.text, bases, self._used(code, source, False)]

    def value(self, name: str, value: object, user: FunctionType | type, exact: bool) -> object:
        """Describe a value that a function or class uses under this name."""
        if isinstance(value, FunctionType | type):
            same = value.__module__ == user.__module__
            return self._once(value, exact) if same else value.__qualname__
        if inspect.ismodule(value):
            return _module_name(value.__name__, user.__module__)
        if inspect.isroutine(value) and not _has_state(value):
            return value.__qualname__
        if _is_record(value):
            kind = self.value(name, type(value), user, exact)
            return [kind, canonical(value) if exact else self._record(value, user)]
        return canonical(value) if exact else self._constant(name, value, user)

    def _once(self, source: FunctionType | type, exact: bool = False) -> object:
        if id(source) in self._seen:
            return source.__qualname__
        return self.kind(source) if isinstance(source, type) else self.function(source, exact)

    def _used(self, code: Code, user: FunctionType | type, exact: bool) -> dict[str, object]:
        around = _surroundings(user)
        states = () if exact else code.rebound
        return {
            name: self.value(name, around[name], user, exact)
            for name in code.names
            if name in around and name not in states and not name.startswith("__")
        }

    def _record(self, record: Any, user: FunctionType | type) -> object:
        if id(record) in self._seen:
            return type(record).__name__
        self._seen.add(id(record))
        compared = {f.name: getattr(record, f.name) for f in fields(record) if f.compare}
        return {name: self.value("", value, user, False) for name, value in compared.items()}

    def _constant(self, name: str, value: object, user: FunctionType | type) -> object:
        if _is_plain(value):
            return repr(value)
        module = sys.modules.get(user.__module__)
        here = module is not None and vars(module).get(name) is value
        code = assigned(module, name) if module is not None and here else None
        if code is None:
            with contextlib.suppress(InputError):
                return canonical(value)
            return type(value).__name__
        if (place := (user.__module__, name)) in self._seen:
            return name
        self._seen.add(place)
        return [code.text, self._used(code, user, False)]


def _surroundings(user: FunctionType | type) -> Mapping[str, object]:
    """The values of names visible to a function or class: enclosing scopes, then its module."""
    if isinstance(user, FunctionType):
        return ChainMap(_closed_over(user), user.__globals__)
    closed: dict[str, object] = {}
    around = vars(sys.modules[user.__module__]) if user.__module__ in sys.modules else {}
    for value in vars(user).values():
        method = getattr(value, "__func__", getattr(value, "fget", value))
        if isinstance(method, FunctionType) and _home(method) == user.__module__:
            around = method.__globals__
            with contextlib.suppress(ValueError):  # an empty cell: never assigned
                closed |= _closed_over(method)
    return ChainMap(closed, around)


def _home(function: FunctionType) -> object:
    """The module a function was written in; a decorator may set another `__module__`."""
    return function.__globals__.get("__name__")


def _closed_over(function: FunctionType) -> dict[str, object]:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {name: cell.cell_contents for name, cell in cells}


def _has_state(routine: object) -> bool:
    return not isinstance(getattr(routine, "__self__", None), type | ModuleType | None)


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, str | bytes | int | float | complex)


def _module_name(module: str, user: str) -> str:
    """A module's name relative to the package of the code that uses it."""
    same = module.partition(".")[0] == user.partition(".")[0]
    return module.rpartition(".")[2] if same else module


def identity(value: object) -> str:
    """A stable hash of a JSON-like description."""
    text = json.dumps(canonical(value), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def describe(value: object) -> str:
    """An option's value as written in a label: `blur(sigma=10)`, `0.5`, `a|b`."""
    value = canonical(value)
    if isinstance(value, Mapping):
        return ",".join(
            f"{k}({describe(v)})" if isinstance(v, Mapping) else f"{k}={describe(v)}"
            for k, v in value.items()
        )
    if isinstance(value, list):
        return "|".join(describe(v) for v in value)
    return re.sub(r"\s+", "_", f"{value:g}" if isinstance(value, float) else str(value))


def label(name: str, options: Mapping[str, object], defaults: Mapping[str, object]) -> str:
    """The name, followed by the options that differ from the defaults: `name[option=value]`."""
    different = [
        f"{option}={describe(value)}"
        for option, value in options.items()
        if option not in defaults or canonical(value) != canonical(defaults[option])
    ]
    return f"{name}[{','.join(different)}]" if different else name


def pick(item: object) -> tuple[str, dict[str, Any]]:
    """Name and options of an item as a suite writes it: `blur` or `{blur: {sigma: 10}}`."""
    if isinstance(item, str):
        return item, {}
    refuse_deep(item, "an item")
    if isinstance(item, Mapping) and len(item) == 1:
        name, options = next(iter(item.items()))
        if isinstance(name, str) and (options is None or isinstance(options, Mapping)):
            wrong = [o for o in options or {} if not isinstance(o, str)]
            if wrong:
                raise InputError(
                    f"Expected option names of `{name}` to be words, got {wrong[0]!r}."
                )
            return name, dict(options or {})
    raise InputError(f"Expected a name or one {{name: {{option: value}}}}, got {item!r}.")
