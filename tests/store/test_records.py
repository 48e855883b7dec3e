"""Records of a run: stored and read back, also those of other versions."""

import json
import re
from dataclasses import fields, replace
from pathlib import Path

import pytest

import assay
from assay.ranking.overall import OverallRow
from assay.ranking.rows import BoardRow
from assay.ranking.table import SCHEMA
from assay.results import Results
from assay.store import (
    CellRecord,
    Manifest,
    Preview,
    ProtocolEntry,
    ShardSummary,
    file_name,
    read_manifest,
)
from assay.store.shard_content import read_shard
from small_worlds import make_images, make_net

METHODS = ["saliency", {"integrated_gradients": {"steps": 2}}, "random"]
MANIFEST_KEYS = [
    "assay", "layout", "identity", "draws", "created", "finished", "seconds", "title", "notes",
    "target", "seeds", "versions", "hardware", "models", "datasets", "clean", "forwards", "methods",
    "protocols", "shards", "keys",
]  # fmt: skip


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    out = tmp_path_factory.mktemp("run")
    protocols = ["deletion", "soundness"]
    net, (inputs, _) = make_net(), make_images(4)
    labels = net(inputs).argmax(1)  # a network at chance is not ranked
    return assay.benchmark(net, (inputs, labels), METHODS, protocols, out=out, progress=False)


def test_a_manifest_is_written_as_it_was_read(results: Results):
    stored = json.loads(results.store.path("manifest.json").read_text())
    assert re.fullmatch("[0-9a-f]{8}", stored.pop("checksum"))
    assert json.loads(json.dumps(results.entries.to_json())) == stored
    assert list(results.manifest) == MANIFEST_KEYS
    assert read_manifest(results.store) == results.entries


def test_keys_that_were_optional_stay_so(results: Results):
    (model,) = results.manifest["models"].values()
    assert "card" not in model
    (protocol,) = (p for p in results.manifest["protocols"].values() if p["name"] == "soundness")
    assert list(protocol)[:4] == ["name", "title", "family", "cite"]
    assert list(protocol)[-4:] == ["axis", "judges", "properties", "question"]


def test_a_shard_is_summed_up_as_it_was_read(results: Results):
    (shard,) = results.entries.shards
    summary = read_shard(results.store, shard.id).summary
    assert summary == ShardSummary.from_json(json.loads(json.dumps(summary.to_json())))
    assert summary.n == len(summary.previews) == 4
    assert summary.forwards + summary.explaining == results.entries.forwards
    image = summary.previews[0].to_json()
    assert "image" in image
    assert not {"words", "special"} & image.keys()


def test_the_costs_of_two_parts_add_up():
    first = ShardSummary(
        dataset="d", model="m", n=3, forwards=5, calls=2, explaining=1, seconds=1.5
    )
    second = replace(first, n=4, forwards=7, seconds=0.25)
    assert second.after(None) == second
    assert second.after(first) == replace(second, forwards=12, calls=4, explaining=2, seconds=1.75)


def test_an_older_manifest_is_read():
    """Only what every version wrote; null is the same as nothing."""
    shard = {"id": "0", "dataset": "d", "model": "m", "samples": ["a"], "cells": ["c"]}
    protocol = {"name": "deletion", "range": None, "unheard_of": 1}
    manifest = Manifest.from_json(
        {"protocols": {"deletion": protocol}, "shards": [shard], "clean": None, "new_key": {}}
    )
    assert manifest.shards[0].setting == ("d", "m", "")
    assert manifest.shards[0].checks == {}
    assert manifest.clean == []
    entry = manifest.protocols["deletion"]
    assert (entry.reduce, entry.judges) == ("mean", "sample")
    assert entry.limits == (float("-inf"), float("inf"))


@pytest.mark.parametrize(
    ("ends", "limits"), [([0, 1], (0.0, 1.0)), ([None, 1], (float("-inf"), 1.0))]
)
def test_a_range_without_limit_is_infinite(ends: list, limits: tuple):
    assert ProtocolEntry(range=ends).limits == limits


def test_a_text_has_words_and_no_picture():
    preview = Preview(sample="a", model="m", words=["un", "kind"], special=[True, False])
    assert preview.to_json()["words"] == ["un", "kind"]
    assert "image" not in preview.to_json()
    assert preview.without_prediction().words == ()


def test_cells_are_read_typed_and_plain(results: Results):
    plain = results.cells
    typed = results.records
    assert [CellRecord.from_json(cell) for cell in plain] == typed
    assert {(r.method, r.protocol) for r in typed} == {
        (m, p) for m in results.manifest["methods"] for p in results.manifest["protocols"]
    }
    assert all(record.seconds == cell["seconds"] for record, cell in zip(typed, plain, strict=True))


def test_rows_are_dictionaries_for_users(results: Results):
    board = results.leaderboard()
    assert board.rows[0] == board[0] == next(iter(board)) == board.by_protocol[0].as_dict()
    assert set(board.rows[0]) == set(SCHEMA.names) == {field.name for field in fields(BoardRow)}
    assert list(board.overall[0]) == [field.name for field in fields(OverallRow)]


def test_no_labels_no_accuracy():
    manifest = Manifest()
    assert manifest.accuracy("d", "m") is None


def test_every_name_has_a_file_of_its_own_inside_the_folder() -> None:
    """Also the empty one: its file would be the folder itself."""
    names = ["", ".", "..", "/", "/etc", "../up", "a/b", "a b", "a_b", "plain", ".hidden", "é"]
    files = [file_name(name) for name in names]
    assert len(set(files)) == len(names)
    for file in files:
        assert file
        assert Path("previews", file).resolve().parent == Path("previews").resolve()
    assert file_name("plain") == "plain"
