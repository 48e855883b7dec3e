"""Plug-ins: decorated functions whose signature is their schema, found by name, loaded lazily."""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar, get_type_hints

from assay.errors import InputError, unknown
from assay.plugins.addresses import FILE_MODULE, check_call, is_address, load_object
from assay.plugins.builtin import load_builtin
from assay.plugins.display_names import AS, refuse_taken
from assay.plugins.entry_points import registered
from assay.plugins.identity import canonical as canonical
from assay.plugins.identity import code_identity as code_identity
from assay.plugins.identity import describe as describe
from assay.plugins.identity import identity as identity
from assay.plugins.identity import label as label
from assay.plugins.identity import pick as pick
from assay.plugins.marks import HowOnly as HowOnly
from assay.plugins.marks import NamesCode as NamesCode
from assay.plugins.marks import Nested as Nested
from assay.plugins.marks import marked
from assay.plugins.needs import check_needs, declared
from assay.plugins.option_types import Item, Options
from assay.plugins.options import checked
from assay.plugins.origins import TYPED, Origin
from assay.plugins.passes import Intervenes as Intervenes
from assay.plugins.passes import Passes as Passes
from assay.plugins.passes import Promise as Promise
from assay.plugins.passes import Trainings as Trainings
from assay.plugins.properties import UNDECLARED, Declared, Properties
from assay.plugins.questions import OTHER, check_question
from assay.plugins.set_level import SetReduction, own_reduction

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Plugin:
    """A registered function with its metadata."""

    kind: ClassVar[str] = "plugin"
    name: str
    function: Callable[..., Any]
    version: int = 1
    needs: frozenset[str] | Callable[[Mapping[str, Any]], set[str]] = frozenset()
    cite: str = ""
    title: str = ""
    family: str = ""
    source: str = ""  # the hash of its file, for plug-ins named by address
    reads: Callable[[Path], bool] | None = None  # whether it reads a path, as its option `path`
    preset: Mapping[str, Any] = field(default_factory=dict)  # default options of a preset
    formula: str = ""  # the plug-in that a preset configures
    about: str = ""  # a preset's own docstring
    stands_for: Mapping[str, Item] = field(default_factory=dict)  # other plug-ins, by kind of data

    @functools.cached_property
    def options(self) -> dict[str, inspect.Parameter]:
        """The keyword-only parameters, with resolved annotations."""
        hints = get_type_hints(self.function, include_extras=True)
        return {
            p.name: p.replace(annotation=hints.get(p.name, Any))
            for p in inspect.signature(self.function).parameters.values()
            if p.kind is p.KEYWORD_ONLY
        }

    @property
    def option_names(self) -> tuple[str, ...]:
        """The names of the options that its function takes."""
        return tuple(self.options)

    @property
    def defaults(self) -> dict[str, Any]:
        """The default options; options without a default are absent."""
        return {n: p.default for n, p in self.options.items() if p.default is not p.empty}

    @property
    def own(self) -> bool:
        """Whether the code is the user's rather than this package's."""
        return self.function.__module__.split(".")[0] != "assay"

    @property
    def code(self) -> str:
        """The identity of the user's own code, which may change; empty for built-in plug-ins."""
        return self.source or (code_identity(self.function) if self.own else "")

    def required(self, options: Mapping[str, Any]) -> frozenset[str]:
        """The capabilities that model and data must have under these options."""
        classes = {"classes"} if options.get("output") in ("probability", "log_odds") else set()
        return frozenset(declared(self, "needs", options)) | classes

    @property
    def description(self) -> str:
        """The docstring: what it does, the formula, what differs from the paper."""
        return inspect.cleandoc(self.about) or inspect.getdoc(self.function) or ""

    @property
    def summary(self) -> str:
        """The first paragraph of the description."""
        return self.description.split("\n\n")[0].replace("\n", " ")

    def configure(self, options: Mapping[str, Any], origin: Origin = TYPED) -> dict[str, Any]:
        """All options: the defaults, and these options validated against the signature.

        Raises:
            InputError: An option is unknown, missing or not of its type.
            PrerequisiteError: An option names code that may not run, by its origin.
        """
        for name in options:
            if name not in self.options:
                known = [*self.options, *self.common, AS]
                raise unknown(f"option of {self.kind} `{self.name}`:", name, known)
        whole = self.defaults | {n: self._check(n, v, origin) for n, v in options.items()}
        for name in (n for n in self.options if n not in whole):
            raise InputError(f"Expected {self.kind} `{self.name}` to be given `{name}`.")
        return whole

    @property
    def common(self) -> tuple[str, ...]:
        """Options in addition to the function's own, which the runner applies."""
        return ()

    def nested(self) -> dict[str, str]:
        """The options that choose another plug-in, with its kind."""
        return {name: mark.kind for name, mark in marked(self.options, Nested).items()}

    def identifying(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options that are part of the identity: all but those marked `HowOnly`."""
        how_only = marked(self.options, HowOnly)
        return {name: value for name, value in options.items() if name not in how_only}

    def _check(self, name: str, value: Any, origin: Origin = TYPED) -> Any:
        kind = self.nested().get(name)
        is_tensor_fill = kind == "fill" and hasattr(value, "shape")  # used as it is
        if kind is not None and not is_tensor_fill and value is not None:
            return short_item(kind, value, origin)
        if mark := marked(self.options, NamesCode).get(name):
            origin.check_all(mark.what, value)
        owner = f"option `{name}` of {self.kind} `{self.name}`"
        return checked(self.options[name].annotation, value, owner)


@dataclass(frozen=True)
class Method(Plugin):
    """An attribution method: `(Model, Batch, *, options) -> Tensor`."""

    kind: ClassVar[str] = "method"
    passes: Callable[[Mapping[str, Any]], Passes] = lambda options: Passes()
    passes_on: Callable[[Any, Any, Mapping[str, Any]], Passes] | None = None  # by model, batch
    control: Literal["", "random", "model_free", "other"] = ""
    noise: bool = False  # whether it explains `points(model, batch)`, to which noise can be added
    coarse: bool | Callable[[Options], bool] = False  # whether its maps are enlarged from cells
    intervenes: Intervenes | None = None  # for methods that use the engine: which rows they need
    settle: Callable[[dict[str, Any]], dict[str, Any]] | None = None  # adds a file's hash
    promise: Promise | None = None  # about its maps: see `assay.methods.promises`
    only_looks_up: bool = False  # it can only explain inputs with a stored map

    @functools.cached_property
    def takes_engine(self) -> bool:
        """Whether its function takes an engine after model and batch."""
        parameters = inspect.signature(self.function).parameters.values()
        return any(p.name == "engine" and p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)

    @property
    def common(self) -> tuple[str, ...]:
        """The reduction options of every method, and `noise` where the method supports it."""
        return ("reduce", "abs", *(("noise",) if self.noise else ()))


@dataclass(frozen=True)
class Protocol(Plugin):
    """An evaluation protocol: `(Case, *, options) -> Scores`, or of a `Trial` for whole sets."""

    kind: ClassVar[str] = "protocol"
    scope: Literal["batch", "set"] = "batch"  # what it receives at once: a batch, or all samples
    question: str = OTHER  # protocols that ask the same have one vote together
    models: Literal["one", "pool"] = "one"  # for sets: the scored model, or all of the suite
    trains: Callable[[Options], int | Trainings] | None = None  # networks per cell
    unranked: Callable[[Options], str] = lambda options: ""  # why not ranked, if so
    replicates: Callable[[Options], Sequence[str]] = lambda options: ()  # metrics it averages
    higher_is_better: bool = True
    range: tuple[float, float] = (float("-inf"), float("inf"))
    chance: float | Literal["measured"] = "measured"
    sign_sensitive: bool | Callable[[Mapping[str, Any]], bool] = True  # or from its options
    uses: Literal["order", "value", "support"] = "order"
    metric: str = "value"
    reduce: SetReduction = "mean"  # how the samples of a set become one number
    judges: Literal["sample", "set", "model"] = "sample"  # model: whatever the map
    whole_truth: bool = False  # whether all of the truth must be marked to score highest
    axis: str = "share of the units removed"  # the x axis of its curves
    properties: Declared = UNDECLARED  # or from its options
    intervenes: Intervenes | None = None

    def __post_init__(self) -> None:
        """Judge whole sets where the number is not a mean: it depends on all samples of the set."""
        check_question(self.name, self.question)
        if self.reduce != "mean" or self.scope == "set":
            object.__setattr__(self, "judges", "set")

    @property
    def code(self) -> str:
        """The identity of the user's own code, including an own set-level reduction."""
        own = own_reduction(self.reduce)
        return super().code if own is None else identity([super().code, code_identity(own)])

    def signs_matter(self, options: Mapping[str, Any]) -> bool:
        """Whether flipping the signs of a map changes its score under these options."""
        signs = self.sign_sensitive
        return signs(options) if callable(signs) else signs

    def guarantees(self, options: Mapping[str, Any]) -> Properties:
        """Its properties under these options."""
        return self.properties(options) if callable(self.properties) else self.properties


@dataclass(frozen=True)
class Fill(Plugin):
    """What replaces absent units: `(Batch, *, options) -> Replace`."""

    kind: ClassVar[str] = "fill"
    natural: bool = False  # the result looks like the data: nothing shows what was removed
    imputes: bool = False  # it solves for the absent pixels, which takes extra time
    constant: float | None = None  # the same number at every entry of the model's input


@dataclass(frozen=True)
class Units(Plugin):
    """The feature units that are removed: `(Batch, *, options) -> Features`."""

    kind: ClassVar[str] = "units"
    count: Callable[[Mapping[str, Any]], int] | None = None  # how many, if known from options


@dataclass(frozen=True)
class DatasetFactory(Plugin):
    """Samples by name: `(*, options) -> Dataset`."""

    kind: ClassVar[str] = "dataset"


@dataclass(frozen=True)
class ModelFactory(Plugin):
    """A network by name: `(*, options) -> Model`; at an address also a class or a network."""

    kind: ClassVar[str] = "model"
    common = ("card",)  # the file of a fine-tuning's card, which any network may have

    @property
    def option_names(self) -> tuple[str, ...]:
        """All parameters of its function; a network that exists already has none."""
        ready = hasattr(self.function, "state_dict") and not inspect.isclass(self.function)
        return () if ready else tuple(inspect.signature(self.function).parameters)


@dataclass(frozen=True)
class EnvironmentFactory(Plugin):
    """Data, network and truth by name: `(*, options) -> Environment`.

    One that trains a network has a parameter of type `TrainedWeights` before its options.
    """

    kind: ClassVar[str] = "environment"


TYPES: dict[str, type[Plugin]] = {kind.kind: kind for kind in Plugin.__subclasses__()}
_REGISTERED: dict[str, dict[str, Plugin]] = {kind: {} for kind in TYPES}


def register(kind: str, name: str, **facts: Any) -> Callable[[Function], Function]:
    """Register the decorated function as a plug-in; the function itself is unchanged."""

    def decorate(function: Function) -> Function:
        if not callable(facts.get("needs")):
            facts["needs"] = frozenset(facts.get("needs", ()))
            check_needs(kind, name, facts["needs"])
        present = _REGISTERED[kind].get(name)
        by_address = function.__module__.startswith(FILE_MODULE)  # never looked up by name
        if present and not by_address and present.function.__module__ != function.__module__:
            raise InputError(
                f"The {kind} `{name}` of {function.__module__} is already registered by "
                f"{present.function.__module__}; choose another name."
            )
        plugin = TYPES[kind](name, function, **facts)
        refuse_taken(f"{kind} `{name}`", plugin.option_names, plugin.common)
        vars(function)["__assay__"] = plugin
        if not by_address:
            put(plugin)
        return function

    return decorate


def put(plugin: Plugin) -> None:
    """Register a plug-in under its name."""
    _REGISTERED[plugin.kind][plugin.name] = plugin


def method(name: str, **facts: Any) -> Callable[[Function], Function]:
    """Decorate a function `(model, batch, *, options) -> Tensor` as an attribution method.

    Args:
        name: Its name in suites and tables.
        **facts: `needs`, required capabilities: gradients, spatial, image, vector, text, labels,
            truth; `passes`, a function from its options to `Passes(forward, backward)` per sample;
            `passes_on`, the same from model, batch and options, where the cost depends on them;
            `noise`, whether it explains `points(model, batch)`; `intervenes`, for methods that use
            the engine; `promise`, what its formula promises about its maps; `control`;
            `coarse`, whether its maps are enlarged; `title`, `family`, `cite`, `version`.
    """
    if "check" in facts:  # the name in earlier versions
        facts["promise"] = facts.pop("check")
    return register("method", name, **facts)


def protocol(name: str, **facts: Any) -> Callable[[Function], Function]:
    """Decorate a function `(case, *, options) -> Scores` as an evaluation protocol.

    Args:
        name: Its name in suites and tables.
        **facts: `higher_is_better`; `range`; `question`, what it asks (`assay.plugins.questions`);
            `chance`, a number where it is known from theory; `sign_sensitive`, also as a function
            of the options; `uses`: order, value or support; `metric`, its score; `whole_truth`,
            whether all of the truth must be marked to score highest; `reduce`, for a number of the
            whole set that is not the mean of its samples: a function `(curves, x, weights, *,
            options) -> values`, or its address;
            `properties`, what it guarantees, without which it may not compare models;
            `scope`: batch, or set for a function of a `Trial`, with `models` (one or pool);
            as functions of the options: `trains`, the networks that a cell trains; `replicates`,
            the metrics of which the score is the mean; `unranked`, why scores are not ranked;
            `needs`, as for methods; `title`, `family`, `cite`, `version`.
    """
    return register("protocol", name, **facts)


fill = functools.partial(register, "fill")
units = functools.partial(register, "units")
dataset = functools.partial(register, "dataset")
model = functools.partial(register, "model")
environment = functools.partial(register, "environment")


def get(kind: str, name: str, origin: Origin = TYPED) -> Any:
    """The plug-in of that kind and name: built in, registered, an entry point, or at an address."""
    load_builtin(kind)
    if not isinstance(name, str):
        known = ", ".join(names(kind))
        expected = f"Expected the name or address of the {kind}, got {name!r}."
        raise InputError(f"{expected} Available: {known}; or `./file.py:object`.")
    if is_address(name):
        return _at_address(kind, name, origin)
    if name not in _REGISTERED[kind] and name in registered(kind):
        registered(kind)[name].load()  # importing it runs its decorator
    if name not in _REGISTERED[kind]:
        raise unknown(kind, name, {*_REGISTERED[kind], *registered(kind)})
    return _REGISTERED[kind][name]


def _at_address(kind: str, address: str, origin: Origin) -> Plugin:
    """A plug-in from the user's own code: a decorated function, or for most kinds a plain one."""
    target, source = load_object(address, origin, kind)
    plugin = getattr(target, "__assay__", None)
    if isinstance(plugin, TYPES[kind]):
        return replace(plugin, source=source)
    if kind == "protocol":
        raise InputError(
            f"Expected `{address}` to be decorated with `@assay.protocol(...)`, which declares "
            f"which direction is better."
        )
    if not callable(target):
        raise InputError(
            f"Expected `{address}` to be a function for a {kind}, got {type(target).__name__}."
        )
    check_call(kind, target, address)
    plain = TYPES[kind](address.rpartition(":")[2], target, family="own", source=source)
    refuse_taken(f"{kind} `{plain.name}`", plain.option_names, plain.common)
    return plain


def names(kind: str, *, builtin: bool = True) -> list[str]:
    """All names of a kind, sorted; with `builtin=False` those known without importing any."""
    if builtin:
        load_builtin(kind)
    return sorted({*_REGISTERED[kind], *registered(kind)})


def everything(kind: str) -> Iterator[Any]:
    """All plug-ins of a kind, in the order of their names."""
    return (get(kind, name) for name in names(kind))


def short_item(kind: str, item: Any, origin: Origin = TYPED) -> Item:
    """An item as a suite writes it, validated, with only the options that are not at a default."""
    name, options = pick(item)
    plugin = get(kind, name, origin)
    extra = {o: options.pop(o) for o in plugin.common if o in options}
    whole = plugin.configure(options, origin)
    different = {o: v for o, v in whole.items() if v != plugin.defaults.get(o)} | extra
    return {name: different} if different else name
