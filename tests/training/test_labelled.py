"""Labelled images for training: which are drawn, held out and refused."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import TensorDataset

import assay
from assay.plan.resolving import build_one
from assay.training.fine_tuning import FineTuning
from assay.training.fitting import normalised
from assay.training.labelled import read_labelled

SIDE = 8


class Tiny(nn.Module):
    """A convolution and a head."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(torch.relu(self.conv(x)).mean((2, 3)))


def model():
    return assay.model(
        Tiny(), mean=[0.5, 0.4, 0.3], std=[0.2, 0.3, 0.4], size=SIDE, classes=["a", "b", "c"]
    )


def pixels(n=60, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(0, 256, (n, 3, SIDE, SIDE), generator=generator).byte()
    return x, torch.arange(n) // (n // 3)  # class after class, as in a folder


def folder(path, n=60, seed=0):
    x, y = pixels(n, seed)
    for row, (image, label) in enumerate(zip(x, y, strict=True)):
        place = path / "abc"[label]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(place / f"{row:03d}.png")
    return build_one("dataset", {"image_folder": {"path": str(path)}})


def test_a_limit_draws_all_classes_of_a_folder_equally_often(tmp_path):
    dataset = folder(tmp_path / "train")
    drawn = read_labelled(model(), dataset, 15)
    assert drawn.labels.bincount().tolist() == [5, 5, 5]
    assert drawn.ids == dataset.drawn(15)
    for name, row, label in zip(drawn.ids, drawn.inputs, drawn.labels, strict=True):
        image = np.asarray(dataset.fetch(name).input.convert("RGB"))
        assert np.array_equal(row.permute(1, 2, 0).numpy(), image)
        assert dataset.fetch(name).label == label
    assert set(drawn.ids) <= set(read_labelled(model(), dataset, 24).ids)


def test_a_limit_of_tensors_draws_all_classes_too():
    x, y = pixels()
    drawn = read_labelled(model(), (x, y), 9)
    assert drawn.labels.bincount().tolist() == [3, 3, 3]
    assert torch.equal(drawn.inputs, x[[int(name) for name in drawn.ids]])


def test_limits_of_the_measured_samples(tmp_path):
    options = {"grid": 2, "limit": 30, "measure_limit": 6, "progress": False}
    task = FineTuning.of(model(), folder(tmp_path / "train"), **options)
    assert (len(task.training), len(task.measured)) == (23, 6)  # 7 were held out
    other = folder(tmp_path / "test", seed=1)
    task = FineTuning.of(model(), folder(tmp_path / "train"), measure=other, **options)
    assert task.training.labels.bincount().tolist() == [10, 10, 10]
    assert task.measured.labels.bincount().tolist() == [2, 2, 2]


def test_held_out_samples_are_not_trained_on():
    samples = read_labelled(model(), pixels())
    training, measured = samples.held_out(0.2)
    assert len(measured) == 12
    assert not set(training.ids) & set(measured.ids)
    assert set(training.ids) | set(measured.ids) == set(samples.ids)
    assert samples.held_out(0.2)[1].ids == measured.ids
    for part in (training, measured):
        rows = [int(name) for name in part.ids]
        assert torch.equal(part.inputs, samples.inputs[rows])
        assert torch.equal(part.labels, samples.labels[rows])


def test_8_bits_may_be_an_array_or_a_torch_dataset():
    x, y = pixels()
    first = read_labelled(model(), (x, y))
    for data in ((x.numpy(), y.numpy()), TensorDataset(x, y), [x, y.tolist()]):
        other = read_labelled(model(), data)
        assert other.inputs.dtype == torch.uint8
        assert torch.equal(other.inputs, first.inputs)
        assert torch.equal(other.labels, first.labels)
        assert torch.equal(other.hashes, first.hashes)


@pytest.mark.parametrize("floats", [False, True])
@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (lambda y: y[:5], "one class number for each of the 60 samples"),
        (lambda y: y.float() + 0.5, "whole class numbers"),
        (lambda y: y[:, None], "one class number for each"),
        (lambda y: y - 1, "from 0"),
        (lambda y: None, "labels"),
    ],
)
def test_bad_labels_are_refused(floats, labels, message):
    x, y = pixels()
    with pytest.raises(assay.InputError, match=message):
        read_labelled(model(), (x.float() if floats else x, labels(y)))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((pixels()[0],), r"\(X, y\)"),
        (TensorDataset(pixels()[0]), r"\(X, y\)"),
        ((pixels()[0][:, 0], pixels()[1]), "channels"),
        ((pixels()[0][:0], pixels()[1][:0]), "samples"),
    ],
)
def test_bad_8_bits_are_refused(data, message):
    with pytest.raises(assay.InputError, match=message):
        read_labelled(model(), data)


def test_training_samples_cannot_be_measured_on(tmp_path):
    """One shared sample is enough, under another id and in another form."""
    x, y = pixels()
    other, same = pixels(seed=1)[0], folder(tmp_path)
    other[7] = x[33]
    floats = normalised(model(), other)
    for data, measure in (
        ((x, y), (x.clone(), y)),
        (same, same),
        ((x, y), (other, y)),
        (same, (other, y)),
        (same, (floats, y)),
    ):
        with pytest.raises(assay.InputError, match="content of a training sample") as raised:
            FineTuning.of(model(), data, measure=measure, progress=False)
        assert "`measure` (`--measure`)" in str(raised.value)
    with pytest.raises(assay.InputError, match=r"1 of 60 .*: `0007`"):
        FineTuning.of(model(), same, measure=(floats, y), progress=False)


def test_copies_of_training_samples_are_not_held_out():
    x, y = pixels()
    x[1::2] = x[::2]  # each image twice
    training, measured = read_labelled(model(), (x, y)).held_out(0.5)
    assert 0 < len(measured) < 30
    trained = {image.numpy().tobytes() for image in training.inputs}
    assert not any(image.numpy().tobytes() in trained for image in measured.inputs)
    one = x[:1].expand(60, -1, -1, -1)
    with pytest.raises(assay.InputError, match=r"different samples.*--measure"):
        read_labelled(model(), (one, y)).held_out(0.5)
