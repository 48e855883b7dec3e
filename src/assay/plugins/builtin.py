"""Where the built-in plug-ins of each kind are; imported when that kind is first used.

A package includes all its modules: a new module in it needs no entry here.
"""

import functools
import importlib
import pkgutil

BUILTIN: dict[str, tuple[str, ...]] = {
    "method": ("assay.methods",),
    "protocol": ("assay.protocols",),
    "fill": (
        "assay.removal.fills",
        "assay.removal.imputation",
        "assay.removal.rerender",
        "assay.removal.second",
        "assay.removal.shaken",
    ),
    "units": ("assay.units",),
    "dataset": ("assay.data",),
    "environment": ("assay.environments",),
    "model": ("assay.models",),
}


@functools.cache
def load_builtin(kind: str) -> None:
    """Import the modules of a kind: importing them runs their decorators."""
    for name in BUILTIN[kind]:
        module = importlib.import_module(name)
        for inside in pkgutil.iter_modules(getattr(module, "__path__", ())):
            importlib.import_module(f"{name}.{inside.name}")
