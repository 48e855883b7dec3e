"""What a path holds, judged by its files, its ending and its columns."""

import csv
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

SAVED = ("dataset_info.json", "dataset_dict.json")  # what `save_to_disk` writes


def is_saved_dataset(path: Path) -> bool:
    """A folder that Hugging Face's `save_to_disk` wrote."""
    return path.is_dir() and any((path / file).is_file() for file in SAVED)


def is_folder_of_images(path: Path) -> bool:
    """A folder that `save_to_disk` did not write."""
    return path.is_dir() and not is_saved_dataset(path)


def is_table_of_texts(path: Path) -> bool:
    """A table that only texts come in, or one with a column `text` and no column of images."""
    ending = path.suffix.lower()
    if ending in (".jsonl", ".tsv"):
        return not path.is_dir()
    columns = _columns(path) if ending in (".csv", ".parquet") else set()
    return "text" in columns and not {"path", "image"} & columns


def is_csv_of_images(path: Path) -> bool:
    """A CSV file that does not hold texts."""
    return _is_table_of_images(path, ".csv")


def is_parquet_of_images(path: Path) -> bool:
    """A parquet file that does not hold texts."""
    return _is_table_of_images(path, ".parquet")


def _is_table_of_images(path: Path, ending: str) -> bool:
    return path.suffix.lower() == ending and not path.is_dir() and not is_table_of_texts(path)


def _columns(path: Path) -> set[str]:
    """The columns of a table; none where it cannot be read: its reader reports that."""
    try:
        if path.suffix.lower() == ".parquet":
            return set(pq.read_schema(path).names)
        with path.open(newline="", encoding="utf-8-sig") as text:
            return set(next(csv.reader(text), ()))
    except (OSError, ValueError, csv.Error, pa.ArrowException):
        return set()
