"""Torch datasets: read sample by sample, known again, with the fingerprint of data in memory."""

import gc
import hashlib
import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset

import assay
from assay import progress
from assay.data.memory import as_dataset
from assay.errors import InputError
from assay.run import run
from assay.store.data_facts import DataFacts, knowing
from assay.suite.spec import Spec
from small_worlds import make_images, make_net

IMAGES = torch.randn(5, 2, 4, 4, generator=torch.Generator().manual_seed(0))
LABELS = [2, 0, 1, 1, 0]
TRUTH = IMAGES[:, 0] > 0


class Rows(TorchDataset[Any]):
    """A torch dataset that copies its rows, and counts what it was asked for."""

    def __init__(self, *columns: Any) -> None:
        self.columns = columns
        self.reads: list[int] = []
        self.alive: weakref.WeakSet[Tensor] = weakref.WeakSet()
        self.most = 0

    def __len__(self) -> int:
        return len(self.columns[0])

    def __getitem__(self, index: int) -> Any:
        self.reads.append(index)
        sample = self.columns[0][index]
        if isinstance(sample, Tensor):
            sample = sample.clone()
            self.alive.add(sample)
            self.most = max(self.most, len(self.alive))
        return sample, *(column[index] for column in self.columns[1:])


class Noisy(Rows):
    """The same with random augmentation."""

    def __getitem__(self, index: int) -> Any:
        sample, *others = super().__getitem__(index)
        return sample + torch.randn(()), *others


def in_memory_before(inputs: Tensor, labels: list[int] | None, truth: Tensor | None) -> str:
    """The fingerprint as it was computed when all samples were stacked."""
    digest = hashlib.sha256()
    for part in (inputs, None if labels is None else torch.tensor(labels), truth):
        if part is None:
            digest.update(b"none")
        else:
            digest.update(f"{part.dtype}{tuple(part.shape)}".encode() + part.numpy().tobytes())
    return digest.hexdigest()


@pytest.mark.parametrize("inputs", [IMAGES, IMAGES.double(), IMAGES[:, 0, 0], (9 * IMAGES).int()])
@pytest.mark.parametrize("labels", [LABELS, None])
@pytest.mark.parametrize("truth", [True, False])
def test_the_fingerprint_is_that_of_the_samples_in_memory(
    inputs: Tensor, labels: list[int] | None, truth: bool
) -> None:
    maps = inputs > 0 if inputs.ndim == 2 else TRUTH
    columns = (inputs, labels or [None] * 5, *([maps] if truth else []))
    data = as_dataset(Rows(*columns))
    kept = inputs if inputs.is_floating_point() else inputs.float()
    stacked = as_dataset((inputs, labels, maps if truth else None))
    before = in_memory_before(kept, labels, maps.float() if truth else None)
    assert data.fingerprint == stacked.fingerprint == before
    assert (data.ids, data.modality, data.has) == (stacked.ids, stacked.modality, stacked.has)
    assert data.labels == stacked.labels
    batch, same = data.batch(data.ids[::-1]), stacked.batch(data.ids[::-1])
    assert torch.equal(batch.inputs, same.inputs)
    assert batch.inputs.dtype == same.inputs.dtype
    if truth:
        assert batch.truth is not None
        assert same.truth is not None
        assert torch.equal(batch.truth, same.truth)


def test_token_ids() -> None:
    ids = torch.tensor([[3, 4, 0], [5, 6, 7]], dtype=torch.int32)
    data = as_dataset(Rows(ids, [0, 1]), tokens=True)
    assert data.fingerprint == as_dataset((ids, [0, 1]), tokens=True).fingerprint
    assert data.modality == "text"
    assert data.batch(data.ids).inputs.dtype == torch.int64
    with pytest.raises(InputError, match=r"torch.float32 of shape \(5, 2\)"):
        as_dataset(Rows(IMAGES[:, 0, 0, :2], LABELS), tokens=True)
    with pytest.raises(InputError, match=r"looks like token ids: torch.int32 of shape \(2, 3\)"):
        as_dataset(Rows(ids, [0, 1]), embeds=True)


def test_samples_of_several_types_have_the_widest() -> None:
    rows = [IMAGES[0].half(), (IMAGES[1] * 9).int(), IMAGES[2], IMAGES[3].double(), IMAGES[4]]
    data = as_dataset(Rows(rows, LABELS))
    assert data.fingerprint == in_memory_before(torch.stack(rows), LABELS, None)
    assert data.fetch("0000").input.dtype == torch.float64


def test_arrays_and_labels_of_one_number() -> None:
    rows = Rows(IMAGES.numpy(), [np.int16(label) for label in LABELS])
    assert as_dataset(rows).fingerprint == as_dataset((IMAGES, LABELS)).fingerprint


def test_only_a_few_samples_are_in_memory() -> None:
    inputs = torch.randn(300, 3, 8, 8)
    rows = Rows(inputs, [0] * 300, inputs[:, 0])
    data = as_dataset(rows)
    for sample in data.ids:
        data.fetch(sample)
    gc.collect()
    assert rows.reads == [*range(300)] * 3  # checked; the truth read; fetched
    assert rows.most <= 4
    assert not rows.alive


def test_samples_are_read_when_they_are_needed() -> None:
    rows = Rows(IMAGES, LABELS)
    data = as_dataset(rows)
    assert rows.reads == [*range(5)]
    data.batch(["0003", "0001"])
    assert rows.reads[5:] == [3, 1]


def test_a_tensor_that_the_dataset_fills_anew() -> None:
    class Buffered(Rows):
        buffer = torch.empty(2, 4, 4)

        def __getitem__(self, index: int) -> Any:
            return self.buffer.copy_(self.columns[0][index]), self.columns[1][index]

    data = as_dataset(Buffered(IMAGES, LABELS))
    assert torch.equal(data.batch(data.ids).inputs, IMAGES)


def test_random_augmentation_is_refused() -> None:
    data = as_dataset(Noisy(IMAGES, LABELS), "mine")
    with pytest.raises(InputError, match=r"sample `0002` of `mine`.*deterministic transform"):
        data.fetch("0002")
    with pytest.raises(InputError, match=r"sample `0000` of `data`.*deterministic transform"):
        as_dataset(Noisy(IMAGES, LABELS, TRUTH))
    with pytest.raises(InputError, match="deterministic transform"):
        assay.benchmark(
            make_net(), Noisy(*make_images(4)), ["saliency"], ["deletion"], progress=False
        )


@pytest.mark.parametrize(("column", "change"), [(0, 1e-6), (1, 1), (2, 1)])
def test_input_label_and_truth_are_known_again(column: int, change: float) -> None:
    columns = [IMAGES.clone(), torch.tensor(LABELS), TRUTH.float()]
    data = as_dataset(Rows(*columns))
    data.fetch("0001")
    columns[column][1] += change
    data.fetch("0002")
    with pytest.raises(InputError, match=r"sample `0001`.*the same whenever it is read"):
        data.fetch("0001")


def test_another_shape_or_no_label_is_another_sample() -> None:
    rows = Rows([*IMAGES], [*LABELS])
    data = as_dataset(rows)
    rows.columns[0][0] = IMAGES[0].reshape(2, 2, 8)
    rows.columns[1][1] = None
    for sample in ("0000", "0001"):
        with pytest.raises(InputError, match="the same whenever it is read"):
            data.fetch(sample)


def test_scores_are_those_of_the_samples_in_memory() -> None:
    images, labels = make_images(6)
    results = [
        assay.benchmark(make_net(), data, ["saliency"], ["deletion"], progress=False)
        for data in ((images, labels), Rows(images, labels))
    ]
    assert results[0].scores.equals(results[1].scores)


def _with(value: float, *rows: int) -> Tensor:
    images = IMAGES.clone()
    images[list(rows), 0, 1, 1] = value
    return images


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ((_with(float("nan"), 1, 4), LABELS), "X of `data`.*2 of 5 samples, first `0001`, `0004`"),
        ((IMAGES, LABELS, _with(float("inf"), 3)[:, 0]), "truth of `data`.*1 of 5.*`0003`"),
        ((IMAGES, LABELS, IMAGES), r"truth of `data` to have the shape \(5, 4, 4\).*\(5, 2, 4, 4"),
        ((IMAGES, LABELS, [TRUTH[0], None, *TRUTH[2:]]), r"truth.*\(4, 4\) at 0 and none at 1"),
        ((IMAGES, [0, 1, None, 2, 0]), "for all samples or None"),
        ((IMAGES, [0, 1, -1, 2, 0]), "-1 for sample `0002`"),
        ((IMAGES, [0.5] * 5), "whole class numbers"),
        (((9 * IMAGES).byte(), LABELS), "uint8"),
        ((IMAGES[:, 0, 0, 0], LABELS), r"\[samples, ...\], got \(5,\)"),
        ((IMAGES[:, :0], LABELS), r"got none: X has the shape \(5, 0, 4, 4\)"),
        ((IMAGES.to(torch.complex64), LABELS), "real numbers"),
        (([i.to_sparse() for i in IMAGES], LABELS), "dense tensor, got one sparse"),
        (([*IMAGES[:4], IMAGES[4].reshape(-1)], LABELS), r"\(2, 4, 4\) at 0 and \(32,\) at 4"),
        (([*IMAGES[:4], "last"], LABELS), r"sample 4 of `data` to be \(tensor, label\)"),
    ],
)
def test_what_is_refused(columns: tuple[Any, ...], says: str) -> None:
    with pytest.raises(InputError, match=says):
        as_dataset(Rows(*columns))


def test_slow_reading_shows_a_bar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    as_dataset(Rows(IMAGES, LABELS), "mine")
    assert "reading mine" not in capsys.readouterr().err
    monkeypatch.setattr(progress, "QUICK", -1.0)
    as_dataset(Rows(IMAGES, LABELS), "mine")
    assert "reading mine" in capsys.readouterr().err
    with knowing(DataFacts(progress=False)):
        as_dataset(Rows(IMAGES, LABELS), "mine")
    assert "reading mine" not in capsys.readouterr().err


def test_an_error_ends_the_bar_before_it_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []

    @contextmanager
    def recorded(what: str, *args: object) -> Iterator[Callable[[int], None]]:
        try:
            yield lambda steps: None
        finally:
            ended.append(what)

    monkeypatch.setattr(progress, "QUICK", -1.0)
    monkeypatch.setattr(progress, "bar", recorded)
    with pytest.raises(InputError) as error:
        as_dataset(Rows([*IMAGES[:4], "last"], LABELS), "mine")
    assert ended == ["reading mine"]
    assert error.traceback  # which holds what runs when the error is raised


OWN = """
import os
from pathlib import Path

import torch

import assay

READS = Path(__file__).with_name("reads.txt")


class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 20

    def __getitem__(self, i):
        with READS.open("a") as file:
            print(os.getpid(), i, file=file)
        noise = torch.randn(()) if {noisy} else 0
        return torch.randn(3, 6, 6, generator=torch.Generator().manual_seed(i)) + noise, i % 2


def squares():
    return Squares()


def network():
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(108, 2))
    torch.nn.init.normal_(net[1].weight, generator=torch.Generator().manual_seed(0))
    torch.nn.init.zeros_(net[1].bias)
    return assay.model(net.eval())
"""


def own_suite(folder: Path, noisy: bool = False) -> Spec:
    (folder / "own.py").write_text(OWN.format(noisy=noisy))
    return Spec(
        datasets=[f"{folder}/own.py:squares"], models=[f"{folder}/own.py:network"],
        methods=["saliency", "random"], protocols=["deletion"],
    )  # fmt: skip


def test_workers_read_only_the_samples_that_they_score(tmp_path: Path) -> None:
    suite = own_suite(tmp_path)
    alone = run(suite, tmp_path / "alone", progress=False)
    reads_file = tmp_path / "reads.txt"
    reads_file.unlink()
    spread = run(suite, tmp_path / "spread", progress=False, workers=2)
    assert spread.scores.equals(alone.scores)
    reads = [line.split() for line in reads_file.read_text().splitlines()]
    here = [int(number) for process, number in reads if process == str(os.getpid())]
    apart = [int(number) for process, number in reads if process != str(os.getpid())]
    assert here[:20] == sorted(apart) == [*range(20)]


def test_random_samples_of_a_suite_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"sample `\d+` of `squares`.*deterministic transform"):
        run(own_suite(tmp_path, noisy=True), tmp_path / "run", progress=False, workers=2)
