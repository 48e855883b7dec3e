"""Every method on the same four photographs: `make gallery` draws the strips that the site shows.

A strip is drawn anew where it is missing; remove it to have it drawn again.
"""

import sys
from pathlib import Path

import torch
from PIL import Image

from assay import registry
from assay.errors import NotApplicable
from assay.methods import attribute
from assay.models.prepare import prepare_network
from assay.plan import build_one
from assay.report.overlay import overlay
from assay.spec import choose_one
from assay.types import Batch, Model

STRIPS = Path(__file__).parent / "images" / "gallery"
PHOTOGRAPHS = ("coffee", "imagenet_16_251", "imagenet_17_22", "imagenet_18_317")
NETWORKS = ("efficientnet_lite0",)  # the first that a method applies to is explained
SIDE, GAP = 112, 4  # pixels


def main() -> None:
    """Draw what is missing."""
    STRIPS.mkdir(parents=True, exist_ok=True)
    seen = {name: _look(name) for name in NETWORKS}
    _save("photographs", [_picture(*seen[NETWORKS[0]], i) for i in range(len(PHOTOGRAPHS))])
    for name in registry.names("method"):
        if not (STRIPS / f"{name}.jpg").exists():
            print(name, _draw(name, seen), flush=True)


def _look(network: str) -> tuple[Model, Batch]:
    """The photographs as a network wants them."""
    model, photographs = build_one("model", network), build_one("dataset", "photos")
    batch = photographs.batch(PHOTOGRAPHS, model.prepare, pixels=model.pixels, tokens=model.tokens)
    with model.evaluating(), torch.no_grad():
        prepare_network(model, batch.inputs[:1])
    return model, batch


def _draw(name: str, seen: dict[str, tuple[Model, Batch]]) -> str:
    reasons = []
    for network, (model, batch) in seen.items():
        try:
            with model.evaluating(), torch.no_grad():
                maps = attribute(model, batch, choose_one("method", name))
        except NotApplicable as reason:
            reasons.append(f"{network}: {reason}")
            continue
        shown = [
            overlay(model.pixels.to_pixels(x), values)
            for x, values in zip(batch.inputs, maps, strict=True)
        ]
        _save(name, shown)
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
