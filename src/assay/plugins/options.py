"""Descriptions of the values that the type of an option allows.

A type may bring its own description: `Annotated[..., Field(description="three whole numbers")]`.
"""

import json
import math
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError
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
_SHOULD = "Input should be "
_ANYTHING = ConfigDict(arbitrary_types_allowed=True)


def in_words(annotation: Any) -> str:
    """Describe what a type allows; empty if that is unknown."""
    return _words(_schema(annotation))


def validated(value: object, annotation: Any, what: str) -> object:
    """The value as its type has it; `what` names the option in the error.

    Raises:
        InputError: The type does not allow the value.
    """
    adapter: TypeAdapter[object] = TypeAdapter(annotation, config=_ANYTHING)
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        expected = _missed(annotation, value, error)
        raise InputError(f"Expected {what} to be {expected}, got {value!r}.") from None


def _missed(annotation: Any, value: object, error: ValidationError) -> str:
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
