"""Samples that do not fit in memory: the same training, read batch by batch."""

import math
import threading

import pytest
import torch
from PIL import Image
from torch import nn

import assay
from assay.data.memory import as_dataset
from assay.plan.resolving import build_one
from assay.training import labelled, streaming
from assay.training.fine_tuning import FineTuning
from assay.training.fitting import Recipe, fit_network
from assay.training.labelled import read_labelled
from assay.training.streaming import StreamedInputs, free_memory, in_batches

SIDE = 8


class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.conv = nn.Conv2d(3, 6, 3, padding=1)
            self.norm = nn.BatchNorm2d(6)
            self.head = nn.Linear(6, 3)

    def forward(self, x):
        return self.head(torch.relu(self.norm(self.conv(x))).mean((2, 3)))


def model():
    return assay.model(
        Tiny(), mean=[0.5, 0.4, 0.3], std=[0.2, 0.3, 0.4], size=SIDE, classes=["a", "b", "c"]
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Images of three classes, in a folder."""
    root = tmp_path_factory.mktemp("images")
    generator = torch.Generator().manual_seed(0)
    for row in range(90):
        image = torch.randint(0, 150, (SIDE, SIDE, 3), generator=generator)
        image[:, :, row % 3] += 100
        place = root / "abc"[row % 3] / f"{row:02d}.png"
        place.parent.mkdir(exist_ok=True)
        Image.fromarray(image.byte().numpy()).save(place)
    return root


def images(folder):
    return build_one("dataset", {"image_folder": {"path": str(folder)}})


@pytest.fixture
def no_room(monkeypatch):
    monkeypatch.setattr(labelled, "room", lambda: 0.0)


@pytest.mark.parametrize("placebo", [False, True])
@pytest.mark.parametrize("fill", ["zero", "mean"])  # the mean reads training samples meanwhile
def test_streamed_and_stored_samples_give_equal_weights_and_cards(
    folder, monkeypatch, placebo, fill
):
    def tuned():
        task = FineTuning.of(model(), images(folder), grid=2, fill=fill, progress=False)
        made, card = task.fit(task.recipe(epochs=2, rate=0.05), placebo=placebo)
        return task, made.net.state_dict(), card

    stored, weights, card = tuned()
    monkeypatch.setattr(labelled, "room", lambda: 0.0)
    streamed, same, again = tuned()
    assert isinstance(stored.training.inputs, torch.Tensor)
    for part in (streamed.training, streamed.measured):
        assert isinstance(part.inputs, StreamedInputs)
    assert all(torch.equal(same[name], weights[name]) for name in weights)
    assert again == card
    assert torch.equal(again.training_hashes, card.training_hashes)


def test_a_training_continues_whether_or_not_the_samples_fit_now(folder, tmp_path, monkeypatch):
    recipe, path = Recipe(3, 16, rate=0.05), tmp_path / "resume.safetensors"

    def fitted(**options):
        one = model()
        samples = read_labelled(one, images(folder))
        fit_network(one, samples.inputs, samples.labels, recipe, progress=False, **options)
        return one.net.state_dict()

    def kill(epoch):
        if epoch == 2:
            raise KeyboardInterrupt

    whole = fitted()
    with pytest.raises(KeyboardInterrupt):
        fitted(checkpoint=path, each_epoch=kill)
    monkeypatch.setattr(labelled, "room", lambda: 0.0)
    epochs = []
    resumed = fitted(checkpoint=path, each_epoch=epochs.append)
    assert epochs == [3]
    assert all(torch.equal(resumed[name], whole[name]) for name in whole)


def test_samples_are_stored_where_they_fit_exactly(folder, monkeypatch):
    size = 90 * 3 * SIDE * SIDE  # bytes of 8 bits
    for free, kind in ((size, torch.Tensor), (size - 1, StreamedInputs)):
        monkeypatch.setattr(labelled, "room", lambda free=free: free)
        assert isinstance(read_labelled(model(), images(folder)).inputs, kind)
    floats = torch.randn(40, 3, SIDE, SIDE), torch.arange(40) % 3
    monkeypatch.setattr(labelled, "room", lambda: 40 * 3 * SIDE * SIDE * 4 - 1)
    assert isinstance(read_labelled(model(), floats).inputs, StreamedInputs)


def test_streamed_samples_are_those_of_the_dataset(folder, no_room):
    samples = read_labelled(model(), images(folder), 30)
    assert samples.inputs.shape == (30, 3, SIDE, SIDE)
    part = samples.select(torch.tensor([7, 2, 2]))
    expected = images(folder).batch(part.ids, model().prepare).inputs
    assert torch.equal(part.inputs[:], expected)
    assert torch.equal(samples.inputs[torch.tensor([7, 2])], expected[:2])
    assert torch.equal(samples.inputs[7:8], expected[:1])


def test_one_batch_is_read_ahead_and_not_more(folder, no_room):
    samples = read_labelled(model(), images(folder)).inputs
    reads, fetch = [], samples.dataset.fetch

    def watched(name):
        reads.append((name, threading.current_thread()))
        return fetch(name)

    object.__setattr__(samples.dataset, "fetch", watched)
    parts = torch.split(torch.randperm(90), 10)
    for number, (rows, x) in enumerate(zip(parts, in_batches(samples, parts), strict=True)):
        expected = [samples.ids[row] for row in rows.tolist()]
        assert [name for name, _ in reads[10 * number : 10 * number + 10]] == expected
        assert len(x) == 10
        assert len(reads) <= 10 * (number + 2)
    assert threading.main_thread() not in {thread for _, thread in reads}


def test_a_sample_that_cannot_be_read_any_more_is_an_error(folder, no_room):
    x, y = torch.randn(40, 3, SIDE, SIDE), torch.arange(40) % 3
    data = as_dataset((x, y))
    samples = read_labelled(model(), data)

    def broken(name):
        raise assay.InputError(f"no image `{name}`")

    object.__setattr__(data, "fetch", broken)
    with pytest.raises(assay.InputError, match="no image"):
        fit_network(model(), samples.inputs, y, Recipe(1, 8), progress=False)


def test_free_memory_is_that_of_the_system_or_the_container(tmp_path, monkeypatch):
    whole = free_memory()
    assert 2**20 < whole < 2**50
    monkeypatch.setattr(streaming, "CGROUP", tmp_path)
    system = free_memory()
    for name, text in {
        "max": "3000000",
        "current": "2500000",
        "stat": "anon 7\nfile 400000\n",
    }.items():
        (tmp_path / f"memory.{name}").write_text(text)
    assert free_memory() == 900_000
    (tmp_path / "memory.max").write_text("max\n")
    assert free_memory() == pytest.approx(system, rel=0.5)
    assert math.isfinite(streaming.room())
    assert streaming.room() < free_memory()
