"""Plug-ins: decorated functions whose signature is their schema, found by name, loaded lazily."""

import functools
import hashlib
import importlib
import inspect
import json
import os
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from pathlib import PurePath
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import TypeAdapter, ValidationError

from assay.errors import InputError, unknown
from assay.imports import FILE_MODULE, is_address, load_object

Function = TypeVar("Function", bound=Callable[..., Any])

# Where the built-in plug-ins of each kind live; imported when that kind is first asked for.
BUILTIN: dict[str, tuple[str, ...]] = {
    "method": ("assay.methods.gradients", "assay.methods.cam", "assay.methods.controls"),
    "protocol": ("assay.protocols.curves", "assay.protocols.single", "assay.protocols.subsets"),
    "fill": ("assay.removal.fills",),
    "units": ("assay.features",),
    "dataset": (
        *("assay.data.photos", "assay.data.parquet", "assay.data.folders"),
        *("assay.data.texts", "assay.data.hf"),
    ),
    "model": ("assay.models.efficientnet_lite", "assay.models.cifar_resnet"),
}


@dataclass(frozen=True)
class Nested:
    """Marks an option that itself chooses a plug-in: `Annotated[Any, Nested("fill")]`."""

    kind: str


@dataclass(frozen=True)
class Plugin:
    """A registered function with what is known about it."""

    kind: ClassVar[str] = "plugin"
    name: str
    function: Callable[..., Any]
    version: int = 1
    needs: frozenset[str] | Callable[[Mapping[str, Any]], set[str]] = frozenset()
    cite: str = ""
    title: str = ""
    family: str = ""
    source: str = ""  # the hash of the file it was taken from, for plug-ins named by address

    @functools.cached_property
    def options(self) -> dict[str, inspect.Parameter]:
        """The keyword-only parameters, with resolved annotations."""
        hints = typing.get_type_hints(self.function, include_extras=True)
        return {
            p.name: p.replace(annotation=hints.get(p.name, Any))
            for p in inspect.signature(self.function).parameters.values()
            if p.kind is p.KEYWORD_ONLY
        }

    @property
    def defaults(self) -> dict[str, Any]:
        """The options as they are when nobody says anything; those without a default are absent."""
        return {n: p.default for n, p in self.options.items() if p.default is not p.empty}

    @property
    def own(self) -> bool:
        """Whether the code is the user's rather than this package's."""
        return self.function.__module__.split(".")[0] != "assay"

    def required(self, options: Mapping[str, Any]) -> frozenset[str]:
        """What model and data must have under these options."""
        return frozenset(self.needs(options) if callable(self.needs) else self.needs)

    @property
    def summary(self) -> str:
        """The first line of the docstring."""
        return (inspect.getdoc(self.function) or "").split("\n\n")[0].replace("\n", " ")

    def configure(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """All options, the given ones validated against the signature.

        Raises:
            InputError: An option is unknown, missing or not of its type.
        """
        for name in given:
            if name not in self.options:
                known = [*self.options, *(("reduce", "abs") if self.kind == "method" else ())]
                raise unknown(f"option of {self.kind} `{self.name}`:", name, known)
        checked = dict(self.defaults)
        for name, value in given.items():
            checked[name] = self._check(name, value)
        missing = [n for n in self.options if n not in checked]
        if missing:
            raise InputError(f"Expected {self.kind} `{self.name}` to be given `{missing[0]}`.")
        return checked

    def nested(self) -> dict[str, str]:
        """The options that choose a plug-in themselves, with its kind."""
        marked = {
            name: [m for m in getattr(p.annotation, "__metadata__", ()) if isinstance(m, Nested)]
            for name, p in self.options.items()
        }
        return {name: marks[0].kind for name, marks in marked.items() if marks}

    def _check(self, name: str, value: Any) -> Any:
        kind = self.nested().get(name)
        if kind is not None and not hasattr(value, "shape") and value is not None:
            chosen, options = pick(value)
            extra = {
                o: options.pop(o) for o in ("reduce", "abs") if kind == "method" and o in options
            }
            checked = get(kind, chosen).configure(options)
            different = {o: v for o, v in checked.items() if v != get(kind, chosen).defaults.get(o)}
            different |= extra
            return {chosen: different} if different else chosen
        adapter = TypeAdapter(
            self.options[name].annotation, config={"arbitrary_types_allowed": True}
        )
        try:
            return adapter.validate_python(value)
        except ValidationError as error:
            wanted = "; or ".join(
                dict.fromkeys(e["msg"].removeprefix("Input should be ") for e in error.errors())
            )
            raise InputError(
                f"Expected option `{name}` of {self.kind} `{self.name}` to be {wanted}, "
                f"got {value!r}."
            ) from None


@dataclass(frozen=True)
class Passes:
    """What one sample costs: network passes forward, and how many of them also go backward."""

    forward: int = 0
    backward: int = 0


@dataclass(frozen=True)
class Method(Plugin):
    """An attribution method: `(Model, Batch, *, options) -> Tensor`."""

    kind: ClassVar[str] = "method"
    passes: Callable[[Mapping[str, Any]], Passes] = lambda options: Passes()
    control: Literal["", "random", "model_free", "other"] = ""


@dataclass(frozen=True)
class Protocol(Plugin):
    """An evaluation protocol: `(Case, *, options) -> Scores`."""

    kind: ClassVar[str] = "protocol"
    higher_is_better: bool = True
    range: tuple[float, float] = (float("-inf"), float("inf"))
    chance: float | Literal["measured"] = "measured"
    sign_sensitive: bool = True
    uses: Literal["order", "value", "support"] = "order"
    metric: str = "value"
    reduce: str = "mean"


@dataclass(frozen=True)
class Fill(Plugin):
    """What stands where units are absent: `(Batch, *, options) -> Replace`."""

    kind: ClassVar[str] = "fill"


@dataclass(frozen=True)
class Units(Plugin):
    """What is removed at once: `(Batch, *, options) -> Features`."""

    kind: ClassVar[str] = "units"


@dataclass(frozen=True)
class DatasetFactory(Plugin):
    """Samples by name: `(*, options) -> Dataset`."""

    kind: ClassVar[str] = "dataset"


@dataclass(frozen=True)
class ModelFactory(Plugin):
    """A network by name: `(*, options) -> Model`."""

    kind: ClassVar[str] = "model"


TYPES: dict[str, type[Plugin]] = {
    t.kind: t for t in (Method, Protocol, Fill, Units, DatasetFactory, ModelFactory)
}
_REGISTERED: dict[str, dict[str, Plugin]] = {kind: {} for kind in TYPES}


def register(kind: str, name: str, **facts: Any) -> Callable[[Function], Function]:
    """Register the decorated function as a plug-in; the function itself stays as it is."""

    def decorate(function: Function) -> Function:
        if not callable(facts.get("needs")):
            facts["needs"] = frozenset(facts.get("needs", ()))
        present = _REGISTERED[kind].get(name)
        by_address = function.__module__.startswith(FILE_MODULE)  # never looked up by its name
        if present and not by_address and present.function.__module__ != function.__module__:
            raise InputError(
                f"The {kind} `{name}` of {function.__module__} is already registered by "
                f"{present.function.__module__}; choose another name."
            )
        plugin = TYPES[kind](name, function, **facts)
        vars(function)["__assay__"] = plugin
        if not by_address:
            _REGISTERED[kind][name] = plugin
        return function

    return decorate


method = functools.partial(register, "method")
protocol = functools.partial(register, "protocol")
fill = functools.partial(register, "fill")
units = functools.partial(register, "units")
dataset = functools.partial(register, "dataset")
model = functools.partial(register, "model")


@functools.cache
def _load_builtin(kind: str) -> None:
    for module in BUILTIN[kind]:
        importlib.import_module(module)


@functools.cache
def _entry_points(kind: str) -> dict[str, Any]:
    return {e.name: e for e in entry_points(group=f"assay.{kind}s")}


def get(kind: str, name: str) -> Any:
    """The plug-in of that kind and name: built in, registered, an entry point, or at an address."""
    _load_builtin(kind)
    if is_address(name):
        return _at_address(kind, name)
    if name not in _REGISTERED[kind] and name in _entry_points(kind):
        _entry_points(kind)[name].load()  # importing it runs its decorator
    if name not in _REGISTERED[kind]:
        raise unknown(kind, name, {*_REGISTERED[kind], *_entry_points(kind)})
    return _REGISTERED[kind][name]


def _at_address(kind: str, address: str) -> Plugin:
    """A plug-in from the user's own code: a decorated function, or for most kinds a plain one."""
    found, source = load_object(address)
    plugin = getattr(found, "__assay__", None)
    if isinstance(plugin, TYPES[kind]):
        return replace(plugin, source=source)
    if kind == "protocol":
        raise InputError(
            f"Expected `{address}` to be decorated with `@assay.protocol(...)`: it must say which "
            f"direction is better."
        )
    if not callable(found):
        raise InputError(
            f"Expected `{address}` to be a function for a {kind}, got {type(found).__name__}."
        )
    return TYPES[kind](address.rpartition(":")[2], found, family="own", source=source)


def names(kind: str) -> list[str]:
    """All names of a kind, sorted."""
    _load_builtin(kind)
    return sorted({*_REGISTERED[kind], *_entry_points(kind)})


def everything(kind: str) -> Iterator[Any]:
    """All plug-ins of a kind, in the order of their names."""
    return (get(kind, name) for name in names(kind))


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
