"""One picture, one model, one method: the map over the picture, and what the model says."""

from pathlib import Path
from typing import Any

import torch
from PIL import Image, UnidentifiedImageError

from assay.api import explain
from assay.errors import InputError, PrerequisiteError
from assay.plan import build_one
from assay.report.overlay import overlay


def explain_picture(
    path: Path, model_item: Any, method: str, target: int | None
) -> tuple[str, Image.Image]:
    """What the model says of an image file, in words, and the method's map over it.

    Raises:
        InputError: The file holds no image, or the model does not say how it prepares one.
    """
    model = build_one("model", model_item)
    if model.prepare is None:
        raise PrerequisiteError(
            f"It is not known how model `{model.name}` prepares images: give --size, --mean, --std."
        )
    try:
        with Image.open(path) as file:
            inputs = model.prepare(file)[None]
    except FileNotFoundError:
        raise PrerequisiteError(f"There is no file `{path}`.") from None
    except (UnidentifiedImageError, OSError) as error:
        raise InputError(f"Expected an image in `{path}`: {error}.") from error
    with model.evaluating(), torch.no_grad():
        shares = model.log_probs(model(inputs.to(model.device)))[0].exp()
    if target is not None and target >= len(shares):
        raise InputError(f"Expected a class below {len(shares)}, got {target}.")
    chosen = int(shares.argmax()) if target is None else target
    values = explain(model, inputs, [chosen], method)[0]
    name = model.classes[chosen] if model.classes else f"class {chosen}"
    said = f"{model.name} gives {name} a probability of {float(shares[chosen]):.3f}."
    return said, overlay(model.prepare.pixels.to_pixels(inputs[0]), values)
