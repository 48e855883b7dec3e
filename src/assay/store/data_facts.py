"""What was found out about data that takes long to read: fingerprints of files, lengths of texts.

A run keeps these facts in its folder, so that its workers and a later run do not read all data
again. Readers of data are functions with options only; they get the facts by `data_facts`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Self

from assay.store.files import Store
from assay.store.json_records import StoredObject

FILE = "data.json"
PARTS = {"fingerprints": str, "lengths": int}  # the keys of the file, and what their values are


@dataclass
class DataFacts:
    """Facts about data, by what identifies the data.

    Attributes:
        fingerprints: The fingerprint of files, by the hash of their paths, sizes and times.
        lengths: The tokens of the longest text, by dataset and tokenizer.
        passing: Lengths that hold in this process only, and are not stored either.
        readings: What is known of each sample of a torch dataset, for other processes of the same
            run. It is not stored: a later run reads the dataset again, to see whether it changed.
        progress: Whether reading that takes long shows a bar.
    """

    fingerprints: dict[str, str] = field(default_factory=dict)
    lengths: dict[str, int] = field(default_factory=dict)
    readings: dict[str, object] = field(default_factory=dict)
    progress: bool = True
    passing: dict[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, store: Store, progress: bool = True) -> Self:
        """The facts that a run keeps; none where their file is missing or damaged."""
        stored = _stored(store) or {part: {} for part in PARTS}
        return cls(dict(stored["fingerprints"]), dict(stored["lengths"]), progress=progress)

    def write(self, store: Store) -> None:
        """Keep the facts in the folder of a run, where that changes anything.

        Raises:
            CannotWrite: The folder cannot be written to.
        """
        facts = {part: getattr(self, part) for part in PARTS}
        known = any(facts.values()) or store.path(FILE).exists()
        if known and facts != _stored(store):
            store.write_json(store.path(FILE), facts)


def are_damaged(store: Store) -> bool:
    """Whether the file of facts is there and is not as it was written."""
    return store.path(FILE).exists() and _stored(store) is None


def _stored(store: Store) -> StoredObject | None:
    """The content of the file; None if it is missing, damaged or without a checksum."""
    path = store.path(FILE)
    stored = store.read_json(path, *PARTS) if store.has_checksum(path) else None
    if stored is None or not all(_holds(stored[part], kind) for part, kind in PARTS.items()):
        return None
    return stored


def _holds(facts: object, kind: type) -> bool:
    """Whether these are facts of one kind."""
    return isinstance(facts, dict) and all(type(value) is kind for value in facts.values())


_CURRENT: ContextVar[DataFacts | None] = ContextVar("data_facts", default=None)


def data_facts() -> DataFacts:
    """The facts that readers of data use and add to; new ones where nobody keeps them."""
    return _CURRENT.get() or DataFacts()


@contextmanager
def knowing(facts: DataFacts) -> Iterator[DataFacts]:
    """Let readers inside use these facts and add to them, together with those known outside."""
    outer = _CURRENT.get()
    if outer is not None:
        outer.fingerprints.update(facts.fingerprints)
        outer.lengths.update(facts.lengths)
        outer.readings.update(facts.readings)
        outer.passing.update(facts.passing)
        facts = outer
    token = _CURRENT.set(facts)
    try:
        yield facts
    finally:
        _CURRENT.reset(token)
