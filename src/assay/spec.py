"""What is measured: the suite as written, and its choices resolved to plug-ins with labels."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from assay import registry
from assay.errors import InputError, PrerequisiteError, unknown

Reduce = Literal["sum", "abs_sum", "sum_abs", "square", "none"]
REDUCTION: dict[str, Any] = {"reduce": "sum", "abs": False}  # options every method takes


class Cut(BaseModel):
    """How a suite was cut to fit a time; a run that goes on is cut alike."""

    seconds: float
    """The time there was."""
    asked: str
    """The identity of the suite before."""
    limit: int | None = None
    halvings: int = 0
    """How often steps and sets were halved."""


class Spec(BaseModel):
    """A suite: the fields of its YAML file."""

    model_config = ConfigDict(extra="forbid")

    title: str = ""
    """A heading for the page."""
    notes: str = ""
    """What a reader must know of the settings; shown on the page."""
    datasets: list[Any] = Field(min_length=1)
    models: list[Any] = Field(min_length=1)
    methods: list[Any] = Field(min_length=1)
    protocols: list[Any] = Field(min_length=1)
    target: Literal["label", "predicted"] = "label"
    """The class that is explained."""
    seeds: list[int] = Field(default=[0], min_length=1)
    limit: int | None = Field(default=None, ge=1)
    """At most this many samples of each dataset."""
    budget: Cut | None = None
    """Written by a run with a time budget: what it cut. The other fields are already cut."""

    def dump(self) -> str:
        """The suite as YAML; objects that live in this process only by their names."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        for name in ("datasets", "models", "methods", "protocols"):
            fields[name] = [_written(item) for item in fields[name]]
        fields["budget"] = self.budget and self.budget.model_dump()
        said = {name: value for name, value in fields.items() if value not in ("", None)}
        text: str = yaml.safe_dump(said, sort_keys=False)
        return text

    @field_validator("seeds")
    @classmethod
    def _once(cls, seeds: list[int]) -> list[int]:
        if len(set(seeds)) != len(seeds):
            raise ValueError(f"each seed once, got {seeds}")
        return seeds


def _written(item: Any) -> Any:
    """An item of a suite as it can be written down."""
    for name in ("label", "name"):
        if isinstance(getattr(item, name, None), str):
            return {"live": {"name": getattr(item, name)}}
    return registry.canonical(item)


def read_suite(source: str | Path) -> Spec:
    """A suite by its name or from a YAML file.

    Raises:
        InputError: No such suite, not YAML, or fields that are not a suite's.
    """
    path = Path(source)
    if path.suffix not in (".yaml", ".yml"):
        packaged = resources.files("assay") / "suites" / f"{source}.yaml"
        if not packaged.is_file():
            raise unknown("suite", str(source), suites())
        return parse_suite(packaged.read_text(), f"suite `{source}`")
    if not path.is_file():
        raise PrerequisiteError(f"There is no suite file `{path}`.")
    try:
        return parse_suite(path.read_text(encoding="utf-8"), f"`{path}`")
    except UnicodeDecodeError:
        raise InputError(f"Expected the suite `{path}` to be UTF-8 text.") from None


def suites() -> list[str]:
    """The names of the suites inside the package."""
    folder = resources.files("assay") / "suites"
    return sorted(
        f.name.removesuffix(".yaml") for f in folder.iterdir() if f.name.endswith(".yaml")
    )


def parse_suite(text: str, where: str) -> Spec:
    """A suite from YAML text; `where` names it in errors."""
    try:
        fields = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError(f"Expected YAML in {where}: {error}") from None
    if not isinstance(fields, Mapping):
        raise InputError(f"Expected the fields of a suite in {where}, got {type(fields).__name__}.")
    for name in fields:
        if name not in Spec.model_fields:
            raise unknown(f"field in {where}:", str(name), Spec.model_fields)
    return make_suite(fields, where)


def make_suite(fields: Mapping[str, Any], where: str = "the call") -> Spec:
    """A suite from its fields.

    Raises:
        InputError: A field is not what a suite's is.
    """
    try:
        return Spec.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        field_name = ".".join(map(str, first["loc"]))
        raise InputError(f"Wrong `{field_name}` in {where}: {first['msg']}.") from None


@dataclass(frozen=True)
class Choice:
    """A plug-in with all its options, and the label it has in the tables of one run."""

    label: str
    plugin: Any
    options: Mapping[str, Any] = field(default_factory=dict)
    reduction: Mapping[str, Any] = field(default_factory=dict)  # of methods: reduce, abs

    @property
    def shown_options(self) -> dict[str, Any]:
        """Everything that was set or defaulted, as it is written into the tables."""
        return {**self.options, **self.reduction}

    @functools.cached_property
    def formula_key(self) -> str:
        """Identifies a method without its reduction: choices that share it share the work."""
        return registry.identity({"name": self.plugin.name, "options": self.options})

    @functools.cached_property
    def key(self) -> dict[str, Any]:
        """What identifies the numbers this choice gives: names, versions, options."""
        nested = {}
        for option, kind in self.plugin.nested().items():
            value = self.options[option]
            if value is not None and not hasattr(value, "shape"):
                name, _ = registry.pick(value)
                nested[option] = {name: registry.get(kind, name).version}
        return {
            "name": self.plugin.name,
            "version": self.plugin.version,
            "options": registry.canonical(self.shown_options),
            "nested": nested,
            **self._own_code(),
        }

    def _own_code(self) -> dict[str, str]:
        """Plug-ins from outside are known by their code too: while they are written, it changes."""
        if self.plugin.source:
            return {"code": self.plugin.source}
        return {"code": registry.code_identity(self.plugin.function)} if self.plugin.own else {}


def choose(kind: str, items: Sequence[Any]) -> list[Choice]:
    """Resolve a list as a suite writes it; labels are unique, the same thing twice is an error."""
    choices = [choose_one(kind, item) for item in items]
    for i, choice in enumerate(choices):
        for other in choices[:i]:
            if choice.label == other.label or (choice.key == other.key):
                same = "have the same label" if choice.key != other.key else "are the same"
                raise InputError(
                    f"Expected each {kind} once, got `{other.label}` and `{choice.label}`, which "
                    f"{same}. Drop one, or give it other options or a `label:` of its own."
                )
    return choices


def choose_one(kind: str, item: Any) -> Choice:
    """Resolve one item: a ready Choice, a name, or `{name: {option: value, label: text}}`."""
    if isinstance(item, Choice):
        return item
    name, given = registry.pick(item)
    plugin = registry.get(kind, name)
    own = given.pop("label", None)
    reduction = _reduction(given) if kind == "method" else {}
    options = plugin.configure(given)
    label = registry.label(
        plugin.name,
        {**options, **reduction},
        {**plugin.defaults, **(REDUCTION if reduction else {})},
    )
    return Choice(str(own) if own else label, plugin, options, reduction)


def _reduction(given: dict[str, Any]) -> dict[str, Any]:
    """Take `reduce` and `abs` out of a method's options."""
    reduction = {name: given.pop(name, default) for name, default in REDUCTION.items()}
    if reduction["reduce"] not in Reduce.__args__:  # type: ignore[attr-defined]
        raise InputError(
            f"Expected `reduce` to be one of {', '.join(Reduce.__args__)}, "  # type: ignore[attr-defined]
            f"got {reduction['reduce']!r}."
        )
    if not isinstance(reduction["abs"], bool):
        raise InputError(f"Expected `abs` to be true or false, got {reduction['abs']!r}.")
    return reduction
