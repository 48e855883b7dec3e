"""Synthetic runs, written with the real store."""

import io
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from assay.results import Results
from assay.store import (
    Manifest,
    Preview,
    ShardEntry,
    ShardSummary,
    Store,
    StoredCell,
    file_name,
    status_codes,
)
from assay.store.pieces import ArraysPiece, CellsPiece, FilePiece, SamplesPiece, SummaryPiece

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
        for seed in plan.seeds:
            shard = ShardEntry(
                id=f"shard{k}{seed}",
                dataset=setting.dataset,
                model=setting.model,
                checkpoint="final",
                seed=seed,
                samples=samples,
                maps={method: f"map{k}{seed}{m}" for m, method in enumerate(plan.methods)},
                cells=[
                    f"c{k}x{seed}x{m}x{p}"
                    for p in range(len(plan.protocols))
                    for m in range(len(plan.methods))
                ],
            )
            groups = [f"g{i % setting.groups}" for i in range(setting.n)]
            SamplesPiece(shard.id, samples, groups).write(store)
            summary = ShardSummary(dataset=setting.dataset, model=setting.model, n=setting.n)
            previews = _previews(store, shard, setting) if seed == plan.seeds[0] else []
            SummaryPiece(shard.id, replace(summary, previews=previews)).write(store)
            for m, method in enumerate(plan.methods):
                if plan.statuses.get((method, "*")) != "n/a":
                    place = ("attributions", shard.maps[method], f"{shard.id}.safetensors")
                    maps = {"maps": _maps(setting, plan, m, seed)}
                    ArraysPiece(shard.id, place, maps, {}).write(store)
                for p, protocol in enumerate(plan.protocols):
                    pieces.append((f"c{k}x{seed}x{m}x{p}", shard, setting, method, protocol))
            shards.append(shard)
    kept = pieces[: len(pieces) - plan.skip]
    for cell, shard, setting, method, protocol in kept:
        stored = _cell(plan, cell, shard, setting, method, protocol)
        CellsPiece(shard.id, [stored]).write(store)
    manifest = Manifest(shards=shards).to_json() | _manifest(plan)
    store.write_json(store.path("manifest.json"), manifest | {"layout": 2})
    store.path("spec.yaml").write_text(
        "title: synthetic\ndatasets: [d]\nmodels: [m]\nmethods: [a]\nprotocols: [p]  # <script>\n"
    )
    return Results(folder)


def _previews(store: Store, shard: ShardEntry, setting: Setting) -> list[Preview]:
    if setting.modality != "image":
        return []
    rng = np.random.default_rng(5)
    entries = []
    for i, sample in enumerate(shard.samples):
        name = f"{file_name(setting.dataset)}/{i}.jpg"
        noise = rng.integers(0, 255, (20, 20, 3), dtype=np.uint8)
        content = io.BytesIO()
        Image.fromarray(noise).resize((224, 224), Image.Resampling.BICUBIC).save(content, "JPEG")
        FilePiece(shard.id, ("previews", name), content.getvalue()).write(store)
        entries.append(
            Preview(
                sample=sample,
                label=i % 3,
                label_name=NASTY if i % 3 == 0 else f"class {i % 3}",
                predicted=1,
                predicted_name="class 1",
                probability=0.25 + 0.5 * i / setting.n,
                image=name,
            )
        )
    return entries


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


def _cell(
    plan: Plan, cell: str, shard: ShardEntry, setting: Setting, method: str, protocol: str
) -> StoredCell:
    status = plan.statuses.get((method, protocol), plan.statuses.get((method, "*"), "ok"))
    if protocol in plan.knowing and setting.dataset in plan.unknown:
        status = "n/a"
    higher = plan.protocols[protocol]
    quality, _ = plan.methods[method]
    if protocol in plan.knowing:
        quality = plan.true.get(method, quality)
    index = list(plan.protocols).index(protocol)
    rng = np.random.default_rng((index, shard.seed, len(method)))
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
    curves = {}
    if protocol in plan.curves and status not in ("n/a", "failed"):
        powers = 1 + 3 * quality + len(plan.curves[protocol]) + 0.2 * (np.arange(setting.n) % 4)
        curves["probability"] = (1 - FRACTIONS[None]) ** powers[:, None]
    return StoredCell(
        cell,
        method,
        protocol,
        "ok" if status in ("degenerate", "nan") else status,
        f"{NASTY} went wrong" if status in ("n/a", "failed") else "",
        seconds=0.5,
        forwards=100,
        metrics={"score": value},
        statuses=status_codes(statuses),
        x=FRACTIONS,
        curves=curves,
    )


def _manifest(plan: Plan) -> dict[str, Any]:
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
