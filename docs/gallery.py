"""Every method on the same four photographs: `make gallery` draws the strips that the site shows.

A strip is drawn anew where it is missing; remove it to have it drawn again.
"""

import sys
from dataclasses import replace
from pathlib import Path

import torch
from PIL import Image

from assay.errors import NotApplicable
from assay.methods.attribution import attribute
from assay.models.prepare import choose_micro_batch, prepare_network
from assay.plan.plan import build_one
from assay.plugins import registry
from assay.report.overlay import overlay
from assay.suite.spec import choose_one
from assay.types import Batch, Model

STRIPS = Path(__file__).parent / "images" / "gallery"
PHOTOGRAPHS = ("coffee", "imagenet_16_251", "imagenet_17_22", "imagenet_18_317")
WEIGHTS = Path(__file__).parents[1] / "tests" / "weights"
# The first that a method applies to is explained; small ones see the photographs at 32 pixels.
NETWORKS = {
    "efficientnet_lite0": {},
    "small_vit": {"weights": str(WEIGHTS / "small_vit_cifar10.safetensors")},
    "bcos_resnet": {"weights": str(WEIGHTS / "bcos_resnet20_cifar10.safetensors")},
    "bagnet": {"weights": str(WEIGHTS / "bagnet9_cifar10.safetensors")},
}
UNSEEN = ("maps", "oracle")
# Thousands of passes: a small network is explained.
COSTLY = dict.fromkeys(
    ("input_iba", "ig_sg", "ig_sg_sq", "ig_var", "rise", "rise_uniform"), "bagnet"
)
SIDE, GAP = 112, 4  # pixels


def main() -> None:
    """Draw what is missing."""
    STRIPS.mkdir(parents=True, exist_ok=True)
    seen = {name: _look(name) for name in NETWORKS}
    first = next(iter(seen.values()))
    _save("photographs", [_picture(*first, i) for i in range(len(PHOTOGRAPHS))])
    for name in shown():
        if not (STRIPS / f"{name}.jpg").exists():
            print(name, _draw(name, seen), flush=True)


def shown() -> list[str]:
    """The methods that have a strip: all but maps from a file, and those that show the truth."""
    return [p.name for p in registry.everything("method") if not p.own and p.name not in UNSEEN]


def _look(network: str) -> tuple[Model, Batch]:
    """The photographs as a network wants them, and the class it sees in each."""
    model = build_one("model", {network: NETWORKS[network]})
    photographs = build_one("dataset", "photos")
    batch = photographs.batch(PHOTOGRAPHS, model.prepare, pixels=model.pixels, tokens=model.tokens)
    model = replace(model, micro_batch=choose_micro_batch(batch.inputs))
    with model.evaluating(), torch.no_grad():
        model = prepare_network(model, batch.inputs[:1]).model
        return model, replace(batch, targets=model.logits(batch.inputs).argmax(1))


def _draw(name: str, seen: dict[str, tuple[Model, Batch]]) -> str:
    reasons = []
    wanted = {COSTLY[name]: seen[COSTLY[name]]} if name in COSTLY else seen
    choice = choose_one("method", name)
    for network, (model, batch) in wanted.items():
        missing = choice.plugin.required(choice.options) - {*model.capabilities, "image", "labels"}
        if missing:
            reasons.append(f"{network}: needs {', '.join(sorted(missing))}")
            continue
        try:
            with model.evaluating(), torch.no_grad():
                maps = attribute(model, batch, choice)
        except NotApplicable as reason:
            reasons.append(f"{network}: {reason}")
            continue
        pairs = zip(batch.inputs, maps, strict=True)
        _save(name, [overlay(model.pixels.to_pixels(x), values) for x, values in pairs])
        return network
    return f"not drawn: {'; '.join(reasons)}"


def _picture(model: Model, batch: Batch, sample: int) -> Image.Image:
    pixels = model.pixels.to_pixels(batch.inputs[sample])
    return overlay(pixels, torch.zeros(batch.map_shape))


def _save(name: str, pictures: list[Image.Image]) -> None:
    width = len(pictures) * (SIDE + GAP) - GAP
    strip = Image.new("RGB", (width, SIDE), "white")
    for place, picture in enumerate(pictures):
        small = picture.resize((SIDE, SIDE), Image.Resampling.LANCZOS)
        strip.paste(small, (place * (SIDE + GAP), 0))
    strip.save(STRIPS / f"{name}.jpg", quality=82)


if __name__ == "__main__":
    sys.exit(main())
