"""Texts in tables and Hugging Face datasets on disk, written here as their own writers do."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from torch import nn

import assay
from assay.data.classes import agree
from assay.data.hf import hf_dataset
from assay.data.texts import texts
from assay.suite.from_options import ModelOptions, own_suite
from saved_datasets import CLASS, IMAGES, save_to_disk

ROWS = [("good, very good", "pos"), ("bad", "neg"), ('a "quoted"\nline', "pos")]


def write_texts(path: Path, rows: list[tuple[str, object]]) -> Path:
    if path.suffix == ".jsonl":
        lines = [json.dumps({"text": text, "label": label}) for text, label in rows]
        path.write_text("\n".join(lines) + "\n")
    elif path.suffix == ".parquet":
        columns = [list(column) for column in zip(*rows, strict=True)]
        pq.write_table(pa.table(columns, names=["text", "label"]), path)
    else:
        by = "\t" if path.suffix == ".tsv" else ","
        quoted = ['"' + text.replace('"', '""') + f'"{by}{label}' for text, label in rows]
        path.write_text("\n".join([f"text{by}label", *quoted]) + "\n")
    return path


def content(data: assay.Dataset) -> list[tuple[object, object]]:
    return [(s.input, s.label) for s in map(data.fetch, data.ids)]


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_every_format_gives_the_same_texts(tmp_path, ending):
    named = texts(path=str(write_texts(tmp_path / f"a b{ending}", ROWS)))
    assert (named.name, named.modality) == ("a b", "text")
    assert content(named) == [(text, int(label == "pos")) for text, label in ROWS]
    model = assay.model(nn.Linear(2, 2), classes=["POS", "neg"])
    matched = agree(named, {"m": model})
    assert [label for _, label in content(matched)] == [0, 1, 0]
    numbered = texts(path=str(write_texts(tmp_path / f"n{ending}", [("a", 3), ("b", 0)])))
    assert content(numbered) == [("a", 3), ("b", 0)]
    assert numbered.numbering == "given"


def test_the_content_decides_the_fingerprint(tmp_path):
    first = texts(path=str(write_texts(tmp_path / "a.csv", ROWS))).fingerprint
    assert texts(path=str(write_texts(tmp_path / "b.csv", ROWS))).fingerprint == first
    assert texts(path=str(write_texts(tmp_path / "c.csv", ROWS[:2]))).fingerprint != first


@pytest.mark.parametrize(
    ("file", "written", "message"),
    [
        ("a.csv", b"sentence,label\nx,1\n", "column `text`.*found sentence, label"),
        ("a.csv", b"text,label\n", "Expected rows"),
        ("a.csv", b"", "column `text`.*found none"),
        ("a.csv", b"text,label\n\xff\xfe,1\n", "UTF-8"),
        ("a.csv", b"text,label\nx,\n", "label in every row.*row 0"),
        ("a.csv", b"text,label\nx,-1\n", "class numbers from 0"),
        ("a.csv", b"text,label\n,1\n", "Expected a text in row 0"),
        ("a.jsonl", b'{"text": "x", "label": 0}\n{"text"\n', "JSON in line 2"),
        ("a.jsonl", b"[1]\n", "object in line 1"),
        ("a.jsonl", b'{"text": "x", "label": 0.5}\n', "class numbers or names"),
        ("a.parquet", b"garbage", "whole parquet file"),
        ("a.xlsx", b"", "Unknown kind of table"),
    ],
)
def test_wrong_tables_are_named(tmp_path, file, written, message):
    (tmp_path / file).write_bytes(written)
    with pytest.raises(assay.InputError, match=message):
        texts(path=str(tmp_path / file))


@pytest.mark.parametrize("files", [1, 3])
def test_images_of_a_saved_dataset(tmp_path, files):
    features = {"image": {"_type": "Image"}, "label": CLASS}
    data = hf_dataset(path=str(save_to_disk(tmp_path / "my set", IMAGES, features, files)))
    assert (data.name, data.modality, len(data.ids)) == ("my set", "image", 4)
    assert [data.fetch(i).label for i in data.ids] == [0, 1, 1, 0]
    assert [data.fetch(i).input.getpixel((0, 0))[0] for i in data.ids] == [0, 80, 160, 240]
    assert dict(data.classes) == {0: "dog", 1: "cat"}
    matched = agree(data, {"m": assay.model(nn.Linear(2, 2), classes=["cat", "dog"])})
    assert [matched.fetch(i).label for i in matched.ids] == [1, 0, 0, 1]


def test_texts_and_other_columns_of_a_saved_dataset(tmp_path):
    columns = {"idx": [5, 6], "sentence": ["a b", "c"], "kind": [1, 0]}
    features = {"sentence": {"_type": "Value"}, "kind": {**CLASS, "names": ["neg", "pos"]}}
    path = str(save_to_disk(tmp_path / "t", columns, features))
    assert content(hf_dataset(path=path)) == [("a b", 1), ("c", 0)]
    assert content(hf_dataset(path=path, label="idx")) == [("a b", 5), ("c", 6)]


def test_splits(tmp_path):
    features = {"image": {"_type": "Image"}, "label": CLASS}
    for split, rows in (("train", 4), ("test", 2)):
        part = {name: column[:rows] for name, column in IMAGES.items()}
        save_to_disk(tmp_path / "d" / split, part, features)
    (tmp_path / "d" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    path = str(tmp_path / "d")
    assert (hf_dataset(path=path).name, len(hf_dataset(path=path).ids)) == ("d_test", 2)
    assert len(hf_dataset(path=path, split="train").ids) == 4
    with pytest.raises(assay.InputError, match="Did you mean `train`"):
        hf_dataset(path=path, split="trian")
    with pytest.raises(assay.InputError, match="Expected no `split`"):
        hf_dataset(path=str(tmp_path / "d" / "test"), split="test")
    (tmp_path / "d" / "dataset_dict.json").write_text('{"splits": ["train", "extra"]}')
    with pytest.raises(assay.InputError, match=r"Expected `split`.*train, extra"):
        hf_dataset(path=path)


def test_wrong_folders_are_named(tmp_path):
    features = {"image": {"_type": "Image"}, "label": CLASS}
    folder = save_to_disk(tmp_path / "d", IMAGES, features)
    with pytest.raises(assay.PrerequisiteError, match="no folder"):
        hf_dataset(path=str(tmp_path / "nowhere"))
    for options, message in (
        ({"image": "img"}, "column `img`.*found image, label"),
        ({"label": "y"}, "column `y`"),
        ({"image": "label"}, "to hold encoded images"),
        ({"image": "image", "text": "label"}, "not both"),
    ):
        with pytest.raises(assay.InputError, match=message):
            hf_dataset(path=str(folder), **options)
    stream = folder / "data-00000-of-00001.arrow"
    stream.write_bytes(stream.read_bytes()[:100])
    with pytest.raises(assay.InputError, match="whole Arrow stream"):
        hf_dataset(path=str(folder))
    (folder / "state.json").write_text("{")
    with pytest.raises(assay.InputError, match=r"JSON in .*state\.json"):
        hf_dataset(path=str(folder))
    (folder / "state.json").unlink()
    with pytest.raises(assay.InputError, match="written by `save_to_disk`"):
        hf_dataset(path=str(folder))


def test_the_command_line_picks_the_reader(tmp_path):
    images = save_to_disk(tmp_path / "hf", IMAGES, {"label": CLASS})
    (tmp_path / "paths.csv").write_text("path,label,text\n")
    (tmp_path / "val").mkdir()
    pq.write_table(pa.table({"image": [b""], "text": ["x"]}), tmp_path / "images.parquet")
    expected = {
        images: "hf_dataset",
        tmp_path / "val": "image_folder",
        tmp_path / "paths.csv": "csv",
        tmp_path / "images.parquet": "parquet",
        tmp_path / "nowhere.csv": "csv",
        **{write_texts(tmp_path / f"t{e}", ROWS): "texts"
           for e in (".csv", ".tsv", ".jsonl", ".parquet")},
    }  # fmt: skip
    for path, kind in expected.items():
        suite = own_suite("m", str(path), ModelOptions())
        assert suite.datasets == [{kind: {"path": str(path)}}]
