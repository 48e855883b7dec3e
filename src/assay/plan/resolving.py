"""Build the datasets, models, methods and protocols that a suite names."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from assay.data.memory import as_dataset
from assay.environments.environment import Environment
from assay.environments.environment import build as build_environment
from assay.errors import InputError
from assay.models.carded import with_card
from assay.models.factory import build_model
from assay.models.hub import hub_model, is_hub_name
from assay.models.wrap import model as as_model
from assay.plan.plan import IDENTITY, Plan
from assay.plan.training_data import with_training
from assay.plugins import registry
from assay.plugins.display_names import take_display_name
from assay.plugins.origins import TYPED, Origin
from assay.store.data_facts import data_facts, knowing
from assay.suite.model_checkpoints import checkpoint_name, each_checkpoint, has_checkpoints
from assay.suite.spec import Spec, choose
from assay.training.trained_weights import TrainedWeights
from assay.types import Dataset, Model


def resolve(
    spec: Spec,
    device: str | None = None,
    trained: TrainedWeights | None = None,
    identity: int = IDENTITY,
) -> Plan:
    """Build what a suite names. Its lists may also hold dataset, model and method objects.

    Environments read trained weights from `trained`, and add to it the weights that they train.
    """
    trained = TrainedWeights() if trained is None else trained
    origin = spec.origin
    with knowing(data_facts()) as facts:
        datasets, live_data = _build("dataset", spec.datasets, origin)
        models, live_models = _build("model", spec.models, origin)
        worlds = list(_environments(spec.environments, trained, origin))
        train, live_train = _build_each("dataset", spec.train, origin)
    datasets = with_training(datasets, train, models)
    series = _series(models)
    pairs = tuple(itertools.product(datasets, models))
    for world in worlds:
        if world.name in (*datasets, *models, *series):
            raise _duplicate("environment", world.name)
        datasets[world.name], models[world.name] = world.dataset, world.model
        pairs = (*pairs, (world.name, world.name))
    if device is not None:
        for model in models.values():
            model.net.to(device)
    methods = choose("method", spec.methods, origin)
    protocols = choose("protocol", spec.protocols, origin)
    live_worlds = [item.name for item in spec.environments if isinstance(item, Environment)]
    live_methods = [c.label for c in methods if c.plugin.family == "given"]
    return Plan(
        spec,
        datasets,
        models,
        tuple(methods),
        tuple(protocols),
        pairs,
        (*live_data, *live_train, *live_models, *live_worlds, *live_methods),
        identity,
        trained,
        facts,
    )


def _environments(
    items: Sequence[object], trained: TrainedWeights, origin: Origin
) -> Iterator[Environment]:
    for item in items:
        if isinstance(item, Environment):
            yield item
            continue
        name, options = registry.pick(item)
        plugin = registry.get("environment", name, origin)
        label = take_display_name(options, plugin.options)
        yield build_environment(name, options, label, trained, origin)


def _duplicate(kind: str, label: str) -> InputError:
    return InputError(
        f"Expected each {kind} once, got `{label}` twice. Name one of them, `as: NAME`."
    )


def _build(kind: str, items: Sequence[object], origin: Origin) -> tuple[dict[str, Any], list[str]]:
    built: dict[str, Any] = {}
    live: list[str] = []
    for item in items:
        if isinstance(item, Dataset | Model | nn.Module | tuple):
            thing = _object(item)
            things = [(thing, thing.name)]
            live.append(thing.name)
        else:
            things = list(_named(kind, item, origin))
        for thing, label in things:
            if label in built:
                raise _duplicate(kind, label)
            built[label] = thing
    return built, live


def _object(item: Dataset | Model | nn.Module | tuple[object, ...]) -> Dataset | Model:
    """A dataset or model that Python made."""
    if isinstance(item, tuple):
        return as_dataset(item)
    return as_model(item) if isinstance(item, nn.Module) else item


def _named(kind: str, item: object, origin: Origin) -> Iterator[tuple[Any, str]]:
    """What an item of a suite names, with its label: several models for several checkpoints."""
    name, options = registry.pick(item)
    hub = kind == "model" and is_hub_name(name)
    names = () if hub else registry.get(kind, name, origin).option_names
    own = take_display_name(options, names)
    card = options.pop("card", None) if kind == "model" else None
    if kind != "model" or not has_checkpoints(options, names):
        thing, label = _from_name(kind, name, options, own, origin)
        yield (thing if card is None else with_card(thing, str(card))), label
        return
    if card is not None:
        raise InputError(f"Expected no `card` with the `checkpoints` of `{name}`: it is of one.")
    series = own or _plain_label(name, hub, origin)
    for checkpoint, chosen in each_checkpoint(name, options):
        label = checkpoint_name(series, checkpoint)
        model, _ = _from_name(kind, name, chosen, label, origin)
        yield replace(model, name=label, checkpoint=checkpoint, series=series), label


def _plain_label(name: str, hub: bool, origin: Origin) -> str:
    """The label of a model without its options."""
    if hub:
        return Path(name.partition(":")[2]).name
    return str(registry.get("model", name, origin).name)


def _series(models: Mapping[str, Model]) -> set[str]:
    """The labels of models with several checkpoints; no other model has one of them."""
    series = {model.series for model in models.values() if model.series}
    for label in series.intersection(models):
        raise _duplicate("model", label)
    return series


def _build_each(kind: str, items: Sequence[object], origin: Origin) -> tuple[list[Any], list[str]]:
    """The same for items that need no names of their own."""
    built = [_build(kind, [item], origin) for item in items]
    things = [thing for by_name, _ in built for thing in by_name.values()]
    return things, [name for _, live in built for name in live]


def build_one(kind: str, item: object, origin: Origin = TYPED) -> Any:
    """One dataset or model as a suite writes it."""
    things = [*_build(kind, [item], origin)[0].values()]
    if len(things) > 1:
        raise InputError(
            f"Expected one {kind} here, got {len(things)} checkpoints of `{things[0].series}`. "
            f"Give the `weights` of one of them."
        )
    return things[0]


def build_models(items: Sequence[object]) -> list[Model]:
    """The models that items as in a suite name; one with several checkpoints is several."""
    return [replace(model, name=label) for label, model in _build("model", items, TYPED)[0].items()]


def _from_name(
    kind: str, name: str, options: dict[str, Any], own: str | None, origin: Origin
) -> tuple[Any, str]:
    """A dataset or model by its name or address, and its label."""
    if kind == "model" and is_hub_name(name):
        label = own or Path(name.partition(":")[2]).name
        return hub_model(name, options, label), label
    plugin = registry.get(kind, name, origin)
    if kind == "model" and plugin.source:
        label = own or plugin.name
        return build_model(plugin, options, label), label
    configured = plugin.configure(options, origin)
    thing = plugin.function(**configured)
    if kind == "dataset":
        thing = as_dataset(thing, own or plugin.name, key=repr((name, sorted(configured.items()))))
    if "path" in configured and not own:
        return thing, str(thing.name)  # the name of a file or folder is more specific
    plain = set(options) <= {"weights"}
    return thing, own or (
        plugin.name if plain else registry.label(plugin.name, configured, plugin.defaults)
    )
