"""Parquet: hand-made files, their faults, and the real ones where they are at hand."""

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from assay.data import parquet as module
from assay.data.parquet import parquet
from assay.errors import InputError, PrerequisiteError
from assay.plugins import registry
from assay.types import Dataset
from beside import beside


def _png(colour: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (4, 3), (colour, 0, 255 - colour)).save(buffer, "PNG")
    return buffer.getvalue()


def _write(path: Path, n: int = 7, group: int = 3, **columns: Any) -> Path:
    images = pa.array(
        [{"bytes": _png(i), "path": f"{i}.png"} for i in range(n)],
        pa.struct([("bytes", pa.binary()), ("path", pa.string())]),
    )
    table = {"image": images, "label": pa.array([i % 3 for i in range(n)], pa.int64())}
    table.update({name: pa.array(values) for name, values in columns.items()})
    pq.write_table(pa.table(table), path, row_group_size=group)
    return path


def _colour(data: Dataset, sample: str) -> int:
    image = data.fetch(sample).input
    assert isinstance(image, Image.Image)
    pixel = np.asarray(image)[0, 0]
    return int(pixel[0])


def test_every_row_is_found_whatever_the_order(tmp_path: Path) -> None:
    path = _write(tmp_path / "small.parquet")
    data = registry.get("dataset", "parquet").function(path=str(path))
    assert (data.name, data.modality, data.has) == ("small", "image", {"labels"})
    assert data.ids == tuple(f"{i:04d}" for i in range(7))
    for row in (6, 0, 3, 2, 5, 4, 1, 6):
        assert _colour(data, f"{row:04d}") == row
        assert data.fetch(f"{row:04d}").label == row % 3
    assert data.fingerprint == hashlib.sha256(path.read_bytes()).hexdigest()


def test_row_groups_are_read_when_needed_and_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = parquet(path=str(_write(tmp_path / "x.parquet")))
    rows: Any = data.fetch
    assert not rows.groups
    monkeypatch.setattr(module, "CACHE_BYTES", 1)
    for row in range(7):
        assert _colour(data, f"{row:04d}") == row
        assert list(rows.groups) == [row // 3]


def test_class_names(tmp_path: Path) -> None:
    names = [f"class {i % 3}" for i in range(7)]
    path = _write(tmp_path / "named.parquet", name=names)
    assert parquet(path=str(path)).classes == {0: "class 0", 1: "class 1", 2: "class 2"}

    path = _write(tmp_path / "files.parquet", name=[f"{i}.png" for i in range(7)])
    assert parquet(path=str(path)).classes == {}  # seven names for three classes: no class names

    features = {"info": {"features": {"label": {"_type": "ClassLabel", "names": ["a", "b", "c"]}}}}
    table = pq.read_table(path).replace_schema_metadata({"huggingface": json.dumps(features)})
    pq.write_table(table, path)
    assert parquet(path=str(path)).classes == {0: "a", 1: "b", 2: "c"}


def test_columns_by_other_names_and_plain_bytes(tmp_path: Path) -> None:
    path = _write(tmp_path / "x.parquet", img=[_png(9)] * 7, fine=list(range(7)))
    data = parquet(path=str(path), image="img", label="fine", name="mine")
    assert data.name == "mine"
    assert _colour(data, "0004") == 9
    assert data.fetch("0004").label == 4


def test_other_columns_are_other_samples(tmp_path: Path) -> None:
    path = _write(tmp_path / "x.parquet", coarse=[0] * 7)
    fine, coarse = parquet(path=str(path)), parquet(path=str(path), label="coarse")
    assert fine.fingerprint == module.hash_file(path)
    assert coarse.fingerprint != fine.fingerprint
    assert coarse.fingerprint == parquet(path=str(path), label="coarse").fingerprint


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteError, match=r"nothing\.parquet"):
        parquet(path=str(tmp_path / "nothing.parquet"))


def test_a_truncated_file(tmp_path: Path) -> None:
    path = _write(tmp_path / "x.parquet")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match=r"x\.parquet.*truncated"):
        parquet(path=str(path))


def test_a_file_that_is_damaged_inside(tmp_path: Path) -> None:
    path = _write(tmp_path / "x.parquet")
    data = parquet(path=str(path))
    path.write_bytes(b"\0" * 100)
    with pytest.raises(InputError, match=r"x\.parquet.*cannot be read"):
        data.fetch("0000")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"image": "photo"}, "column `photo`.*found image, label, words"),
        ({"label": "klass"}, "column `klass`.*found image, label, words"),
        ({"label": "words"}, "class numbers, got string"),
        ({"image": "words"}, "encoded images.*got string"),
        ({"label": "gaps"}, "None in row 1"),
        ({"label": "minus"}, "-1 in row 2"),
    ],
)
def test_wrong_columns(tmp_path: Path, options: dict[str, str], says: str) -> None:
    gaps, minus = [0, None, 1, 0, 0, 0, 0], [0, 1, -1, 0, 0, 0, 0]
    path = _write(tmp_path / "x.parquet", words=["a"] * 7, gaps=gaps, minus=minus)
    with pytest.raises(InputError, match=says):
        parquet(path=str(path), **options)


@pytest.mark.parametrize("raw", [b"not an image", _png(1)[:-30], None])
def test_unreadable_image_bytes_name_the_row(tmp_path: Path, raw: bytes | None) -> None:
    images = [_png(0), _png(1), raw]
    path = _write(tmp_path / "x.parquet", n=3, img=images)
    data = parquet(path=str(path), image="img")
    assert _colour(data, "0001") == 1
    with pytest.raises(InputError, match="row 2"):
        data.fetch("0002")


def test_an_empty_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="hold samples, got none"):
        parquet(path=str(_write(tmp_path / "x.parquet", n=0)))


def test_the_cifar_test_set() -> None:
    data = parquet(path=str(beside("cifar10/cifar10_test_lossless.parquet")))
    assert len(data.ids) == 10_000
    assert data.classes[3] == "cat"
    assert [data.fetch(i).label for i in data.ids[:10]] == [3, 8, 8, 0, 6, 6, 1, 6, 3, 1]
    image = data.fetch("0000").input
    assert isinstance(image, Image.Image)
    assert image.convert("RGB").getpixel((0, 0)) == (158, 112, 49)
    sha = "d2b95a5ddd0c91ea3c6b737d5c63148423128fbe4698445b844f58d138639871"
    assert data.fingerprint == sha
