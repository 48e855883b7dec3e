"""Images on disk: a folder with one folder per class, or a CSV of paths and labels."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from PIL import UnidentifiedImageError

from assay.data.classes import one_each
from assay.data.contents import is_csv_of_images, is_folder_of_images
from assay.data.file_hashes import hash_files
from assay.data.pictures import open_picture
from assay.data.texts import existing_file, number_labels, read_separated
from assay.errors import InputError, PrerequisiteError
from assay.paths import user_path
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
    try:
        files = sorted(f for f in root.rglob("*") if f.suffix.lower() in ENDINGS and f.is_file())
    except OSError as error:
        raise PrerequisiteError(f"Cannot read the folder `{root}`: {error}.") from None
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
    """A CSV file with a column of image paths, relative to it, and one of classes.

    Classes are numbers or names; names become numbers as those of folders do.
    """
    file = existing_file(path)
    rows = read_separated(file, (image, label), "If the file holds texts, name their column `text`")
    if not rows:
        raise InputError(f"Expected rows in `{file}`, got none.")
    labels, classes = number_labels([row[1] for row in rows], label, file)
    files = [_named_image(row[0], file) for row in rows]
    data = _dataset(name or file.stem, files, labels, classes, file.parent)
    return replace(data, numbering="sorted") if classes else data


def _named_image(name: object, table: Path) -> Path:
    """The file that a table names."""
    if not isinstance(name, str) or not name.strip():
        raise InputError(f"Expected the path of an image in every row of `{table}`, got {name!r}.")
    file = user_path(table.parent / name, f"a row of `{table}`")
    if not file.is_file():
        raise PrerequisiteError(f"`{table}` names `{file}`, but there is no such file.")
    return file


def _folder(path: str) -> Path:
    root = user_path(path, "the folder")
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
    fingerprint = hash_files(list(zip(ids, files, strict=True)), str(labels))[:16]

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
        fingerprint,
        frozenset() if labels is None else frozenset({"labels"}),
        classes=classes,
        labels={} if labels is None else dict(zip(ids, labels, strict=True)),
    )


def _sample_id(file: Path, root: Path) -> str:
    name = str(file.relative_to(root)) if file.is_relative_to(root) else str(file)
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InputError(
            f"Expected names of files in UTF-8 below `{root}`, got {name!a}. Rename the file."
        ) from None
    return name
