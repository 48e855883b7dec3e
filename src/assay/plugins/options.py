"""Descriptions of the values that the type of an option allows.

A type may bring its own description: `Annotated[..., Field(description="three whole numbers")]`.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError

from assay.errors import InputError

LIMITS = {
    "minimum": "at least {}", "exclusiveMinimum": "above {}",
    "maximum": "at most {}", "exclusiveMaximum": "below {}",
}  # fmt: skip
TYPES = {
    "integer": "a whole number", "number": "a number", "string": "a word", "null": "null",
    "boolean": "true or false",
}  # fmt: skip
DEEPEST, MOST = 50, 10**7  # levels and parts of a value; YAML can write more in a few lines
Whole = (
    Mapping[object, object] | list[object] | tuple[object, ...] | set[object] | frozenset[object]
)
WHOLES = (Mapping, list, tuple, set, frozenset)
_SHOULD = "Input should be "
_ANYTHING = ConfigDict(arbitrary_types_allowed=True)


SHOWN = 200  # characters of a value in an error
LARGEST = 2**63 - 1  # what tables and tensors hold


def refuse_deep(value: object, what: str) -> None:
    """Refuse lists and mappings that are too deep or too large to be shown and compared.

    Raises:
        InputError: They are.
    """
    level: dict[int, tuple[Whole, int]] = {}  # each list or mapping, and how often it stands there
    if isinstance(value, WHOLES):
        level[id(value)] = value, 1
    total = 0
    for _ in range(DEEPEST):
        below: dict[int, tuple[Whole, int]] = {}
        for whole, times in level.values():
            parts = whole.values() if isinstance(whole, Mapping) else whole
            total += times * len(parts)
            for part in parts:
                if isinstance(part, WHOLES):
                    below[id(part)] = part, times + below.get(id(part), (part, 0))[1]
        if not below and total <= MOST:
            return
        if total > MOST:
            break
        level = below
    limit = f"{DEEPEST} levels deep" if total <= MOST else f"{MOST:,} parts"
    raise InputError(f"Expected {what} to be at most {limit}, got lists or mappings with more.")


def not_a_number(given: object, taken: object) -> str:
    """What is wrong with a number inside a value: pydantic takes true for 1, and any size.

    Args:
        given: The value as it came.
        taken: What its type made of it.

    Returns:
        In words what came; empty where nothing is wrong.
    """
    if isinstance(taken, int | float) and not isinstance(taken, bool):
        truth = type(given).__name__ in ("bool", "bool_")  # also those of numpy
        if truth or (isinstance(taken, float) and not math.isfinite(taken)):
            return repr(given)
        large = isinstance(taken, int) and abs(taken) > LARGEST
        return "a number of more than 64 bits" if large else ""
    if isinstance(taken, BaseModel):
        taken = taken.model_dump()
    if isinstance(given, Mapping) and isinstance(taken, Mapping):
        parts = [(given[key], value) for key, value in taken.items() if key in given]
    elif isinstance(given, list | tuple) and isinstance(taken, list | tuple):
        parts = list(zip(given, taken, strict=False))
    else:
        return ""
    return next(filter(None, (not_a_number(*part) for part in parts)), "")


def checked(annotation: Any, value: object, owner: str) -> object:
    """A value as its type has it; `owner` names the option in errors.

    Raises:
        InputError: It is not of its type, or holds a number that no result can come from.
    """
    adapter: TypeAdapter[object] = TypeAdapter(annotation, config=_ANYTHING)
    try:
        taken = adapter.validate_python(value)
    except ValidationError as error:
        expected = _missed(annotation, value, error)
        raise InputError(f"Expected {owner} to be {expected}, got {_short(value)}.") from None
    if got := not_a_number(value, taken):
        expected = in_words(annotation) or "finite numbers"
        raise InputError(f"Expected {owner} to be {expected}, got {got}.")
    return taken


def _short(value: object) -> str:
    """A value in an error, cut where it is long."""
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def in_words(annotation: Any) -> str:
    """Describe what a type allows; empty if that is unknown."""
    return _words(_schema(annotation))


def _missed(annotation: object, value: object, error: ValidationError) -> str:
    """Describe what was expected instead of a value that failed validation.

    A single broken limit is named. Where several things are wrong, or something inside the value,
    everything that the type allows is listed.
    """
    schema, problems = _schema(annotation), error.errors()
    inside = len(problems) > 1 or problems[0]["loc"]
    nan = isinstance(value, float) and math.isnan(value)  # breaks one limit, but satisfies no other
    first = problems[0]["msg"]
    if not inside and not nan and first.startswith(_SHOULD) and "description" not in schema:
        return first.removeprefix(_SHOULD)
    expectations = dict.fromkeys(problem["msg"].removeprefix(_SHOULD) for problem in problems)
    return _words(schema) or "; or ".join(expectations)


def _schema(annotation: Any) -> dict[str, Any]:
    try:
        adapter: TypeAdapter[object] = TypeAdapter(annotation, config=_ANYTHING)
        return adapter.json_schema()
    except (PydanticSchemaGenerationError, PydanticInvalidForJsonSchema):
        return {}  # a Python object without a schema


def _words(schema: dict[str, Any]) -> str:
    if "description" in schema:
        return str(schema["description"])
    if "anyOf" in schema:
        return " or ".join(filter(None, map(_words, schema["anyOf"])))
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if values is not None:
        return " or ".join(v if isinstance(v, str) else json.dumps(v) for v in values)
    if schema.get("type") == "array":
        return _list_in_words(schema)
    kind = TYPES.get(schema.get("type", ""), "")
    limits = [words.format(schema[key]) for key, words in LIMITS.items() if key in schema]
    return " ".join(filter(None, (kind, " and ".join(limits))))


def _list_in_words(schema: dict[str, Any]) -> str:
    """How many items, and what each may be; `prefixItems` are those of a tuple."""
    places = [_words(item) for item in schema.get("prefixItems", ())]
    if len(set(places)) > 1:
        return f"a list of {len(places)}: {', '.join(places)}"
    fewest = f" of at least {schema['minItems']}" if "minItems" in schema else ""
    count = f" of {len(places)}" if places else fewest
    each = places[0] if places else _words(schema.get("items") or {})
    return f"a list{count}, each {each}" if each else f"a list{count}"
