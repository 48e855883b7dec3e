"""The networks of the study of the defaults, split in two halves before anything is scored.

The choice is made on half A and reported on half B. Networks and seeds differ between the halves;
the painted parts have one packaged network, so there the halves are other scenes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from assay.environments.environment import environment
from assay.plan.resolving import build_one
from assay.types import Batch, Model

Kind = Literal["designed", "trained", "dose"]
ROOT = Path(__file__).parents[1]
ZOO = ROOT / "results" / "zoo"
Built = Mapping[str, Mapping[str, Any]]  # a network without weights, as a suite writes it
RESNET: Built = {"residual": {"depth": 20, "width": 1, "norm": "batch"}}


@dataclass(frozen=True)
class Referee:
    """A network with samples that judges candidates.

    Attributes:
        name: Its name in tables.
        kind: designed (exact truth), trained (planted or painted truth), dose (no truth).
        half: A, where the choice is made, or B, where it is reported.
        truth: The protocol, or `pearson`, whose order of maps is the truth; empty without truth.
        make: The network and `n` samples, from the data folder.
    """

    name: str
    kind: Kind
    half: Literal["A", "B"]
    truth: str
    make: Callable[[Path, int], tuple[Model, Batch]]


def referees() -> list[Referee]:
    """Every referee, in the order of the study."""
    return [
        _environment("designed, colours, s0", "designed", "A", "pearson", _colours(0, 1)),
        _environment("designed, near colours, s0", "designed", "A", "pearson", _colours(0, 32)),
        _environment("designed, colours, s1", "designed", "B", "pearson", _colours(1, 1)),
        _environment("designed, near colours, s1", "designed", "B", "pearson", _colours(1, 32)),
        _environment(
            "yellow patch, s0", "trained", "A", "attribution_percent",
            {"yellow_patch": {"epochs": 2, "train": 2000, "seed": 0}},
        ),
        _environment(
            "stripes, s0", "trained", "A", "attribution_percent",
            {"stripe_watermark": {"epochs": 2, "train": 3000, "classes": 16, "seed": 0}},
        ),
        _environment("parts, scenes 0", "trained", "A", "part_deletion", {"parts": {}}),
        _environment(
            "number, s1", "trained", "B", "attribution_percent",
            {"number_watermark": {"epochs": 4, "train": 4000, "classes": 10, "seed": 1}}, 1,
        ),
        _environment(
            "stripes, s1", "trained", "B", "attribution_percent",
            {"stripe_watermark": {"epochs": 2, "train": 3000, "classes": 16, "seed": 1}}, 1,
        ),
        _environment("parts, scenes 1", "trained", "B", "part_deletion", {"parts": {}}, 1),
        _cifar("ResNet-20", "A", 0, _published("cifar_resnet20", "cifar10_resnet20")),
        _cifar("ResNet-20 of the zoo, s1", "B", 1, _zoo("resnet20-s1-base", RESNET)),
    ]  # fmt: skip


def _colours(seed: int, reach: int) -> dict[str, dict[str, Any]]:
    options = {"size": 32, "temperature": 10, "reach": reach, "seed": seed, "samples": 64}
    return {"multi_color_sum": options}


def _environment(
    name: str, kind: Kind, half: Literal["A", "B"], truth: str, item: dict[str, dict[str, Any]],
    drawn: int = 0,
) -> Referee:  # fmt: skip
    ((plugin, options),) = item.items()

    def make(data: Path, n: int) -> tuple[Model, Batch]:
        more: dict[str, Any] = {}
        if kind == "trained" and plugin != "parts":
            path = data / "cifar10" / "cifar10_train_first10k_lossless.parquet"
            more = {"base": {"parquet": {"path": str(path)}}, "samples": n}
        made = environment(plugin, **{**options, **more})
        return made.model, made.batch(n, drawn)

    return Referee(name, kind, half, truth, make)


def _cifar(
    name: str, half: Literal["A", "B"], first: int, item: Callable[[Path], Mapping[str, Any]]
) -> Referee:
    """A network on every second test image: even ones for half A, odd ones for half B."""

    def make(data: Path, n: int) -> tuple[Model, Batch]:
        model: Model = build_one("model", item(data))
        path = data / "cifar10" / "cifar10_test_lossless.parquet"
        dataset = build_one("dataset", {"parquet": {"path": str(path)}})
        ids = dataset.ids[first : 2 * n : 2]
        return model, dataset.batch(ids, model.prepare, pixels=model.pixels)

    return Referee(name, "dose", half, "", make)


def _published(model: str, weights: str) -> Callable[[Path], Mapping[str, Any]]:
    def item(data: Path) -> Mapping[str, Any]:
        file = data / "weights" / "cifar10-resnet" / f"{weights}.safetensors"
        return {model: {"weights": str(file)}}

    return item


def _zoo(weights: str, model: Built) -> Callable[[Path], Mapping[str, Any]]:
    ((name, options),) = model.items()
    return lambda data: {name: {**options, "weights": str(ZOO / f"{weights}.safetensors")}}


def seeded() -> None:
    """One thread and a fixed generator for whatever draws without a seed."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
