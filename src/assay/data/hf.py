"""Datasets that Hugging Face's `save_to_disk` wrote: Arrow streams and their description."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from assay.data.array_checks import row_ids
from assay.data.contents import is_saved_dataset
from assay.data.file_hashes import hash_file
from assay.data.parquet import check_image, decode
from assay.data.texts import number_labels, text_dataset
from assay.errors import InputError, PrerequisiteError, unknown
from assay.paths import user_path
from assay.plugins.registry import dataset
from assay.types import Dataset, Sample

INFO, STATE, SPLITS = "dataset_info.json", "state.json", "dataset_dict.json"
USUAL = ("test", "validation", "val")  # where no split is named, the first of these that exists


@dataset("hf_dataset", title="Hugging Face dataset on disk", reads=is_saved_dataset)
def hf_dataset(
    *,
    path: str,
    split: str | None = None,
    image: str | None = None,
    text: str | None = None,
    label: str | None = None,
    name: str | None = None,
) -> Dataset:
    """Labelled images or texts in a folder that `datasets.save_to_disk` wrote.

    Args:
        path: The folder, of one dataset or of several splits.
        split: The split; by default the only one, else `test` or `validation`.
        image: The column of images; by default the one declared as images.
        text: The column of texts; by default the only one of strings, or `text`.
        label: The column of labels; by default the one declared as class label, or `label`.
        name: The dataset's name in tables; by default the folder's name and the split.

    Raises:
        PrerequisiteError: There is no such folder.
        InputError: The folder, a column or a label is not what was expected.
    """
    root = user_path(path, "the folder")
    if not root.is_dir():
        raise PrerequisiteError(f"There is no folder `{root}`.")
    folder = root
    if (root / SPLITS).is_file():
        split = _split(_json(root / SPLITS).get("splits", []), split, root)
        folder = root / split
    elif split is not None:
        raise InputError(f"Expected no `split` for `{root}`: it holds one dataset.")
    features = _json(folder / INFO).get("features") or {}
    listed = _json(folder / STATE).get("_data_files") or []
    files = [folder / str(one.get("filename", "")) for one in listed]
    table = _table(files, folder)
    if image and text:
        raise InputError("Expected `image` or `text`, not both: a sample has one input.")
    image = image or (None if text else _declared(features, "Image"))
    text = None if image else (text or _strings(table, folder))
    label = label or _declared(features, "ClassLabel") or "label"
    for column in filter(None, (image, text, label)):
        if column not in table.column_names:
            raise _no_column(column, table, folder)
    title = name or (f"{root.name}_{split}" if split else root.name)
    content = "\0".join([*map(hash_file, files), str(image or text), label])
    labels = table[label].to_pylist()
    if text:
        data = text_dataset(title, table[text].to_pylist(), labels, label, folder, content)
    else:
        data = _images(title, table[image], str(image), labels, label, folder, content)
    names = features.get(label, {}).get("names")
    if names and data.numbering == "given":
        return replace(data, classes=dict(enumerate(map(str, names))), numbering="declared")
    return data


def _images(
    name: str,
    column: pa.ChunkedArray,
    image: str,
    labels: list[object],
    label: str,
    folder: Path,
    content: str,
) -> Dataset:
    check_image(column.type, image, folder)
    numbers, classes = number_labels(labels, label, folder)
    ids = row_ids(len(numbers))
    places = {sample: row for row, sample in enumerate(ids)}

    def fetch(sample: str) -> Sample:
        row = places[sample]
        return Sample(decode(column[row].as_py(), row, folder), numbers[row])

    return Dataset(
        name,
        "image",
        ids,
        fetch,
        hashlib.sha256(content.encode()).hexdigest()[:16],
        classes=classes,
        labels=dict(zip(ids, numbers, strict=True)),
        numbering="sorted" if classes else "given",
    )


def _split(splits: list[str], named: str | None, root: Path) -> str:
    if named is not None:
        if named not in splits:
            raise unknown(f"split of `{root}`:", named, splits)
        return named
    usual = splits if len(splits) == 1 else [split for split in USUAL if split in splits]
    if not usual:
        raise InputError(f"Expected `split` for `{root}`: it has {', '.join(splits) or 'none'}.")
    return usual[0]


def _table(files: list[Path], folder: Path) -> pa.Table:
    """All rows, mapped into memory: rows that are not used are not read."""
    if not files:
        raise InputError(f"Expected `{folder / STATE}` to name data files, found none.")
    parts = []
    for file in files:
        try:
            parts.append(pa.ipc.open_stream(pa.memory_map(str(file))).read_all())
        except (pa.ArrowException, OSError) as error:
            reason = str(error).strip().split("\n")[0]
            raise InputError(
                f"Expected `{file}` to be a whole Arrow stream, but it is unreadable ({reason}). "
                f"Save the dataset again."
            ) from error
    table = pa.concat_tables(parts)
    if not len(table):
        raise InputError(f"Expected rows in `{folder}`, got none.")
    return table


def _declared(features: Mapping[str, object], kind: str) -> str | None:
    """The only column declared to be of a kind; None where there are none or several."""
    columns = [n for n, f in features.items() if isinstance(f, dict) and f.get("_type") == kind]
    return columns[0] if len(columns) == 1 else None


def _strings(table: pa.Table, folder: Path) -> str:
    """The column of texts, where none is named."""
    kinds = (pa.types.is_string, pa.types.is_large_string)
    columns = [f.name for f in table.schema if any(kind(f.type) for kind in kinds)]
    if len(columns) == 1 or "text" in columns:
        return "text" if "text" in columns else columns[0]
    raise _no_column("text", table, folder)


def _no_column(column: str, table: pa.Table, folder: Path) -> InputError:
    return InputError(
        f"Expected a column `{column}` in `{folder}`, found {', '.join(table.column_names)}. "
        f"Name the columns with `image` or `text`, and `label`."
    )


def _json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"Expected `{file.parent}` to be written by `save_to_disk`, but it has no "
            f"`{file.name}`."
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(f"Expected JSON in `{file}`: {error}.") from error
    if not isinstance(content, dict):
        raise InputError(f"Expected an object in `{file}`, got {type(content).__name__}.")
    return content
