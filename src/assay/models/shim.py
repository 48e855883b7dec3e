"""Importing torchvision beside a torch build it was not made for."""

import sys

import torch

from assay.errors import PrerequisiteError

_DEFINITIONS: list[torch.library.Library] = []  # dropped with their last reference


def ensure_torchvision() -> None:
    """Import torchvision, also beside a torch build it was not made for.

    Its compiled operators are then missing. Declaring the two that it looks up at import is enough
    for everything but non-maximum suppression.

    Raises:
        PrerequisiteError: torchvision is not installed.
    """
    try:
        import torchvision
    except ModuleNotFoundError:
        raise PrerequisiteError(
            'These networks need torchvision and timm: pip install "assay[vision]".'
        ) from None
    except RuntimeError:
        for module in [m for m in sys.modules if m.partition(".")[0] == "torchvision"]:
            del sys.modules[module]
        library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
        for operator in ("nms", "qnms"):
            schema = f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            library.define(schema)  # type: ignore[no-untyped-call]
        _DEFINITIONS.append(library)
        import torchvision  # noqa: F401
