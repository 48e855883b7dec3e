"""What is finished of a shard, read again and again while its log grows."""

import shutil
from dataclasses import fields
from pathlib import Path

import pytest
import torch

import assay
from assay.errors import IncompleteRun
from assay.plan.finished import Finished
from assay.plan.resolving import resolve
from assay.plan.shard_states import ShardStates
from assay.run import run
from assay.store import Store
from assay.store.shard_log import ShardLog, parse_log
from assay.suite.spec import Spec

SUITE = {
    "datasets": ["toy_images"],
    "models": ["toy_net"],
    "methods": ["saliency", {"integrated_gradients": {"steps": 2}}, "random"],
    "protocols": [{"deletion": {"steps": 3}}, {"single_deletion": {"grid": 2}}],
    "limit": 20,
}


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory):
    import toy_run  # noqa: F401 - registers toy_images and toy_net

    folder = tmp_path_factory.mktemp("run") / "run"
    run(Spec(**SUITE), folder, progress=False)
    return folder


@pytest.fixture
def reads(monkeypatch) -> list[tuple[int, int]]:
    """Where each reading of a log began, and how many bytes it read."""
    made: list[tuple[int, int]] = []
    real = ShardLog.read

    def read(self, start: int = 0):
        if self.path.parent.name == "shards" and self.path.exists():
            made.append((start, self.path.stat().st_size - start))
        return real(self, start)

    monkeypatch.setattr(ShardLog, "read", read)
    return made


def as_values(state) -> dict[str, object]:
    values = {one.name: getattr(state, one.name) for one in fields(state)}
    return {**values, "cells": dict(state.cells.by_key)}


def record_ends(log: bytes) -> list[int]:
    """The end of each record in the bytes of a log."""
    records = parse_log(memoryview(log)).records.values()
    return sorted(sum(record.place) for record in records)


def test_a_growing_log_is_read_once_and_says_the_same_as_a_whole_one(finished_run, tmp_path, reads):
    folder = tmp_path / "run"
    shutil.copytree(finished_run, folder)
    plan = resolve(Spec(**SUITE))
    states = ShardStates(Store(folder))
    for shard in plan.shards:
        path = folder / "shards" / f"{shard.id}.log"
        whole = path.read_bytes()
        ends = record_ends(whole)
        path.write_bytes(b"")
        known, reads[:] = 0, []
        for start, end in zip([0, *ends], ends, strict=False):
            with path.open("ab") as log:
                log.write(whole[start:end])
            state = states.of(shard)
            assert len(state.cells.by_key) >= known
            known = len(state.cells.by_key)
        assert known == 6
        assert sum(size for _, size in reads) == len(whole)
        assert as_values(state) == as_values(ShardStates(Store(folder)).of(shard))


def test_a_record_that_is_not_whole_yet_is_read_again(finished_run, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(finished_run, folder)
    (shard, *_) = resolve(Spec(**SUITE)).shards
    path = folder / "shards" / f"{shard.id}.log"
    whole, states = path.read_bytes(), ShardStates(Store(folder))
    path.write_bytes(whole[: record_ends(whole)[-1] - 5])
    assert states.of(shard).damaged
    with path.open("ab") as log:
        log.write(whole[record_ends(whole)[-1] - 5 :])
    assert not states.of(shard).damaged
    assert as_values(states.of(shard)) == as_values(ShardStates(Store(folder)).of(shard))


def test_another_file_in_place_of_a_log_is_read_whole(finished_run, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(finished_run, folder)
    (shard, *_) = resolve(Spec(**SUITE)).shards
    path = folder / "shards" / f"{shard.id}.log"
    whole, states = path.read_bytes(), ShardStates(Store(folder))
    first = record_ends(whole)[0]
    path.write_bytes(whole[:first])
    assert states.of(shard).samples
    other = path.with_suffix(".other")
    other.write_bytes(whole[first:])  # without the samples
    other.replace(path)
    assert not states.of(shard).samples


def test_damage_to_what_was_read_is_noticed_at_the_end(tmp_path):
    folder = tmp_path / "run"

    def flips_a_bit(model, batch) -> torch.Tensor:
        for path in (folder / "shards").glob("*.log"):
            content = bytearray(path.read_bytes())
            content[record_ends(bytes(content))[1] - 3] ^= 1  # of a record that is stored
            path.write_bytes(content)
        return torch.zeros(batch.map_shape)

    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 3))
    data = torch.randn(12, 3, 4, 4), torch.arange(12) % 3
    methods = ["saliency", flips_a_bit]
    with pytest.raises(IncompleteRun, match="have no whole tables"):
        assay.benchmark(net, data, methods, ["single_deletion"], out=folder, progress=False)
    assert any(ShardLog(path).read().damaged for path in Path(folder, "shards").glob("*.log"))
    results = assay.benchmark(
        net, data, ["saliency"], ["single_deletion"], out=folder, progress=False
    )
    assert results.complete


def test_the_store_is_asked_again_for_another_plan(finished_run):
    plan = resolve(Spec(**{**SUITE, "methods": ["saliency", "edge"]}))
    finished = Finished(plan, Store(finished_run))
    assert {label: len(left) for label, left in finished.missing(plan.shards[0]).items()} == {
        "saliency": 0, "edge": 2,
    }  # fmt: skip
