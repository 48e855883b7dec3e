"""Synthetic runs, written with the real store."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image

from assay.results import Results
from assay.store import CURVES, SCORES, Store

NASTY = '<b>&"x'
FRACTIONS = np.linspace(0, 1, 11)


@dataclass
class Setting:
    """One dataset and model of a synthetic run."""

    dataset: str
    model: str
    n: int = 12
    groups: int = 12
    side: int | None = 32  # of the maps; None for vectors
    modality: str = "image"


@dataclass
class Plan:
    """What a synthetic run holds; qualities are the true means of each method."""

    settings: list[Setting]
    methods: dict[str, tuple[float, str]]  # label: (quality, control)
    protocols: dict[str, bool]  # label: higher is better
    statuses: dict[tuple[str, str], str] = field(default_factory=dict)
    curves: dict[str, str] = field(default_factory=dict)  # protocol: which set of curves it reads
    skip: int = 0  # pieces left out at the end
    title: str = "A synthetic run"
    notes: str = ""
    seeds: tuple[int, ...] = (0,)
    knowing: tuple[str, ...] = ()  # protocols that know the truth
    unknown: tuple[str, ...] = ()  # datasets where there is none
    true: dict[str, float] = field(default_factory=dict)  # methods' means by it, where others


def write(folder: Path, plan: Plan) -> Results:
    """Write the run and open it."""
    store = Store(folder)
    store.create()
    shards, pieces = [], []
    for k, setting in enumerate(plan.settings):
        samples = [f"{setting.dataset}-{i:03d}" for i in range(setting.n)]
        _previews(store, setting, samples)
        for seed in plan.seeds:
            shard: dict[str, Any] = {
                "id": f"shard{k}{seed}",
                "dataset": setting.dataset,
                "model": setting.model,
                "checkpoint": "final",
                "seed": seed,
                "samples": samples,
                "maps": {},
                "cells": [],
            }
            for m, method in enumerate(plan.methods):
                key = f"map{k}{seed}{m}"
                shard["maps"][method] = key
                if plan.statuses.get((method, "*")) != "n/a":
                    path = store.path("attributions", key, f"{shard['id']}.safetensors")
                    store.write_arrays(path, {"maps": _maps(setting, plan, m, seed)}, {})
                for p, protocol in enumerate(plan.protocols):
                    pieces.append((f"c{k}x{m}x{p}", shard, setting, method, protocol))
            shard["cells"] = [
                f"c{k}x{m}x{p}"
                for p in range(len(plan.protocols))
                for m in range(len(plan.methods))
            ]
            shards.append(shard)
    kept = pieces[: len(pieces) - plan.skip]
    for cell, shard, setting, method, protocol in kept:
        _piece(store, plan, cell, shard, setting, method, protocol)
    store.write_json(store.path("manifest.json"), _manifest(plan, shards))
    store.path("spec.yaml").write_text(
        "title: synthetic\ndatasets: [d]\nmodels: [m]\nmethods: [a]\nprotocols: [p]  # <script>\n"
    )
    return Results(folder)


def _previews(store: Store, setting: Setting, samples: list[str]) -> None:
    if setting.modality != "image":
        return
    rng = np.random.default_rng(5)
    entries = []
    for i, sample in enumerate(samples):
        name = f"{setting.dataset}/{i}.jpg"
        path = store.path("previews", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        noise = rng.integers(0, 255, (20, 20, 3), dtype=np.uint8)
        Image.fromarray(noise).resize((224, 224), Image.Resampling.BICUBIC).save(path)
        entries.append(
            {
                "sample": sample,
                "label": i % 3,
                "label_name": NASTY if i % 3 == 0 else f"class {i % 3}",
                "predicted": 1,
                "predicted_name": "class 1",
                "probability": 0.25 + 0.5 * i / len(samples),
                "image": name,
            }
        )
    store.write_json(store.path("previews", f"{setting.dataset}.json"), entries)


def _maps(setting: Setting, plan: Plan, method: int, seed: int) -> Any:
    rng = np.random.default_rng((method, seed))
    if setting.side is None:
        return rng.normal(size=(setting.n, 6)).astype(np.float32)
    side = setting.side
    y, x = np.mgrid[-1 : 1 : side * 1j, -1 : 1 : side * 1j]
    blob = np.exp(-((x - 0.2) ** 2 + y**2) * (2 + method)) - 0.4 * np.exp(-((x + 0.5) ** 2) * 9)
    maps = blob[None] + rng.normal(scale=0.06 * method, size=(setting.n, side, side))
    if method == 0:
        maps[0] = 0.0
        maps[1, :4] = np.nan
    return maps.astype(np.float32)


def _piece(
    store: Store,
    plan: Plan,
    cell: str,
    shard: dict[str, Any],
    setting: Setting,
    method: str,
    protocol: str,
) -> None:
    status = plan.statuses.get((method, protocol), plan.statuses.get((method, "*"), "ok"))
    if protocol in plan.knowing and setting.dataset in plan.unknown:
        status = "n/a"
    higher = plan.protocols[protocol]
    quality, _ = plan.methods[method]
    if protocol in plan.knowing:
        quality = plan.true.get(method, quality)
    index = list(plan.protocols).index(protocol)
    rng = np.random.default_rng((index, shard["seed"], len(method)))
    common = np.random.default_rng(index).normal(scale=0.08, size=setting.n)
    value = quality + common + rng.normal(scale=0.05, size=setting.n)
    value = value if higher else 1 - value
    statuses = [status] * setting.n
    if status in ("n/a", "failed"):
        value = np.full(setting.n, np.nan)
    if status == "degenerate":
        statuses = ["degenerate" if i % 4 == 0 else "ok" for i in range(setting.n)]
    if status == "nan":  # single samples failed
        statuses = ["failed" if i % 5 == 0 else "ok" for i in range(setting.n)]
        value = np.where(np.arange(setting.n) % 5 == 0, np.nan, value)
    rows = [
        {
            "cell": cell,
            "dataset": setting.dataset,
            "model": setting.model,
            "checkpoint": "final",
            "method": method,
            "method_version": 1,
            "method_options": "{}",
            "protocol": protocol,
            "protocol_version": 1,
            "protocol_options": "{}",
            "metric": "score",
            "target": "label",
            "sample": sample,
            "group": f"g{i % setting.groups}",
            "seed": shard["seed"],
            "value": float(value[i]),
            "higher_is_better": higher,
            "status": statuses[i],
            "headline": True,
        }
        for i, sample in enumerate(shard["samples"])
    ]
    piece = f"{cell}-{shard['id']}"
    store.write_table(store.path("scores", f"{piece}.parquet"), pa.Table.from_pylist(rows, SCORES))
    if protocol in plan.curves and status not in ("n/a", "failed"):
        which = plan.curves[protocol]
        curves = [
            {
                "cell": cell,
                "sample": sample,
                "seed": shard["seed"],
                "name": "probability",
                "step": k,
                "x": float(x),
                "value": float((1 - x) ** (1 + 3 * quality + len(which) + 0.2 * (i % 4))),
            }
            for i, sample in enumerate(shard["samples"])
            for k, x in enumerate(FRACTIONS)
        ]
        table = pa.Table.from_pylist(curves, CURVES)
        store.write_table(store.path("curves", f"{piece}.parquet"), table)
    about = {
        "cell": cell,
        "shard": shard["id"],
        "dataset": setting.dataset,
        "model": setting.model,
        "method": method,
        "protocol": protocol,
        "status": "ok" if status in ("degenerate", "nan") else status,
        "message": f"{NASTY} went wrong" if status in ("n/a", "failed") else "",
        "seconds": 0.5,
        "forwards": 100,
    }
    store.write_json(store.path("cells", f"{piece}.json"), about)


def _manifest(plan: Plan, shards: list[dict[str, Any]]) -> dict[str, Any]:
    methods = {
        label: {
            "name": label.split("[")[0],
            "title": label.replace("_", " ").title(),
            "family": "gradients",
            "cite": "someone2024",
            "summary": f"What {label} does, in a sentence.",
            "control": control,
            "version": 1,
            "options": {"steps": 5},
            "forward": 1,
            "backward": 1,
        }
        for label, (_, control) in plan.methods.items()
    }
    protocols = {
        label: {
            "name": label,
            "title": label,
            "family": "truth" if label in plan.knowing else "curves",
            "metric": "score",
            "higher_is_better": higher,
            "range": [float("-inf"), 1],
            "chance": "measured",
            "uses": "order",
            "sign_sensitive": True,
            "cite": "other2023",
            "summary": f"What {label} measures.",
            "options": {"grid": 4, "fill": {"blur": {"sigma": 10}}},
            "version": 1,
        }
        for label, higher in plan.protocols.items()
    }
    return {
        "assay": "0.1.0",
        "created": "2025-01-02T03:04:05",
        "finished": None if plan.skip else "2025-01-02T03:14:05",
        "seconds": 600.0,
        "title": plan.title,
        "notes": plan.notes,
        "target": "label",
        "seeds": list(plan.seeds),
        "versions": {"torch": "2.6", "numpy": "2.0"},
        "hardware": {"cpu": "two noisy cores"},
        "models": {
            s.model: {
                "checkpoint": "final",
                "weights_hash": "ab" * 32,
                "micro_batch": 32,
                "prepared": "fused",
                "parameters": 4652008,
                "device": "cpu",
            }
            for s in plan.settings
        },
        "datasets": {
            s.dataset: {"fingerprint": "cd" * 32, "n": s.n, "modality": s.modality}
            for s in plan.settings
        },
        "clean": [
            {"dataset": s.dataset, "model": s.model, "accuracy": 0.875, "n": s.n}
            for s in plan.settings
        ],
        "methods": methods,
        "protocols": protocols,
        "shards": shards,
    }


def small_plan() -> Plan:
    """Three settings, awkward names, every status, an unfinished run."""
    return Plan(
        settings=[
            Setting("photos", "net"),
            Setting(NASTY, "net", n=6, groups=6),
            Setting("vectors", "mlp", side=None, modality="vector"),
        ],
        methods={
            "gradcam": (0.7, ""),
            "ig[steps=5]": (0.5, ""),
            NASTY: (0.3, ""),
            "absent": (0.4, ""),
            "random": (0.35, "random"),
            "edge": (0.42, "model_free"),
        },
        protocols={"morf": True, "deletion": False, "infidelity": False, NASTY: True},
        statuses={
            ("absent", "*"): "n/a",
            ("ig[steps=5]", "infidelity"): "failed",
            ("gradcam", "deletion"): "degenerate",
            ("edge", "morf"): "nan",
            (NASTY, "infidelity"): "circular",
        },
        curves={"morf": "shared", "deletion": "shared", NASTY: "own"},
        skip=2,
        title=f"Run of {NASTY}",
        notes="demo settings: <i>small</i>",
        seeds=(0, 1),
    )
