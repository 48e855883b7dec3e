"""Every method on the same four photographs: `make gallery` draws the strips that the site shows.

A strip is drawn where it is missing; remove it to have it drawn again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from PIL import Image

from assay.errors import NotApplicable
from assay.methods.attribution import attribute
from assay.models.prepare import choose_micro_batch, prepare_network
from assay.plan.resolving import build_one
from assay.plugins import registry
from assay.report.overlay import overlay
from assay.suite.spec import Choice, choose_one
from assay.types import Batch, Model

STRIPS = Path(__file__).parent / "images" / "gallery"
PHOTOGRAPHS = ("coffee", "imagenet_16_251", "imagenet_17_22", "imagenet_18_317")
WEIGHTS = Path(__file__).parents[1] / "tests" / "weights"
# A method explains the first of these that it applies to; the small ones see 32 pixels a side.
NETWORKS = {
    "efficientnet_lite0": {},
    "bagnet": {"weights": str(WEIGHTS / "bagnet9_cifar10.safetensors")},
    "small_vit": {"weights": str(WEIGHTS / "small_vit_cifar10.safetensors")},
    "bcos_resnet": {"weights": str(WEIGHTS / "bcos_resnet20_cifar10.safetensors")},
}
LARGE = "efficientnet_lite0"
COSTLY = 1000  # passes per sample, from which a method explains a small network only
SIDE, GAP = 112, 4  # pixels

Setting = tuple[Model, Batch]  # a network and the photographs as it takes them


def main() -> None:
    """Draw what is missing."""
    STRIPS.mkdir(parents=True, exist_ok=True)
    settings = {name: _setting(name) for name in NETWORKS}
    _save("photographs", [_photograph(*settings[LARGE], i) for i in range(len(PHOTOGRAPHS))])
    for method in drawable():
        if not (STRIPS / f"{method.name}.jpg").exists():
            print(method.name, _draw(choose_one("method", method.name), settings), flush=True)


def drawable() -> list[registry.Method]:
    """The built-in methods; photographs have no stored maps to look up and no truth to show."""
    return [
        method
        for method in registry.everything("method")
        if not method.own
        and not method.only_looks_up
        and "truth" not in method.required(method.defaults)
    ]


def _setting(network: str) -> Setting:
    """The photographs as a network takes them, with the class it predicts for each."""
    model = build_one("model", {network: NETWORKS[network]})
    photographs = build_one("dataset", "photos")
    batch = photographs.batch(PHOTOGRAPHS, model.prepare, pixels=model.pixels, tokens=model.tokens)
    model = replace(model, micro_batch=choose_micro_batch(batch.inputs))
    with model.evaluating(), torch.no_grad():
        model = prepare_network(model, batch.inputs[:1]).model
        return model, replace(batch, targets=model.logits(batch.inputs).argmax(1))


def _draw(choice: Choice, settings: Mapping[str, Setting]) -> str:
    """Draw a method's strip; the name of the network it explains, or why there is none."""
    reasons = []
    for network, (model, batch) in settings.items():
        missing = choice.plugin.required(choice.options) - {*model.capabilities, "image", "labels"}
        if missing:
            reasons.append(f"{network}: needs {', '.join(sorted(missing))}")
            continue
        if network == LARGE and _passes(choice) >= COSTLY:
            continue
        try:
            with model.evaluating(), torch.no_grad():
                maps = attribute(model, batch, choice)
        except NotApplicable as reason:
            reasons.append(f"{network}: {reason}")
            continue
        pairs = zip(batch.inputs, maps, strict=True)
        _save(choice.label, [overlay(model.pixels.to_pixels(x), values) for x, values in pairs])
        return network
    return f"not drawn: {'; '.join(reasons)}"


def _passes(choice: Choice) -> int:
    """The passes per sample, as far as the options decide them."""
    return (choice.passes.forward or 0) + (choice.passes.backward or 0)


def _photograph(model: Model, batch: Batch, sample: int) -> Image.Image:
    pixels = model.pixels.to_pixels(batch.inputs[sample])
    return overlay(pixels, torch.zeros(batch.map_shape))


def _save(name: str, pictures: Sequence[Image.Image]) -> None:
    width = len(pictures) * (SIDE + GAP) - GAP
    strip = Image.new("RGB", (width, SIDE), "white")
    for place, picture in enumerate(pictures):
        small = picture.resize((SIDE, SIDE), Image.Resampling.LANCZOS)
        strip.paste(small, (place * (SIDE + GAP), 0))
    strip.save(STRIPS / f"{name}.jpg", quality=82)


if __name__ == "__main__":
    main()
