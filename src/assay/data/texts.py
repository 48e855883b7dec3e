"""Texts with labels in a table: CSV, TSV, JSON lines or parquet."""

import csv
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.data.contents import is_table_of_texts
from assay.data.memory import of_texts
from assay.data.parquet import check_numbers, hash_file, opened
from assay.errors import InputError, PrerequisiteError, unknown
from assay.plugins.registry import dataset
from assay.types import Dataset


@dataset("texts", title="Table of texts", reads=is_table_of_texts)
def texts(
    *, path: str, text: str = "text", label: str = "label", name: str | None = None
) -> Dataset:
    """Labelled texts of one .csv, .tsv, .jsonl or .parquet file.

    Labels are class numbers, or names: a name's number is its place among the names that the model
    has for its classes; where it has none, in alphabetical order.

    Args:
        path: The file; its ending says how it is read.
        text: The column of texts.
        label: The column of class numbers or names.
        name: What the dataset is called in tables; the file's own name by default.

    Raises:
        PrerequisiteError: There is no such file.
        InputError: The file, a column or a label is not what was expected.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        raise PrerequisiteError(f"There is no file `{file}`.")
    if file.suffix.lower() not in _READERS:
        raise unknown("kind of table", file.suffix, _READERS)
    rows = _READERS[file.suffix.lower()](file, (text, label))
    if not rows:
        raise InputError(f"Expected rows in `{file}`, got none.")
    content = f"{hash_file(file)}\0{text}\0{label}"
    inputs, labels = zip(*rows, strict=True)
    return text_dataset(name or file.stem, inputs, labels, label, file, content)


def text_dataset(
    name: str, texts: Sequence[Any], labels: Sequence[Any], column: str, file: Path, content: str
) -> Dataset:
    """Texts and their labels as a dataset; `content` tells it from others.

    Raises:
        InputError: A text is missing, or a label is neither a class number nor a name.
    """
    for row, one in enumerate(texts):
        if not isinstance(one, str) or not one.strip():
            raise InputError(f"Expected a text in row {row} of `{file}`, got {one!r}.")
    numbers, classes = number_labels(labels, column, file)
    return replace(
        of_texts(list(texts), numbers, name),
        fingerprint=hashlib.sha256(content.encode()).hexdigest()[:16],
        classes=classes,
        numbering="sorted" if classes else "given",
    )


def number_labels(
    labels: Sequence[Any], column: str, file: Path
) -> tuple[list[int], dict[int, str]]:
    """Class numbers, and the names they stand for where the labels are names."""
    wrong = [row for row, one in enumerate(labels) if one is None or str(one).strip() == ""]
    if wrong:
        raise InputError(
            f"Expected a label in every row of column `{column}` of `{file}`, got none in row "
            f"{wrong[0]} ({len(wrong)} such rows). Drop unlabelled rows."
        )
    words = [str(one).strip() for one in labels]
    if all(word.removeprefix("-").isdecimal() for word in words):
        return check_numbers([int(word) for word in words], column, file), {}
    if any(isinstance(one, float | bool) for one in labels):
        raise InputError(
            f"Expected class numbers or names in column `{column}` of `{file}`, got {labels[0]!r}."
        )
    names = sorted(set(words))
    places = {name: number for number, name in enumerate(names)}
    return [places[word] for word in words], dict(enumerate(names))


def _separated(by: str) -> Callable[[Path, tuple[str, str]], list[tuple[Any, ...]]]:
    def read(file: Path, wanted: tuple[str, str]) -> list[tuple[Any, ...]]:
        try:
            with file.open(newline="", encoding="utf-8-sig") as content:
                reader = csv.DictReader(content, delimiter=by)
                _check_columns(wanted, list(reader.fieldnames or ()), file)
                return [tuple(row[column] for column in wanted) for row in reader]
        except (UnicodeDecodeError, csv.Error) as error:
            raise InputError(f"Expected `{file}` to be a table in UTF-8: {error}.") from error

    return read


def _lines(file: Path, wanted: tuple[str, str]) -> list[tuple[Any, ...]]:
    rows = []
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise InputError(f"Expected `{file}` to be UTF-8 text: {error}.") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise InputError(f"Expected JSON in line {number} of `{file}`: {error}.") from error
        if not isinstance(row, dict):
            raise InputError(f"Expected an object in line {number} of `{file}`, got {row!r}.")
        _check_columns(wanted, list(row), file)
        rows.append(tuple(row[column] for column in wanted))
    return rows


def _parquet(file: Path, wanted: tuple[str, str]) -> list[tuple[Any, ...]]:
    with opened(file) as source:
        _check_columns(wanted, source.schema_arrow.names, file)
        read = source.read(columns=list(wanted))
        return list(zip(*(read[column].to_pylist() for column in wanted), strict=True))


def _check_columns(wanted: Sequence[str], found: Sequence[str], file: Path) -> None:
    for column in wanted:
        if column not in found:
            raise InputError(
                f"Expected a column `{column}` in `{file}`, found {', '.join(found) or 'none'}. "
                f"Say which to take with `text` and `label`."
            )


_READERS: dict[str, Callable[[Path, tuple[str, str]], list[tuple[Any, ...]]]] = {
    ".csv": _separated(","),
    ".tsv": _separated("\t"),
    ".jsonl": _lines,
    ".parquet": _parquet,
}
