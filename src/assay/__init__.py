"""Which feature-attribution method can you trust, for this model and this data?"""

import importlib
import os
from typing import TYPE_CHECKING, Any

from assay.plugins.moved import MOVED, moved_error, name_moved_modules

if TYPE_CHECKING:
    from assay.api import benchmark, dry_run, explain, score
    from assay.environments.environment import Environment, environment
    from assay.errors import InputError, NotApplicable, PrerequisiteError
    from assay.models.wrap import model
    from assay.plugins.registry import method, protocol
    from assay.report.overlay import overlay
    from assay.results import Results, load
    from assay.suite.spec import Spec
    from assay.training.trained_weights import TrainedWeights
    from assay.types import Batch, Case, Dataset, Model, Preprocess, Scores, Tokenize, Tokens

__version__ = "0.1.0"

# MKL may otherwise give a matrix row another last bit at another place in memory; read at its first
# use, costs nothing measurable.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")

# Public name -> where it lives; loaded when first used, so that reading results needs no torch.
_PUBLIC = {
    **dict.fromkeys(("benchmark", "dry_run", "explain", "score"), "assay.api"),
    **dict.fromkeys(("InputError", "NotApplicable", "PrerequisiteError"), "assay.errors"),
    **dict.fromkeys(("Environment", "environment"), "assay.environments.environment"),
    "model": "assay.models.wrap",
    **dict.fromkeys(("method", "protocol"), "assay.plugins.registry"),
    **dict.fromkeys(("Results", "load"), "assay.results"),
    "overlay": "assay.report.overlay",
    "Spec": "assay.suite.spec",
    "TrainedWeights": "assay.training.trained_weights",
    **dict.fromkeys(
        ("Batch", "Case", "Dataset", "Model", "Preprocess", "Scores", "Tokenize", "Tokens"),
        "assay.types",
    ),
}

__all__ = [
    "Batch",
    "Case",
    "Dataset",
    "Environment",
    "InputError",
    "Model",
    "NotApplicable",
    "Preprocess",
    "PrerequisiteError",
    "Results",
    "Scores",
    "Spec",
    "Tokenize",
    "Tokens",
    "TrainedWeights",
    "benchmark",
    "dry_run",
    "environment",
    "explain",
    "load",
    "method",
    "model",
    "overlay",
    "protocol",
    "score",
]


name_moved_modules()


def __getattr__(name: str) -> Any:
    if f"assay.{name}" in MOVED:
        raise moved_error(f"assay.{name}")
    if name not in _PUBLIC:
        raise AttributeError(f"module 'assay' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
