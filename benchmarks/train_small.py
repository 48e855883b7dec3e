"""Train a small registered network from nothing, and keep its weights in half precision.

    python -m benchmarks.train_small --model bcos_resnet --out bcos.safetensors --epochs 30 \
        --train a.parquet b.parquet --test test.parquet --device cuda --bf16

Files are parquet with lossless pixels, read as runs read them. Any registered model will do that is
built without weights; B-cos networks are trained on each class's own yes or no, others on the
classes together. The accuracy is that of the weights as they are saved.
"""

import argparse
import json
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from assay.errors import InputError
from assay.models.weights import load_weights
from assay.plugins import registry
from assay.types import Model

MARGIN = 4  # pixels that a crop may be off, as a share of 32: an eighth of the side
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


def augment(x: Tensor, generator: torch.Generator) -> Tensor:
    """Each image mirrored or not, and moved by up to an eighth of its side."""
    n, side = len(x), x.shape[-1]
    margin = max(1, side * MARGIN // 32)
    padded = F.pad(x, (margin,) * 4, mode="reflect")  # of the image itself: no colour is made up
    draw = [torch.randint(0, 2 * margin + 1, (n, 1), generator=generator) for _ in range(2)]
    flip = (torch.rand(n, 1, generator=generator) < 0.5).to(x.device)
    places = torch.arange(side, device=x.device)[None]
    rows, columns = (places + d.to(x.device) for d in draw)  # [n, side]
    columns = torch.where(flip, columns.flip(1), columns)
    moved = padded.permute(0, 2, 3, 1)[
        torch.arange(n, device=x.device)[:, None, None], rows[:, :, None], columns[:, None, :]
    ]
    # In the usual layout: torch's gradients of 1 x 1 filters with a stride crash in channels-last.
    return moved.permute(0, 3, 1, 2).contiguous()


def batches(
    x: Tensor, y: Tensor, size: int, generator: torch.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """One epoch in a new order; a short rest is left out."""
    size = min(size, len(x))
    order = torch.randperm(len(x), generator=generator)
    for rows in order[: len(x) // size * size].split(size):
        rows = rows.to(x.device)
        yield augment(x[rows], generator), y[rows]


def loss_of(model: Model, logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy; for B-cos networks that of each class's own yes or no, as published."""
    if "bcos" in model.capabilities:
        wanted = F.one_hot(labels, logits.shape[1]).to(logits.dtype)
        return F.binary_cross_entropy_with_logits(logits, wanted, reduction="none").sum(1).mean()
    return F.cross_entropy(logits, labels)


def optimiser_of(net: nn.Module, given: argparse.Namespace) -> torch.optim.Optimizer:
    if given.optimizer == "sgd":
        return torch.optim.SGD(
            net.parameters(), lr=given.lr or 0.1, momentum=0.9, weight_decay=5e-4, nesterov=True
        )
    return torch.optim.AdamW(net.parameters(), lr=given.lr or 3e-3, weight_decay=given.decay)


def train(model: Model, x: Tensor, y: Tensor, given: argparse.Namespace) -> list[float]:
    """Train in place by a cosine after a short rise; gives the mean loss of each epoch."""
    generator = torch.Generator().manual_seed(given.seed)
    optimiser = optimiser_of(model.net, given)
    steps = given.epochs * (len(x) // min(given.batch, len(x)))
    rise = max(1, steps // 20)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser,
        lambda step: min((step + 1) / rise, 0.5 * (1 + math.cos(math.pi * step / steps))),
    )
    device, losses = x.device.type, []
    started = time.monotonic()
    for epoch in range(given.epochs):
        model.net.train()
        seen = []
        for inputs, labels in batches(x, y, given.batch, generator):
            with torch.autocast(device, torch.bfloat16, enabled=given.bf16):
                logits = model.logits(inputs)
            loss = loss_of(model, logits.float(), labels)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            seen.append(loss.detach())
        losses.append(torch.stack(seen).mean().item())
        took = time.monotonic() - started
        print(f"epoch {epoch + 1}/{given.epochs}: loss {losses[-1]:.4f}, {took:.0f} s", flush=True)
    model.net.eval()
    return losses


@torch.no_grad()
def accuracy(model: Model, x: Tensor, y: Tensor, rows: int = 500) -> float:
    """The share of right answers."""
    model.net.eval()
    parts = zip(x.split(rows), y.split(rows), strict=True)
    return sum(int((model.logits(a).argmax(1) == b).sum()) for a, b in parts) / len(y)


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
    parser.add_argument("--bf16", action="store_true")
    given = parser.parse_args(arguments)
    if given.out.suffix != ".safetensors":
        parser.error(f"--out: expected a file that ends in .safetensors, got `{given.out}`")
    torch.manual_seed(given.seed)
    model = build(given.model, given.options)
    model.net.to(given.device)
    x, y = (t.to(given.device) for t in read(given.train, model, given.limit))
    train(model, x, y, given)
    save(model, given.out)
    right = accuracy(
        model, *(t.to(given.device) for t in read(given.test, model, given.test_limit))
    )
    print(f"{given.out}: {given.out.stat().st_size:,} bytes, accuracy {right:.2%}")
    return right


if __name__ == "__main__":
    main()
