"""Display names: what tables call an item, told from the options of its plug-in."""

from collections.abc import Collection
from typing import Any

from assay.errors import InputError

AS = "as"  # a Python keyword, so no function has an option of this name
BEFORE = "label"  # the key in earlier versions; still read where no option is called so


def refuse_taken(whose: str, options: Collection[str], common: Collection[str]) -> None:
    """Refuse options that could never be set, because assay reads their keys itself.

    Raises:
        InputError: An option is called like the display name, or like an option of all its kind.
    """
    taken = [name for name in options if name in (AS, *common)]
    if taken:
        raise InputError(
            f"Expected {whose} to have no option `{taken[0]}`: assay reads that key itself. "
            f"Rename the parameter of the function."
        )


def name_key(written: Collection[str], options: Collection[str]) -> str | None:
    """The key under which an item has its display name; None where it has none."""
    return next((key for key in (AS, BEFORE) if key in written and key not in options), None)


def take_display_name(written: dict[str, Any], options: Collection[str]) -> str | None:
    """Take the display name out of what an item sets; None where it sets none.

    Args:
        written: What a suite writes under the name of the plug-in; the display name is removed.
        options: The names of the plug-in's own options, which are no display names.

    Raises:
        InputError: It has two display names, or one that is not text.
    """
    keys = [key for key in (AS, BEFORE) if key in written and key not in options]
    names = {key: written.pop(key) for key in keys}
    if len(names) == 2:
        raise InputError(
            f"Expected one display name, got `{AS}: {names[AS]}` and `{BEFORE}: {names[BEFORE]}`. "
            f"Drop `{BEFORE}`."
        )
    for key, name in names.items():
        if name is not None:
            if not (text := display_name(name, f"`{key}`")).strip():
                raise InputError(f"Expected `{key}`, a name in tables, to be text, got {name!r}.")
            return text
    return None


def display_name(name: object, what: str) -> str:
    """A display name that tables, files and pages can hold.

    Raises:
        InputError: It is neither text nor a number, or holds half of a character.
    """
    if isinstance(name, bool) or not isinstance(name, str | int | float):
        raise InputError(f"Expected {what}, a name in tables, to be text, got {name!r}.")
    try:
        str(name).encode()
    except UnicodeEncodeError:
        raise InputError(
            f"Expected {what} to be text that can be stored as UTF-8, got {name!a}, which holds "
            f"half of a character. Write another name."
        ) from None
    return str(name)
