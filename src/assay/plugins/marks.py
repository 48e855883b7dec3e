"""Marks on the type of an option: `Annotated[type, mark]`."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar


@dataclass(frozen=True)
class Nested:
    """Marks an option that itself chooses a plug-in: `Annotated[Any, Nested("fill")]`."""

    kind: str


@dataclass(frozen=True)
class HowOnly:
    """Marks an option that changes how a result is computed, not the result.

    Keys and labels leave it out.

    For example the folder of a cache: `Annotated[str | None, HowOnly()]`.
    """


@dataclass(frozen=True)
class NamesCode:
    """Marks an option that may hold an address in place of an object.

    A suite of unknown origin may not. `Nested` says this of options that choose a plug-in.
    For example a network: `Annotated[object, NamesCode("network")]`.
    """

    what: str


Mark = TypeVar("Mark", Nested, HowOnly, NamesCode)


def marked(options: Mapping[str, inspect.Parameter], kind: type[Mark]) -> dict[str, Mark]:
    """The options whose types carry a mark of this kind, each with its mark."""
    return {
        name: mark
        for name, option in options.items()
        for mark in getattr(option.annotation, "__metadata__", ())
        if isinstance(mark, kind)
    }
