"""One job of the study from start to record: build the network, score it, write a small JSON."""

from __future__ import annotations

import functools
import gc
import hashlib
import json
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file

from assay.environments.environment import build as build_environment
from assay.errors import InputError
from assay.plan.resolving import build_one
from assay.store import StoredObject
from assay.studies.idsds import likeness, mask_only
from assay.studies.idsds.panels import (
    MICRO_BATCH,
    Panel,
    batch_of,
    first_samples,
    score_panel,
    tempered,
)
from assay.studies.idsds.paper_methods import (
    AGNOSTIC,
    FEW_MASKS,
    LOOK,
    MASK_ONLY,
    SD,
    paper_methods,
)
from assay.studies.idsds.runs import ScoringJob, StoredNetwork, scoring_suites
from assay.training.zoo import zoo_file, zoo_item
from assay.types import Dataset, Model, Pixels, Preprocess

LOOKED = 2000  # images
PAINTED = 500  # birds
MASK_SEEDS = 10

AnyJob = ScoringJob | str


@dataclass(frozen=True)
class ScoringSetting:
    """Where the files are and how jobs run.

    Attributes:
        zoo: The folder of trained networks.
        data: A folder with `cifar10/cifar10_test_lossless.parquet`.
        out: The folder of the records.
        device: Where the networks run.
        limit: The most images of any suite.
        steps: Steps of integrated gradients on many networks.
        micro_batch: Inputs per call of a network.
    """

    zoo: Path
    data: Path
    out: Path
    device: str | None = None
    limit: int | None = None
    steps: int = 16
    micro_batch: int = MICRO_BATCH

    def record(self, name: str) -> Path:
        """The file of a job's record."""
        return self.out / "records" / f"{name}.json"

    def error(self, name: str) -> Path:
        """The file with the message of a job that failed."""
        return self.out / "errors" / f"{name}.txt"

    def count(self, n: int) -> int:
        """The number of images of a suite that asks for `n`."""
        return n if self.limit is None else min(n, self.limit)

    @property
    def on_gpu(self) -> bool:
        """Whether the networks run on a GPU."""
        return self.device is not None and self.device.startswith("cuda")

    def rows(self, n: int) -> int:
        """Inputs per call: on a GPU a full batch, else not more than there are images."""
        return self.micro_batch if self.on_gpu else min(self.micro_batch, n)


def job_name(job: AnyJob) -> str:
    """The name of a job's record."""
    return job if isinstance(job, str) else job.name


def weights_of(setting: ScoringSetting, network: StoredNetwork) -> str:
    """The hash of the file that holds a network's weights."""
    file = zoo_file(setting.zoo, network.name, network.seed, network.arm, network.epoch)
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]


def asked(job: AnyJob, setting: ScoringSetting) -> dict[str, object]:
    """What decides a job's numbers, as its record stores it: weights, images and suite."""
    if isinstance(job, str):
        known: dict[str, object] = {"images": setting.count(PAINTED), "steps": setting.steps}
        return known if job != MASK_ONLY else {"limit": setting.limit}
    weights = weights_of(setting, job.network)
    if job.suite == LOOK:
        return {"weights": weights, "images": setting.count(LOOKED)}
    suite = scoring_suites(setting.steps)[job.suite]
    return {
        "weights": weights, "images": setting.count(suite.n), "methods": list(suite.methods),
        "protocols": suite.protocols(job.network.kind), "temperatures": list(suite.temperatures),
    }  # fmt: skip


def finished(job: AnyJob, setting: ScoringSetting) -> bool:
    """Whether a job has a record, of these weights, images, methods and protocols."""
    record = read_record(job, setting)
    return record is not None and record.get("asked") == json.loads(json.dumps(asked(job, setting)))


def read_record(job: AnyJob, setting: ScoringSetting) -> StoredObject | None:
    """The record of a job, if there is one."""
    path = setting.record(job_name(job))
    if not path.is_file():
        return None
    record: StoredObject = json.loads(path.read_text(encoding="utf-8"))
    return record


def do_job(job: AnyJob, setting: ScoringSetting) -> tuple[str, float, str]:
    """Run a job and write its record; returns its name, its seconds and an error's message."""
    name, started = job_name(job), time.monotonic()
    try:
        about = asked(job, setting)
        record = special(job, setting) if isinstance(job, str) else scored(job, setting)
        if asked(job, setting) != about:
            raise InputError(
                f"Expected the weights of `{name}` to stay the same while it is scored, but they "
                f"were replaced. Run the jobs again."
            )
    except Exception as error:  # one failing job must not stop the others
        _write(setting.error(name), traceback.format_exc())
        return name, time.monotonic() - started, f"{type(error).__name__}: {error}"
    finally:
        _free(setting)
    record |= {"asked": about, "seconds": round(time.monotonic() - started, 2)}
    _write(setting.record(name), json.dumps(record))
    setting.error(name).unlink(missing_ok=True)
    return name, time.monotonic() - started, ""


def _free(setting: ScoringSetting) -> None:
    gc.collect()
    if setting.on_gpu:
        torch.cuda.empty_cache()


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


@functools.cache
def _images(data: Path, n: int) -> Dataset:
    """The first `n` test images in the order of a run with that limit, decoded once."""
    path = data / "cifar10" / "cifar10_test_lossless.parquet"
    item = {"parquet": {"path": str(path)}}
    whole: Dataset = build_one("dataset", item)
    ids = first_samples(whole, n)
    samples = {i: whole.fetch(i) for i in ids}
    return replace(whole, ids=ids, fetch=samples.__getitem__)


def _built(setting: ScoringSetting, network: StoredNetwork) -> Model:
    item = zoo_item(setting.zoo, network.name, network.seed, network.arm, network.epoch)
    model: Model = build_one("model", item)
    return model


def scored(job: ScoringJob, setting: ScoringSetting) -> dict[str, object]:
    """The record of one suite on one network."""
    network = job.network
    head = {
        "suite": job.suite, "network": network.name, "seed": network.seed, "arm": network.arm,
        "epoch": network.epoch,
    }  # fmt: skip
    if job.suite == LOOK:
        return {**head, "rows": [], "facts": _look(network, setting)}
    suite = scoring_suites(setting.steps)[job.suite]
    n, rows, panel = setting.count(suite.n), [], Panel()
    for temperature in suite.temperatures:
        model = _built(setting, network)
        model = model if temperature == 1 else tempered(model, temperature)
        panel = score_panel(
            model, _images(setting.data, n), suite.methods, suite.protocols(network.kind), n,
            device=setting.device, micro_batch=setting.rows(n),
        )  # fmt: skip
        rows += [{**row, "temperature": temperature} for row in panel.rows()]
        if suite.samples:
            _write_samples(setting.out / "samples" / f"{job.name}.safetensors", panel)
    failed = [f"{r['method']}: {r['message']}" for r in rows if r["status"] == "failed"]
    if failed:
        raise RuntimeError(f"{len(failed)} cells failed. {failed[0]}")
    return {**head, "accuracy": panel.accuracy, "forwards": panel.forwards, "rows": rows}


def _write_samples(path: Path, panel: Panel) -> None:
    """The scores of every image, in single precision."""
    path.parent.mkdir(parents=True, exist_ok=True)
    named = {f"{p}|{m}": v.astype(np.float32) for (p, m), v in panel.values.items()}
    save_file(named, path)


def seen_file(setting: ScoringSetting, network: StoredNetwork) -> Path:
    """What a look at a network stored."""
    return setting.out / "seen" / f"{network.stem}.safetensors"


def _look(network: StoredNetwork, setting: ScoringSetting) -> Mapping[str, float]:
    n = setting.count(LOOKED)
    images = _images(setting.data, n)
    model, batch = batch_of(_built(setting, network), images, n, setting.device, setting.rows(n))
    seen = likeness.look(model, batch, network.kind.grid, network.kind.fill)
    path = seen_file(setting, network)
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(seen, path)
    return likeness.facts(seen)


def special(name: str, setting: ScoringSetting) -> dict[str, object]:
    """The record of a job without a network of the zoo."""
    head = {"suite": name, "network": name, "seed": 0, "arm": "", "epoch": None}
    if name == MASK_ONLY:
        return {**head, "rows": [], "masks": _masks(setting)}
    n = setting.count(PAINTED)
    environment = build_environment("parts", {"samples": n}, None)
    methods = paper_methods(AGNOSTIC, steps=setting.steps, masks=FEW_MASKS)
    protocol = {"part_deletion": {"label": SD}}
    panel = score_panel(
        environment.model, environment.dataset, methods, [protocol], n, device=setting.device,
        micro_batch=min(100, n),
    )  # fmt: skip
    rows = [{**row, "temperature": 1.0} for row in panel.rows()]
    return {**head, "accuracy": panel.accuracy, "forwards": panel.forwards, "rows": rows}


def _masks(setting: ScoringSetting) -> dict[str, list[float]]:
    images = _images(setting.data, setting.count(10_000))
    prepare = Preprocess(size=32, pixels=Pixels(mean=(0.0,) * 3, std=(1.0,) * 3))
    batch = images.batch(images.ids, prepare).to(setting.device or "cpu")
    steps = mask_only.STEPS if setting.limit is None else min(mask_only.STEPS, setting.limit)
    return {
        kind: [
            mask_only.mask_accuracy(kind, batch.inputs, batch.targets, seed=seed, steps=steps)
            for seed in range(MASK_SEEDS)
        ]
        for kind in mask_only.KINDS
    }
