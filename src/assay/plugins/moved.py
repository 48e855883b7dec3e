"""Modules that moved: an old import names the new path, an old address still resolves."""

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

MOVED = {
    "assay.absent": "assay.units.absent",
    "assay.best": "assay.answers.best",
    "assay.budget": "assay.run.budget",
    "assay.builtin": "assay.plugins.builtin",
    "assay.cells": "assay.plan.cells",
    "assay.checking": "assay.plan.promised",
    "assay.commands.allowed": "assay.commands.listing",
    "assay.commands.environment": "assay.commands.doctor",
    "assay.commands.explaining": "assay.commands.explain",
    "assay.executors": "assay.run.executors",
    "assay.features": "assay.units.features",
    "assay.forecast": "assay.plan.forecast",
    "assay.hashing": "assay.types.hashing",
    "assay.identity": "assay.plugins.identity",
    "assay.imports": "assay.plugins.addresses",
    "assay.interventions": "assay.engine.engine",
    "assay.manifest": "assay.run.manifest",
    "assay.methods.checks": "assay.methods.promises",
    "assay.methods.files": "assay.methods.stored_maps",
    "assay.methods.fused": "assay.methods.fused_attention",
    "assay.needs": "assay.plugins.needs",
    "assay.network": "assay.types.model",
    "assay.own": "assay.suite.from_options",
    "assay.picture": "assay.answers.picture",
    "assay.pixels": "assay.types.pixels",
    "assay.previews": "assay.run.previews",
    "assay.protocols.modulo": "assay.protocols.modulo_curves",
    "assay.protocols.parts": "assay.protocols.painted_parts",
    "assay.reduce": "assay.ranking.reductions",
    "assay.refutation": "assay.answers.refutation",
    "assay.rehearsal": "assay.plan.rehearsal",
    "assay.removal.fused": "assay.removal.triton_kernels",
    "assay.report.checks": "assay.report.promise_table",
    "assay.report.truth": "assay.report.known_truth",
    "assay.scaffold": "assay.plugins.scaffold",
    "assay.scoring": "assay.plan.scoring",
    "assay.segments": "assay.units.segments",
    "assay.shard": "assay.run.shard",
    "assay.shelf": "assay.plan.finished",
    "assay.studies.claims": "assay.studies.claim",
    "assay.studies.gaussian": "assay.studies.soco.gaussian",
    "assay.studies.lab_claims": "assay.studies.attributionlab.claims",
    "assay.studies.lab_real": "assay.studies.attributionlab.real",
    "assay.studies.lab_runs": "assay.studies.attributionlab.runs",
    "assay.studies.lab_tables": "assay.studies.attributionlab.paper_tables",
    "assay.studies.lab_units": "assay.studies.attributionlab.units",
    "assay.studies.m4_claims": "assay.studies.m4.claims",
    "assay.studies.m4_networks": "assay.studies.m4.networks",
    "assay.studies.m4_runs": "assay.studies.m4.runs",
    "assay.studies.modified": "assay.studies.soco.modified",
    "assay.studies.rashomon": "assay.studies.attributionlab.rashomon",
    "assay.studies.shelf": "assay.studies.published_claims",
    "assay.studies.soco_claims": "assay.studies.soco.claims",
    "assay.studies.soco_masks": "assay.studies.soco.masks",
    "assay.studies.soco_networks": "assay.studies.soco.networks",
    "assay.studies.soco_numbers": "assay.studies.soco.numbers",
    "assay.studies.soco_planted": "assay.studies.soco.planted_features",
    "assay.studies.soco_retraining": "assay.studies.soco.retraining",
    "assay.studies.soco_runs": "assay.studies.soco.runs",
    "assay.studies.soco_semi_natural": "assay.studies.soco.semi_natural",
    "assay.studies.value": "assay.studies.soco.value",
    "assay.timing": "assay.plan.timing",
    "assay.tokens": "assay.types.tokens",
    "assay.wanted": "assay.plugins.options",
}


def moved_error(old: str) -> ImportError:
    """The error for an import from an old path."""
    return ImportError(
        f"`{old}` is now `{MOVED[old]}`. Names for users are in `assay`, `assay.types`, "
        f"`assay.registry` and `assay.spec`."
    )


class MovedModules:
    """Asked after all other finders: nothing but an old path of this package gets here."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Refuse an old path with the new one."""
        if name in MOVED:
            raise moved_error(name)
        return None


def name_moved_modules() -> None:
    """Let imports of old paths name the new ones; once per process."""
    if not any(isinstance(finder, MovedModules) for finder in sys.meta_path):
        sys.meta_path.append(MovedModules())


def names_now_in(package: str, *modules: str) -> Callable[[str], object]:
    """A package's `__getattr__`, where its names of old are in some of its modules now."""

    def missing(name: str) -> object:
        # `from package import submodule` asks here first, before the submodule is imported.
        if name.startswith("_") or find_spec(f"{package}.{name}") is not None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        places = " or ".join(f"`{module}`" for module in modules)
        raise ImportError(f"`{package}` has no `{name}`; it may be in {places} now.")

    return missing
