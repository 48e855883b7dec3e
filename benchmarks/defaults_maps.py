"""The maps that the study of the defaults scores: methods, controls, blurred maps and doses."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from assay.engine.engine import Engine
from assay.errors import NotApplicable
from assay.methods.attribution import attribute
from assay.plugins.option_types import Item
from assay.removal.fills import gaussian
from assay.suite.spec import choose_one
from assay.types import Batch

METHODS: Mapping[str, Item] = {
    "saliency": "saliency",
    "input_x_gradient": "input_x_gradient",
    "integrated_gradients": {"integrated_gradients": {"steps": 16}},
    "guided_backprop": "guided_backprop",
    "gradcam": "gradcam",
    "layercam": "layercam",
}
DOSED = ("input_x_gradient", "integrated_gradients", "gradcam")
DOSES = (0.0, 0.25, 0.5, 0.75, 1.0)
BLURRED = ("input_x_gradient", "integrated_gradients")
# Maps without any information, from rough to smooth.
EMPTY: Mapping[str, Item] = {
    "random": "random",
    "random 16": {"random": {"grid": 16}},
    "random 8": {"random": {"grid": 8}},
    "random 4": {"random": {"grid": 4}},
}
SMOOTH = ("random 16", "random 8", "random 4", "random blurred")
CONTROLS = ("edge", "centre")


def maps_of(engine: Engine, *, doses: bool, only: Sequence[str] = ()) -> dict[str, Tensor]:
    """Every map of a batch by name: those of methods that do not apply are left out.

    With `doses` each dosed method is mixed with its own maps dealt to other samples; otherwise the
    oracle, a blurred oracle and blurred maps are added.
    """
    maps = {}
    for name in only or METHODS:
        made = _attribution(engine, METHODS[name])
        if made is not None:
            maps[name] = made
    image = len(engine.batch.map_shape) == 2
    for name, item in EMPTY.items() if image else [("random", EMPTY["random"])]:
        made = _attribution(engine, item)
        if made is not None:
            maps[name] = made
    if image:
        maps["random blurred"] = blurred(maps["random"])
        for name in () if doses else CONTROLS:
            made = _attribution(engine, name)
            if made is not None:
                maps[name] = made
        maps |= {f"{name} blurred": blurred(maps[name]) for name in BLURRED if name in maps}
    if doses:
        for name in DOSED:
            if name in maps:
                maps |= mixed(name, maps[name])
    elif engine.batch.truth is not None:
        maps["oracle"] = engine.batch.truth.to(engine.batch.dtype)
        if image:
            maps["oracle blurred"] = blurred(maps["oracle"])
    return maps


def mixed(name: str, maps: Tensor) -> dict[str, Tensor]:
    """A method's map and its map of the next sample, each of length 1, in doses below 1."""
    own = _unit(maps)
    others = own.roll(1, 0)
    return {f"{name} x {d:g}": d * own + (1 - d) * others for d in DOSES[:-1]}


def blurred(maps: Tensor) -> Tensor:  # [B, H, W]
    """The maps under a Gaussian blur of a 16th of the side."""
    return gaussian(maps[:, None].float(), min(maps.shape[1:]) / 16)[:, 0].to(maps.dtype)


def _unit(maps: Tensor) -> Tensor:
    length: Tensor = maps.flatten(1).norm(dim=1).clamp(min=torch.finfo(maps.dtype).tiny)
    scaled: Tensor = maps / length.reshape(-1, *[1] * (maps.ndim - 1))
    return scaled


def _attribution(engine: Engine, item: Item) -> Tensor | None:
    choice = choose_one("method", item)
    batch: Batch = engine.batch
    has = engine.model.capabilities | ({"truth"} if batch.truth is not None else set())
    modality = {"image"} if len(batch.map_shape) == 2 else {"text", "vector"}
    if not choice.plugin.required(choice.options) <= has | modality:
        return None
    try:
        return attribute(engine.model, batch, choice, engine)
    except NotApplicable:
        return None
