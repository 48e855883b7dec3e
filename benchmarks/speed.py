"""Seconds for 100 images on ResNet-50 and ViT-B/16, beside what M4 published for the same networks.

    python -m benchmarks.speed --device cuda --out benchmarks/speed_h200.md

Weights are random: time does not depend on them. The floor is the same number of bare forward and
backward passes in the same micro-batches. Needs torchvision and transformers.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import assay
from assay.data.memory import as_dataset
from assay.engine.engine import network_engine
from assay.errors import NotApplicable
from assay.methods.attribution import attribute
from assay.methods.gradients import explained
from assay.models.prepare import Prepared, prepare_network
from assay.suite.spec import Choice, choose_one
from assay.types import Batch

SIDE = 224
COPIES = {"noise": {"samples": 100}}
EVERYWHERE: list[Any] = [
    "saliency", "input_x_gradient", {"smoothgrad": COPIES},
    {"integrated_gradients": {"steps": 100}}, "occlusion", {"rise": {"masks": 1000}},
    {"lime": {"samples": 1000}}, {"kernel_shap": {"samples": 1000}},
]  # fmt: skip
CONVOLUTIONAL: list[Any] = [
    "gradcam", "gradcam_pp", "xgradcam", "layercam", "cam", "guided_backprop", "deconvolution",
    "excitation_backprop", "guided_gradcam", "deeplift", "lrp", "iba",
    {"extremal_perturbation": {"steps": 800}},
]  # fmt: skip
ATTENTIVE: list[Any] = [
    "rollout", "generic_attention", "attention_gradcam", "chefer_lrp",
    {"bt_head": {"steps": 20}}, {"bt_token": {"steps": 20}},
]  # fmt: skip
# Seconds for 100 images in M4's Table 2, SmoothGrad with 100 copies and, by its passes, integrated
# gradients with as many points.
M4 = {
    "ResNet-50": {"smoothgrad": 470, "integrated_gradients": 392, "gradcam": 5},
    "ViT-B/16": {
        "bt_head": 179, "bt_token": 159, "generic_attention": 7, "smoothgrad": 391,
        "integrated_gradients": 436,
    },
}  # fmt: skip


def networks() -> Iterator[tuple[str, torch.nn.Module, list[Any]]]:
    """Both networks as their libraries build them, and the methods made for each."""
    import torchvision
    import transformers

    torch.manual_seed(0)
    yield "ResNet-50", torchvision.models.resnet50(weights=None), EVERYWHERE + CONVOLUTIONAL
    config = transformers.ViTConfig(num_labels=1000, attn_implementation="eager")
    yield "ViT-B/16", transformers.ViTForImageClassification(config), EVERYWHERE + ATTENTIVE


def clock(call: Callable[[], object], device: str) -> float:
    """Seconds of a call, everything it asked of a GPU included."""
    if device == "cuda":
        torch.cuda.synchronize()
    started = time.perf_counter()
    call()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started


def bare_passes(ready: Prepared, batch: Batch, device: str) -> tuple[float, float]:
    """Seconds of one row forward, and forward and back, in full micro-batches."""
    model, forward = ready.model, ready.forward
    rows = torch.arange(model.micro_batch, device=batch.inputs.device) % len(batch)
    x, targets = batch.inputs[rows], batch.targets[rows]

    def back() -> None:
        point = x.detach().requires_grad_(True)
        with torch.enable_grad():
            logits = model.logits(point)
            torch.autograd.grad(explained(model, logits, targets, "logit").sum(), point)

    found = []
    for call in (lambda: forward(x), back):
        clock(call, device)
        found.append(min(clock(call, device) for _ in range(5)) / len(rows))
    return found[0], found[1]


def measure(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Every method of both networks; of short calls the second counts."""
    for network, net, methods in networks():
        model = assay.model(net.to(given.device).eval(), name=network)
        model = replace(model, micro_batch=given.micro_batch)
        x = torch.randn(given.images, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(1))
        dataset = as_dataset((x, torch.arange(given.images) % 10))
        batch = dataset.batch(dataset.ids).to(torch.device(given.device))
        choices = [choose_one("method", item) for item in methods]
        with model.evaluating(), torch.no_grad():
            ready = prepare_network(model, batch.inputs[:1])
            model = ready.model
            bare = bare_passes(ready, batch, given.device)
            for choice in choices:
                if given.only and choice.plugin.name not in given.only.split(","):
                    continue
                try:
                    if not set(choice.options) & {"steps", "masks", "samples"}:
                        _explain(ready, batch, choice)()  # warm-up where it weighs: short calls
                    seconds = clock(_explain(ready, batch, choice), given.device)
                except NotApplicable as reason:
                    print(f"{network}, {choice.label}: n/a, {reason}", flush=True)
                    continue
                row = _row(network, choice, seconds / given.images, bare)
                print(row, flush=True)
                yield row


def _explain(ready: Prepared, batch: Batch, choice: Choice) -> Callable[[], Tensor]:
    """The call that is measured; its engine has the clean answers and no others."""
    engine = network_engine(ready.model, batch, ready.forward)
    engine.clean  # noqa: B018
    return partial(attribute, ready.model, batch, choice, engine)


def _row(network: str, choice: Choice, seconds: float, bare: tuple[float, float]) -> dict[str, Any]:
    """What one image took, beside its passes."""
    passes, (once, both) = choice.passes, bare
    forward, backward = passes.forward or 0, passes.backward or 0
    floor = (forward - backward) * once + backward * both
    return {
        "network": network, "method": choice.label, "forward": forward, "backward": backward,
        "seconds": 100 * seconds, "over_floor": seconds / floor if floor else None,
        "m4": M4[network].get(choice.plugin.name),
    }  # fmt: skip


def page(rows: list[dict[str, Any]], given: argparse.Namespace) -> str:
    """The table, with where it was measured."""
    where = torch.cuda.get_device_name() if given.device == "cuda" else "CPU"
    lines = [
        "# Seconds for 100 images",
        "",
        f"{where}, torch {torch.__version__}, full precision, 224 pixels, micro-batches of "
        f"{given.micro_batch}; made by `python -m benchmarks.speed`. `over floor` is the time over "
        f"that of as many bare passes. M4 published its seconds for its own code, one image at a "
        f"time, on a GPU of its time.",
        "",
        "| network | method | forwards | backwards | seconds | over floor | M4's seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        over = "" if row["over_floor"] is None else f"{row['over_floor']:.2f}"
        lines.append(
            f"| {row['network']} | {row['method']} | {row['forward']} | {row['backward']} | "
            f"{row['seconds']:.2f} | {over} | {row['m4'] or ''} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, print, and write the page where one is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--micro-batch", type=int, default=50)
    parser.add_argument("--only", help="names of methods, by commas")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    written = page(list(measure(given)), given)
    print(written)
    if given.out:
        given.out.write_text(written)


if __name__ == "__main__":
    main()
