"""Pictures are refused by their number of pixels, before they are decoded."""

import io
import struct
import warnings
import zlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from assay.data.pictures import MEGAPIXELS, VARIABLE, open_picture
from assay.errors import InputError
from assay.plan.resolving import build_one


def declared(width: int, height: int) -> bytes:
    """A PNG of a few bytes that declares this size."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        check = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(b"")), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


BOMB = declared(20_000, 20_000)
TOO_MANY = r"at most 100 megapixels in .*, got 400 \(20000 x 20000\).*`ASSAY_MAX_MEGAPIXELS=400`"


def folder(path: Path) -> dict[str, object]:
    (path / "images" / "cat").mkdir(parents=True)
    (path / "images" / "cat" / "a.png").write_bytes(BOMB)
    return {"image_folder": {"path": str(path / "images")}}


def csv(path: Path) -> dict[str, object]:
    (path / "a.png").write_bytes(BOMB)
    (path / "list.csv").write_text("path,label\na.png,0\n")
    return {"csv": {"path": str(path / "list.csv")}}


def parquet(path: Path) -> dict[str, object]:
    table = pa.table({"image": pa.array([BOMB], pa.binary()), "label": pa.array([0])})
    pq.write_table(table, path / "a.parquet")
    return {"parquet": {"path": str(path / "a.parquet")}}


@pytest.mark.parametrize("make", [folder, csv, parquet])
def test_no_reader_decodes_it(make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = build_one("dataset", make(tmp_path))
    with pytest.raises(InputError, match=TOO_MANY):
        data.fetch(data.ids[0])
    monkeypatch.setenv(VARIABLE, "500")  # then it is decoded, and is not whole
    with pytest.raises(InputError, match=r"Expected (an image|a readable image)"):
        data.fetch(data.ids[0])


def test_the_limit_is_the_stated_one_and_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    side = 10_000
    assert side**2 == MEGAPIXELS * 1e6
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Pillow would warn from 89 megapixels on
        assert open_picture(io.BytesIO(declared(side, side)), "it").size == (side, side)
    with pytest.raises(InputError, match="at most 100 megapixels"):
        open_picture(io.BytesIO(declared(side, side + 1)), "it")
    before = Image.MAX_IMAGE_PIXELS
    monkeypatch.setenv(VARIABLE, "0.5")
    with pytest.raises(InputError, match=r"at most 0\.5 megapixels in it, got 1 \(1000 x 1000\)"):
        open_picture(io.BytesIO(declared(1000, 1000)), "it")
    for wrong in ("many", "0", "-1", "nan"):
        monkeypatch.setenv(VARIABLE, wrong)
        with pytest.raises(InputError, match=f"`{VARIABLE}` to be a number above 0, got '{wrong}'"):
            open_picture(io.BytesIO(declared(2, 2)), "it")
    assert before == Image.MAX_IMAGE_PIXELS is not None
