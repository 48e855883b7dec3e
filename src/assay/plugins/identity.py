"""What identifies options and code, how they are written and how they read in a label."""

import hashlib
import inspect
import json
import os
import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from assay.errors import InputError


def canonical(value: Any) -> Any:
    """The value as plain JSON, tensors and arrays as the hash of their numbers."""
    if isinstance(value, Mapping):
        return {str(k): canonical(v) for k, v in sorted(value.items())}
    if isinstance(value, list | tuple):
        return [canonical(v) for v in value]
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    if hasattr(value, "tobytes"):
        digest = hashlib.sha256(f"{value.dtype}{value.shape}".encode() + value.tobytes())
        return {"array": digest.hexdigest()[:16]}
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, PurePath):
        return str(value)
    raise InputError(
        f"Expected plain values, arrays or tensors in options, got {type(value).__name__}: it has "
        f"no content by which results could be stored."
    )


def code_identity(source: Any) -> str:
    """What tells one callable from another: its code, and the values and functions it uses.

    Where that cannot be known (an object with a state of its own) the identity is good for this
    process only, so that nothing is ever taken from an earlier run by mistake.
    """
    try:
        return identity(_code(source, set()))
    except (OSError, TypeError, ValueError):  # ValueError: an InputError, or an empty cell
        return f"process {os.getpid()} object {id(source)}"


def _code(source: Any, seen: set[int]) -> Any:
    """A function's text with what it closed over, its defaults and the globals it names."""
    seen.add(id(source))
    text = inspect.getsource(source)
    if not inspect.isfunction(source):
        raise TypeError("an object has a state of its own")
    used = {n: source.__globals__[n] for n in source.__code__.co_names if n in source.__globals__}
    closed = [cell.cell_contents for cell in source.__closure__ or ()]
    values = [*closed, source.__defaults__, source.__kwdefaults__, *used.values()]
    parts: list[Any] = [text]
    for value in values:
        if inspect.isfunction(value):
            same = value.__module__ == source.__module__
            parts.append(
                _code(value, seen) if same and id(value) not in seen else value.__qualname__
            )
        elif inspect.ismodule(value) or inspect.isclass(value):
            parts.append(value.__name__)
        else:
            parts.append(canonical(value))
    return parts


def identity(value: Any) -> str:
    """A stable hash of a JSON-like description."""
    text = json.dumps(canonical(value), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def describe(value: Any) -> str:
    """An option's value as it reads in a label: `blur(sigma=10)`, `0.5`, `a|b`."""
    value = canonical(value)
    if isinstance(value, Mapping):
        return ",".join(
            f"{k}({describe(v)})" if isinstance(v, Mapping) else f"{k}={describe(v)}"
            for k, v in value.items()
        )
    if isinstance(value, list):
        return "|".join(describe(v) for v in value)
    return re.sub(r"\s+", "_", f"{value:g}" if isinstance(value, float) else str(value))


def label(name: str, options: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    """The name at defaults, else `name[option=value]` with only the options that differ."""
    different = [
        f"{option}={describe(value)}"
        for option, value in options.items()
        if option not in defaults or canonical(value) != canonical(defaults[option])
    ]
    return f"{name}[{','.join(different)}]" if different else name


def pick(item: Any) -> tuple[str, dict[str, Any]]:
    """Name and options of an item as a suite writes it: `blur` or `{blur: {sigma: 10}}`."""
    if isinstance(item, str):
        return item, {}
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
