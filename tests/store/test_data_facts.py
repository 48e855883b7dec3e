"""Facts about data: kept with a run, shared by what reads data inside one call."""

import json
from pathlib import Path

import pytest

from assay.errors import CannotWrite
from assay.store import NOWHERE, Store
from assay.store.data_facts import DataFacts, are_damaged, data_facts, knowing

FACTS = {"fingerprints": {"files": "ab12"}, "lengths": {"texts words 64": 17}}


def facts() -> DataFacts:
    return DataFacts(dict(FACTS["fingerprints"]), dict(FACTS["lengths"]))


def test_facts_come_back_as_they_were_written(tmp_path: Path) -> None:
    store = Store(tmp_path)
    facts().write(store)
    assert DataFacts.read(store) == facts()
    assert json.loads((tmp_path / "data.json").read_text()).keys() == {*FACTS, "checksum"}
    assert not are_damaged(store)
    assert DataFacts.read(store, progress=False).progress is False


def test_the_file_is_written_only_where_it_changes(tmp_path: Path) -> None:
    store = Store(tmp_path)
    DataFacts().write(store)
    assert not [*tmp_path.iterdir()]
    facts().write(store)
    before = (tmp_path / "data.json").stat().st_mtime_ns
    DataFacts.read(store).write(store)
    assert (tmp_path / "data.json").stat().st_mtime_ns == before


@pytest.mark.parametrize(
    "content",
    [
        "", "{", "[]", '{"fingerprints": {}}', json.dumps(FACTS),  # no checksum
        json.dumps({**FACTS, "checksum": "00000000"}),
    ],
)  # fmt: skip
def test_a_damaged_file_counts_as_missing(tmp_path: Path, content: str) -> None:
    store = Store(tmp_path)
    (tmp_path / "data.json").write_text(content)
    assert are_damaged(store)
    assert DataFacts.read(store) == DataFacts()
    DataFacts().write(store)
    assert not are_damaged(store)


@pytest.mark.parametrize(
    "wrong", [{"fingerprints": [], "lengths": {}}, {"fingerprints": {}, "lengths": {"a": True}}]
)
def test_facts_of_other_kinds_are_not_read(tmp_path: Path, wrong: dict[str, object]) -> None:
    store = Store(tmp_path)
    store.write_json(tmp_path / "data.json", wrong)
    assert are_damaged(store)
    assert DataFacts.read(store) == DataFacts()


def test_nowhere_knows_nothing() -> None:
    assert DataFacts.read(NOWHERE) == DataFacts()
    assert not are_damaged(NOWHERE)
    with pytest.raises(CannotWrite):
        facts().write(NOWHERE)


def test_facts_reach_readers_inside_only() -> None:
    known = facts()
    assert data_facts() is not data_facts()
    with knowing(known) as inside:
        assert data_facts() is inside is known
    assert data_facts() == DataFacts()


def test_inner_facts_join_the_outer_ones() -> None:
    outer = DataFacts(progress=False)
    with knowing(outer):
        with knowing(facts()) as inner:
            assert inner is outer
            data_facts().fingerprints["new"] = "cd34"
        assert data_facts() is outer
    assert outer.fingerprints == {"files": "ab12", "new": "cd34"}
    assert outer.lengths == FACTS["lengths"]
    assert not outer.progress


def test_an_error_inside_leaves_nothing_behind() -> None:
    with pytest.raises(ValueError, match="inside"), knowing(facts()):
        raise ValueError("inside")
    assert data_facts() == DataFacts()
