"""The runs of the study: what is scored on each network, and how a run becomes rows of the table.

MoRF and LeRF, with a constant and with imputed pixels, are always scored together, on the same
images. Single pixels are removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from assay.plugins.option_types import Item
from assay.run import run
from assay.studies.metarank.task_scores import PAPERS_EIGHT, TaskScores, as_table
from assay.studies.reading import Reading
from assay.suite.spec import Spec, make_suite
from assay.types import Dataset, Model

TARGET = "predicted"
UNSIGNED = ("input_x_gradient", "deeplift", "integrated_gradients")
PIXELS = {"units": "elements"}
CONSTANT = {**PIXELS, "fill": "zero"}
IMPUTED = {**PIXELS, "fill": "noisy_linear"}


@dataclass(frozen=True)
class StudyScale:
    """How much is run; the defaults are those of the published results.

    Attributes:
        images: Test images of a task.
        natural: Images of each half of the ImageNet sample.
        checkpoint_images: Test images for each checkpoint.
        training: Training images of a task, at most.
        epochs: How often each of them is seen.
        seeds: Training runs whose checkpoints are compared.
        steps: Nodes of integrated gradients.
    """

    images: int = 150
    natural: int = 24
    checkpoint_images: int = 100
    training: int = 2000
    epochs: int = 12
    seeds: int = 3
    steps: int = 20


@dataclass(frozen=True, eq=False)
class TaskRun:
    """One suite on one network of one task.

    Attributes:
        part: `tasks`, `unsigned` maps, or `checkpoints`.
        task: The task.
        source: The task's source.
        family: The network's family.
        build: Makes the data and the network, and gives its accuracy.
        seed: The seed of the training.
        time: The epoch of the checkpoint; 0 for a pretrained network.
        accuracy_protocols: Whether the data have labels that an accuracy may be quoted on.
    """

    part: str
    task: str
    source: str
    family: str
    build: Callable[[], tuple[Dataset, Model, float]]
    seed: int = 0
    time: int = 0
    accuracy_protocols: bool = True

    @property
    def name(self) -> str:
        """The name of its folder."""
        mark = f"-s{self.seed}-e{self.time}" if self.part == "checkpoints" else ""
        return f"{self.task}-{self.family}{mark}"

    @property
    def fills(self) -> tuple[str, ...]:
        """The fills that are scored."""
        return {"tasks": ("constant", "imputed"), "unsigned": ("imputed",)}.get(
            self.part, ("constant",)
        )

    @property
    def steps(self) -> int:
        """Steps of a curve."""
        return 10 if self.accuracy_protocols and self.part != "checkpoints" else 5


def methods(part: str, steps: int) -> list[Item]:
    """The paper's eight methods and two controls; or three of them with absolute values."""
    options: dict[str, dict[str, object]] = {name: {} for name in PAPERS_EIGHT}
    options["integrated_gradients"] = {"steps": steps}
    options["lrp"] = {"rule": "epsilon"}
    if part == "unsigned":
        return [{name: {**options[name], "abs": True, "label": name}} for name in UNSIGNED]
    listed: list[Item] = [{name: {**of, "label": name}} for name, of in options.items()]
    return listed if part == "checkpoints" else [*listed, "random", "edge"]


def protocols(one: TaskRun) -> list[Item]:
    """The protocols of a run, by the labels that `label_of` gives."""
    made: list[Item] = []
    for fill in one.fills:
        shared = {**(CONSTANT if fill == "constant" else IMPUTED), "steps": one.steps}
        for order in ("morf", "lerf"):
            name = plugin_of(order, fill, one.accuracy_protocols)
            made.append({name: {**shared, "label": label_of(order, fill, one.accuracy_protocols)}})
    return made


def plugin_of(order: str, fill: str, accuracy: bool) -> str:
    """The protocol: of accuracy, or of the probability."""
    if not accuracy:
        return order
    return f"{'accuracy' if fill == 'constant' else 'road'}_{order}"


def label_of(order: str, fill: str, accuracy: bool) -> str:
    """Its label: its name; of the probability with `imputed`, where pixels are."""
    name = plugin_of(order, fill, accuracy)
    return name if accuracy or fill == "constant" else f"{name}_imputed"


def suite(one: TaskRun, dataset: Dataset, model: Model, scale: StudyScale) -> Spec:
    """The suite of a run."""
    return make_suite(
        {
            "title": f"Meta-Rank: {one.task}, {one.family}",
            "datasets": [dataset],
            "models": [model],
            "methods": methods(one.part, scale.steps),
            "protocols": protocols(one),
            "target": TARGET,
            "controls": "off",
        }
    )


def score(one: TaskRun, scale: StudyScale, out: Path) -> bool:
    """Run a suite and store its rows, unless they are stored; gives whether it was run."""
    path = out / "rows" / f"{one.part}-{one.name}.parquet"
    if path.is_file():
        return False
    dataset, model, accuracy = one.build()
    folder = out / one.part / one.name
    results = run(suite(one, dataset, model, scale), folder, keep_maps=False, progress=False)
    table = as_table(list(_rows(one, Reading(results), accuracy)))
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    pq.write_table(table, part)
    part.replace(path)
    return True


def _rows(one: TaskRun, reading: Reading, accuracy: float) -> Iterator[TaskScores]:
    curve = "correct" if one.accuracy_protocols else "probability"
    for fill in one.fills:
        for order in ("morf", "lerf"):
            protocol = label_of(order, fill, one.accuracy_protocols)
            for method in reading.methods:
                values = reading.curves(protocol, method)[curve]  # [n, K]
                x = reading.x(protocol, method)
                first = (x > 0) & (x <= 0.5 + 1e-9)
                last = first[::-1]  # the same shares, kept instead of removed
                area = np.asarray(np.trapezoid(values, x, axis=1))
                yield TaskScores(
                    one.part, one.task, one.source, one.family, one.seed, one.time, order, fill,
                    method, accuracy, area, values[:, first].mean(1), values[:, last].mean(1),
                )  # fmt: skip
