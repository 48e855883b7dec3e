"""Plug-ins of installed packages: entry points in the groups `assay.methods`, `assay.fills`, ..."""

import functools
from importlib.machinery import PathFinder
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path

from assay.plugins.builtin import BUILTIN


@functools.cache
def registered(kind: str) -> dict[str, EntryPoint]:
    """The plug-ins of a kind that installed packages register, by their names."""
    return {entry.name: entry for entry in entry_points(group=f"assay.{kind.rstrip('s')}s")}


def registers_plugins(package: str) -> bool:
    """Whether a top-level package is installed and registers plug-ins."""
    return package in _packages() and not _hidden_here(package)


@functools.cache
def _packages() -> frozenset[str]:
    entries = [entry for kind in BUILTIN for entry in registered(kind).values()]
    return frozenset(entry.module.partition(".")[0] for entry in entries)


def _hidden_here(package: str) -> bool:
    """Whether the working folder holds something else of this name, which would be imported."""
    installed, here = find_spec(package), PathFinder.find_spec(package, [str(Path.cwd())])
    if installed is None or here is None:
        return installed is None
    # A folder without `__init__.py` has no origin; it hides only another such folder.
    return installed.origin is None or here.origin not in (None, installed.origin)
