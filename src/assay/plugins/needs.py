"""What a plug-in may need of models and data."""

import difflib

from assay.errors import InputError

# What models and data are known to have, in words, with the cure where there is one; a model may
# declare more in its `has`.
NEEDS = {
    "gradients": "a network that gradients can be taken through",
    "classes": "a network that tells classes apart",
    "spatial": "a layer with a spatial map; name one with `assay.model(..., cam_layer=...)`, or of "
    "a vision transformer `cam_reshape=(14, 14)`",
    "attention": "self-attention that can be read; where no part of the network is called so, "
    "declare it in `has` (docs/how_to/own_model.md)",
    "image": "inputs [samples, channels, height, width]",
    "vector": "inputs [samples, numbers]",
    "text": "texts or token ids, and `assay.model(..., tokens=...)` (docs/how_to/texts.md)",
    "labels": "the right classes: give y",
    "truth": "maps of what is truly relevant: give (X, y, truth)",
    "counted": "data whose every truth pixel counts one, as in single_color_modulo",
    "parts": "images painted of parts, as in the environment `parts`",
    "bcos": "a B-cos network with its explanation mode",
    "bagnet": "a bag of patches, such as a BagNet, with `patch_logits`, `receptive_field` and "
    "`stride`",
}


def say_missing(model: str, missing: list[str]) -> str:
    """What a plug-in needs that neither a model nor its data have, in words behind `needs`."""
    said = (f"{need} ({NEEDS.get(need, 'declare it in `has` of the model')})" for need in missing)
    return f"{', '.join(said)}, which model `{model}` with these data does not have."


def check_needs(kind: str, name: str, needs: frozenset[str]) -> None:
    """Refuse a slip of the pen: it would make a plug-in apply nowhere, in silence.

    Raises:
        InputError: A need is nearly one of those known.
    """
    for need in needs - set(NEEDS):
        near = difflib.get_close_matches(need, NEEDS, n=1, cutoff=0.8)
        if near:
            raise InputError(
                f"Expected the needs of {kind} `{name}` to be among {', '.join(NEEDS)}, got "
                f"`{need}`. Did you mean `{near[0]}`?"
            )
