"""Plug-ins under another name, with other default options."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from assay.plugins.registry import Plugin, put


def preset(
    base: Callable[..., Any], name: str, *, title: str, about: str, cite: str, **options: Any
) -> None:
    """Register a plug-in under another name with other default options."""
    plugin: Plugin = vars(base)["__assay__"]
    made = replace(
        plugin, name=name, title=title, about=about, cite=cite, preset=options,
        formula=plugin.formula or plugin.name,
    )  # fmt: skip
    put(made)
