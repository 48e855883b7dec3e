"""How long ROAR takes on two cores: a smoke test with few epochs, not a result about methods.

    python -m benchmarks.roar --data ../shared/data --out roar-run

Three methods, three fractions and two retrainings: 18 networks of ResNet-8's size are trained on
5000 images of CIFAR-10 and tested on 500 others. The data folder holds
`cifar10/cifar10_train_first10k_lossless.parquet` and `cifar10/cifar10_test_lossless.parquet`.
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path

import torch

from assay.data.parquet import parquet
from assay.models.cifar_resnet import CLASSES, PIXELS, CifarResNet
from assay.results import Results
from assay.run import run
from assay.suite.spec import Spec, make_suite
from assay.training.fitting import Recipe, fit_network
from assay.training.trained_weights import TrainedWeights
from assay.types import Dataset, Model, Preprocess

METHODS = ["saliency", "gradcam", "random"]
FRACTIONS = (0.1, 0.5, 0.9)


def first(dataset: Dataset, n: int) -> Dataset:
    """The first samples of a dataset."""
    ids = dataset.ids[:n]
    labels = {i: dataset.labels[i] for i in ids}
    fingerprint = f"{dataset.fingerprint} first {n}"
    return replace(dataset, ids=ids, labels=labels, fingerprint=fingerprint)


def resnet8(train: Dataset, out: Path, epochs: int) -> Model:
    """A residual network of eight layers, trained once."""
    torch.manual_seed(0)
    prepare = Preprocess(size=32, pixels=PIXELS)
    model = Model(
        net=CifarResNet(8), name="resnet8", cam_layer="layer3", prepare=prepare, pixels=PIXELS,
        classes=CLASSES,
    )  # fmt: skip
    batch = train.batch(train.ids, prepare)
    labels = torch.tensor([train.labels[i] for i in train.ids])
    recipe = Recipe(epochs=epochs, batch=128)
    key = f"resnet8-{len(labels)}-{epochs}"
    TrainedWeights().train_once(
        key, model.net, lambda: _train(model, batch.inputs, labels, recipe), out / "network"
    )
    return model


def _train(model: Model, inputs: torch.Tensor, labels: torch.Tensor, recipe: Recipe) -> None:
    fit_network(model, inputs, labels, recipe, what="network")


def suite(data: Path, out: Path, samples: int = 5000, scored: int = 500, epochs: int = 2) -> Spec:
    """The suite of the smoke test."""
    images = data / "cifar10"
    train = first(parquet(path=str(images / "cifar10_train_first10k_lossless.parquet")), samples)
    roar = {"fractions": FRACTIONS, "retrainings": 2, "epochs": epochs}
    return make_suite(
        {
            "title": "ROAR, a smoke test",
            "datasets": [parquet(path=str(images / "cifar10_test_lossless.parquet"))],
            "train": [train],
            "models": [resnet8(train, out, 2 * epochs)],
            "methods": METHODS,
            "protocols": [{"roar": roar}],
            "target": "predicted",
            "limit": scored,
        }
    )


def table(results: Results) -> str:
    """The accuracy of the retrained networks by method and fraction."""
    sql = (
        "select method, x, avg(c.value) as accuracy from curves c join "
        "(select distinct cell, method from scores) using (cell) group by all order by all"
    )
    rows = results.query(sql).to_pylist()
    return "\n".join(f"{r['method']:<10} {r['x']:.1f}  {r['accuracy']:.3f}" for r in rows)


def main() -> None:
    """Run the smoke test and print its time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("roar-run"))
    parser.add_argument("--samples", type=int, default=5000)
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()
    spec = suite(options.data, options.out, options.samples, epochs=options.epochs)
    started = time.monotonic()
    results = run(spec, options.out)
    print(table(results))
    print(f"{time.monotonic() - started:.0f} s without the first network")


if __name__ == "__main__":
    main()
