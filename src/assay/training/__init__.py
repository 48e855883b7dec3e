"""Training of networks: in-domain fine-tuning, recipes, and the store of trained weights."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay.training.fine_tuning import in_domain as in_domain

__all__ = ["in_domain"]


def __getattr__(name: str) -> object:
    if name == "in_domain":  # loaded when first used: it needs methods, which are many
        return importlib.import_module("assay.training.fine_tuning").in_domain
    raise AttributeError(f"module 'assay.training' has no attribute {name!r}")
