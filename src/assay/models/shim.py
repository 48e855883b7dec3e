"""Importing torchvision beside a torch build it was not made for."""

import sys
from typing import Any

import torch

from assay.errors import PrerequisiteError

_KEPT: list[Any] = []  # operator definitions live as long as this reference


def ensure_torchvision() -> None:
    """Import torchvision beside a torch build it was not made for.

    Its compiled operators are then missing; declaring the two that it looks for at import is
    enough for everything but non-maximum suppression.
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
        library: Any = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
        for operator in ("nms", "qnms"):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _KEPT.append(library)
        import torchvision  # noqa: F401
