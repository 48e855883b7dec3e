"""How the fields of a suite are written: their names, lists, switches and objects."""

from __future__ import annotations

from typing import TypeVar

import yaml
from pydantic import BaseModel

from assay.errors import InputError
from assay.plugins.identity import canonical

Fields = TypeVar("Fields", bound=BaseModel)

USUAL: dict[str, object] = {"controls": "on", "validate": False}  # not written


def names_of(kind: type[BaseModel]) -> dict[str, str]:
    """The fields of a model by their names in YAML."""
    return {field.alias or name: name for name, field in kind.model_fields.items()}


def usual(name: str, value: object) -> bool:
    """Whether a field has the value that need not be written."""
    return value in ("", None, []) or (name in USUAL and value == USUAL[name])


def on_or_off(value: object) -> str:
    """A switch; YAML reads `off` as false.

    Raises:
        ValueError: It is something else.
    """
    if isinstance(value, bool):
        return "on" if value else "off"
    if value not in ("on", "off"):
        raise ValueError(f"expected on or off, got {value!r}")
    return str(value)


def true_or_not(value: object) -> bool:
    """True or false.

    Raises:
        ValueError: It is something else.
    """
    if not isinstance(value, bool):
        raise ValueError(f"expected true or false, got {value!r}")
    return value


def with_fields(spec: Fields, controls: object = None, validate: object = None) -> Fields:
    """The suite with these fields changed, where they are given.

    Raises:
        InputError: A value is invalid.
    """
    try:
        changes: dict[str, object] = {}
        if controls is not None:
            changes["controls"] = on_or_off(controls)
        if validate is not None:
            changes["dose_response"] = true_or_not(validate)
    except ValueError as error:
        name = "controls" if "on or off" in str(error) else "validate"
        raise InputError(f"Wrong `{name}`: {error}.") from None
    return spec.model_copy(update=changes)


def one_in_a_list(item: object) -> str:
    """A list with one item, as YAML."""
    try:
        return str(yaml.safe_dump([item], default_flow_style=True, width=1000)).strip()
    except yaml.YAMLError:  # it holds Python objects that YAML cannot write
        return repr([item])


def written_item(item: object) -> object:
    """An item of a suite in a form that YAML can hold."""
    for name in ("label", "name"):
        if isinstance(getattr(item, name, None), str):
            return {"live": {"name": getattr(item, name)}}
    return canonical(item)
