"""Data in memory: what is accepted, what is refused, and that content decides the fingerprint."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import IterableDataset, TensorDataset

from assay.data.array_checks import row_ids
from assay.data.memory import as_dataset
from assay.errors import InputError

IMAGES = torch.arange(3 * 2 * 4 * 4, dtype=torch.float32).reshape(3, 2, 4, 4)


class Pairs(TorchDataset[Any]):
    """A map-style dataset that hands out the given rows."""

    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return self.rows[index]


class Stream(IterableDataset[Any]):
    """A dataset without samples by number."""

    def __iter__(self) -> Iterator[Any]:
        return iter(())


def test_images_come_back_as_they_were_given() -> None:
    data = as_dataset((IMAGES, [2, 0, 1]), name="mine")
    assert (data.name, data.modality, data.ids) == ("mine", "image", ("0000", "0001", "0002"))
    assert data.has == {"labels"}
    batch = data.batch(["0002", "0000"])
    assert torch.equal(batch.inputs, IMAGES[[2, 0]])
    assert batch.labels is not None
    assert batch.labels.tolist() == [1, 2]


@pytest.mark.parametrize("shape", [(3, 5), (3, 5, 6), (3, 1, 2, 3, 4)])
def test_other_shapes_are_vectors(shape: tuple[int, ...]) -> None:
    assert as_dataset((torch.ones(shape), [0, 1, 2])).modality == "vector"


@pytest.mark.parametrize(
    "labels", [np.array([2, 0, 1], dtype=np.uint8), torch.tensor([2, 0, 1]), (2, 0, 1)]
)
def test_labels_of_every_kind(labels: Any) -> None:
    data = as_dataset((IMAGES.numpy().astype(np.float64), labels))
    assert [data.fetch(i).label for i in data.ids] == [2, 0, 1]
    assert data.batch(data.ids).inputs.dtype == torch.float32


def test_a_tensor_keeps_its_precision_and_integers_become_floats() -> None:
    assert as_dataset((IMAGES.double(), None)).batch(["0000"]).inputs.dtype == torch.float64
    assert as_dataset((IMAGES.long(), None)).batch(["0000"]).inputs.dtype == torch.float32


def test_without_labels() -> None:
    data = as_dataset((IMAGES, None))
    assert data.has == frozenset()
    assert data.batch(data.ids).labels is None


def test_truth_is_kept_per_sample() -> None:
    truth = torch.zeros(3, 4, 4, dtype=torch.bool)
    truth[1, 2, 3] = True
    data = as_dataset((IMAGES, [0, 0, 0], truth))
    assert data.has == {"labels", "truth"}
    batch = data.batch(data.ids)
    assert batch.truth is not None
    assert batch.truth.nonzero().tolist() == [[1, 2, 3]]


def test_torch_datasets_read_like_arrays() -> None:
    labels = torch.tensor([2, 0, 1])
    expected = as_dataset((IMAGES, labels))
    pairs = Pairs(list(zip(IMAGES, labels, strict=True)))
    for given in (TensorDataset(IMAGES, labels), pairs):
        data = as_dataset(given)
        assert data.fingerprint == expected.fingerprint
        assert torch.equal(data.batch(data.ids).inputs, IMAGES)
    assert as_dataset(expected) is expected


def test_the_fingerprint_is_of_the_content() -> None:
    base = as_dataset((IMAGES, [2, 0, 1]), name="a").fingerprint
    assert as_dataset((IMAGES.numpy(), (2, 0, 1)), name="b").fingerprint == base
    changed = IMAGES.clone()
    changed[1, 0, 0, 0] += 1e-3
    others = [
        (changed, [2, 0, 1]),
        (IMAGES, [2, 0, 0]),
        (IMAGES, None),
        (IMAGES.reshape(3, 2, 2, 8), [2, 0, 1]),
        (IMAGES, [2, 0, 1], IMAGES[:, 0]),
    ]
    prints = {as_dataset(other).fingerprint for other in others}
    assert len(prints) == len(others)
    assert base not in prints


def test_later_changes_of_the_original_do_not_reach_the_dataset() -> None:
    mine = IMAGES.numpy().copy()
    data = as_dataset((mine, None))
    mine[:] = 0
    assert torch.equal(data.batch(data.ids).inputs, IMAGES)


def test_ids_sort_as_they_count() -> None:
    ids = row_ids(10_001)
    assert ids[0] == "00000"
    assert list(ids) == sorted(ids)


def _broken(value: float) -> Tensor:
    images = IMAGES.clone()
    images[1, 0, 2, 2] = value
    images[2, 1, 0, 0] = value
    return images


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ((IMAGES[:0], []), "hold samples, got none"),
        (Pairs([]), "hold samples, got none"),
        ((IMAGES, [0, 1]), "each of the 3 samples"),
        ((IMAGES, [[0], [1], [2]]), r"the shape \(3, 1\)"),
        ((IMAGES, [0.5, 1.0, 2.0]), "whole class numbers"),
        ((IMAGES, ["cat", "dog", "cat"]), "numbers"),
        ((IMAGES, [0, -1, 2]), "-1 for sample `0001`"),
        ((IMAGES, [0, None, 2]), "for all samples or None"),
        ((np.array([["a"], ["b"]]), None), "X of `data` to be numbers"),
        (("photos", None), "X of `data` to be numbers"),
        ((IMAGES.to(torch.complex64), None), "real numbers"),
        ((IMAGES.byte(), None), "uint8"),
        ((IMAGES.flatten(), None), "shape"),
        ((_broken(float("nan")), None), "2 of 3 samples, first `0001`, `0002`"),
        ((_broken(float("inf")), None), "NaN or inf"),
        ((IMAGES, None, IMAGES), r"shape \(3, 4, 4\)"),
        (IMAGES, "got Tensor"),
        ((IMAGES,), "got tuple of 1"),
        (Stream(), "map-style"),
        (Pairs([("a.png", 1)]), r"sample 0 of `data`.*\(str, int\)"),
        (Pairs([(torch.ones(2), 0), (torch.ones(3), 1)]), r"\(2,\) at 0 and \(3,\) at 1"),
    ],
)
def test_what_is_refused(data: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        as_dataset(data)
