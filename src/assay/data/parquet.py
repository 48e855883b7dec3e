"""Images in a parquet file as Hugging Face stores them: a struct of bytes and path, a label."""

import contextlib
import hashlib
import io
import json
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from itertools import accumulate
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from assay.data.array_checks import row_ids
from assay.data.contents import is_parquet_of_images
from assay.data.file_hashes import hash_file
from assay.data.pictures import open_picture
from assay.errors import InputError, PrerequisiteError
from assay.paths import user_path
from assay.plugins.registry import dataset
from assay.types import Dataset, Sample

EncodedImage = bytes | Mapping[str, bytes | None] | None  # the cell of a table
CACHE_BYTES = 256 * 2**20  # encoded images kept in memory


@dataset("parquet", title="Images in a parquet file", reads=is_parquet_of_images)
def parquet(
    *, path: str, name: str | None = None, image: str = "image", label: str = "label"
) -> Dataset:
    """Labelled images of one parquet file, read when they are needed.

    Args:
        path: The file.
        name: The dataset's name in tables; by default the file's.
        image: The column of images: encoded bytes, or a struct with a field `bytes`.
        label: The column of class numbers.

    Raises:
        PrerequisiteError: There is no such file.
        InputError: The file, a column or a label is not what was expected.
    """
    file = user_path(path, "the parquet file")
    if not file.is_file():
        raise PrerequisiteError(
            f"Expected a parquet file at `{file}`, found none. Check the path, or get the file."
        )
    with opened(file) as source:
        schema = source.schema_arrow
        for column in (image, label):
            if column not in schema.names:
                raise InputError(
                    f"Expected a column `{column}` in `{file}`, found {', '.join(schema.names)}. "
                    f"Name the columns with `image=` and `label=`."
                )
        check_image(schema.field(image).type, image, file)
        labels = _labels(source, label, file)
        sizes = [source.metadata.row_group(g).num_rows for g in range(source.num_row_groups)]
        classes = _declared(schema, label) or _named(source, schema, labels)
    return Dataset(
        name=name or file.stem,
        modality="image",
        ids=row_ids(len(labels)),
        fetch=_Rows(file, image, labels, [0, *accumulate(sizes)]),
        fingerprint=_fingerprint(file, image, label),
        classes=classes,
        numbering="declared",
        labels=dict(zip(row_ids(len(labels)), map(int, labels), strict=True)),
    )


class _Rows:
    """Rows on demand: a row group is read with its first row, and the latest stay in memory."""

    def __init__(self, path: Path, column: str, labels: list[int], starts: list[int]) -> None:
        self.path, self.column, self.labels = path, column, labels
        self.starts = starts  # the first row of every row group, then the number of rows
        self.groups: OrderedDict[int, pa.ChunkedArray] = OrderedDict()

    def __call__(self, sample: str) -> Sample:
        row = int(sample)
        group = bisect_right(self.starts, row) - 1
        cell = self._group(group)[row - self.starts[group]].as_py()
        return Sample(input=decode(cell, row, self.path), label=self.labels[row])

    def _group(self, group: int) -> pa.ChunkedArray:
        if group not in self.groups:
            with opened(self.path) as source:
                table = source.read_row_group(group, columns=[self.column])
            self.groups[group] = table[self.column]
            while len(self.groups) > 1 and self._bytes() > CACHE_BYTES:
                self.groups.popitem(last=False)
        self.groups.move_to_end(group)
        return self.groups[group]

    def _bytes(self) -> int:
        return sum(group.nbytes for group in self.groups.values())


def decode(cell: EncodedImage, row: int, path: Path) -> Image.Image:
    """The image in a cell, in RGB: encoded bytes, or a struct that holds them.

    Raises:
        InputError: There are no bytes, they are not an image, or it is too large to decode.
    """
    raw = cell.get("bytes") if isinstance(cell, Mapping) else cell
    if not raw:
        raise InputError(
            f"Expected image bytes in row {row} of `{path}`, got none. Write the images "
            f"themselves into the file, not only their paths."
        )
    try:
        picture = open_picture(io.BytesIO(raw), f"row {row} of `{path}`")
        return picture.convert("RGB")
    except InputError:
        raise
    except (OSError, ValueError, SyntaxError) as error:
        raise InputError(
            f"Expected a readable image in row {row} of `{path}`, got {len(raw)} bytes "
            f"that are not one ({type(error).__name__}). Repair or drop that row."
        ) from error


@contextlib.contextmanager
def opened(path: Path) -> Iterator[pq.ParquetFile]:
    """The open file; whatever cannot be read becomes an error that names it."""
    try:
        with pq.ParquetFile(path) as source:
            yield source
    except (pa.ArrowException, OSError) as error:
        reason = str(error).strip().split("\n")[0]
        raise InputError(
            f"Expected `{path}` to be a whole parquet file, but it cannot be read ({reason}). "
            f"It may be truncated; fetch it again."
        ) from error


def check_image(kind: pa.DataType, column: str, path: Path) -> None:
    """Refuse a column whose type cannot hold encoded images."""
    if pa.types.is_struct(kind):
        fields = [kind.field(i).name for i in range(kind.num_fields)]
        kind = kind.field("bytes").type if "bytes" in fields else kind
    if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        raise InputError(
            f"Expected column `{column}` of `{path}` to hold encoded images (bytes, or a struct "
            f"with a field `bytes`), got {kind}."
        )


def _labels(source: pq.ParquetFile, column: str, path: Path) -> list[int]:
    kind = source.schema_arrow.field(column).type
    if not pa.types.is_integer(kind):
        raise InputError(
            f"Expected column `{column}` of `{path}` to hold class numbers, got {kind}. "
            f"Write the position of each class in the model's output."
        )
    return check_numbers(source.read(columns=[column])[column].to_pylist(), column, path)


def check_numbers(labels: list[int | None], column: str, path: Path) -> list[int]:
    """The class numbers of a column, all known and none below 0."""
    wrong = [row for row, value in enumerate(labels) if value is None or value < 0]
    if wrong:
        raise InputError(
            f"Expected class numbers from 0 in column `{column}` of `{path}`, got "
            f"{labels[wrong[0]]} in row {wrong[0]} ({len(wrong)} such rows). Drop unlabelled rows."
        )
    return [value for value in labels if value is not None]


def _declared(schema: pa.Schema, label: str) -> dict[int, str]:
    """The class names in the metadata that Hugging Face writes, if they are there."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return dict(enumerate(map(str, features[label]["names"])))
    except (KeyError, TypeError, ValueError):
        return {}


def _named(source: pq.ParquetFile, schema: pa.Schema, labels: list[int]) -> dict[int, str]:
    """The class names of a column `name`, if every class has one and only one."""
    if "name" not in schema.names or not pa.types.is_string(schema.field("name").type):
        return {}
    pairs = set(zip(labels, source.read(columns=["name"])["name"].to_pylist(), strict=True))
    classes = {number: name for number, name in pairs if name}
    return dict(sorted(classes.items())) if len(pairs) == len(classes) else {}


def _fingerprint(file: Path, image: str, label: str) -> str:
    """The hash of the file and, where they are not the usual ones, of the columns that are read."""
    content = hash_file(file)
    if (image, label) == ("image", "label"):
        return content
    return hashlib.sha256("\0".join([content, image, label]).encode()).hexdigest()
