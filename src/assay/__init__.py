"""Which feature-attribution method can you trust, for this model and this data?"""

import importlib
import os
from typing import TYPE_CHECKING, Any

from assay.plugins.moved import MOVED, moved_error, name_moved_modules

if TYPE_CHECKING:
    from assay.aggregation.of_runs import consistency, rank
    from assay.api import benchmark, dry_run, explain, score
    from assay.conformance import examine
    from assay.engine.engine import Engine, intervention
    from assay.environments.environment import Environment, environment, samples_of
    from assay.errors import InputError, NotApplicable, PrerequisiteError
    from assay.methods.copies import points
    from assay.methods.gradients import gradients, one_pass
    from assay.methods.promises import completeness, conservation
    from assay.models.wrap import model
    from assay.plugins.properties import Properties
    from assay.plugins.registry import Passes, Trainings, method, protocol
    from assay.removal import FillChoice
    from assay.report.overlay import overlay
    from assay.results import Results, compare, load
    from assay.run.suite_run import run_suite
    from assay.studies.funnybirds import funnybirds_scores
    from assay.studies.published_claims import claims_of
    from assay.suite.spec import Spec
    from assay.training.trained_weights import TrainedWeights
    from assay.types import Batch, Case, Dataset, Model, Preprocess, Scores, Tokenize, Tokens, Trial
    from assay.units.absent import above, below, by_rank, each, random_subsets
    from assay.units.features import UnitsChoice, make_units

__version__ = "0.1.0"

# MKL may otherwise give a matrix row another last bit at another place in memory; read at its first
# use, costs nothing measurable.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")

# Where the public names live; loaded when first used, so that reading results needs no torch.
_NAMES: dict[str, tuple[str, ...]] = {
    "assay.aggregation.of_runs": (
        "consistency",
        "rank",
    ),
    "assay.api": (
        "benchmark",
        "dry_run",
        "explain",
        "score",
    ),
    "assay.conformance": ("examine",),
    "assay.engine.engine": (
        "Engine",
        "intervention",
    ),
    "assay.environments.environment": (
        "Environment",
        "environment",
        "samples_of",
    ),
    "assay.errors": (
        "InputError",
        "NotApplicable",
        "PrerequisiteError",
    ),
    "assay.methods.copies": ("points",),
    "assay.methods.gradients": (
        "gradients",
        "one_pass",
    ),
    "assay.methods.promises": (
        "completeness",
        "conservation",
    ),
    "assay.models.wrap": ("model",),
    "assay.plugins.properties": ("Properties",),
    "assay.plugins.registry": (
        "Passes",
        "Trainings",
        "method",
        "protocol",
    ),
    "assay.removal": ("FillChoice",),
    "assay.report.overlay": ("overlay",),
    "assay.results": (
        "Results",
        "compare",
        "load",
    ),
    "assay.run.suite_run": ("run_suite",),
    "assay.studies.funnybirds": ("funnybirds_scores",),
    "assay.studies.published_claims": ("claims_of",),
    "assay.suite.spec": ("Spec",),
    "assay.training.trained_weights": ("TrainedWeights",),
    "assay.types": (
        "Batch",
        "Case",
        "Dataset",
        "Model",
        "Preprocess",
        "Scores",
        "Tokenize",
        "Tokens",
        "Trial",
    ),
    "assay.units.absent": (
        "above",
        "below",
        "by_rank",
        "each",
        "random_subsets",
    ),
    "assay.units.features": (
        "UnitsChoice",
        "make_units",
    ),
}  # fmt: skip
_PUBLIC = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "Batch",
    "Case",
    "Dataset",
    "Engine",
    "Environment",
    "FillChoice",
    "InputError",
    "Model",
    "NotApplicable",
    "Passes",
    "Preprocess",
    "PrerequisiteError",
    "Properties",
    "Results",
    "Scores",
    "Spec",
    "Tokenize",
    "Tokens",
    "TrainedWeights",
    "Trainings",
    "Trial",
    "UnitsChoice",
    "above",
    "below",
    "benchmark",
    "by_rank",
    "claims_of",
    "compare",
    "completeness",
    "conservation",
    "consistency",
    "dry_run",
    "each",
    "environment",
    "examine",
    "explain",
    "funnybirds_scores",
    "gradients",
    "intervention",
    "load",
    "make_units",
    "method",
    "model",
    "one_pass",
    "overlay",
    "points",
    "protocol",
    "random_subsets",
    "rank",
    "run_suite",
    "samples_of",
    "score",
]

name_moved_modules()


def __getattr__(name: str) -> Any:
    if f"assay.{name}" in MOVED:
        raise moved_error(f"assay.{name}")
    if name == "training":  # `assay.training.in_domain`, without an import of its own
        return importlib.import_module("assay.training")
    if name not in _PUBLIC:
        raise AttributeError(f"module 'assay' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
