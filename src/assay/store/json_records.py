"""Dataclasses whose fields are the keys of a stored JSON object."""

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any, ClassVar, Self, Union, get_args, get_origin, get_type_hints

from assay.errors import InputError

Json = Union[None, bool, int, float, str, "list[Json]", "dict[str, Json]"]
StoredObject = dict[str, Any]  # a JSON object as it was read


class JsonRecord:
    """A frozen dataclass that is stored as one JSON object, its keys in the order of its fields."""

    optional: ClassVar[frozenset[str]] = frozenset()  # fields that are not written if empty

    @classmethod
    def from_json(cls, stored: StoredObject) -> Self:
        """Read a stored object.

        Other versions wrote fewer or more keys. A missing key or a null becomes the field's
        default; an unknown key is ignored.
        """
        if not isinstance(stored, dict):
            raise cls._damaged(f"an object, got {reprlib.repr(stored)}")
        kinds = _kinds(cls)
        known = {k: v for k, v in stored.items() if k in kinds and v is not None}
        missing = [name for name in cls.required() if name not in known]
        if missing:
            raise cls._damaged(f"whole, got no `{missing[0]}`")
        for name, value in known.items():
            if not _fits(value, kinds[name]):
                raise cls._damaged(f"whole, got {reprlib.repr(value)} as `{name}`")
        return cls(**known)

    @classmethod
    def required(cls) -> list[str]:
        """The fields without a default."""
        return [
            field.name
            for field in fields(cls)  # type: ignore[arg-type]
            if field.default is MISSING and field.default_factory is MISSING
        ]

    @classmethod
    def _damaged(cls, expected: str) -> InputError:
        return InputError(
            f"Expected what is stored as {cls.__name__} to be {expected}. The files of the run "
            f"were changed; run its suite again in another folder."
        )

    def to_json(self) -> StoredObject:
        """The object that is stored."""
        return {k: v for k, v in vars(self).items() if v or k not in self.optional}


_KINDS: dict[type, dict[str, object]] = {}  # resolving types takes long, and runs have many cells


def _kinds(record: type[JsonRecord]) -> dict[str, object]:
    """The type of each field."""
    if record not in _KINDS:
        hints = get_type_hints(record)
        _KINDS[record] = {field.name: hints[field.name] for field in fields(record)}  # type: ignore[arg-type]
    return _KINDS[record]


def _fits(value: object, kind: object) -> bool:
    """Whether a value has the outermost type of a field; what is inside is not checked."""
    outer = get_origin(kind) or kind
    if outer is Mapping:
        return isinstance(value, Mapping)
    if outer is Sequence:
        return isinstance(value, list | tuple)
    if outer in (str, bool):
        return type(value) is outer
    if outer in (int, float):
        return isinstance(value, int | float)
    alternatives = get_args(kind)
    return not alternatives or any(_fits(value, one) for one in alternatives)
