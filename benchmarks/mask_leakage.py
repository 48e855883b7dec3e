"""What masks alone tell about the class of CIFAR-10's test images.

    python -m benchmarks.mask_leakage --data ../shared/data --out leakage-run

A small network is trained on one half of the 10,000 test images and explained. Then networks of the
same architecture are trained to recognise the class from the masks of this half, and tested on the
masks of the other half. The data folder holds `cifar10/cifar10_test_lossless.parquet`. Ten minutes
on two cores.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

import assay
from assay.data.parquet import parquet
from assay.models.cifar_resnet import PIXELS
from assay.results import Results
from assay.training.fitting import Recipe, fit_network
from assay.types import Batch, Dataset, Model, Preprocess

CELL = {"masks": "random", "units": {"grid": {"side": 4}}, "fraction": 1 / 16}
SEGMENT = {"masks": "random", "units": {"slic": {"n_segments": 8}}, "fraction": 1 / 8}
MAP = {"fraction": 0.25}


def halves(dataset: Dataset) -> tuple[Dataset, Dataset]:
    """Two random halves of a dataset."""
    order = torch.randperm(len(dataset.ids), generator=torch.Generator().manual_seed(0)).tolist()
    middle = len(order) // 2
    first, second = (tuple(dataset.ids[i] for i in o) for o in (order[:middle], order[middle:]))
    return _part(dataset, first, "first"), _part(dataset, second, "second")


def _part(dataset: Dataset, ids: tuple[str, ...], name: str) -> Dataset:
    labels = {i: dataset.labels[i] for i in ids}
    return replace(dataset, ids=ids, labels=labels, fingerprint=f"{dataset.fingerprint} {name}")


def small_network(train: Dataset) -> Model:
    """A network of three convolutions, trained for twenty epochs."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(),
        nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(),
        nn.Conv2d(64, 64, 3, 2, 1), nn.ReLU(),
        nn.Flatten(), nn.Linear(1024, 10),
    )  # fmt: skip
    prepare = Preprocess(size=32, pixels=PIXELS)
    model = Model(net=net, name="small", prepare=prepare, pixels=PIXELS)
    batch = train.batch(train.ids, prepare)
    assert batch.labels is not None
    fit_network(model, batch.inputs, batch.labels, Recipe(epochs=20, batch=128, rate=0.03))
    return model


def brightness(model: Model, batch: Batch) -> Tensor:
    """The sum of the channels."""
    return batch.inputs.sum(1)


def leakage(data: Path, out: Path, trainings: int) -> list[Results]:
    """The runs of random masks, which all methods share, and of masks from maps."""
    images = parquet(path=str(data / "cifar10" / "cifar10_test_lossless.parquet"))
    train, scored = halves(images)
    model = small_network(train)
    common = {"epochs": 15, "rate": 0.03, "trainings": trainings}

    def protocol(label: str, masks: dict[str, object]) -> dict[str, object]:
        return {"mask_leakage": {**common, **masks, "label": label}}

    shared = [protocol("one cell", CELL), protocol("one segment", SEGMENT)]
    asked = [
        ("random masks", {"random": {}}, shared),
        ("maps", {"brightness": brightness, "saliency": {}}, [protocol("first quarter", MAP)]),
    ]
    return [
        assay.benchmark(
            model, scored, methods, protocols, train=train, target="predicted", out=out / name
        )
        for name, methods, protocols in asked
    ]


def main() -> None:
    """Run both and print the leakage with intervals over images and trainings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("leakage-run"))
    parser.add_argument("--trainings", type=int, default=5)
    options = parser.parse_args()
    for results in leakage(options.data, options.out, options.trainings):
        print(results.leaderboard())


if __name__ == "__main__":
    main()
