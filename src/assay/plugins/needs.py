"""Capabilities of models and data that a plug-in may need."""

import difflib
from typing import Any

from assay.errors import InputError, NotApplicable, PrerequisiteError

# Known capabilities, described for messages, with a remedy where there is one. A model may declare
# more in its `has`.
NEEDS = {
    "gradients": "a network that gradients can be taken through, which quantised ones are not; "
    "occlusion, rise, lime and kernel_shap work without",
    "classes": "a network that outputs classes",
    "spatial": "a layer with a spatial map; name one with `assay.model(..., cam_layer=...)`, or "
    "for a vision transformer `cam_reshape=(14, 14)`",
    "attention": "self-attention that can be read; if no module has it in its class name, "
    "declare it in `has` (docs/how_to/own_model.md)",
    "image": "inputs [samples, channels, height, width]",
    "vector": "inputs [samples, numbers]",
    "text": "texts or token ids, and `assay.model(..., tokens=...)` (docs/how_to/texts.md)",
    "labels": "correct labels: pass y",
    "truth": "true attribution maps: pass (X, y, truth)",
    "training": "training samples: `train:` in a suite, `train=(X, y)` in Python, `--train` on the "
    "command line",
    "counted": "data where every truth pixel counts one, as in single_color_modulo",
    "parts": "images painted of parts, as in the environment `parts`",
    "bcos": "a B-cos network with its explanation mode",
    "in_domain": "a network fine-tuned on inputs without one cell, and its card: `assay finetune`",
    "bagnet": "a bag of patches, such as a BagNet, with `patch_logits`, `receptive_field` and "
    "`stride`",
}


def say_missing(model: str, missing: list[str], card: str = "") -> str:
    """Describe missing capabilities, to follow the word `needs` in a message.

    Args:
        model: The name of the model.
        missing: The capabilities.
        card: What the card of a fine-tuned model is of and what to do; empty without one.
    """
    described = (f"{need} ({_remedy(need, card)})" for need in missing)
    return f"{', '.join(described)}, which model `{model}` with these data does not have."


def _remedy(need: str, card: str) -> str:
    """What a need means, and what to do about it."""
    name, _, options = need.partition(":")
    if name != "in_domain" or not options:
        return NEEDS.get(need, "declare it in `has` of the model")
    grid, _, fill = options.removeprefix("grid=").partition(",fill=")
    fill = f"'{fill}'" if "(" in fill else fill
    command = f"`assay finetune --model M --data D --grid {grid} --fill {fill} --out DIR`"
    files = "`--weights DIR/weights.safetensors --card DIR/card.json`"
    if card:
        return f"its card is of {card}: {command}, then give {files}"
    return (
        f"a network fine-tuned on inputs without one cell of this grid and fill, and its card: "
        f"{command} makes one; then give {files}"
    )


def declared(plugin: Any, fact: str, *arguments: object) -> Any:
    """What a plug-in declares, also by a function of its options, which may be a user's.

    Raises:
        InputError: That function failed.
    """
    value = getattr(plugin, fact)
    try:
        return value(*arguments) if callable(value) else value
    except (InputError, PrerequisiteError, NotApplicable):
        raise
    except Exception as error:
        raise InputError(
            f"The function `{fact}` that {plugin.kind} `{plugin.name}` declares failed: "
            f"{type(error).__name__}: {error}. It gets all options, as a mapping by name."
        ) from error


def check_needs(kind: str, name: str, needs: frozenset[str]) -> None:
    """Reject a misspelled need: the plug-in would silently apply to nothing.

    Raises:
        InputError: A need is unknown but close to a known one.
    """
    for need in needs - set(NEEDS):
        near = difflib.get_close_matches(need, NEEDS, n=1, cutoff=0.8)
        if near:
            raise InputError(
                f"Expected the needs of {kind} `{name}` to be among {', '.join(NEEDS)}, got "
                f"`{need}`. Did you mean `{near[0]}`?"
            )
