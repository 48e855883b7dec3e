"""Write `manifest.json`: versions, hardware, hashes of weights and data, costs of a run."""

import datetime
import functools
import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version

import torch

from assay.plan.content_keys import reading_key
from assay.plan.finished import Finished
from assay.plan.plan import Plan, Shard
from assay.plan.scoring import replicates_of, unranked
from assay.plugins import registry
from assay.plugins.set_level import reduction_name
from assay.run.settings import Settings
from assay.run.tally import clean_accuracy
from assay.store import (
    CleanAccuracy,
    DatasetEntry,
    DoseEntry,
    Json,
    Manifest,
    MethodEntry,
    ModelEntry,
    PluginEntry,
    ProtocolEntry,
    ShardEntry,
    ShardSummary,
    read_manifest,
)
from assay.suite.spec import Choice
from assay.types import Card
from assay.types.random_numbers import DRAWS

LAYOUT = 2  # the version of the files: one log per shard
PACKAGES = ("torch", "numpy", "scipy", "pyarrow", "pydantic")  # whose versions are recorded


def write_manifest(
    finished: Finished, settings: Settings, seconds: float | None, ended: bool = False
) -> Manifest:
    """Write the resolved suite and the manifest."""
    plan, store = finished.plan, finished.store
    known = (finished.summary(shard) for shard in plan.shards)
    summaries = [summary for summary in known if summary is not None]
    earlier = read_manifest(store) or Manifest()
    manifest = _describe_run(plan, settings, summaries, earlier, seconds or 0.0, ended)
    store.write_text(store.path("spec.yaml"), plan.spec.dump(), "# {}")
    store.write_json(store.path("manifest.json"), manifest.to_json())
    return manifest


def _describe_run(
    plan: Plan,
    settings: Settings,
    summaries: Sequence[ShardSummary],
    earlier: Manifest,
    seconds: float,
    finished: bool,
) -> Manifest:
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return Manifest(
        assay=_version("assay"),
        layout=LAYOUT,
        identity=plan.identity,
        draws=DRAWS,
        created=earlier.created or now,
        finished=now if finished else None,
        seconds=round((earlier.seconds or 0.0) + seconds, 3),
        title=plan.spec.title,
        notes=plan.spec.notes,
        target=plan.spec.target,
        seeds=plan.spec.seeds,
        versions={n: _version(n) for n in PACKAGES} | {"python": platform.python_version()},
        hardware=_hardware(settings),
        models={name: _describe_model(plan, name, settings, summaries) for name in plan.models},
        datasets={name: _describe_dataset(plan, name) for name in plan.datasets},
        clean=_clean(plan, summaries),
        forwards=sum(s.forwards + s.explaining for s in summaries),
        methods={c.label: _describe_method(plan, c) for c in plan.methods},
        protocols={c.label: _describe_protocol(plan, c) for c in plan.protocols},
        doses={
            dose.label: DoseEntry(method=method, dose=dose.dose)
            for method, several in plan.doses.items()
            for dose in several
        },
        shards=list(_describe_shards(plan)),
    )


def _describe_shards(plan: Plan) -> Iterator[ShardEntry]:
    """The shards; those of one dataset, model and seed share their keys."""
    first: dict[tuple[str, str, int], ShardEntry] = {}
    for shard in plan.shards:
        place = shard.dataset, shard.model, shard.seed
        if place not in first:
            first[place] = _describe_shard(plan, shard)
        yield replace(first[place], id=shard.id, samples=shard.samples)


def _describe_shard(plan: Plan, shard: Shard) -> ShardEntry:
    dosed = {protocol.label for protocol in plan.dosed_protocols}
    return ShardEntry(
        id=shard.id,
        dataset=shard.dataset,
        model=plan.models[shard.model].series or shard.model,
        checkpoint=plan.models[shard.model].checkpoint,
        seed=shard.seed,
        samples=shard.samples,
        target=str(plan.target(shard.dataset, shard.model)),
        maps={m.label: plan.maps_key(shard, m) for m in plan.methods},
        checks={m.label: plan.checks_key(shard, m) for m in plan.methods if m.promise},
        cells=[plan.cell(shard, m, p) for p in plan.protocols for m in plan.methods],
        dosed=[
            plan.cell(shard, dose, p) if p.label in dosed else ""
            for p in plan.protocols
            for several in plan.doses.values()
            for dose in several
        ],
    )


def _describe_model(
    plan: Plan, name: str, settings: Settings, summaries: Sequence[ShardSummary]
) -> ModelEntry:
    model = plan.models[name]
    halved = [s.micro_batch for s in summaries if s.model == name]  # smaller after memory ran out
    prepared = plan.networks.changes(name)
    return ModelEntry(
        checkpoint=model.checkpoint,
        weights_hash=model.weights_hash,
        micro_batch=min([settings.micro_batch[name], *halved]),
        prepared=", ".join(prepared),
        inputs=repr(model.prepare) if model.prepare else "",
        parameters=sum(p.numel() for p in model.net.parameters()),
        device=str(model.device),
        card={
            name: value.to_json() if isinstance(value, Card) else value
            for name, value in model.card.items()
        },
        reading=reading_key(model, plan.identity),
        series=model.series,
    )


def _describe_dataset(plan: Plan, name: str) -> DatasetEntry:
    dataset = plan.datasets[name]
    train = dataset.splits.get("train")
    return DatasetEntry(
        fingerprint=dataset.fingerprint,
        n=len(plan.samples(name)),
        modality=dataset.modality,
        note=dataset.note,
        n_train=0 if train is None else len(train.ids),
        train_fingerprint="" if train is None else train.fingerprint,
    )


def _describe_method(plan: Plan, choice: Choice) -> MethodEntry:
    passes = choice.passes
    return MethodEntry(
        **vars(_describe_plugin(plan, choice)),
        control=choice.plugin.control,
        forward=passes.forward,
        backward=passes.backward,
        by=passes.by,
        once=passes.once,
        check=choice.promise.name if choice.promise else "",
    )


def _describe_protocol(plan: Plan, choice: Choice) -> ProtocolEntry:
    plugin = choice.plugin
    return ProtocolEntry(
        **vars(_describe_plugin(plan, choice)),
        metric=plugin.metric,
        higher_is_better=plugin.higher_is_better,
        range=[None if abs(end) == float("inf") else end for end in plugin.range],
        chance=plugin.chance,
        uses=plugin.uses,
        sign_sensitive=plugin.signs_matter(choice.options),
        reduce=reduction_name(plugin.reduce),
        axis=plugin.axis,
        judges=plugin.judges,
        question=plugin.question,
        properties=plugin.guarantees(choice.options).to_json(),
        unranked=unranked(choice),
        replicates=replicates_of(choice),
    )


def _describe_plugin(plan: Plan, choice: Choice) -> PluginEntry:
    plugin = choice.plugin
    modalities = dict.fromkeys(dataset.modality for dataset in plan.datasets.values())
    resolved = {name: registry.canonical(choice.resolved(name)) for name in modalities}
    return PluginEntry(
        name=plugin.name,
        title=plugin.title or plugin.name,
        family=plugin.family,
        cite=plugin.cite,
        summary=plugin.summary,
        version=plugin.version,
        options=registry.canonical(choice.shown_options),
        key=registry.identity(choice.key),
        resolved={name: options for name, options in resolved.items() if options},
    )


def _clean(plan: Plan, summaries: Sequence[ShardSummary]) -> list[CleanAccuracy]:
    """The accuracy of each model on each dataset whose samples have labels."""
    rows = []
    for dataset, model in plan.pairs:
        pair_summaries = [s for s in summaries if (s.dataset, s.model) == (dataset, model)]
        row = clean_accuracy(dataset, model, pair_summaries)
        rows += [] if row is None else [row]
    return rows


def _hardware(settings: Settings) -> dict[str, Json]:
    facts: dict[str, Json] = {
        "platform": platform.platform(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
    }
    if settings.device is not None and settings.device.startswith("cuda"):
        facts["gpu"] = torch.cuda.get_device_name()
    return facts


@functools.cache
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
