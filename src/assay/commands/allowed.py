"""What the options of a plug-in may be, in words, read off its signature."""

import json
from typing import Any

from pydantic import TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError

# What the runner applies to any method that takes it.
COMMON = {
    "reduce": "how channels become one number: sum, abs_sum, sum_abs, square or none",
    "abs": "whether signs are dropped at last: true or false",
    "noise": "copies with noise, {kind: smoothgrad, smoothgrad_sq or vargrad, samples: 1 or more, "
    "sigma: above 0, relative: true or false}",
    "label": "what it is called in tables",
}
LIMITS = {
    "minimum": "at least {}", "exclusiveMinimum": "above {}",
    "maximum": "at most {}", "exclusiveMaximum": "below {}",
}  # fmt: skip
TYPES = {
    "integer": "a whole number", "number": "a number", "string": "a word", "null": "null",
    "boolean": "true or false", "array": "a list",
}  # fmt: skip


def allowed_values(plugin: Any) -> dict[str, str]:
    """Each option with what it may be; empty where its type does not say."""
    nested = plugin.nested()
    return {
        name: f"a {nested[name]}, by name or with options"
        if name in nested
        else _of_type(option.annotation)
        for name, option in plugin.options.items()
    }


def _of_type(annotation: Any) -> str:
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(
            annotation, config={"arbitrary_types_allowed": True}
        )
        return _words(adapter.json_schema())
    except (PydanticSchemaGenerationError, PydanticInvalidForJsonSchema):
        return ""  # an object of Python, which no schema describes


def _words(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(filter(None, map(_words, schema["anyOf"])))
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if values is not None:
        return " or ".join(v if isinstance(v, str) else json.dumps(v) for v in values)
    kind = TYPES.get(schema.get("type", ""), "")
    limits = [words.format(schema[key]) for key, words in LIMITS.items() if key in schema]
    return " ".join(filter(None, (kind, " and ".join(limits))))
