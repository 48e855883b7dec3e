"""Whether methods and protocols of one label are the same in several runs, and how they differ."""

from __future__ import annotations

import json
from collections.abc import Sequence

from assay.plugins.identity import describe
from assay.store import PluginEntry


def signatures(entries: Sequence[PluginEntry]) -> list[str]:
    """What each plug-in computes; equal texts for equal plug-ins.

    Where a run did not store the key of a plug-in, name, version and options decide for all: the
    code of users' own plug-ins is not compared.
    """
    if all(entry.key for entry in entries):
        return [entry.key for entry in entries]
    return [
        json.dumps([entry.name, entry.version, dict(entry.options)], sort_keys=True)
        for entry in entries
    ]


def difference(label: str, entries: Sequence[PluginEntry], places: Sequence[str]) -> str:
    """How plug-ins of one label differ between places, in one sentence; empty if they do not."""
    found = signatures(entries)
    other = next((i for i, signature in enumerate(found) if signature != found[0]), None)
    if other is None:
        return ""
    first, second = entries[0], entries[other]
    where = f"`{label}` is not the same in `{places[0]}` and `{places[other]}`"
    return f"{where}: {_what_differs(first, second)}."


def _what_differs(one: PluginEntry, other: PluginEntry) -> str:
    if one.name != other.name:
        return f"it is `{one.name}` and `{other.name}`"
    if one.version != other.version:
        return f"version {one.version} and {other.version}"
    names = [*one.options, *(name for name in other.options if name not in one.options)]
    for name in (name for name in names if not name.endswith("_hash")):  # tells readers nothing
        mine, theirs = (_option(entry, name) for entry in (one, other))
        if mine != theirs:
            return f"`{name}` is {mine} and {theirs}"
    return "its code, or that of a part of it, differs"


def _option(entry: PluginEntry, name: str) -> str:
    return describe(entry.options[name]) if name in entry.options else "not set"
