"""What a run was made of: versions, hardware, hashes of weights and data, costs."""

import datetime
import functools
import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from assay.plan.plan import Plan, Shard
from assay.plugins import registry
from assay.plugins.set_level import reduction_name
from assay.run.settings import Settings
from assay.store import Store, file_name
from assay.suite.spec import Choice


def write_manifest(
    plan: Plan, settings: Settings, store: Store, seconds: float | None, finished: bool = False
) -> dict[str, Any]:
    """Write the resolved suite and what the run is: versions, hardware, hashes, costs."""
    earlier = store.read_json(store.path("manifest.json")) or {}
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    summaries = [store.read_json(store.path("shards", f"{s.id}.json")) for s in plan.shards]
    known = [s for s in summaries if s is not None]
    manifest = {
        "assay": _version("assay"),
        "identity": plan.identity,
        "created": earlier.get("created", now),
        "finished": now if finished else None,
        "seconds": round(earlier.get("seconds", 0.0) + (seconds or 0.0), 3),
        "title": plan.spec.title,
        "notes": plan.spec.notes,
        "target": plan.spec.target,
        "seeds": plan.spec.seeds,
        "versions": {n: _version(n) for n in ("torch", "numpy", "scipy", "pyarrow", "pydantic")}
        | {"python": platform.python_version()},
        "hardware": _hardware(settings),
        "models": {name: _describe_model(plan, name, settings, known) for name in plan.models},
        "datasets": {
            name: {
                "fingerprint": d.fingerprint,
                "n": len(plan.samples(name)),
                "modality": d.modality,
                "note": d.note,
            }
            for name, d in plan.datasets.items()
        },
        "clean": _clean(plan, known),
        "forwards": sum(s["forwards"] + s["explaining"] for s in known),
        "methods": {c.label: _describe_method(c) for c in plan.methods},
        "protocols": {c.label: _describe_protocol(c) for c in plan.protocols},
        "shards": [_describe_shard(plan, s) for s in plan.shards],
    }
    store.write(store.path("spec.yaml"), lambda p: p.write_text(plan.spec.dump()))
    store.write_json(store.path("manifest.json"), manifest)
    for name in plan.datasets:
        shown = [p for s in known if s["dataset"] == name for p in s["previews"]]
        if shown:
            store.write_json(store.path("previews", f"{file_name(name)}.json"), shown)
    return manifest


def _describe_shard(plan: Plan, shard: Shard) -> dict[str, Any]:
    return {
        "id": shard.id,
        "dataset": shard.dataset,
        "model": shard.model,
        "checkpoint": plan.models[shard.model].checkpoint,
        "seed": shard.seed,
        "samples": list(shard.samples),
        "maps": {m.label: plan.maps_key(shard, m) for m in plan.methods},
        "checks": {m.label: plan.checks_key(shard, m) for m in plan.methods if m.promise},
        "cells": [plan.cell(shard, m, p) for p in plan.protocols for m in plan.methods],
    }


def _describe_model(
    plan: Plan, name: str, settings: Settings, shards: list[dict[str, Any]]
) -> dict[str, Any]:
    model = plan.models[name]
    halved = [s["micro_batch"] for s in shards if s["model"] == name]  # where memory ran out
    prepared = plan.networks.changes(name)
    return {
        "checkpoint": model.checkpoint,
        "weights_hash": model.weights_hash,
        "micro_batch": min([settings.micro_batch[name], *halved]),
        "prepared": ", ".join(prepared),
        "inputs": repr(model.prepare) if model.prepare else "",
        "parameters": sum(p.numel() for p in model.net.parameters()),
        "device": str(model.device),
        **({"card": dict(model.card)} if model.card else {}),
    }


def _describe_method(choice: Choice) -> dict[str, Any]:
    passes = choice.passes
    return {
        **_describe(choice), "control": choice.plugin.control,
        "forward": passes.forward, "backward": passes.backward, "by": passes.by,
        "once": passes.once,
        "check": choice.promise.name if choice.promise else "",
    }  # fmt: skip


def _describe_protocol(choice: Choice) -> dict[str, Any]:
    p = choice.plugin
    return {
        **_describe(choice), "metric": p.metric, "higher_is_better": p.higher_is_better,
        "range": [None if abs(v) == float("inf") else v for v in p.range], "chance": p.chance,
        "uses": p.uses, "sign_sensitive": p.signs_matter(choice.options),
        "reduce": reduction_name(p.reduce), "axis": p.axis, "judges": p.judges,
    }  # fmt: skip


def _describe(choice: Choice) -> dict[str, Any]:
    p = choice.plugin
    return {
        "name": p.name, "title": p.title or p.name, "family": p.family, "cite": p.cite,
        "summary": p.summary, "version": p.version,
        "options": registry.canonical(choice.shown_options),
    }  # fmt: skip


def _clean(plan: Plan, summaries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """How often each model is right on each dataset, before anything is removed."""
    rows = []
    for dataset, model in plan.pairs:
        mine = [s for s in summaries if (s["dataset"], s["model"]) == (dataset, model)]
        row = clean_accuracy(dataset, model, mine)
        rows += [] if row is None else [row]
    return rows


def clean_accuracy(
    dataset: str, model: str, summaries: Sequence[Mapping[str, Any]]
) -> dict[str, Any] | None:
    """How often a model is right on the samples of these shards; None where nobody knows."""
    if not summaries or any(s["correct"] is None for s in summaries):
        return None
    n = sum(s["n"] for s in summaries)
    chance = 1 / max(s["classes"] for s in summaries)
    accuracy = sum(s["correct"] for s in summaries) / n
    return {"dataset": dataset, "model": model, "n": n, "accuracy": accuracy, "chance": chance}


def hardly_above_chance(row: dict[str, Any]) -> bool:
    """Whether a network is right so seldom that labels or inputs are probably not its own.

    Below twice chance; of few classes, below a quarter of the way from chance to always.
    """
    chance: float = row["chance"]
    return bool(row["accuracy"] < min(2 * chance, chance + (1 - chance) / 4))


def _hardware(settings: Settings) -> dict[str, Any]:
    facts: dict[str, Any] = {
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
