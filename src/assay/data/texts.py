"""Labelled texts in a table: CSV, TSV, JSON lines or parquet."""

import csv
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from assay.data.contents import is_table_of_texts
from assay.data.file_hashes import hash_file
from assay.data.memory import of_texts
from assay.data.parquet import check_numbers, opened
from assay.errors import InputError, PrerequisiteError, unknown
from assay.paths import user_path
from assay.plugins.registry import dataset
from assay.types import Dataset

TextAndLabel = tuple[str, str]  # the two columns that are read
CURE = "Name the columns with `text` and `label`"
LONGEST_NUMBER = 18  # digits of a class number that tensors hold
TableReader = Callable[[Path, TextAndLabel], list[tuple[object, ...]]]


@dataset("texts", title="Table of texts", reads=is_table_of_texts)
def texts(
    *, path: str, text: str = "text", label: str = "label", name: str | None = None
) -> Dataset:
    """Labelled texts of one .csv, .tsv, .jsonl or .parquet file.

    Labels are class numbers or names. A name's number is its position among the class names of the
    model; where the model names no classes, names are numbered in alphabetical order.

    Args:
        path: The file; its ending decides how it is read.
        text: The column of texts.
        label: The column of class numbers or names.
        name: The dataset's name in tables; by default the file's.

    Raises:
        PrerequisiteError: There is no such file.
        InputError: The file, a column or a label is not what was expected.
    """
    file = existing_file(path)
    if file.suffix.lower() not in _READERS:
        raise unknown("kind of table", file.suffix, _READERS)
    rows = _READERS[file.suffix.lower()](file, (text, label))
    if not rows:
        raise InputError(f"Expected rows in `{file}`, got none.")
    content = f"{hash_file(file)}\0{text}\0{label}"
    inputs, labels = zip(*rows, strict=True)
    return text_dataset(name or file.stem, inputs, labels, label, file, content)


def existing_file(path: str) -> Path:
    """The file at a path of the user's.

    Raises:
        PrerequisiteError: There is none.
    """
    file = user_path(path, "the file")
    if not file.is_file():
        raise PrerequisiteError(f"There is no file `{file}`.")
    return file


def text_dataset(
    name: str,
    texts: Sequence[object],
    labels: Sequence[object],
    column: str,
    file: Path,
    content: str,
) -> Dataset:
    """Texts and their labels as a dataset, identified by `content`.

    Raises:
        InputError: A text is missing, or a label is neither a class number nor a name.
    """
    checked = [_text(text, row, file) for row, text in enumerate(texts)]
    numbers, classes = number_labels(labels, column, file)
    return replace(
        of_texts(checked, numbers, name),
        fingerprint=hashlib.sha256(content.encode()).hexdigest()[:16],
        classes=classes,
        numbering="sorted" if classes else "given",
    )


def _text(value: object, row: int, file: Path) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"Expected a text in row {row} of `{file}`, got {value!r}.")
    return value


def number_labels(
    labels: Sequence[object], column: str, file: Path
) -> tuple[list[int], dict[int, str]]:
    """Class numbers, and their names where the labels are names."""
    unlabelled = [
        row for row, label in enumerate(labels) if label is None or str(label).strip() == ""
    ]
    if unlabelled:
        raise InputError(
            f"Expected a label in every row of column `{column}` of `{file}`, got none in row "
            f"{unlabelled[0]} ({len(unlabelled)} such rows). Drop unlabelled rows."
        )
    words = [str(label).strip() for label in labels]
    huge = [row for row, word in enumerate(words) if _is_huge(word)]
    if huge:
        raise InputError(
            f"Expected class numbers or names in column `{column}` of `{file}`, got a number of "
            f"{len(words[huge[0]])} digits in row {huge[0]}."
        )
    if all(word.removeprefix("-").isdecimal() for word in words):
        return check_numbers([int(word) for word in words], column, file), {}
    if any(isinstance(label, float | bool) for label in labels):
        raise InputError(
            f"Expected class numbers or names in column `{column}` of `{file}`, got {labels[0]!r}."
        )
    names = sorted(set(words))
    places = {name: number for number, name in enumerate(names)}
    return [places[word] for word in words], dict(enumerate(names))


def _is_huge(word: str) -> bool:
    """Whether a class number has more digits than any count of classes."""
    return len(word) > LONGEST_NUMBER and word.removeprefix("-").isdecimal()


def read_separated(
    file: Path, columns: TextAndLabel, cure: str = CURE, by: str = ","
) -> list[tuple[object, ...]]:
    """Two columns of a table with a header; a short row has None in what it lacks.

    Raises:
        InputError: It is not such a table; `cure` says what to do where a column is missing.
    """
    try:
        with file.open(newline="", encoding="utf-8-sig") as content:
            reader = csv.DictReader(content, delimiter=by)
            _check_columns(columns, list(reader.fieldnames or ()), file, cure)
            return [tuple(row[column] for column in columns) for row in reader]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"Expected `{file}` to be a table in UTF-8: {error}.") from error


def _separated(by: str) -> TableReader:
    return lambda file, columns: read_separated(file, columns, by=by)


def _lines(file: Path, columns: TextAndLabel) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
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
        _check_columns(columns, list(row), file)
        rows.append(tuple(row[column] for column in columns))
    return rows


def _parquet(file: Path, columns: TextAndLabel) -> list[tuple[object, ...]]:
    with opened(file) as source:
        _check_columns(columns, source.schema_arrow.names, file)
        table = source.read(columns=list(columns))
        return list(zip(*(table[column].to_pylist() for column in columns), strict=True))


def _check_columns(
    columns: TextAndLabel, existing: Sequence[str], file: Path, cure: str = CURE
) -> None:
    for column in columns:
        if column not in existing:
            raise InputError(
                f"Expected a column `{column}` in `{file}`, found {', '.join(existing) or 'none'}. "
                f"{cure}."
            )


_READERS: dict[str, TableReader] = {
    ".csv": _separated(","),
    ".tsv": _separated("\t"),
    ".jsonl": _lines,
    ".parquet": _parquet,
}
