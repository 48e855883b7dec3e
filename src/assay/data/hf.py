"""Datasets as Hugging Face's `save_to_disk` writes them: Arrow streams and what they mean."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from assay.data.contents import is_saved_dataset
from assay.data.memory import row_ids
from assay.data.parquet import check_image, decode, hash_file
from assay.data.texts import number_labels, text_dataset
from assay.errors import InputError, PrerequisiteError, unknown
from assay.plugins.registry import dataset
from assay.types import Dataset, Sample

INFO, STATE, SPLITS = "dataset_info.json", "state.json", "dataset_dict.json"
USUAL = ("test", "validation", "val")  # splits taken where none is named, the first that is there


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
    """Labelled images or texts of a folder that `datasets.save_to_disk` wrote.

    Args:
        path: The folder, of one dataset or of several splits.
        split: Which split; by default the only one, else `test` or `validation`.
        image: The column of images; by default the one that is declared so.
        text: The column of texts; by default the only one of strings, or `text`.
        label: The column of labels; by default the one declared as class label, or `label`.
        name: What the dataset is called in tables; the folder's name and the split by default.

    Raises:
        PrerequisiteError: There is no such folder.
        InputError: The folder, a column or a label is not what was expected.
    """
    root = Path(path).expanduser()
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
    called = name or (f"{root.name}_{split}" if split else root.name)
    content = "\0".join([*map(hash_file, files), str(image or text), label])
    labels = table[label].to_pylist()
    if text:
        made = text_dataset(called, table[text].to_pylist(), labels, label, folder, content)
    else:
        made = _images(called, table[image], str(image), labels, label, folder, content)
    names = features.get(label, {}).get("names")
    if names and made.numbering == "given":
        return replace(made, classes=dict(enumerate(map(str, names))), numbering="declared")
    return made


def _images(
    name: str, column: Any, image: str, labels: list[Any], label: str, folder: Path, content: str
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


def _split(splits: list[str], wanted: str | None, root: Path) -> str:
    if wanted is not None:
        if wanted not in splits:
            raise unknown(f"split of `{root}`:", wanted, splits)
        return wanted
    usual = splits if len(splits) == 1 else [one for one in USUAL if one in splits]
    if not usual:
        raise InputError(f"Expected `split` for `{root}`: it has {', '.join(splits) or 'none'}.")
    return usual[0]


def _table(files: list[Path], folder: Path) -> Any:
    """All rows, mapped into memory: what is not looked at is not read."""
    if not files:
        raise InputError(f"Expected `{folder / STATE}` to name data files, found none.")
    parts = []
    for file in files:
        try:
            parts.append(pa.ipc.open_stream(pa.memory_map(str(file))).read_all())
        except (pa.ArrowException, OSError) as error:
            reason = str(error).strip().split("\n")[0]
            raise InputError(
                f"Expected `{file}` to be a whole Arrow stream, but it cannot be read ({reason}). "
                f"Save the dataset again."
            ) from error
    table = pa.concat_tables(parts)
    if not len(table):
        raise InputError(f"Expected rows in `{folder}`, got none.")
    return table


def _declared(features: Mapping[str, Any], kind: str) -> str | None:
    """The column that is declared to be of a kind, if there is one only."""
    found = [n for n, f in features.items() if isinstance(f, dict) and f.get("_type") == kind]
    return found[0] if len(found) == 1 else None


def _strings(table: Any, folder: Path) -> str:
    kinds = (pa.types.is_string, pa.types.is_large_string)
    found = [f.name for f in table.schema if any(kind(f.type) for kind in kinds)]
    if len(found) == 1 or "text" in found:
        return "text" if "text" in found else found[0]
    raise _no_column("text", table, folder)


def _no_column(column: str, table: Any, folder: Path) -> InputError:
    return InputError(
        f"Expected a column `{column}` in `{folder}`, found {', '.join(table.column_names)}. "
        f"Say which to take with `image` or `text`, and `label`."
    )


def _json(file: Path) -> dict[str, Any]:
    try:
        read = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"Expected `{file.parent}` to be written by `save_to_disk`: there is no `{file.name}`."
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(f"Expected JSON in `{file}`: {error}.") from error
    if not isinstance(read, dict):
        raise InputError(f"Expected an object in `{file}`, got {type(read).__name__}.")
    return read
