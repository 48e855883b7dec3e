"""What a plug-in may need of models and data."""

import difflib

from assay.errors import InputError

# What models and data are known to have; a model may declare more in its `has`.
NEEDS = (
    "gradients", "classes", "spatial", "attention", "image", "vector", "text", "labels", "truth",
    "bcos", "bagnet",
)  # fmt: skip


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
