"""Train a small registered network from nothing, and keep its weights in half precision.

    python -m benchmarks.train_small --model bcos_resnet --out bcos.safetensors --epochs 30 \
        --train a.parquet b.parquet --test test.parquet --device cuda

Files are parquet with lossless pixels, read as runs read them. Any registered model will do that is
built without weights; B-cos networks are trained on each class's own yes or no, others on the
classes together. The accuracy is that of the weights as they are saved.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from assay.errors import InputError
from assay.models.weights import load_weights
from assay.plugins import registry
from assay.training.epochs import accuracy
from assay.training.fitting import Recipe, fit_network
from assay.types import Model

LARGEST = 2_000_000  # bytes of a file of weights


def build(name: str, options: dict[str, Any]) -> Model:
    """A registered network without weights."""
    plugin = registry.get("model", name)
    if "weights" in plugin.options and plugin.options["weights"].default is not None:
        raise InputError(f"Expected a model that can be built without weights, got `{name}`.")
    made: Model = plugin.function(**plugin.configure(options))
    return made


def read(paths: Sequence[str], model: Model, limit: int | None = None) -> tuple[Tensor, Tensor]:
    """All images of some parquet files as the network takes them, and their labels."""
    inputs, labels = [], []
    for path in paths:
        data = registry.get("dataset", "parquet").function(path=path)
        left = None if limit is None else limit - sum(map(len, labels))
        for start in range(0, len(data.ids[:left]), 1000):
            batch = data.batch(data.ids[:left][start : start + 1000], model.prepare)
            inputs.append(batch.inputs)
            labels.append(batch.labels)
    return torch.cat(inputs), torch.cat(labels)


def recipe_of(given: argparse.Namespace) -> Recipe:
    """How to train, from the command line."""
    sgd = given.optimizer == "sgd"
    return Recipe(
        epochs=given.epochs,
        batch=given.batch,
        optimizer=given.optimizer,
        rate=given.lr or (0.1 if sgd else 3e-3),
        decay=5e-4 if sgd else given.decay,
    )


def save(model: Model, path: Path) -> None:
    """The weights in half precision, refused where they are too large or do not fit into it."""
    state = {k: v.cpu().contiguous() for k, v in model.net.state_dict().items()}
    halved = {k: v.half() if v.is_floating_point() else v for k, v in state.items()}
    wrong = [k for k, v in halved.items() if not bool(torch.isfinite(v).all())]
    if wrong:
        raise InputError(f"Expected finite weights in half precision, got others in {wrong[0]}.")
    size = sum(v.numel() * v.element_size() for v in halved.values())
    if size > LARGEST:
        raise InputError(
            f"Expected at most {LARGEST:,} bytes of weights, got {size:,}: less width."
        )
    save_file(halved, path)
    load_weights(model.net, path)  # what is measured is what was saved


def main(arguments: Sequence[str] | None = None) -> float:
    """Train, save, measure; gives the accuracy."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--options", type=json.loads, default={}, help='as JSON: {"width": 32}')
    parser.add_argument("--train", nargs="+", required=True)
    parser.add_argument("--test", nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--optimizer", choices=["adamw", "sgd"], default="adamw")
    parser.add_argument("--lr", type=float)
    parser.add_argument("--decay", type=float, default=0.05, help="of AdamW")
    parser.add_argument("--limit", type=int, help="training images")
    parser.add_argument("--test-limit", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    given = parser.parse_args(arguments)
    if given.out.suffix != ".safetensors":
        parser.error(f"--out: expected a file that ends in .safetensors, got `{given.out}`")
    torch.manual_seed(given.seed)
    model = build(given.model, given.options)
    model.net.to(given.device)
    x, y = (t.to(given.device) for t in read(given.train, model, given.limit))
    losses = fit_network(model, x, y, recipe_of(given), seed=given.seed)
    for epoch, loss in enumerate(losses):
        print(f"epoch {epoch + 1}/{given.epochs}: loss {loss:.4f}", flush=True)
    save(model, given.out)
    right = accuracy(
        model, *(t.to(given.device) for t in read(given.test, model, given.test_limit))
    )
    print(f"{given.out}: {given.out.stat().st_size:,} bytes, accuracy {right:.2%}")
    return right


if __name__ == "__main__":
    main()
