"""Files are hashed once: kept hashes hold until a file changes, and are those of the content."""

import hashlib
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from torch import nn

import assay
from assay import progress
from assay.data import file_hashes
from assay.data.file_hashes import hash_file, hash_files
from assay.data.folders import csv, image_folder
from assay.data.hf import hf_dataset
from assay.data.parquet import parquet
from assay.data.texts import texts
from assay.plugins import registry
from assay.processes import Worker
from assay.run import dry_run, run, suite_run
from assay.run.executors import Known, _build, threads
from assay.store import Store
from assay.store.data_facts import DataFacts, knowing
from assay.store.verification import verify
from assay.suite.spec import Spec
from assay.types import Dataset, Model
from saved_datasets import CLASS, IMAGES, save_to_disk

SEEN = Counter[str]
NETWORK = """
import assay, torch


def network():
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 8 * 8, 2))
    torch.nn.init.ones_(net[1].weight)
    torch.nn.init.zeros_(net[1].bias)
    return assay.model(net.eval(), size=8, mean=0.5, std=0.5)
"""


@registry.model("eight_pixels")
def eight_pixels() -> Model:
    """A network of small photographs."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 2))
    return assay.model(net.eval(), size=8, mean=0.5, std=0.5)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep also the hashes of files that were written just now."""
    monkeypatch.setattr(file_hashes, "RECENT", -(10**12))


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> SEEN:
    """How often each file of data was hashed."""
    seen: SEEN = Counter()
    before = Path.open

    def counted(self: Path, mode: str = "r", *args: Any, **options: Any) -> Any:
        if mode == "rb" and self.suffix in (".png", ".csv", ".parquet", ".arrow"):
            seen[self.name] += 1
        return before(self, mode, *args, **options)

    monkeypatch.setattr(Path, "open", counted)
    return seen


def photos(folder: Path, n: int = 3) -> Path:
    """A folder of two classes, whose files have one size."""
    for label in ("cat", "dog"):
        (folder / label).mkdir(parents=True)
        for i in range(n):
            write_photo(folder / label / f"{i}.png", i + 10 * (label == "dog"))
    return folder


def write_photo(path: Path, seed: int) -> None:
    colours = np.random.default_rng(seed).integers(0, 255, (8, 8, 3), np.uint8)
    Image.fromarray(colours).save(path, compress_level=0)


def spec(folder: Path) -> Spec:
    return Spec(
        datasets=[{"image_folder": {"path": str(folder)}}], models=["eight_pixels"],
        methods=["saliency", "random"], protocols=["deletion"],
    )  # fmt: skip


def table(folder: Path) -> Path:
    rows = [f"{file.relative_to(folder)},{file.parent.name}" for file in folder.rglob("*.png")]
    path = folder / "table.csv"
    path.write_text("\n".join(["path,label", *sorted(rows)]))
    return path


def read_each(tmp_path: Path) -> list[Dataset]:
    """A dataset of each kind that hashes files."""
    folder, saved = tmp_path / "photos", tmp_path / "saved"
    if not folder.exists():
        pq.write_table(pa.table(IMAGES), tmp_path / "rows.parquet")
        save_to_disk(saved, IMAGES, {"image": {"_type": "Image"}, "label": CLASS}, 2)
        (tmp_path / "reviews.csv").write_text("text,label\ngood,1\nbad,0\n")
        table(photos(folder))
    return [
        image_folder(path=str(folder)),
        csv(path=str(folder / "table.csv")),
        parquet(path=str(tmp_path / "rows.parquet")),
        hf_dataset(path=str(saved)),
        texts(path=str(tmp_path / "reviews.csv")),
    ]


@pytest.mark.usefixtures("at_once")
def test_each_reader_hashes_its_files_once(tmp_path: Path, hashed: SEEN) -> None:
    with knowing(DataFacts()):
        first = [data.fingerprint for data in read_each(tmp_path)]
        assert hashed.total() == 6 + 1 + 2 + 1  # the folder and the table are the same data
        hashed.clear()
        assert [data.fingerprint for data in read_each(tmp_path)] == first
        assert not hashed
    assert [data.fingerprint for data in read_each(tmp_path)] == first
    assert hashed.total() == 16  # without facts nothing is kept


def test_fingerprints_are_those_of_earlier_versions(tmp_path: Path) -> None:
    """Keys of stored results contain them."""
    folder, from_table, rows, saved, reviews = read_each(tmp_path)
    for data, labels in ((folder, [0, 0, 0, 1, 1, 1]), (from_table, [0, 0, 0, 1, 1, 1])):
        digest = hashlib.sha256()
        for sample in data.ids:
            digest.update(sample.encode())
            digest.update((tmp_path / "photos" / sample).read_bytes())
        digest.update(str(labels).encode())
        assert data.fingerprint == digest.hexdigest()[:16]

    def of_file(path: Path) -> str:
        return hashlib.sha256(path.read_bytes()).hexdigest()

    assert rows.fingerprint == of_file(tmp_path / "rows.parquet")
    parts = [*map(of_file, sorted((tmp_path / "saved").glob("*.arrow"))), "image", "label"]
    assert saved.fingerprint == hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    content = f"{of_file(tmp_path / 'reviews.csv')}\0text\0label"
    assert reviews.fingerprint == hashlib.sha256(content.encode()).hexdigest()[:16]


@pytest.mark.usefixtures("at_once")
def test_texts_between_files_and_their_order_count(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_bytes(b"1")
    b.write_bytes(b"2")
    with knowing(DataFacts()) as facts:
        parts = [[("x", a), ("y", b)], [("y", a), ("x", b)], [("x", b), ("y", a)], [("x", a)]]
        hashes = [hash_files(part) for part in parts] + [hash_files(parts[0], "end")]
        assert hashes[0] == hashlib.sha256(b"x1y2").hexdigest()
        assert hashes[4] == hashlib.sha256(b"x1y2end").hexdigest()
        assert len(set(hashes)) == len(facts.fingerprints) == 5


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("change", ["content", "times", "inode", "place"])
def test_a_file_that_changed_is_hashed_again(tmp_path: Path, change: str, hashed: SEEN) -> None:
    path = tmp_path / "a.csv"
    path.write_text("one")
    about = path.stat()
    with knowing(DataFacts()):
        first = hash_file(path)
        time.sleep(0.02)
        if change == "content":
            path.write_text("two")
            os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))  # hides it from `mtime` only
        elif change == "times":
            path.touch()
        else:
            path.rename(tmp_path / "b.csv")
            if change == "inode":
                path.write_text("one")
                os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
            path = path if change == "inode" else tmp_path / "b.csv"
        assert (hash_file(path) == first) == (change != "content")
        assert hashed.total() == 2


def test_a_file_that_changed_just_now_is_not_trusted(
    tmp_path: Path, hashed: SEEN, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("one")
    with knowing(DataFacts()) as facts:
        assert hash_file(path) == hash_file(path)
        assert hashed["a.csv"] == 2
        os.utime(path, (1, 1))  # its age by `mtime` is not enough
        hash_file(path)
        assert not facts.fingerprints
        monkeypatch.setattr(file_hashes, "RECENT", 10**7)  # as if a minute had gone by
        time.sleep(0.05)
        hash_file(path)
        assert len(facts.fingerprints) == 1
        path.write_text("two")
        assert hash_file(path) == hashlib.sha256(b"two").hexdigest()


@pytest.mark.usefixtures("at_once")
def test_a_file_that_changes_while_it_is_hashed_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"one")
    before = Path.open

    with knowing(DataFacts()) as facts, monkeypatch.context() as patch:
        patch.setattr(Path, "open", lambda self, mode="r", *a, **o: _written(before, self, mode))
        hash_file(path)
        assert not facts.fingerprints


def _written(opened: Any, path: Path, mode: str) -> Any:
    """Open a file that somebody else writes in the meantime."""
    with opened(path, "ab") as file:
        file.write(b"more")
    return opened(path, mode)


@pytest.mark.usefixtures("at_once")
class TestRuns:
    def test_a_second_run_hashes_nothing(self, tmp_path: Path, hashed: SEEN) -> None:
        folder, out = photos(tmp_path / "photos"), tmp_path / "run"
        first = run(spec(folder), out, progress=False)
        assert set(hashed.values()) == {2}  # two classes have files of the same names
        hashed.clear()
        second = run(spec(folder), out, progress=False)
        dry_run(spec(folder), out, time_it=False)
        assert not hashed
        assert second.scores.equals(first.scores)
        with threads(None):
            known = Known({}, DataFacts.read(Store(out)))
            plan = _build(spec(folder), suite_run.Settings(str(out)), known)  # as a worker does
        assert not hashed
        assert plan.datasets["photos"].fingerprint == first.entries.datasets["photos"].fingerprint

    def test_workers_are_given_the_hashes(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder, sent = photos(tmp_path / "photos"), []
        before = Worker.__init__

        def recorded(self: Any, work: Any, *arguments: Any) -> None:
            sent.append(arguments[-1])
            before(self, work, *arguments)

        monkeypatch.setattr(Worker, "__init__", recorded)
        (tmp_path / "own.py").write_text(NETWORK)
        suite = spec(folder).model_copy(update={"models": [f"{tmp_path}/own.py:network"]})
        run(suite, tmp_path / "run", progress=False, workers=2)
        assert all(len(known.facts.fingerprints) == 1 for known in sent)
        assert sent

    def test_the_interface_of_python_hashes_once_too(self, tmp_path: Path, hashed: SEEN) -> None:
        folder, out = str(photos(tmp_path / "photos")), tmp_path / "run"
        for expected in (6, 0):
            hashed.clear()
            assay.benchmark(eight_pixels(), folder, ["random"], ["deletion"], out=out,
                            progress=False)  # fmt: skip
            assert hashed.total() == expected

    def test_the_command_line_hashes_once_too(
        self, tmp_path: Path, hashed: SEEN, call: Any
    ) -> None:
        folder, out = str(photos(tmp_path / "photos")), str(tmp_path / "run")
        for budget, expected in (("1h", 6), ("1h", 0)):
            hashed.clear()
            code, _, errors = call(
                "run", "--model", "eight_pixels", "--data", folder, "--out", out,
                "--budget", budget, "--protocols", "deletion",
            )  # fmt: skip
            assert code == 0, errors
            assert hashed.total() == expected

    def test_a_changed_file_stops_the_run(self, tmp_path: Path) -> None:
        folder, out = photos(tmp_path / "photos"), tmp_path / "run"
        run(spec(folder), out, progress=False)
        photo = folder / "cat" / "1.png"
        size = photo.stat().st_size
        write_photo(photo, 99)
        assert photo.stat().st_size == size
        with pytest.raises(assay.InputError, match="data of dataset `photos` changed"):
            run(spec(folder), out, progress=False)

    def test_a_touched_file_is_hashed_again_and_the_run_goes_on(
        self, tmp_path: Path, hashed: SEEN
    ) -> None:
        folder, out = photos(tmp_path / "photos"), tmp_path / "run"
        first = run(spec(folder), out, progress=False)
        time.sleep(0.02)
        (folder / "cat" / "1.png").touch()
        hashed.clear()
        assert run(spec(folder), out, progress=False).scores.equals(first.scores)
        assert hashed.total() == 6
        hashed.clear()
        run(spec(folder), out, progress=False)
        assert not hashed

    @pytest.mark.parametrize(
        "damage",
        [b"", b"{}", b"[1]", b'{"fingerprints": {}, "lengths": {}}', "flip", "type"],
    )
    def test_a_damaged_file_counts_as_missing(
        self, tmp_path: Path, hashed: SEEN, damage: bytes | str
    ) -> None:
        folder, out = photos(tmp_path / "photos"), tmp_path / "run"
        run(spec(folder), out, progress=False)
        path = out / "data.json"
        whole = path.read_bytes()
        assert verify(Store(out)).whole
        if damage == "flip":
            place = whole.index(b'"lengths"') - 8  # in the fingerprint
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        elif damage == "type":
            Store(out).write_json(path, {"fingerprints": {"a": 1}, "lengths": {}})
        else:
            path.write_bytes(damage)  # type: ignore[arg-type]
        assert verify(Store(out)).damaged == {"data.json": "damaged"}
        hashed.clear()
        run(spec(folder), out, progress=False)
        assert hashed.total() == 6
        assert path.read_bytes() == whole
        assert verify(Store(out)).whole

    def test_a_dry_run_writes_nothing(self, tmp_path: Path, hashed: SEEN) -> None:
        folder = photos(tmp_path / "photos")
        dry_run(spec(folder), time_it=False)
        dry_run(spec(folder), tmp_path / "run", time_it=False)
        assert hashed.total() == 12
        assert not (tmp_path / "run").exists()


def test_data_without_files_leave_no_file(tmp_path: Path) -> None:
    inputs = torch.randn(4, 3, 8, 8)
    net = eight_pixels().net
    assay.benchmark(net, (inputs, [0] * 4), ["random"], ["deletion"], out=tmp_path, progress=False)
    assert not (tmp_path / "data.json").exists()
    (tmp_path / "data.json").write_text("{")
    assay.benchmark(net, (inputs, [0] * 4), ["random"], ["deletion"], out=tmp_path, progress=False)
    assert verify(Store(tmp_path)).whole


def test_slow_hashing_shows_a_bar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(photos(tmp_path / "photos"))
    image_folder(path=folder)
    assert not capsys.readouterr().err
    monkeypatch.setattr(progress, "QUICK", -1.0)
    image_folder(path=folder)
    assert "hashing files" in capsys.readouterr().err
    assay.benchmark(eight_pixels(), folder, ["random"], ["deletion"], progress=False)
    assert "hashing files" not in capsys.readouterr().err
