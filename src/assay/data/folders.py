"""Images on disk: a folder with one folder per class, or a CSV of paths and labels."""

import csv as csv_module
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from PIL import UnidentifiedImageError

from assay.data.classes import one_each
from assay.data.contents import is_csv_of_images, is_folder_of_images
from assay.data.pictures import open_picture
from assay.errors import InputError, PrerequisiteError
from assay.plugins.registry import dataset
from assay.types import Dataset, Sample

ENDINGS = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm"}


@dataset("image_folder", title="Folder of images", reads=is_folder_of_images)
def image_folder(
    *, path: str, classes: tuple[str, ...] | None = None, name: str | None = None
) -> Dataset:
    """Images in one folder per class.

    A class's number is its folder's position in `classes`, the order of the model's outputs.
    Without `classes` it is the position among the class names of the model; where the model names
    no classes, folders are numbered in alphabetical order. Images without a folder have no labels.
    """
    root = _folder(path)
    files = sorted(f for f in root.rglob("*") if f.suffix.lower() in ENDINGS and f.is_file())
    if not files:
        kinds = ", ".join(sorted(ENDINGS))
        raise InputError(f"Expected images below `{root}`, found none ({kinds}).")
    loose = [f for f in files if f.parent == root]
    if loose and len(loose) < len(files):
        raise InputError(
            f"Expected every image below `{root}` in the folder of its class, got "
            f"`{loose[0].name}` beside the folders."
        )
    if loose:
        return _dataset(name or root.name, files, None, {}, root)
    folders = [f.relative_to(root).parts[0] for f in files]
    own = sorted(set(folders))
    places = one_each(own, classes, "`classes`") if classes else list(range(len(own)))
    numbers = dict(zip(own, places, strict=True))
    labels = [numbers[folder] for folder in folders]
    data = _dataset(name or root.name, files, labels, dict(enumerate(classes or own)), root)
    if classes:
        return replace(data, note="class numbers: the positions in `classes`")
    return replace(data, numbering="sorted")


@dataset("csv", title="CSV of images", reads=is_csv_of_images)
def csv(
    *, path: str, image: str = "path", label: str = "label", name: str | None = None
) -> Dataset:
    """A CSV file with a column of image paths, relative to it, and one of class numbers."""
    file = Path(path).expanduser()
    if not file.is_file():
        raise PrerequisiteError(f"There is no file `{file}`.")
    with file.open(newline="", encoding="utf-8") as text:
        reader = csv_module.DictReader(text)
        columns, rows = reader.fieldnames or [], list(reader)
    for column in (image, label):
        if column not in columns:
            raise InputError(
                f"Expected a column `{column}` in `{file}`, found {', '.join(columns) or 'none'}. "
                f"If the file holds texts, name their column `text`."
            )
    labels = []
    for number, row in enumerate(rows, start=2):
        if not (row[label] or "").strip().isdigit():
            raise InputError(
                f"Expected class numbers from 0 in column `{label}` of `{file}`, got "
                f"{row[label]!r} in line {number}."
            )
        labels.append(int(row[label]))
    files = [file.parent / row[image] for row in rows]
    missing = [f for f in files if not f.is_file()]
    if missing:
        raise PrerequisiteError(f"`{file}` names `{missing[0]}`, but there is no such file.")
    if not files:
        raise InputError(f"Expected rows in `{file}`, got none.")
    return _dataset(name or file.stem, files, labels, {}, file.parent)


def _folder(path: str) -> Path:
    root = Path(path).expanduser()
    if not root.is_dir():
        raise PrerequisiteError(f"There is no folder `{root}`.")
    return root


def _dataset(
    name: str,
    files: Sequence[Path],
    labels: Sequence[int] | None,
    classes: dict[int, str],
    root: Path,
) -> Dataset:
    ids = tuple(_sample_id(f, root) for f in files)
    places = {sample: row for row, sample in enumerate(ids)}
    digest = hashlib.sha256()
    for sample, file in zip(ids, files, strict=True):
        digest.update(sample.encode())
        digest.update(file.read_bytes())
    digest.update(str(labels).encode())

    def fetch(sample: str) -> Sample:
        row = places[sample]
        try:
            with open_picture(files[row], f"`{files[row]}`") as image:
                picture = image.convert("RGB")
        except (UnidentifiedImageError, OSError) as error:
            raise InputError(f"Expected an image in `{files[row]}`: {error}.") from error
        return Sample(picture, None if labels is None else labels[row])

    return Dataset(
        name,
        "image",
        ids,
        fetch,
        digest.hexdigest()[:16],
        frozenset() if labels is None else frozenset({"labels"}),
        classes=classes,
        labels={} if labels is None else dict(zip(ids, labels, strict=True)),
    )


def _sample_id(file: Path, root: Path) -> str:
    try:
        return str(file.relative_to(root))
    except ValueError:
        return str(file)
