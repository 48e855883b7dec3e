"""The suite as written, and its choices resolved to plug-ins with labels."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from assay.errors import InputError, PrerequisiteError, unknown
from assay.paths import user_path
from assay.plugins import registry
from assay.plugins.display_names import display_name, take_display_name
from assay.plugins.needs import declared
from assay.plugins.options import not_a_number, refuse_deep
from assay.plugins.origins import TYPED, Origin, is_address
from assay.suite.fields import REDUCTION, Cut, Noise, changed_noise, take_noise, take_reduction
from assay.suite.written import names_of, on_or_off, one_in_a_list, true_or_not, usual, written_item

MAPS_HASH = "maps_hash"  # the option that identifies maps computed elsewhere

SUFFIXES = (".yaml", ".yml")  # of suites in files
LISTS = ("datasets", "train", "models", "environments", "methods", "protocols")  # of a suite


class Spec(BaseModel):
    """A suite: the fields of its YAML file."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    title: str = ""
    """A heading for the page."""
    notes: str = ""
    """What a reader must know about the settings; shown on the page."""
    datasets: list[Any] = []
    """The datasets whose samples are explained."""
    train: list[Any] = []
    """Training samples for protocols that train: one item for all datasets, or one for each."""
    models: list[Any] = []
    """The networks that are explained; each runs on each dataset."""
    environments: list[Any] = []
    """Networks with samples made for them, whose truth is known; each runs on its own samples."""
    methods: list[Any] = Field(min_length=1)
    """The attribution methods, including controls."""
    protocols: list[Any] = Field(min_length=1)
    """The protocols that score the methods."""
    target: int | str = "label"
    """The class that is explained: `label`, `predicted`, or one class by its number or name."""
    seeds: list[int] = Field(default=[0], min_length=1)
    """Everything runs once per seed; scores of a sample are averaged over seeds."""
    limit: int | None = Field(default=None, ge=1)
    """The most samples of each dataset: a fixed random choice, balanced over the classes."""
    controls: Literal["on", "off"] = "on"
    """`on` adds the control `random` to a run that ranks methods; `off` leaves it out."""
    dose_response: bool = Field(default=False, alias="validate")
    """Whether maps mixed with shuffled ones are scored too: do scores fall with the dose?"""
    budget: Cut | None = None
    """Written by a run with a time budget: what it reduced. Other fields are already reduced."""
    _origin: Origin = PrivateAttr(default=TYPED)

    @property
    def origin(self) -> Origin:
        """Where its addresses come from: which code may run. It is no part of the suite's text."""
        return self._origin

    def coming_from(self, origin: Origin) -> "Spec":
        """The same suite from elsewhere."""
        suite = self.model_copy()
        suite._origin = origin
        return suite

    def trusting(self, trust_code: bool) -> "Spec":
        """The same suite with all its code trusted, if so."""
        return self.coming_from(self.origin.trusting(trust_code))

    def dump(self) -> str:
        """The suite as YAML; objects that exist only in this process are written by name."""
        fields = {name: getattr(self, field) for name, field in names_of(Spec).items()}
        for name in LISTS:
            fields[name] = [written_item(item) for item in fields[name]]
        fields["budget"] = self.budget and self.budget.model_dump()
        written = {name: value for name, value in fields.items() if not usual(name, value)}
        text: str = yaml.safe_dump(written, sort_keys=False)
        return text

    @field_validator("title", "notes")
    @classmethod
    def _text(cls, text: str, info: ValidationInfo) -> str:
        return display_name(text, f"`{info.field_name}`")

    @field_validator(*LISTS, mode="before")
    @classmethod
    def _a_list(cls, items: Any, info: ValidationInfo) -> Any:
        if info.field_name == "train" and isinstance(items, str | Mapping):
            return [items]
        if isinstance(items, str | Mapping):
            form = f"{info.field_name}: {one_in_a_list(items)}"
            raise ValueError(f"expected a list, `{form}`, got {items!r}")
        return items

    @field_validator("controls", mode="before")
    @classmethod
    def _on_or_off(cls, controls: object) -> object:
        return on_or_off(controls)

    @field_validator("dose_response", mode="before")
    @classmethod
    def _true_or_false(cls, value: object) -> object:
        return true_or_not(value)

    @field_validator("target", mode="before")
    @classmethod
    def _a_class(cls, target: Any) -> Any:
        number = isinstance(target, int) and not isinstance(target, bool) and target >= 0
        if not number and not (isinstance(target, str) and target):
            raise ValueError(
                f"expected label, predicted, or the number or name of a class, got {target!r}"
            )
        return target

    @model_validator(mode="after")
    def _something_to_explain(self) -> "Spec":
        if bool(self.datasets) != bool(self.models) or not (self.models or self.environments):
            raise ValueError(
                "a suite takes `datasets` and `models`, or `environments`, or both; one without "
                "takes them from `assay run SUITE --model M --data D`"
            )
        if len(self.train) not in (0, 1, len(self.datasets)) or (self.train and not self.datasets):
            raise ValueError(
                f"expected `train` to hold one item, or one for each of {len(self.datasets)} "
                f"datasets, got {len(self.train)}"
            )
        return self

    @field_validator("seeds")
    @classmethod
    def _once(cls, seeds: list[int]) -> list[int]:
        if len(set(seeds)) != len(seeds):
            raise ValueError(f"expected each seed once, got {seeds}")
        return seeds


def read_suite(source: str | Path, trust_code: bool = False) -> Spec:
    """A suite by its name or from a YAML file; `trust_code` trusts all code that it names.

    Raises:
        InputError: The suite does not exist, is not YAML, or has unknown or invalid fields.
    """
    return make_suite(*suite_fields(source), suite_origin(source).trusting(trust_code))


def suite_origin(source: str | Path) -> Origin:
    """Which code a suite may name: with its name any, from a file only what is beside the file.

    In a run folder nothing is beside it.
    """
    path = user_path(source, "the suite")
    if path.suffix not in SUFFIXES:
        return TYPED  # a part of this package
    folder = path.resolve().parent
    return Origin(f"`{path}`", None if (folder / "manifest.json").exists() else folder)


def suite_fields(source: str | Path) -> tuple[dict[str, Any], str]:
    """The fields of a suite by its name or from a YAML file, and what errors call it."""
    path = user_path(source, "the suite")
    if path.suffix not in SUFFIXES:
        packaged = resources.files("assay") / "suite" / "ready" / f"{source}.yaml"
        if not packaged.is_file():
            raise unknown("suite", str(source), suites())
        return parse_fields(packaged.read_text(), f"suite `{source}`"), f"suite `{source}`"
    if not path.is_file():
        what = "file, got a folder" if path.is_dir() else "file"
        raise PrerequisiteError(f"There is no suite {what}: `{path}`.")
    try:
        return parse_fields(path.read_text(encoding="utf-8"), f"`{path}`"), f"`{path}`"
    except UnicodeDecodeError:
        raise InputError(f"Expected the suite `{path}` to be UTF-8 text.") from None


def explains_nothing(fields: Mapping[str, object]) -> bool:
    """Whether a suite has only methods and protocols, for any model and data."""
    return not any(fields.get(name) for name in ("datasets", "models", "environments"))


def suites() -> list[str]:
    """The names of the suites inside the package."""
    folder = resources.files("assay") / "suite" / "ready"
    return sorted(
        f.name.removesuffix(".yaml") for f in folder.iterdir() if f.name.endswith(".yaml")
    )


def parse_suite(text: str, where: str) -> Spec:
    """A suite from YAML text; `where` names it in errors. It may not name code, until trusted."""
    return make_suite(parse_fields(text, where), where, Origin(where))


def parse_fields(text: str, where: str) -> dict[str, Any]:
    """The fields of a suite in YAML text; `where` names it in errors."""
    try:
        fields = yaml.safe_load(text)
    except RecursionError:
        raise InputError(f"Expected YAML in {where}, got lists too deep to be read.") from None
    except (yaml.YAMLError, ValueError) as error:
        problem = " ".join(str(error).split())
        raise InputError(f"Expected YAML in {where}: {problem}") from None
    if not isinstance(fields, Mapping):
        raise InputError(f"Expected the fields of a suite in {where}, got {type(fields).__name__}.")
    for name in fields:
        if name not in names_of(Spec):
            raise unknown(f"field in {where}:", str(name), names_of(Spec))
    return dict(fields)


def make_suite(fields: Mapping[str, Any], where: str = "the call", origin: Origin = TYPED) -> Spec:
    """A suite from its fields, which the user typed unless another origin says otherwise.

    Raises:
        InputError: A field is invalid.
    """
    refuse_deep(fields, where)
    try:
        spec = Spec.model_validate(fields)
        for name in ("seeds", "limit", "target"):
            if got := not_a_number(fields.get(name), getattr(spec, name)):
                raise InputError(f"Wrong `{name}` in {where}: expected a whole number, got {got}.")
        return spec.coming_from(origin)
    except ValidationError as error:
        first = error.errors()[0]
        field_name = ".".join(map(str, first["loc"]))
        wrong = f"`{field_name}` in {where}" if field_name else where
        raise InputError(f"Wrong {wrong}: {first['msg'].removeprefix('Value error, ')}.") from None


@dataclass(frozen=True)
class Choice:
    """A plug-in with all its options, and the label it has in the tables of one run."""

    label: str
    plugin: Any
    options: Mapping[str, Any] = field(default_factory=dict)
    reduction: Mapping[str, Any] = field(default_factory=dict)  # of methods: reduce, abs
    noise: Noise | None = None  # of gradient methods

    @property
    def shown_options(self) -> dict[str, Any]:
        """All options, set or default, as they are written into the tables."""
        noise = {"noise": self.noise.model_dump()} if self.noise else {}
        return {**self.options, **self.reduction, **noise}

    @property
    def passes(self) -> registry.Passes:
        """The cost of a method per sample, as far as its options determine it."""
        return self._of_copies(declared(self.plugin, "passes", self.options))

    def passes_on(self, model: Any, batch: Any) -> registry.Passes:
        """The cost of a method per sample of this batch, for this model."""
        if self.plugin.passes_on is None:
            return self.passes
        return self._of_copies(declared(self.plugin, "passes_on", model, batch, self.options))

    def _of_copies(self, once: registry.Passes) -> registry.Passes:
        return once.times(self.noise.samples) if self.noise else once

    @property
    def promise(self) -> registry.Promise | None:
        """What a method's formula promises about its maps; None with noisy copies."""
        promise: registry.Promise | None = self.plugin.promise
        return promise if self.noise is None else None

    @functools.cached_property
    def formula_key(self) -> str:
        """Identifies a method without its reduction: choices with equal keys share the computation.

        All kinds of noise are computed from the same noisy maps.
        """
        noise = self.noise.model_dump(exclude={"kind"}) if self.noise else None
        return registry.identity({**self.key, "options": [self._identifying(self.options), noise]})

    @functools.cached_property
    def intervening(self) -> bool:
        """Whether a method, or one it is built on, uses the engine, which counts its passes."""
        return self.plugin.intervenes is not None or any(m.intervening for m in self._made_of)

    @property
    def passes_by_network(self) -> bool:
        """Whether the cost of a method depends on the network and the data."""
        if self._made_of:
            return any(m.passes_by_network for m in self._made_of)
        return self.plugin.passes_on is not None

    @functools.cached_property
    def own(self) -> bool:
        """Whether it runs code of a user, also in a plug-in that an option chooses."""
        return self.plugin.own or any(part.own for part in self._parts.values())

    @functools.cached_property
    def _parts(self) -> "dict[str, Choice]":
        """The plug-ins that its options choose."""
        return {
            option: choose_one(kind, item)
            for option, kind in self.plugin.nested().items()
            if (item := self.options[option]) is not None and not hasattr(item, "shape")
        }

    @property
    def _made_of(self) -> "list[Choice]":
        """The methods whose maps this one uses."""
        return [part for part in self._parts.values() if part.plugin.kind == "method"]

    @functools.cached_property
    def key(self) -> dict[str, Any]:
        """What identifies the results of this choice: names, versions, options."""
        return {
            "name": self.plugin.formula or self.plugin.name,
            "version": self.plugin.version,
            "options": registry.canonical(self._identifying(self.shown_options)),
            "nested": {option: part.key for option, part in self._parts.items()},
            **({"stands_for": targets} if (targets := self._target_keys) else {}),
            **({"code": self.plugin.code} if self.plugin.code else {}),
        }

    @property
    def _target_keys(self) -> dict[str, object]:
        """The keys of what it stands for, by kind of data; first versions are no part of keys."""
        items = self.plugin.stands_for.items()
        targets = {data: choose_one(self.plugin.kind, item) for data, item in items}
        return {data: t.key for data, t in targets.items() if t.plugin.version > 1 or t.own}

    def resolved(self, data: str) -> dict[str, object]:
        """The options whose value stands for another plug-in on such data, with that plug-in."""
        parts = [(option, part.plugin.stands_for) for option, part in self._parts.items()]
        return {option: targets[data] for option, targets in parts if data in targets}

    def _identifying(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options that identify results; `nested` identifies plug-ins given by address."""
        nested, identifying = self.plugin.nested(), self.plugin.identifying(options)
        return {o: v for o, v in identifying.items() if o not in nested or not _at_address(v)}


def _at_address(item: Any) -> bool:
    return isinstance(item, str | Mapping) and is_address(registry.pick(item)[0])


def choose(kind: str, items: Sequence[Any], origin: Origin = TYPED) -> list[Choice]:
    """Resolve a list as a suite writes it; labels are unique, and duplicates are an error."""
    choices = [choose_one(kind, item, origin) for item in items]
    for i, choice in enumerate(choices):
        for other in choices[:i]:
            if choice.label == other.label or (choice.key == other.key):
                same = "have the same label" if choice.key != other.key else "are the same"
                raise InputError(
                    f"Expected each {kind} once, got `{other.label}` and `{choice.label}`, which "
                    f"{same}. Drop one, or give it other options or a name of its own, `as: NAME`."
                )
    return choices


def choose_one(kind: str, item: Any, origin: Origin = TYPED) -> Choice:
    """Resolve one item: a ready Choice, a name, or `{name: {option: value, as: text}}`."""
    if isinstance(item, Choice):
        return item
    name, written = registry.pick(item)
    plugin = registry.get(kind, name, origin)
    own = take_display_name(written, plugin.options)
    merged = {**plugin.preset, **written}
    noise = take_noise(plugin, merged)
    reduction = take_reduction(merged) if kind == "method" else {}
    options = plugin.configure(merged, origin)
    if kind == "method" and plugin.settle is not None:
        options = plugin.settle(options)
    choice = Choice("", plugin, options, reduction, noise)
    return replace(choice, label=usual_label(choice) if own is None else own)


def usual_label(choice: Choice) -> str:
    """The default label of a choice."""
    plugin = choice.plugin
    usual = {**plugin.defaults, **(REDUCTION if choice.reduction else {}), **plugin.preset}
    noise = changed_noise(choice.noise, take_noise(plugin, dict(plugin.preset)))
    shown = {**plugin.identifying(choice.options), **choice.reduction, "noise": noise}
    name = plugin.name
    if MAPS_HASH in shown and "path" in shown:  # a file's name says more than a hash
        name = Path(shown.pop("path")).stem
        shown.pop(MAPS_HASH)
    return registry.label(name, shown, {**usual, "noise": {}})
