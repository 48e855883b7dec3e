"""Dataclasses whose fields are the keys of a stored JSON object."""

from dataclasses import fields
from typing import Any, ClassVar, Self, Union

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
        names = {field.name for field in fields(cls)}  # type: ignore[arg-type]
        return cls(**{k: v for k, v in stored.items() if k in names and v is not None})

    def to_json(self) -> StoredObject:
        """The object that is stored."""
        return {k: v for k, v in vars(self).items() if v or k not in self.optional}
