"""Samples are recognised by content: in any form, under any id."""

import pytest
import torch
from PIL import Image
from torch import nn

import assay
from assay.data.memory import as_dataset
from assay.data.sample_hashes import check_apart, hash_inputs, hash_samples, shared_ids
from assay.plan.resolving import build_one
from assay.training.fitting import normalised

SIDE = 8
MEAN, STD = [0.49, 0.4822, 0.4465], [0.247, 0.2435, 0.2616]


def model():
    net = nn.Sequential(nn.Flatten(), nn.Linear(3 * SIDE * SIDE, 2))
    return assay.model(net, mean=MEAN, std=STD, size=SIDE)


def pixels(n=30, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (n, 3, SIDE, SIDE), generator=generator).byte()


def test_hashes_are_equal_where_the_content_is():
    x = pixels(210)
    x[[3, 150, 209]] = x[[77, 8, 8]]
    x[20] = x[21]
    x[20, 0, 0, 0] += 1  # by one grey level
    ours = hash_inputs(x)
    same = (x[:, None] == x[None]).flatten(2).all(2)  # every pair, by the pixels themselves
    assert torch.equal(ours[:, None] == ours[None], same)
    assert int(same.sum()) == 210 + 2 * 4


def test_an_image_has_one_hash_in_all_forms(tmp_path):
    x, one = pixels(12), model()
    for row, image in enumerate(x):
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(tmp_path / f"{row:02d}.png")
    folder = build_one("dataset", {"image_folder": {"path": str(tmp_path)}})
    exact = (x.double() / 255 - torch.tensor(MEAN).double()[:, None, None]) / torch.tensor(
        STD
    ).double()[:, None, None]
    expected = hash_inputs(x)
    for floats in (normalised(one, x), exact, exact.float()):
        assert torch.equal(hash_inputs(floats, one.pixels), expected)
    assert torch.equal(hash_samples(folder, folder.ids, one), expected)
    tensors = as_dataset((exact.float(), None))
    assert torch.equal(hash_samples(tensors, tensors.ids[::-1], one), expected.flip(0))


def test_inputs_that_are_no_images_of_8_bits_are_compared_as_numbers():
    x, one = torch.randn(40, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0)), model()
    one_pixel = x.clone()
    one_pixel[:, 0, 0, 0] += 1e-6
    for scale in (None, one.pixels):
        ours = hash_inputs(x, scale)
        assert len(set(ours.tolist())) == 40
        assert torch.equal(hash_inputs(x.clone(), scale), ours)
        assert not bool(torch.isin(hash_inputs(one_pixel, scale), ours).any())
    zeros = torch.zeros(1, 4)
    assert torch.equal(hash_inputs(zeros), hash_inputs(-zeros))
    assert not torch.equal(hash_inputs(zeros), hash_inputs(zeros.reshape(1, 2, 2)))


def test_texts_are_compared_as_written():
    data = as_dataset((["a good film", "a bad film", "a good film"], [1, 0, 1]))
    first, second, third = hash_samples(data, data.ids, model()).tolist()
    assert first == third != second


def test_the_message_counts_and_names_the_samples():
    x = pixels(10)
    training, ids = hash_inputs(x[4:]), [f"image {i}" for i in range(10)]
    assert shared_ids(ids, hash_inputs(x), training) == ids[4:]
    expected = r"6 of 10 .*`image 4`, `image 5`, `image 6` and 3 more\. Do something\."
    with pytest.raises(assay.InputError, match=expected):
        check_apart("scored", ids, hash_inputs(x), training, "Do something.")
    check_apart("scored", ids[:4], hash_inputs(x[:4]), training, "Do something.")
